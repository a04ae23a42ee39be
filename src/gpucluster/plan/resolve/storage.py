"""Storage: the type of each mount, with the head's address for exports, and the head's own volumes."""

from collections.abc import Iterable

from gpucluster.plan import defaults, names
from gpucluster.plan.model import (
    Efs,
    FileSystem,
    FsxLustre,
    Lustre,
    LustreLink,
    Mount,
    Nfs,
    NfsFromHead,
    NfsFromServer,
    Nvme,
    OtherMount,
    SiteEfs,
    SiteLustre,
    Volume,
)
from gpucluster.spec.head import Head
from gpucluster.spec.storage import KINDS, Other, Storage
from gpucluster.spec.storage import FsxLustre as FsxLustreSpec
from gpucluster.spec.storage import LustreLink as LinkSpec
from gpucluster.spec.storage import Nfs as NfsSpec

GIB = 1024  # MiB


def mount(part: Storage, head_address: str | None) -> Mount:
    """The mount; `head_address` is None without a head."""
    return Mount(path=part.mount, source=_source(part, head_address))


def _source(part: Storage, head_address: str | None) -> FileSystem:
    if part.nfs is not None:
        return _nfs(part.nfs, part.mount, head_address)
    if part.efs is not None:
        return Efs() if part.efs.id is None else SiteEfs(id=part.efs.id)
    if part.fsx_lustre is not None:
        return _lustre(part.fsx_lustre)
    if part.nvme is not None:
        return Nvme()
    if part.other is not None:
        return _other(part.other)
    raise ValueError(f"storage {part.mount}: expected one of {', '.join(KINDS)}")


def volumes(head: Head, storage: Iterable[Storage]) -> tuple[Volume, ...]:
    """Protected disks of the head: Slurm's state, and its exports."""
    state = (
        ()
        if head.state is None
        else (Volume(key=names.STATE_VOLUME, size_gib=-(-head.state // GIB), path=names.STATE_MOUNT),)
    )
    exported = (
        Volume(
            key=names.export_key(one.mount),
            size_gib=-(-one.nfs.size // GIB),
            path=one.nfs.export or one.mount,
        )
        for one in storage
        if one.nfs is not None and one.nfs.size
    )
    return (*state, *exported)


def _nfs(part: NfsSpec, path: str, head_address: str | None) -> Nfs:
    """The exported folder is the mount's path if the spec names none."""
    export = part.export or path
    if part.server is not None:
        return NfsFromServer(server=part.server, export=export)
    return NfsFromHead(server=head_address or "", export=export)


def _lustre(part: FsxLustreSpec) -> Lustre:
    if part.id is not None:
        return SiteLustre(id=part.id, zone=part.zone)
    return FsxLustre(
        zone=part.zone,
        size_gib=(part.size or 0) // GIB,
        throughput=part.throughput or int(defaults.LUSTRE_THROUGHPUT.value),
        links=tuple(_link(link) for link in part.link),
    )


def _link(part: LinkSpec) -> LustreLink:
    return LustreLink(path=part.path, s3=part.s3, imports=part.imports, exports=part.exports)


def _other(part: Other) -> OtherMount:
    return OtherMount(type=part.type, source=part.source, options=part.options)
