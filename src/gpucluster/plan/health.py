"""Decisions on the health checks of nodes that several parts need. Standard library only: machines import it. Pure."""

import re

from gpucluster.plan import defaults
from gpucluster.plan.model import Pool, SlurmPlan

_PERCENT = re.compile(r"(?:^|,)node_reg_mem_percent=([0-9]{1,3})(?:$|,)")


def registered_memory_percent(plan: SlurmPlan) -> int:
    """The part of RealMemory that a node must register with. An existing host must have all of it, as by default."""
    return 100 if plan.aws is None else int(defaults.NODE_REG_MEM_PERCENT.value)


def least_memory_mib(plan: SlurmPlan, pool: Pool) -> int:
    """The memory with which slurmctld accepts a node of the pool; a line of a rehearsal may lower it."""
    lines = (line.value or "" for line in plan.slurm.lines if line.key == "SlurmctldParameters")
    found = next((int(match[1]) for text in lines if (match := _PERCENT.search(text))), None)
    return pool.shape.real_memory_mib * (registered_memory_percent(plan) if found is None else found) // 100
