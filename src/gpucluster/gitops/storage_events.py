"""What an edit does to file systems, volumes and mounts. Pure.

The agent mounts what is missing at a path. It never unmounts or remounts, so a machine keeps its mount until it starts
anew (`agent.disks.mounts`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucluster.gitops import rebuilt
from gpucluster.gitops.model import Kind, ResourceChange
from gpucluster.plan.model import AwsPlan, ClusterPlan, FsxLustre, Mount, NfsFromHead, Nvme, SlurmOnAws
from gpucluster.spec import UpdateClass

Resources = tuple[ResourceChange, ...]


@dataclass(frozen=True, slots=True)
class Loss:
    """A volume or file system of ours that is deleted; `replaced`: an empty one takes its place."""

    path: str
    replaced: bool
    shared: bool  # machines mount it; only the head has the volume of slurmctld's state


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    """Mount points by what happens to them. `removed`: without those whose file system is deleted."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    local: tuple[str, ...] = ()  # of the old ones: disks of the machine, empty at each boot


def mounts(old: ClusterPlan, new: ClusterPlan) -> Mounts:
    before, after = _sources(old.storage), _sources(new.storage)
    ours = {one.path for one in rebuilt.stores(old).values()} if old.aws is not None else set[str]()
    return Mounts(
        added=tuple(path for path in after if path not in before),
        removed=tuple(path for path in before if path not in after and path not in ours),
        changed=tuple(path for path in after if path in before and before[path] != after[path]),
        local=tuple(one.path for one in old.storage if isinstance(one.source, Nvme)),
    )


def lost(old: AwsPlan, new: AwsPlan | None, resources: Resources) -> Iterator[Loss]:
    """Yield what is deleted once its protection is removed."""
    after: Mapping[str, rebuilt.Store] = {} if new is None else rebuilt.stores(new)
    replaced = {one.name for one in resources if _replaces_data(one)}
    paths = {one.path for one in old.storage}
    for name, store in rebuilt.stores(old).items():
        now, shared = after.get(name), store.path in paths
        if now is None:
            yield Loss(store.path, replaced=False, shared=shared)
        elif name in replaced or rebuilt.turned(store.fixed, now.fixed) or _too_small(store, now):
            yield Loss(store.path, replaced=True, shared=shared)


def smaller(old: SlurmOnAws, new: SlurmOnAws) -> Iterator[str]:
    """Yield volumes that shrink: AWS refuses it."""
    after = {one.key: one.size_gib for one in new.head.volumes}
    for volume in old.head.volumes:
        if after.get(volume.key, volume.size_gib) < volume.size_gib:
            yield volume.path


def stalls(old: AwsPlan, new: AwsPlan, deleted: tuple[Loss, ...]) -> Iterator[str]:
    """Yield each Lustre whose I/O stalls while its size or throughput changes."""
    after = {one.path: one.source for one in new.storage}
    gone = {one.path for one in deleted}
    for mount in old.storage:
        was, now = mount.source, after.get(mount.path)
        if mount.path in gone or not (isinstance(was, FsxLustre) and isinstance(now, FsxLustre)):
            continue
        if (was.size_gib, was.throughput) != (now.size_gib, now.throughput):
            yield mount.path


def detached(old: SlurmOnAws, new: SlurmOnAws) -> tuple[str, ...]:
    """Return volumes that leave the head: it stops first, and stays stopped (tests/engine/test_removed_volume.py)."""
    kept = {one.key for one in new.head.volumes}
    return tuple(one.path for one in old.head.volumes if one.key not in kept)


def _replaces_data(one: ResourceChange) -> bool:
    return one.kind is Kind.REPLACED and one.update is UpdateClass.DATA_LOSS


def _too_small(store: rebuilt.Store, now: rebuilt.Store) -> bool:
    """FSx replaces a file system that shrinks; AWS refuses a volume that does."""
    return store.is_lustre and now.size_gib < store.size_gib


def _sources(storage: tuple[Mount, ...]) -> dict[str, object]:
    """Return what is mounted at each path: neither the size of a Lustre nor the head's address is another file system."""
    return {one.path: _source(one) for one in storage}


def _source(mount: Mount) -> object:
    match mount.source:
        case FsxLustre(zone=zone):
            return ("lustre", zone)
        case NfsFromHead(export=export):
            return ("head", export)
        case other:
            return other
