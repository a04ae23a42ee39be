"""Write what the health programs of this node compare with, before slurmd starts (names.HEALTH_FILE)."""

import os

from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.machine import Machine
from gpucluster.checks import health_wants
from gpucluster.plan import codec, names


def write(machine: Machine, state: BootState) -> BootState:
    """Write the expectations of this node. Without `health` in the plan, remove them: the programs then do nothing."""
    plan = require(state.bundle).plan
    pool = plan.pool_of(require(state.answer).node)
    if plan.health is None or pool is None:
        machine.path(names.HEALTH_FILE).unlink(missing_ok=True)
        return state
    found = health_wants.settings(plan, pool, require(state.answer).node, os.environ)
    machine.write(names.HEALTH_FILE, codec.dumps(found))
    return state
