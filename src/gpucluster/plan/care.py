"""What the elastic daemon does for a pool's jobs and for the month's money, as it was wished or by default. Pure."""

from gpucluster.plan import defaults
from gpucluster.plan.model import Breaker, Budget, Farewell, Hung
from gpucluster.spec.care import Breaker as BreakerSpec
from gpucluster.spec.care import Farewell as FarewellSpec
from gpucluster.spec.care import Hung as HungSpec
from gpucluster.spec.money import Budget as BudgetSpec


def farewell(wish: FarewellSpec | None) -> Farewell:
    """Every pool has one; a script only if it was named."""
    told = FarewellSpec() if wish is None else wish
    return Farewell(
        signal=defaults.FAREWELL_SIGNAL if told.signal is None else told.signal,
        lead_s=_or(told.lead, defaults.FAREWELL_LEAD_S),
        grace_s=_or(told.grace, defaults.FAREWELL_GRACE_S),
        script=told.script,
    )


def breaker(wish: BreakerSpec | None) -> Breaker:
    """Every pool has one."""
    told = BreakerSpec() if wish is None else wish
    return Breaker(
        boots=_or(told.boots, defaults.BREAKER_BOOTS),
        cooldown_s=_or(told.cooldown, defaults.BREAKER_COOLDOWN_S),
    )


def hung(wish: HungSpec | None) -> Hung | None:
    """None: no job of the pool is ever taken for hung."""
    return None if wish is None else Hung(after_s=wish.after, requeue=wish.requeue)


def budget(wish: BudgetSpec | None) -> Budget | None:
    """Percents become amounts, so that nobody to the right rounds."""
    if wish is None:
        return None
    warn = _or(wish.warn_at, defaults.BUDGET_WARN_PERCENT)
    stop = _or(wish.stop_scaling_at, defaults.BUDGET_STOP_PERCENT)
    return Budget(
        monthly=wish.monthly,
        warn_at=wish.monthly * warn // 100,
        stop_scaling_at=wish.monthly * stop // 100,
        notify=wish.notify,
    )


def _or(wish: int | None, rule: defaults.Default) -> int:
    return int(rule.value) if wish is None else wish
