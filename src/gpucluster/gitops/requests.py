"""What jobs ask for that an edit takes from them, and the clauses about these jobs, from the recorded table of Slurm. Pure.

`slurm.request_table` has what real Slurm did. A clause carries the ids of its rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gpucluster.gitops import account_defaults
from gpucluster.gitops.lost_gres import NEVER, Lost
from gpucluster.gitops.model import Clause
from gpucluster.gitops.partition_limits import of_cluster, recorded, unrecorded
from gpucluster.gitops.partition_requests import (
    AGAIN,
    OTHERS_END,
    STATES,
    leave,
    of_partitions,
    state_of,
    still_closed,
)
from gpucluster.plan.model import Account, SlurmPlan
from gpucluster.plan.slurm_identity import is_renamed
from gpucluster.slurm.request_table import Fate, Fates, Outcome, Way, fates_of
from gpucluster.text import listed

_ON_WAITING = ("afterok-waits", "afterany-waits")
_ON_CANCELLED = ("afterok-cancelled", "afterany-cancelled")
_REFUSED = " (sbatch refuses new ones)"
_ANOTHER_QOS = "until they get another QOS"
_LIMITS_OF_PARTITION = frozenset(  # recorded with EnforcePartLimits=ALL, as gpucluster writes it
    (
        "partition-max-time", "partition-max-nodes", "partition-accounts", "partition-qos", "partition-too-few",
        "partition-too-few-cpus", "nodes-too-few", "nodes-too-few-cpus", "cpus-too-few",
        "partition-min-nodes", "partition-max-memory", "partition-groups",
    )
)  # fmt: skip
# Rows of the words of AccountingStorageEnforce that gpucluster writes: associations, limits, qos and safe
_STRANGER = "enforce-safe-stranger"
_BEGINS = {
    _STRANGER: f"those without an association wait with {{}}, {NEVER}",
    "enforce-safe-group": f"those above GrpTRES of their account wait with {{}}, {OTHERS_END}",
    "enforce-safe-minutes": "those with a time limit above what is left of GrpTRESMins of their account wait with {}",
    "enforce-safe-qos": f"those of a QOS that their account lacks wait with {{}}, {_ANOTHER_QOS}{_REFUSED}",
    "enforce-safe-known": "others with an association start",
}
_ENDS = ("enforce-off-group", "enforce-off-minutes")
_NO_LIMITS = "those above a limit of accounts or QOS start, as none holds any more"


def clauses(old: SlurmPlan, new: SlurmPlan | None, way: Way, *, starts: bool) -> tuple[Clause, ...]:
    """Return the clauses about jobs. `new` is None if Slurm leaves, with its queue. `starts`: all jobs are said to start."""
    if new is None:
        return ()
    return (
        *_queued(old, new, way, starts=starts),
        *_running(old, new, way),
        *_new(old, new, way),
        *account_defaults.clauses(old, new),
    )


def texts(found: Iterable[Clause], *subjects: str) -> tuple[str, ...]:
    """Return those of these jobs."""
    return tuple(one.text for one in found if one.subject in subjects)


def _queued(old: SlurmPlan, new: SlurmPlan, way: Way, *, starts: bool) -> Iterator[Clause]:
    """Without associations no job starts. Else those of the table, and each that has no row."""
    if knows_no_account(old, new):
        text = f"those that do not start before wait with {_reason_of_unknown(old)}, {NEVER}"
        yield Clause(subject="queued", text=text, rows=())
        return
    yield from _of_table(old, new, way, starts=starts)
    yield from _unrecorded(old, new)


def _of_table(old: SlurmPlan, new: SlurmPlan, way: Way, *, starts: bool) -> Iterator[Clause]:
    """A job that depends on one that never starts is named once. A partition that stays closed is, where others start."""
    version = new.slurm.version
    lost = (*_licences(old, new), *of_partitions(old, new), *_accounts(old, new))
    found = [(one, fates_of(one.row, version, way)) for one in _together(lost)]
    enforced = tuple(_enforced(old, new, way))
    starts = starts or any(fates.queued.outcome is not Outcome.WAITS for _, fates in found)
    if starts or enforced:
        found += [(one, fates_of(one.row, version, way)) for one in _together(still_closed(old, new))]
    for one, fates in _in_order(found):
        text = as_enforced(_sentence(one, fates), one.rows, new)
        yield Clause(subject="queued", text=text, rows=one.rows)
    if any(fates.queued.outcome is Outcome.WAITS for _, fates in found):
        enforced = tuple(_of_others(one) for one in enforced)
    yield from enforced
    if any(_never_starts(one, fates) for one, fates in found) or any(NEVER in one.text for one in enforced):
        yield _dependents(version, way)


def _unrecorded(old: SlurmPlan, new: SlurmPlan) -> Iterator[Clause]:
    after = {one.name: one for one in new.partitions}
    for one in old.partitions:
        if one.name in after:
            for text in unrecorded(one, after[one.name], old, new):
                yield Clause(subject="queued", text=text, rows=())


def _in_order(found: Iterable[tuple[Lost, Fates]]) -> Iterator[tuple[Lost, Fates]]:
    """Yield first those that wait. Of the same jobs, those that start are others."""
    waits, starts = list[tuple[Lost, Fates]](), list[tuple[Lost, Fates]]()
    for one, fates in found:
        (waits if fates.queued.outcome is Outcome.WAITS else starts).append((one, fates))
    yield from waits
    for one, fates in starts:
        yield replace(one, others=any(_may_be_same(one, other) for other, _ in waits)), fates


def _may_be_same(one: Lost, other: Lost) -> bool:
    return not one.of or not other.of or bool({*one.of} & {*other.of})


def _never_starts(one: Lost, fates: Fates) -> bool:
    return fates.queued.outcome is Outcome.WAITS and fates.released is None and one.until == NEVER


def _dependents(version: str, way: Way) -> Clause:
    """Jobs that depend on one that never starts, and on one that is cancelled then."""
    waiting = {fates_of(row, version, way).queued.reason for row in _ON_WAITING}
    ok, afterany = (fates_of(row, version, way) for row in _ON_CANCELLED)
    text = (
        f"those that depend on one that never starts wait with {listed(waiting)}, and when it is cancelled "
        f"one with afterok waits with {ok.queued.reason}, and one with afterany {_fate_of_one(afterany.queued)}"
    )
    return Clause(subject="queued", text=text, rows=(*_ON_WAITING, *_ON_CANCELLED))


def _fate_of_one(found: Fate, until: str = "") -> str:
    if found.outcome is not Outcome.WAITS:
        return found.outcome.value
    return f"waits with {found.reason}{until and f', {until}'}"


def _running(old: SlurmPlan, new: SlurmPlan, way: Way) -> Iterator[Clause]:
    """Jobs on nodes that leave their partition, and stay in the cluster; above a new limit; and without an association."""
    row = "partition-other-nodes"
    found = fates_of(row, new.slurm.version, way).running
    moved = [one.name for one in old.partitions if leave(one, old, new)]
    if moved and found is not None and found.outcome is Outcome.GOES_ON:
        yield Clause(subject="running", text=f"those on nodes that leave {listed(moved)} go on", rows=(row,))
    kept = {one.name for one in new.partitions}
    limits = [lost for one in old.partitions if one.name in kept for lost in recorded(one.name, old, new)]
    if limits:
        names = listed(dict.fromkeys(name for one in limits for name in one.of))
        rows = dict.fromkeys(row for one in limits for row in one.rows)
        yield Clause(subject="running", text=f"the new limits of {names} end no job", rows=tuple(rows))
    if _begins(old, new) and not knows_no_account(old, new):
        text = "those without an association, or above a limit, go on"
        yield Clause(subject="running", text=text, rows=tuple(_BEGINS))


def _new(old: SlurmPlan, new: SlurmPlan, way: Way) -> Iterator[Clause]:
    """Jobs of users without an account, and those that name no partition, where the default one goes."""
    if _begins(old, new):
        refused = "after the change, sbatch refuses those of users without an account"
        yield Clause(subject="new", text=refused, rows=(_STRANGER,))
    before = {one.name for one in old.partitions if not one.requires_gpus}
    if names := [one.name for one in new.partitions if one.requires_gpus and one.name in before]:
        text = f"after the change, sbatch refuses new ones in {listed(names)} that ask for no GPUs"
        yield Clause(subject="new", text=text, rows=())
    was, now = _default(old), _default(new)
    if not was or was == now:
        return
    which = "new ones that name no partition"
    rows, what = ("default-removed",), f"sbatch refuses {which}: none is the default"
    if now:
        rows, what = ("default-moved", *_closed(now, new)), f"{which} go to {now}"
        if any(fates_of(row, new.slurm.version, way).new.outcome is Outcome.REFUSED for row in rows):
            what = f"sbatch refuses {which}: {now}, the default one, is {state_of(now, new)}"
    yield Clause(subject="new", text=f"after the change, {what}", rows=rows)


def _closed(name: str, plan: SlurmPlan) -> tuple[str, ...]:
    """Return the row of a partition that is not UP."""
    row = STATES.get(state_of(name, plan))
    return () if row is None else (row,)


def _default(plan: SlurmPlan) -> str:
    return next((one.name for one in plan.partitions if one.default), "")


def _sentence(one: Lost, fates: Fates) -> str:
    where = f" in {listed(one.of)}" if one.of else ""
    refused = _REFUSED if fates.new.outcome is Outcome.REFUSED else ""
    who = "others" if one.others else "those"
    return f"{who}{where} {one.jobs} {_fate(fates, one.until)}{refused}{one.then}".replace("  ", " ")


def as_enforced(text: str, rows: Iterable[str], plan: SlurmPlan) -> str:
    """Return a clause without what sbatch refuses, if Slurm takes jobs above a limit of their partition."""
    loose = of_cluster("EnforcePartLimits", plan).upper() == "NO"
    return text if not loose or _LIMITS_OF_PARTITION.isdisjoint(rows) else text.replace(_REFUSED, "")


def _fate(fates: Fates, until: str) -> str:
    match fates.queued.outcome:
        case Outcome.WAITS:
            return f"wait with {fates.queued.reason}{_then(fates, until)}"
        case Outcome.STARTS_WITHOUT:
            return "start without it"
        case Outcome.ENDED:
            return "are ended by Slurm"
        case _:
            return "start"


def _then(fates: Fates, until: str) -> str:
    if fates.released is None:
        return f", {until}"
    return f"; one that an operator releases (scontrol release JOB) {_fate_of_one(fates.released, until)}"


def _together(found: Iterable[Lost]) -> Iterator[Lost]:
    """Yield one for each row and request, with all its partitions."""
    by_request: dict[Lost, list[str]] = {}
    for one in found:
        by_request.setdefault(replace(one, of=()), []).extend(one.of)
    return (replace(one, of=tuple(dict.fromkeys(of))) for one, of in by_request.items())


# --- licences -----------------------------------------------------------------------------------------
def _licences(old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    after = {one.name: one.count for one in new.slurm.licenses}
    for one in old.slurm.licenses:
        left = after.get(one.name, 0)
        if not left:
            yield Lost("licence-removed", f"that ask for the licence {one.name}")
        elif left < one.count:
            jobs = f"that ask for more than {left} of the licence {one.name}"
            yield Lost("licence-too-few", jobs, until=AGAIN)


# --- accounts -----------------------------------------------------------------------------------------
def _accounts(old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    """Accounts that leave are closed (`slurm.accounts.diff`)."""
    was, now = old.slurm.accounting, new.slurm.accounting
    if was is None or now is None or not now.enforced:
        return
    before, after = ({one.name: one for one in plan.accounts} for plan in (was, now))
    added = [one for one in now.accounts if one.name not in before]
    for one in was.accounts:
        if one.name not in after:
            heirs = [other for other in added if set(one.users) & set(other.users)]
            row = "account-renamed" if any(other.users == one.users for other in heirs) else "account-closed"
            yield Lost(row, f"of the account {one.name}", then=_fair_share(heirs))
        else:
            yield from _left(one, after[one.name])
            yield from _lost_qos(one, after[one.name])
            yield from _moved(one, before, after)


def _needs_account(plan: SlurmPlan) -> bool:
    return plan.slurm.accounting is not None and plan.slurm.accounting.enforced


def knows_no_account(old: SlurmPlan, new: SlurmPlan) -> bool:
    """Whether accounts are needed in a cluster whose database has none of the queued jobs (S50)."""
    return _needs_account(new) and (old.slurm.accounting is None or is_renamed(old, new))


def _begins(old: SlurmPlan, new: SlurmPlan) -> bool:
    return _needs_account(new) and not _needs_account(old)


def _reason_of_unknown(old: SlurmPlan) -> str:
    """Return the reason that was recorded (S50): slurmctld had no slurmdbd before, or had its jobs' associations there."""
    return "PartitionConfig" if old.slurm.accounting is None else "InvalidAccount"


