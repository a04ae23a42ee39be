"""File systems of the plan, mounted before Slurm starts: without /home a job would write to the local root disk.

On an existing host Ansible writes fstab, and the agent mounts from it. A cloud machine mounts from plan and bindings.
A file server may boot later than its clients, so each mount is repeated.
"""

from collections.abc import Iterable

from gpucluster.agent.boot import systemd
from gpucluster.agent.boot.boot_state import BootState, Bundle, require
from gpucluster.agent.machine import Machine, NotYetError, StepError
from gpucluster.plan import mounts, names
from gpucluster.plan.model import AwsFileSystem, Efs
from gpucluster.plan.mounts import FstabLine
from gpucluster.shell import CommandError

TABLE = "/proc/self/mountinfo"
EFS_HELPER = "/sbin/mount.efs"
MOUNT_S = 60.0  # a mount hangs if the server is down
EXPORTS = "/etc/exports.d/gpucluster.exports"
NFS_SERVER = "nfs-server"
LIMIT_S = 600.0  # time for a file server to boot


def mount_from_fstab(machine: Machine, state: BootState) -> BootState:
    """Mount every mount point of the plan from fstab, on an existing host."""
    lines = _not_mounted(machine, mounts.lines(require(state.bundle).plan, {}, on_head=_is_head(state)))
    for line in lines:
        _mount(machine, line, ["mount", line.path], LIMIT_S)
    return state


def mount_planned(machine: Machine, state: BootState) -> BootState:
    """Mount every file system of the plan on a cloud machine, outer mount points first."""
    limit_s, bundle = patience_s(state), require(state.bundle)
    for line in _not_mounted(machine, _lines(machine, bundle, on_head=_is_head(state))):
        machine.path(line.path).mkdir(parents=True, exist_ok=True)
        _mount(machine, line, _argv(line), limit_s)
    return state


def export(machine: Machine, state: BootState) -> BootState:
    """Export the head's folders over NFS to the address ranges of the cluster, as the plan says."""
    plan = require(state.bundle).plan
    paths, text = mounts.exports(plan), mounts.export_lines(plan)
    if not paths and not machine.read(EXPORTS):
        return state
    for path in paths:
        machine.path(path).mkdir(parents=True, exist_ok=True)
    changed = machine.write(EXPORTS, text)
    if paths:
        systemd.ensure(machine, NFS_SERVER)
    if changed:
        machine.run(["exportfs", "-r", "-a"])
    return state


def patience_s(state: BootState) -> float:
    """Return the limit of a mount in seconds. A node reports the failed mount before its boot timeout."""
    plan = require(state.bundle).plan
    pool = plan.pool_of(state.answer.node) if state.answer else None
    return LIMIT_S if pool is None else min(LIMIT_S, pool.boot_timeout_s / 2)


def mount_points(machine: Machine) -> frozenset[str]:
    """Return all mount points."""
    rows = (line.split() for line in machine.read(TABLE).splitlines())
    return frozenset(row[4] for row in rows if len(row) > 4)


def _lines(machine: Machine, bundle: Bundle, *, on_head: bool) -> tuple[FstabLine, ...]:
    helper = machine.path(EFS_HELPER).exists()
    bound = require(bundle.bindings).file_systems
    for mount in bundle.plan.storage:
        if isinstance(mount.source, AwsFileSystem) and mount.path not in bound:
            raise StepError(f"{mount.path}: the bindings have no file system for it")
        if isinstance(mount.source, Efs) and not helper:
            raise StepError(
                f"{mount.path}: this image has no {EFS_HELPER}, and our EFS admits only mounts with TLS and the role of the "
                "machine; on your own machine, build the image with the part `efs`: gpucluster image build"
            )
    return mounts.lines(bundle.plan, bound, on_head=on_head, efs_helper=helper)


def _not_mounted(machine: Machine, lines: Iterable[FstabLine]) -> tuple[FstabLine, ...]:
    mounted = mount_points(machine)
    return tuple(line for line in lines if line.path not in mounted)


def _mount(machine: Machine, line: FstabLine, argv: list[str], limit_s: float) -> None:
    try:
        machine.run(argv, timeout_s=MOUNT_S)
    except CommandError as error:
        reason = error.result.stderr or error.result.stdout
        raise NotYetError(f"{line.path} cannot be mounted: {reason}", limit_s=limit_s) from error
    if line.path not in mount_points(machine):
        raise NotYetError(f"{line.path} is not mounted", limit_s=limit_s)


def _argv(line: FstabLine) -> list[str]:
    kind = () if line.type == "none" else ("-t", line.type)
    # mount.efs starts the TLS proxy of the mount; in the agent's own unit it would end with a restart of the agent
    scope = ("systemd-run", "--scope", "--quiet", "--collect") if line.type == "efs" else ()
    return [*scope, "mount", *kind, "-o", line.options, line.source, line.path]


def _is_head(state: BootState) -> bool:
    return require(state.identity).role in (names.ROLE_HEAD, names.ROLE_STANDBY)
