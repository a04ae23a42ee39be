"""The systemd units that a machine of the cluster starts at boot. Pure."""

from gpucluster.plan import names
from gpucluster.plan.model import SlurmPlan


def at_boot(plan: SlurmPlan) -> tuple[str, ...]:
    """The units that systemd starts at boot. The agent starts the others."""
    return (names.AGENT_UNIT,) if plan.aws is None else (names.AGENT_UNIT, names.GUARD_UNIT)


def timers(plan: SlurmPlan) -> tuple[str, ...]:
    """The timers of the head of existing hosts. On AWS the agent and the daemon do this work."""
    if plan.hosts is None:
        return ()
    return (names.WATCH_TIMER, *((names.ACCOUNTS_TIMER,) if plan.slurm.accounting is not None else ()))
