"""Give slurmctld's state the name of the bundle, where that keeps every job.

Without accounting nothing of a job depends on the cluster's name: running and queued jobs go on under another one (S50). A
bundle that slurmctld does not take is followed by the last good one, which gets its own name back in the same way.
"""

import logging
import shutil
from collections.abc import Collection
from pathlib import Path

from gpucluster.agent.boot import systemd
from gpucluster.agent.boot.boot_state import Bundle
from gpucluster.agent.machine import Machine
from gpucluster.errors import GpuclusterError
from gpucluster.plan import slurm_identity
from gpucluster.plan.slurm_identity import CLUSTER_NAME, STATE, backup_of

CONTROLLER, SLURM_USER = "slurmctld", "slurm"
COPY_S = 600.0

log = logging.getLogger(__name__)


def adopt(machine: Machine, bundle: Bundle, known: Collection[str]) -> None:
    """Stop slurmctld, copy its state, and write the new name; slurmctld is started afterwards.

    Nothing happens if the name is right, or if it is none of the `known` ones: then the state is that of a third cluster.
    """
    text = machine.read(CLUSTER_NAME)
    name, bar, number = text.partition("|")
    was = name.strip()
    if was == bundle.plan.name or was not in known or not slurm_identity.is_alone(bundle.plan):
        return
    machine.run(["systemctl", "stop", f"{CONTROLLER}.service"], timeout_s=systemd.START_S)
    backup = backup_of(bundle.plan.name)
    _copy(machine, machine.path(backup))
    machine.write(CLUSTER_NAME, f"{bundle.plan.name}{bar}{number}", mode=0o600, owner=SLURM_USER)
    log.warning("the cluster %s is %s now; its state of before is in %s", was, bundle.plan.name, backup)


def _copy(machine: Machine, backup: Path) -> None:
    """Copy the state. The copy has its name when it is complete; half a one would fill the disk of slurmctld's state."""
    copy = backup.with_name(f"{backup.name}.new")
    shutil.rmtree(copy, ignore_errors=True)
    try:
        # `/.`: a folder behind a link is copied, not the link
        machine.run(["cp", "--archive", f"{machine.path(STATE)}/.", str(copy)], timeout_s=COPY_S)
        shutil.rmtree(backup, ignore_errors=True)
        copy.rename(backup)
    except (GpuclusterError, OSError):
        shutil.rmtree(copy, ignore_errors=True)
        raise
