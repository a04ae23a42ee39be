"""The mounts of the plan's machines, as values that a check compares with. Pure."""

from collections.abc import Iterator, Sequence

from gpucluster.checks.mounts import OPPOSITE, MountWant
from gpucluster.plan import mounts as mount_lines
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
            yield MountWant(path=mount.path, types=(), source="", lacks=("ro", "noexec"))


def _mount(mount: Mount) -> MountWant:
    options = ""
    match mount.source:
        case NfsFromHead() | NfsFromServer() as nfs:
            types, source = (("nfs", "nfs4"), f"{nfs.server}:{nfs.export}") if not nfs.stand_in else ((), "")
            options = "" if nfs.stand_in else mount_lines.NFS
        case OtherMount() as other:
            types, source, options = (other.type,), other.source, mount_lines.other_options(other)
        case Efs() | SiteEfs():
            types, source, options = ("nfs", "nfs4"), "", mount_lines.EFS  # by a name of AWS's
        case FsxLustre() | SiteLustre():
            types, source, options = ("lustre",), "", mount_lines.LUSTRE
        case Nvme():
            types, source = (), ""
    has, lacks = _flags(options.split(","))
    return MountWant(path=mount.path, types=types, source=source, has=has, lacks=lacks)


def _flags(options: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What mount(8) makes of options that a user notices: the mount has them, or lacks them. The last word counts.

    nosuid and nodev are not compared where no word says so. Options for mounts by users imply others, and nothing is compared.
    """
    if {"user", "users", "owner", "group"} & set(options):
        return (), ()
    said = {"ro": False, "noexec": False}
    for word in options:
        for option, opposite in OPPOSITE.items():
            if word in (option, opposite):
                said[option] = word == option
    return tuple(o for o in OPPOSITE if said.get(o)), tuple(o for o in OPPOSITE if said.get(o) is False)


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
