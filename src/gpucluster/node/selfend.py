"""When a machine that nobody answers ends itself. Pure."""

from gpucluster.plan.model import ClusterPlan

UNTOLD_S = 1800.0  # the limit while the plan is not known


def limit_s(plan: ClusterPlan | None) -> float:
    """How long without a word from the controller, and without a job's step, is too long."""
    return plan.times.self_end_s if plan else UNTOLD_S


def due(*, plan: ClusterPlan | None, node: str, silent_s: float, steps_running: bool) -> bool:
    """Is it time? Never for an always-on slot, and never under a job's step."""
    if plan is not None and (pool := plan.pool_of(node)) is not None and node in pool.always_on():
        return False
    return not steps_running and silent_s >= limit_s(plan)
