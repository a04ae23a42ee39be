"""File systems before Slurm: a job that runs without /home would write where nobody looks.

On a host that exists Ansible writes fstab, and the agent mounts by it. The cloud's machines mount what plan and
bindings say. A server may boot after us, so each waits, and starts nothing before.
"""

from collections.abc import Iterable

from gpucluster.node import disks
from gpucluster.node.known import Bundle, Known, of
from gpucluster.node.machine import Machine, NotYetError, StepError
from gpucluster.plan import mounting, names
from gpucluster.plan.mounting import Line
from gpucluster.shell import CommandError

TABLE = "/proc/self/mountinfo"
EFS_HELPER = "/sbin/mount.efs"
EFS_ROOT = f"{names.AGENT_RUN}/efs"
MOUNT_S = 60.0  # a mount of a dead server hangs
PATIENCE_S = 600.0  # a server takes long to boot


def mounted(machine: Machine, known: Known) -> Known:
    """A host's: every mount point of the plan is one, by fstab."""
    lines = _absent(machine, mounting.lines(of(known.bundle).plan, {}, on_head=_is_head(known)))
    for line in lines:
        _mount(machine, line, ["mount", line.path], PATIENCE_S)
    return known


def attached(machine: Machine, known: Known) -> Known:
    """A cloud machine's: its own disks, then every file system of the plan, outer mount points first."""
    disks.scratch(machine, known)
    patience, bundle = patience_s(known), of(known.bundle)
    for line in _absent(machine, _lines(machine, bundle, on_head=_is_head(known))):
        machine.place(line.path).mkdir(parents=True, exist_ok=True)
        try:
            _mount(machine, line, _argv(line), patience)
        except NotYetError as refused:
            if not _is_efs_root(bundle, line):
                raise
            try:
                _make_efs_root(machine, line)
            except NotYetError:
                raise refused from None  # the whole is refused, too: the reason names the mount that people know
            _mount(machine, line, _argv(line), patience)
    return known


def patience_s(known: Known) -> float:
    """A node tells what it waits for before its boot is given up."""
    plan = of(known.bundle).plan
    pool = plan.pool_of(known.answer.node) if known.answer else None
    return PATIENCE_S if pool is None else min(PATIENCE_S, pool.boot_timeout_s / 2)


def points(machine: Machine) -> frozenset[str]:
    """Everything that something is mounted at."""
    rows = (line.split() for line in machine.read(TABLE).splitlines())
    return frozenset(row[4] for row in rows if len(row) > 4)


def _lines(machine: Machine, bundle: Bundle, *, on_head: bool) -> tuple[Line, ...]:
    helper = machine.place(EFS_HELPER).exists()
    bound = of(bundle.bindings).file_systems
    for mount in bundle.plan.storage:
        if (mount.efs is not None or mount.lustre is not None) and mount.path not in bound:
            raise StepError(f"{mount.path}: the bindings do not know its file system")
    return mounting.lines(bundle.plan, bound, on_head=on_head, efs_helper=helper)


def _absent(machine: Machine, lines: Iterable[Line]) -> tuple[Line, ...]:
    there = points(machine)
    return tuple(line for line in lines if line.path not in there)


def _mount(machine: Machine, line: Line, argv: list[str], patience: float) -> None:
    try:
        machine.run(argv, timeout_s=MOUNT_S)
    except CommandError as error:
        said = error.result.stderr or error.result.stdout
        raise NotYetError(f"{line.path} cannot be mounted: {said}", limit_s=patience) from error
    if line.path not in points(machine):
        raise NotYetError(f"{line.path} is not mounted", limit_s=patience)


def _argv(line: Line) -> list[str]:
    kind = () if line.type == "none" else ("-t", line.type)
    return ["mount", *kind, "-o", line.options, line.source, line.path]


def _is_efs_root(bundle: Bundle, line: Line) -> bool:
    """Whether it is the root of an access point, which only a mount by AWS's helper would make."""
    efs = any(mount.path == line.path and mount.efs is not None for mount in bundle.plan.storage)
    return efs and line.type == "nfs4" and not line.source.endswith(":/")


def _make_efs_root(machine: Machine, line: Line) -> None:
    """As the access point would make it: root's, 0755."""
    server, _, path = line.source.partition(":")
    machine.place(EFS_ROOT).mkdir(parents=True, exist_ok=True)
    whole = Line(path=EFS_ROOT, source=f"{server}:/", type=line.type, options=line.options)
    _mount(machine, whole, _argv(whole), MOUNT_S)
    try:
        machine.place(EFS_ROOT + path).mkdir(parents=True, exist_ok=True)
    finally:
        machine.run(["umount", EFS_ROOT])


def _is_head(known: Known) -> bool:
    return of(known.identity).role == names.ROLE_HEAD
