"""The site reservations of the plan in slurmctld. A refusal is reported in the head's status and stops no other step."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.boot.runner import one_line
from gpucluster.agent.machine import Machine
from gpucluster.errors import GpuclusterError
from gpucluster.shell import Result
from gpucluster.slurm import reservations

SCONTROL_S = 60.0

log = logging.getLogger(__name__)


def apply(machine: Machine, state: BootState) -> BootState:
    """Create, change and delete our reservations. Nothing happens if none differs.

    A bundle without reservations is compared once: afterwards slurmctld has none of ours.
    """
    bundle = require(state.bundle)
    wanted = bundle.plan.slurm.reservations
    if state.without_reservations == bundle.digest:
        return state

    def run(argv: Sequence[str]) -> Result:
        return machine.run(argv, check=False, timeout_s=SCONTROL_S, env=reservations.IN_ENVIRONMENT)

    try:
        refused = reservations.reconcile(run, wanted, machine.clock())
    except (GpuclusterError, OSError) as error:
        refused = (one_line(error),)
    for sentence in refused:
        log.warning("%s", sentence)
    done = "" if wanted or refused else bundle.digest
    return replace(state, reservations="; ".join(refused), without_reservations=done)
