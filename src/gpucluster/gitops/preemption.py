"""Which running jobs a waiting job may preempt after an edit that it could not preempt before. Pure.

Two plans decide, not a field: a QOS may be new, and an account may get one that preempts. slurm.conf(5), PreemptMode: a job
that may not be requeued is cancelled instead.
"""

from collections.abc import Iterator

from gpucluster.gitops.field_effects import Note
from gpucluster.plan.model import SlurmPlan
from gpucluster.text import format_duration, listed

_ROWS = ("qos-preempts",)
_FATES = {"requeue": "are requeued then, or ended if they may not be", "cancel": "are ended then"}
_CANCEL = "cancel"
_QOS = "qos"
Pair = tuple[str, str]


def notes(old: SlurmPlan, new: SlurmPlan | None) -> Iterator[Note]:
    """Yield what is said of running jobs. `new` is None if Slurm leaves."""
    now = None if new is None else new.slurm.preemption
    if new is None or now is None:
        return
    fate = _FATES[now.mode]
    if now.by == _QOS:
        for text in _by_qos(old, new):
            yield Note(running=f"{text}: they {fate}", rows=_ROWS)
    else:
        for text in _by_tier(old, new):
            yield Note(running=f"{text}: they {fate}")
    was = old.slurm.preemption
    if was is None or was.by != now.by:
        return
    if was.mode != _CANCEL == now.mode:
        yield Note(running="those that are preempted are ended, and not requeued any more")
    if now.exempt_s < was.exempt_s:
        when = f"after {format_duration(now.exempt_s)}" if now.exempt_s else "at once"
        yield Note(running=f"those younger than {format_duration(was.exempt_s)} may be preempted {when}")


def _by_qos(old: SlurmPlan, new: SlurmPlan) -> Iterator[str]:
    """A QOS counts in the accounts that have it and users."""
    before = _by_account(old)
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (account, qos), victims in _by_account(new).items():
        more = tuple(sorted(victims - before.get((account, qos), set())))
        if more:
            found.setdefault((qos, more), []).append(account)
    for (qos, victims), accounts in found.items():
        plural = "s" if len(accounts) > 1 else ""
        whose = f" in the account{plural} {listed(accounts)}" if all(accounts) else ""
        yield f"those of the QOS {listed(victims)} may be preempted by a waiting job of the QOS {qos}{whose}"


def _by_account(plan: SlurmPlan) -> dict[Pair, set[str]]:
    """Return the QOS whose jobs may be preempted, by the account and the QOS of the waiting job."""
    accounting, rule = plan.slurm.accounting, plan.slurm.preemption
    if accounting is None or rule is None or rule.by != _QOS:
        return {}
    mine = [(one.name, one.qos) for one in accounting.accounts if one.users]
    by_hand = [("", tuple(one.name for one in accounting.qos))]  # accounts that the spec does not name
    having = mine if accounting.accounts else by_hand
    used = {name for _, names in having for name in names}
    victims = {one.name: used & set(one.preempts) for one in accounting.qos}
    return {
        (account, name): victims[name] for account, names in having for name in names if victims.get(name)
    }


def _by_tier(old: SlurmPlan, new: SlurmPlan) -> Iterator[str]:
    before = _of_partitions(old)
    found: dict[str, list[str]] = {}
    for taker, victim in _of_partitions(new):
        if (taker, victim) not in before:
            found.setdefault(taker, []).append(victim)
    for taker, victims in found.items():
        what = f"partition{'s' if len(victims) > 1 else ''} {listed(victims)}"
        yield f"those of the {what} may be preempted by a waiting job of the partition {taker}"


def _of_partitions(plan: SlurmPlan) -> tuple[Pair, ...]:
    """Return each partition that may preempt, with one of a lower tier that has some of its nodes."""
    rule = plan.slurm.preemption
    if rule is None or rule.by == _QOS:
        return ()
    return tuple(
        (taker.name, victim.name)
        for taker in plan.partitions
        for victim in plan.partitions
        if taker.tier > victim.tier and {*taker.pools} & {*victim.pools}
    )
