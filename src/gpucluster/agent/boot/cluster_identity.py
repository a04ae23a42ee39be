"""Refuse a bundle whose cluster is not that of slurmctld's state, before anything stops.

slurmctld ends at its start if the file `clustername` of its state has another name than slurm.conf, or another number than
slurmdbd (S50). `state_name` writes another name where that keeps every job. Else the head goes on with the applied bundle
until an operator has copied the state and removed the file, as `gpucluster diff` says.
"""

from gpucluster.agent.boot import bundles, slurmctld
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.machine import Machine
from gpucluster.plan import slurm_identity
from gpucluster.plan.model import SlurmPlan
from gpucluster.plan.slurm_identity import CLUSTER_NAME, ID_MISMATCH, NAME_MISMATCH
from gpucluster.text import printable

_REMEDY = f"`gpucluster diff OLD NEW` on your own machine has the commands that copy slurmctld's state and remove {CLUSTER_NAME}"


def check(machine: Machine, state: BootState) -> BootState:
    """Go on with the last good bundle if slurmctld would not start with the new one."""
    bundle = require(state.bundle)
    digest = bundles.applied(machine)
    if digest == bundle.digest:
        return state
    applied = None if digest is None else bundles.stored(machine, digest)
    name, _, number = machine.read(CLUSTER_NAME).strip().partition("|")
    if reason := _contradiction(name, number, applied and applied.plan, bundle.plan):
        return slurmctld.last_good(machine, state, f"{reason}; {_REMEDY}", bundle.digest)
    return state


def _contradiction(name: str, number: str, old: SlurmPlan | None, new: SlurmPlan) -> str:
    """Return why slurmctld's state is not that of the new plan; empty if it is, or if there is none."""
    if old is not None and name == old.name and slurm_identity.takes_name(old, new):
        return ""
    if name and name != new.name:
        return f"slurmctld's state is that of the cluster {printable(name, 64)!r}, not {new.name!r}: {NAME_MISMATCH}"
    if number and old is not None and slurm_identity.has_other_database(old, new):
        return f"slurmctld's state has the number of another accounting database: {ID_MISMATCH}"
    return ""
