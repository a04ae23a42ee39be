"""File systems before Slurm: a job that runs without /home would write where nobody looks.

Ansible writes fstab. The agent mounts by it what is not mounted (the server may boot after us), and starts nothing before.
"""

from gpucluster.node.known import Known, of
from gpucluster.node.machine import Machine, NotYetError
from gpucluster.plan import names
from gpucluster.plan.model import Mount
from gpucluster.shell import CommandError

TABLE = "/proc/self/mountinfo"
MOUNT_S = 60.0  # a mount of a dead server hangs
PATIENCE_S = 600.0  # a server takes long to boot


def mounted(machine: Machine, known: Known) -> Known:
    """Every mount point of the plan is one."""
    for path in missing(machine, known):
        try:
            machine.run(["mount", path], timeout_s=MOUNT_S)
        except CommandError as error:
            said = error.result.stderr or error.result.stdout
            raise NotYetError(f"{path} cannot be mounted: {said}", limit_s=PATIENCE_S) from error
    if left := missing(machine, known):
        raise NotYetError(f"{left[0]} is not mounted", limit_s=PATIENCE_S)
    return known


def missing(machine: Machine, known: Known) -> tuple[str, ...]:
    """Mount points of the plan that nothing is mounted at, outer ones first."""
    points = {line.split()[4] for line in machine.read(TABLE).splitlines() if len(line.split()) > 4}
    wanted = (mount.path for mount in of(known.bundle).plan.storage if not _is_the_export(mount, known))
    return tuple(sorted(path for path in wanted if path not in points))


def _is_the_export(mount: Mount, known: Known) -> bool:
    """What the head exports from the very place is there without a mount."""
    on_head = of(known.identity).role == names.ROLE_HEAD
    return on_head and mount.nfs is not None and mount.nfs.from_head and mount.nfs.export == mount.path