def _enforced(old: SlurmPlan, new: SlurmPlan, way: Way) -> Iterator[Clause]:
    """Accounts that are needed first, or no more, in a database that stays."""
    if _needs_account(old) and not _needs_account(new):
        yield Clause(subject="queued", text=_NO_LIMITS, rows=_ENDS)
    elif _begins(old, new):
        for row, words in _BEGINS.items():
            text = words.format(fates_of(row, new.slurm.version, way).queued.reason)
            yield Clause(subject="queued", text=text, rows=(row,))


def _of_others(one: Clause) -> Clause:
    """Return what is said of jobs that start, beside some that wait."""
    return replace(one, text=one.text.replace("those", "others", 1)) if one.rows == _ENDS else one


def _fair_share(heirs: Iterable[Account]) -> str:
    """The use of an account stays with its name (tests/slurm/test_accounting.py)."""
    found = listed(one.name for one in heirs)
    return f"; the fair-share of {found} starts at zero" if found else ""


def _left(was: Account, now: Account) -> Iterator[Lost]:
    """Users who leave the account: it is closed for them."""
    if gone := [user for user in was.users if user not in now.users]:
        yield Lost("account-left", f"of {listed(gone)} in the account {was.name}")


def _lost_qos(was: Account, now: Account) -> Iterator[Lost]:
    """QOS that the account may not use any more, also one that it had from its parent or its GPU hours of the month."""
    gone = [name for name in was.qos if name not in now.qos]
    if gone and was.users:
        jobs = f"of the QOS {listed(gone)} in the account {was.name}"
        yield Lost("qos-of-account", jobs, until=_ANOTHER_QOS)


def _moved(one: Account, before: Mapping[str, Account], after: Mapping[str, Account]) -> Iterator[Lost]:
    """An account with another parent, and the lower limits of GPUs above it."""
    if after[one.name].parent == one.parent:
        return
    yield Lost("account-moved", f"of the account {one.name}")
    limits = [above.limits.gpus for above in _above(one, before) if above.limits.gpus is not None]
    least = min(limits, default=None)
    for above in _above(after[one.name], after):
        limit = above.limits.gpus
        if limit is not None and (least is None or limit < least):
            jobs = f"of the account {one.name} that bring the jobs of {above.name} above {limit} GPUs"
            yield Lost("account-moved-limit", jobs, until=OTHERS_END)


def _above(one: Account, every: Mapping[str, Account]) -> Iterator[Account]:
    while (parent := every.get(one.parent)) is not None:
        yield parent
        one = parent
