"""File systems that every machine of the cluster mounts."""

from gpucluster.spec.aws_fields import EfsId, Folder, Follows, FsxId, S3Url, Throughput
from gpucluster.spec.fields import AbsolutePath, Address, Size, Text, UpdateClass, Word, wish
from gpucluster.spec.part import Part

KINDS = ("nfs", "efs", "fsx_lustre", "nvme", "other")


class Nfs(Part):
    """An export: `from: head`, which the head then serves, or a server that is there."""

    source: Text | None = wish(
        UpdateClass.DATA_LOSS, "`head`: the head exports its own disk.", default=None, alias="from"
    )
    server: Address | None = wish(UpdateClass.DRAIN, "Address of a server that is there.", default=None)
    export: AbsolutePath | None = wish(
        UpdateClass.DATA_LOSS, "The exported folder; the head's is the mount's own path.", default=None
    )
    size: Size | None = wish(
        UpdateClass.LIVE, "The head's protected volume for it, on a cloud.", default=None
    )


class Efs(Part):
    """An EFS of AWS: made for the cluster, or there already."""

    id: EfsId | None = wish(UpdateClass.DATA_LOSS, "One that is there.", default=None)


class LustreLink(Part):
    """A folder that follows a prefix of S3, and is followed by it."""

    path: Folder = wish(UpdateClass.LIVE, "The folder of the file system.")
    s3: S3Url = wish(UpdateClass.LIVE, "The bucket and prefix.")
    imports: Follows = wish(
        UpdateClass.LIVE, "Changes in S3 that the folder follows.", default=(), alias="import"
    )
    exports: Follows = wish(
        UpdateClass.LIVE, "Changes in the folder that S3 follows.", default=(), alias="export"
    )


class FsxLustre(Part):
    """A Lustre of AWS: made for the cluster, or there already."""

    zone: Text = wish(UpdateClass.DATA_LOSS, "The zone that it stands in.")
    size: Size | None = wish(UpdateClass.RESTART, "1200GiB, or a multiple of 2400GiB.", default=None)
    throughput: Throughput | None = wish(
        UpdateClass.RESTART, "What each TiB of it gives: `250MBps/TiB`.", default=None
    )
    link: tuple[LustreLink, ...] = wish(
        UpdateClass.LIVE, "Folders that are joined with S3.", default=(), min_length=1
    )
    id: FsxId | None = wish(UpdateClass.DATA_LOSS, "One that is there.", default=None)


class Nvme(Part):
    """The machine's own disks, striped, empty at each boot."""


class Other(Part):
    """Whatever else `mount` knows; nothing is installed for it."""

    type: Word = wish(UpdateClass.DRAIN, "File system type for `mount -t`.")
    source: Word = wish(UpdateClass.DATA_LOSS, "What is mounted.")
    options: tuple[Word, ...] = wish(UpdateClass.DRAIN, "Mount options.", default=(), min_length=1)


class Storage(Part):
    """One mount point; exactly one kind."""

    mount: AbsolutePath = wish(UpdateClass.DRAIN, "Where it is mounted, on every machine alike.")
    nfs: Nfs | None = wish(UpdateClass.DATA_LOSS, "NFS.", default=None)
    efs: Efs | None = wish(UpdateClass.DATA_LOSS, "EFS.", default=None)
    fsx_lustre: FsxLustre | None = wish(UpdateClass.DATA_LOSS, "FSx for Lustre.", default=None)
    nvme: Nvme | None = wish(UpdateClass.DRAIN, "The machine's own disks.", default=None)
    other: Other | None = wish(UpdateClass.DATA_LOSS, "A file system of the site's.", default=None)
