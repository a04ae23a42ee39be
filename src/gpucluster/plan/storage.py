"""Storage: what each mount is, with the head's address where the head exports, and the head's own volumes."""

from collections.abc import Iterable

from gpucluster.plan import defaults, names
from gpucluster.plan.model import Efs, Lustre, LustreLink, Mount, Nfs, Nvme, OtherMount, Volume, there
from gpucluster.spec.head import Head
from gpucluster.spec.storage import FsxLustre, Other, Storage
from gpucluster.spec.storage import LustreLink as LinkSpec

GIB = 1024  # MiB


def mount(wish: Storage, head_address: str | None) -> Mount:
    """The mount; `head_address` is None where no head could export."""
    return Mount(
        path=wish.mount,
        nfs=None if wish.nfs is None else _nfs(wish, head_address),
        efs=None if wish.efs is None else Efs(id=wish.efs.id),
        lustre=None if wish.fsx_lustre is None else _lustre(wish.fsx_lustre),
        nvme=None if wish.nvme is None else Nvme(),
        other=None if wish.other is None else _other(wish.other),
    )


def export_of(wish: Storage) -> str:
    """The exported folder; the head's own is the mount's path if none was wished."""
    return there(wish.nfs).export or wish.mount


def volumes(head: Head, storage: Iterable[Storage]) -> tuple[Volume, ...]:
    """Protected disks of the head: Slurm's state, and what it exports."""
    state = (
        ()
        if head.state is None
        else (Volume(key=names.STATE_VOLUME, size_gib=-(-head.state // GIB), path=names.STATE_MOUNT),)
    )
    return (*state, *(_exported(wish) for wish in storage if wish.nfs is not None and wish.nfs.size))


def _exported(wish: Storage) -> Volume:
    size = -(-there(there(wish.nfs).size) // GIB)
    return Volume(key=names.export_key(wish.mount), size_gib=size, path=export_of(wish))


def _nfs(wish: Storage, head_address: str | None) -> Nfs:
    server = there(wish.nfs).server
    return Nfs(server=server or head_address or "", export=export_of(wish), from_head=server is None)


def _lustre(wish: FsxLustre) -> Lustre:
    """What of one that is there nobody told: its size is 0, unknown."""
    throughput = wish.throughput or int(defaults.LUSTRE_THROUGHPUT.value)
    return Lustre(
        zone=wish.zone,
        size_gib=(wish.size or 0) // GIB,
        throughput=throughput,
        links=tuple(_link(link) for link in wish.link),
        id=wish.id,
    )


def _link(wish: LinkSpec) -> LustreLink:
    return LustreLink(path=wish.path, s3=wish.s3, imports=wish.imports, exports=wish.exports)


def _other(wish: Other) -> OtherMount:
    return OtherMount(type=wish.type, source=wish.source, options=wish.options)
