"""The operations of a plan: termination grace, breaker, watchdog, budget. Pure."""

from collections.abc import Sequence

from gpucluster.plan import defaults
from gpucluster.plan.model import BootScript, Breaker, Budget, Health, JobHeartbeat, Termination
from gpucluster.spec.health import Health as HealthSpec
from gpucluster.spec.money import Budget as BudgetSpec
from gpucluster.spec.operations import BootScript as BootScriptSpec
from gpucluster.spec.operations import Breaker as BreakerSpec
from gpucluster.spec.operations import JobHeartbeat as JobHeartbeatSpec
from gpucluster.spec.operations import Termination as TerminationSpec


def termination(requested: TerminationSpec | None) -> Termination:
    """Every pool has one. It has a script only if the spec names one."""
    settings = TerminationSpec() if requested is None else requested
    return Termination(
        signal=defaults.TERMINATION_SIGNAL if settings.signal is None else settings.signal,
        lead_s=_or(settings.lead, defaults.TERMINATION_LEAD_S),
        grace_s=_or(settings.grace, defaults.TERMINATION_GRACE_S),
        script=settings.script,
    )


def breaker(requested: BreakerSpec | None) -> Breaker:
    """Every pool has one."""
    settings = BreakerSpec() if requested is None else requested
    return Breaker(
        boots=_or(settings.boots, defaults.BREAKER_BOOTS),
        cooldown_s=_or(settings.cooldown, defaults.BREAKER_COOLDOWN_S),
    )


def job_heartbeat(requested: JobHeartbeatSpec | None) -> JobHeartbeat | None:
    """None: the watchdog is off for the pool."""
    return None if requested is None else JobHeartbeat(after_s=requested.after, requeue=requested.requeue)


def boot_scripts(requested: Sequence[BootScriptSpec]) -> tuple[BootScript, ...]:
    """The scripts of a pool, in the order of the spec."""
    return tuple(_boot_script(one) for one in requested)


def _boot_script(requested: BootScriptSpec) -> BootScript:
    bucket, _, key = requested.script.removeprefix("s3://").partition("/")
    limit_s = int(defaults.BOOT_SCRIPT_S.value)
    return BootScript(bucket=bucket, key=key, sha256=requested.sha256, limit_s=limit_s)


def budget(requested: BudgetSpec | None) -> Budget | None:
    """Percents become amounts, so that no later step rounds."""
    if requested is None:
        return None
    warn = _or(requested.warn_at, defaults.BUDGET_WARN_PERCENT)
    stop = _or(requested.stop_scaling_at, defaults.BUDGET_STOP_PERCENT)
    return Budget(
        monthly=requested.monthly,
        warn_at=requested.monthly * warn // 100,
        stop_scaling_at=requested.monthly * stop // 100,
        notify=requested.notify,
    )


def health(requested: HealthSpec | None) -> Health | None:
    """None: no checks."""
    if requested is None:
        return None
    return Health(prolog=requested.prolog, every_s=_or(requested.every, defaults.HEALTH_EVERY_S))


def health_limit(requested: HealthSpec | None, nodes: int) -> int:
    """The most drained nodes of a pool of `nodes`: at least one, at most all; 0 without checks."""
    if requested is None:
        return 0
    return _limit(requested.at_most, nodes)


def replacements_per_hour(requested: HealthSpec | None, nodes: int) -> int:
    """The most instances of a pool of `nodes` that are replaced in an hour: by default as many as checks keep drained."""
    if requested is None:
        return _limit(None, nodes)
    return _limit(requested.replace_per_hour or requested.at_most, nodes)


def _limit(text: str | None, nodes: int) -> int:
    text = text or f"{defaults.HEALTH_AT_MOST_PERCENT.value:g}%"
    most = nodes * int(text.removesuffix("%")) // 100 if text.endswith("%") else int(text)
    return max(1, min(most, nodes))


def _or(requested: int | None, rule: defaults.Default) -> int:
    return int(rule.value) if requested is None else requested
