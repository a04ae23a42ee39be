"""The mounts of the plan's machines, as values that a check compares with. Pure."""

from collections.abc import Iterator

from gpucluster.checks.mounts import MountWant
from gpucluster.plan.model import (
    Efs,
    FsxLustre,
    Mount,
    NfsFromHead,
    NfsFromServer,
    Nvme,
    OtherMount,
    SiteEfs,
    SiteLustre,
    SlurmPlan,
)
from gpucluster.plan.mounts import heads_only
from gpucluster.plan.state_storage import BOUND_FOLDERS, state_root


def wanted(plan: SlurmPlan, *, on_head: bool) -> Iterator[MountWant]:
    """All mounts but those on a machine's own disks: a machine without disks has a folder there. `on_head`: or on the standby."""
    away = None if on_head else heads_only(plan)
    for mount in plan.storage:
        if isinstance(mount.source, Nvme) or mount.path == away:
            continue
        if not (on_head and isinstance(mount.source, NfsFromHead)):
            yield _mount(mount)
        elif mount.source.export != mount.path:  # its own disk, mounted at the path that the nodes use
            yield MountWant(path=mount.path, types=(), source="")


def _mount(mount: Mount) -> MountWant:
    match mount.source:
        case NfsFromHead() | NfsFromServer() as nfs:
            types, source = (("nfs", "nfs4"), f"{nfs.server}:{nfs.export}") if not nfs.stand_in else ((), "")
        case OtherMount() as other:
            types, source = (other.type,), other.source
        case Efs() | SiteEfs():
            types, source = ("nfs", "nfs4"), ""  # by a name of AWS's
        case FsxLustre() | SiteLustre():
            types, source = ("lustre",), ""
        case Nvme():
            types, source = (), ""
    return MountWant(path=mount.path, types=types, source=source)


def of_state(plan: SlurmPlan) -> Iterator[MountWant]:
    """What head and standby bind: slurmctld's state and the daemon's journal."""
    root = state_root(plan)
    if root is not None:
        for name, path in BOUND_FOLDERS.items():
            yield MountWant(path=path, types=(), source="", bound=f"{root}/{name}")


def of_volumes(plan: SlurmPlan) -> Iterator[MountWant]:
    """The head's own volumes."""
    for volume in plan.head.volumes:
        yield MountWant(path=volume.path, types=("ext4",), source="")
