"""Storage: what each mount is, with the head's address where the head exports."""

from gpucluster.plan.model import Lustre, Mount, Nfs, OtherMount
from gpucluster.spec.storage import FsxLustre, Other, Storage
from gpucluster.spec.storage import Nfs as NfsSpec


def mount(wish: Storage, head_address: str | None) -> Mount:
    """The mount; `head_address` is None where no head could export."""
    return Mount(
        path=wish.mount,
        nfs=None if wish.nfs is None else _nfs(wish.nfs, head_address),
        lustre=None if wish.fsx_lustre is None else _lustre(wish.fsx_lustre),
        other=None if wish.other is None else _other(wish.other),
    )


def _nfs(wish: NfsSpec, head_address: str | None) -> Nfs:
    from_head = wish.server is None
    return Nfs(server=wish.server or head_address or "", export=wish.export, from_head=from_head)


def _lustre(wish: FsxLustre) -> Lustre:
    return Lustre(zone=wish.zone, size_gib=wish.size // 1024)


def _other(wish: Other) -> OtherMount:
    return OtherMount(type=wish.type, source=wish.source, options=wish.options)
