"""Refuse a bundle whose cluster is not that of slurmctld's state, before slurmctld stops.

slurmctld ends at its start if the file `clustername` of its state has no name, another name than slurm.conf, or another
number than slurmdbd (S50). `state_name` writes another name where that keeps every job. Else the head goes on with the
applied bundle until an operator has done what the reason says.
"""

from gpucluster.agent.boot import boot_state, bundles, slurmctld
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.machine import Machine
from gpucluster.plan import slurm_identity
from gpucluster.plan.model import SlurmPlan
from gpucluster.plan.slurm_identity import CLUSTER_NAME, ID_MISMATCH, NAME_MISMATCH, STATE
from gpucluster.text import printable

_DIFF = f"`gpucluster diff OLD NEW` on your own machine has the commands that compare job ids, copy slurmctld's state and remove {CLUSTER_NAME}, or says how to split the edit"
_NO_NAME = (
    f"{CLUSTER_NAME} has no name: {NAME_MISMATCH}; if {STATE} is the state of this cluster, remove that file: slurmctld writes "
    "it at its start"
)


def check(machine: Machine, state: BootState) -> BootState:
    """Go on with the last good bundle if slurmctld would not start with the new one."""
    bundle = require(state.bundle)
    digest = bundles.applied(machine)
    if digest == bundle.digest or not machine.path(CLUSTER_NAME).exists():
        return state
    applied = None if digest is None else bundles.stored(machine, digest)
    text, old = machine.read(CLUSTER_NAME).strip(), applied and applied.plan
    started = boot_state.load(machine).clustername
    reason = _other_number(text, started, old, bundle.plan) or _contradiction(text, old, bundle.plan)
    if reason:
        return slurmctld.last_good(machine, state, reason, bundle.digest)
    return state


def _other_number(text: str, started: str, old: SlurmPlan | None, new: SlurmPlan) -> str:
    """Return that the state is not the one of slurmctld's last start, where the number counts; empty if it is, or if nobody knows."""
    (name, _, number), (same, _, known) = text.partition("|"), started.partition("|")
    counts = new.slurm.accounting is not None or (old is not None and slurm_identity.takes_name(old, new))
    if not (counts and number and known) or name != same or number == known:
        return ""
    return (
        f"slurmctld's state has the number {printable(number, 20)}, and slurmctld last started here with {known}: the state may be "
        f"that of another cluster {printable(name, 64)!r}; if it is yours, copy {STATE} and remove {CLUSTER_NAME}"
    )


def _contradiction(text: str, old: SlurmPlan | None, new: SlurmPlan) -> str:
    """Return why slurmctld's state is not that of the new plan, and what helps; empty if it is."""
    name, _, number = text.partition("|")
    if not name:
        return _NO_NAME
    if old is not None and name == old.name and slurm_identity.takes_name(old, new):
        return ""
    if name != new.name:
        shown = printable(name, 64)
        helps = _of_first_bundle(shown) if old is None else _DIFF
        return (
            f"slurmctld's state is that of the cluster {shown!r}, not {new.name!r}: {NAME_MISMATCH}; {helps}"
        )
    if number and old is not None and slurm_identity.has_other_database(old, new):
        return f"slurmctld's state has the number of another accounting database: {ID_MISMATCH}; {_DIFF}"
    return ""


def _of_first_bundle(name: str) -> str:
    """Return what an operator can do: there is no old spec to compare with."""
    return (
        f"this head has no earlier bundle. To keep the jobs, first apply a spec with `name: {name}`; to begin without them, stop "
        f"slurmctld and move what is in {STATE} away"
    )
