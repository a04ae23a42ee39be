"""The file systems that every machine of the cluster mounts."""

from typing import Annotated

from pydantic import WithJsonSchema

from gpucluster.spec.aws_fields import EfsId, Folder, Follows, FsxId, S3Url, Throughput
from gpucluster.spec.fields import AbsolutePath, Address, Size, Text, UpdateClass, Word, spec_field
from gpucluster.spec.part import Part

KINDS = ("nfs", "efs", "fsx_lustre", "nvme", "other")
NfsSource = Annotated[Text, WithJsonSchema({"enum": ["head"]})]  # `check` refuses other words by a rule


class Nfs(Part):
    """An NFS export: of the head (`from: head`) or of an existing server."""

    source: NfsSource | None = spec_field(
        UpdateClass.DATA_LOSS, "`head`: the head exports its own disk.", default=None, alias="from"
    )
    server: Address | None = spec_field(UpdateClass.DRAIN, "Address of an existing server.", default=None)
    export: AbsolutePath | None = spec_field(
        UpdateClass.DATA_LOSS,
        "The exported folder. The head exports the path of the mount point.",
        default=None,
    )
    size: Size | None = spec_field(
        UpdateClass.LIVE, "On AWS, size of the head's protected volume for the export.", default=None
    )


class Efs(Part):
    """An EFS file system: a new one or an existing one."""

    id: EfsId | None = spec_field(UpdateClass.DATA_LOSS, "Id of an existing file system.", default=None)


class LustreLink(Part):
    """A link between a folder and a prefix in S3."""

    path: Folder = spec_field(UpdateClass.LIVE, "The folder of the file system.")
    s3: S3Url = spec_field(UpdateClass.LIVE, "The bucket and prefix.")
    imports: Follows = spec_field(
        UpdateClass.LIVE, "Changes in S3 that FSx imports to the folder.", default=(), alias="import"
    )
    exports: Follows = spec_field(
        UpdateClass.LIVE, "Changes in the folder that FSx exports to S3.", default=(), alias="export"
    )


class FsxLustre(Part):
    """An FSx for Lustre file system: a new one or an existing one."""

    zone: Text = spec_field(UpdateClass.DATA_LOSS, "Zone of the file system.")
    size: Size | None = spec_field(
        UpdateClass.RESTART, "Size: 1200GiB or a multiple of 2400GiB.", default=None
    )
    throughput: Throughput | None = spec_field(UpdateClass.RESTART, "Throughput of each TiB.", default=None)
    link: tuple[LustreLink, ...] = spec_field(
        UpdateClass.LIVE, "Links between folders and S3.", default=(), min_length=1
    )
    id: FsxId | None = spec_field(UpdateClass.DATA_LOSS, "Id of an existing file system.", default=None)


class Nvme(Part):
    """The machine's own disks, striped. They are empty after each boot."""


class Other(Part):
    """Another file system that `mount` supports. The image must have its client."""

    type: Word = spec_field(UpdateClass.DRAIN, "File system type for `mount -t`.")
    source: Word = spec_field(UpdateClass.DATA_LOSS, "Source of the mount.")
    options: tuple[Word, ...] = spec_field(
        UpdateClass.DRAIN,
        "Mount options. `nosuid` and `nodev` are added, unless the list has `suid` or `dev`.",
        default=(),
        min_length=1,
    )


class Storage(Part):
    """One mount point, with exactly one kind of file system."""

    mount: AbsolutePath = spec_field(UpdateClass.DRAIN, "Mount point, the same on every machine.")
    nfs: Nfs | None = spec_field(UpdateClass.DATA_LOSS, "NFS.", default=None)
    efs: Efs | None = spec_field(UpdateClass.DATA_LOSS, "EFS.", default=None)
    fsx_lustre: FsxLustre | None = spec_field(UpdateClass.DATA_LOSS, "FSx for Lustre.", default=None)
    nvme: Nvme | None = spec_field(UpdateClass.DRAIN, "The machine's own disks.", default=None)
    other: Other | None = spec_field(UpdateClass.DATA_LOSS, "Another file system of your site.", default=None)
