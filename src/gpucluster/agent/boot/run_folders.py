"""Small file systems in memory for the agent's own files, so that a full disk or a full /run stops nothing.

/run is one file system, and on a shared node any user can fill it. Each folder here has its own limits of size and of files.
"""

import logging

from gpucluster.agent.boot.runner import one_line
from gpucluster.agent.disks.mounts import mount_points
from gpucluster.agent.machine import Machine
from gpucluster.errors import GpuclusterError
from gpucluster.plan import names

PROTECTED = "nosuid,nodev,noexec,mode=0755"
OPTIONS = {  # one page and one inode a file; a node runs far fewer jobs than it has places here
    names.AGENT_RUN: f"size=16m,nr_inodes=2k,{PROTECTED}",
    names.JOBS_DIR: f"size=16m,nr_inodes=4k,{PROTECTED}",
    names.JOB_HEARTBEAT_DIR: f"size=1m,nr_inodes=4k,{PROTECTED}",
}
AT_START = (names.AGENT_RUN, names.JOB_HEARTBEAT_DIR)

log = logging.getLogger(__name__)


def mount_at_start(machine: Machine) -> None:
    """Mount the folders that every machine has. The agent also runs without them."""
    for path in AT_START:
        mount(machine, path)


def mount(machine: Machine, path: str) -> None:
    """Create and mount one folder, unless it is mounted. A failure is logged."""
    try:
        if path not in mount_points(machine):
            machine.path(path).mkdir(mode=0o755, parents=True, exist_ok=True)
            machine.run(["mount", "-t", "tmpfs", "-o", OPTIONS[path], "tmpfs", path], timeout_s=10)
    except (GpuclusterError, OSError) as error:
        log.warning("%s has no file system of its own: %s", path, one_line(error))


def unmount(machine: Machine, path: str) -> None:
    """Unmount one folder with its files, if it is mounted."""
    if path in mount_points(machine):
        machine.run(["umount", "--lazy", path], timeout_s=10, check=False)
