"""File systems that every machine of the cluster mounts."""

from gpucluster.spec.fields import AbsolutePath, Address, Size, Text, UpdateClass, Word, wish
from gpucluster.spec.part import Part

KINDS = ("nfs", "fsx_lustre", "other")


class Nfs(Part):
    """An export: `from: head`, which the head then serves, or a server that is there."""

    source: Text | None = wish(
        UpdateClass.DATA_LOSS, "`head`: the head exports its own disk.", default=None, alias="from"
    )
    server: Address | None = wish(UpdateClass.DRAIN, "Address of a server that is there.", default=None)
    export: AbsolutePath = wish(UpdateClass.DATA_LOSS, "The exported folder.")


class FsxLustre(Part):
    """A Lustre of AWS."""

    zone: Text = wish(UpdateClass.DATA_LOSS, "The zone that it stands in.")
    size: Size = wish(UpdateClass.RESTART, "1200GiB, or a multiple of 2400GiB.")


class Other(Part):
    """Whatever else `mount` knows; nothing is installed for it."""

    type: Word = wish(UpdateClass.DRAIN, "File system type for `mount -t`.")
    source: Word = wish(UpdateClass.DATA_LOSS, "What is mounted.")
    options: tuple[Word, ...] = wish(UpdateClass.DRAIN, "Mount options.", default=(), min_length=1)


class Storage(Part):
    """One mount point; exactly one kind."""

    mount: AbsolutePath = wish(UpdateClass.DRAIN, "Where it is mounted, on every machine alike.")
    nfs: Nfs | None = wish(UpdateClass.DATA_LOSS, "NFS.", default=None)
    fsx_lustre: FsxLustre | None = wish(UpdateClass.DATA_LOSS, "FSx for Lustre.", default=None)
    other: Other | None = wish(UpdateClass.DATA_LOSS, "A file system of the site's.", default=None)
