"""What jobs ask for that an edit takes from them, and the clauses about these jobs, from the recorded table of Slurm. Pure.

`slurm.request_table` has what real Slurm did. A clause carries the ids of its rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gpucluster.gitops.lost_gres import NEVER, Lost, lost_gres
from gpucluster.gitops.model import Clause
from gpucluster.plan.model import Account, Partition, Pool, Qos, SlurmPlan
from gpucluster.plan.slurm_identity import is_renamed
from gpucluster.slurm.request_table import Fate, Fates, Outcome, Way, fates_of
from gpucluster.slurm.states import PartitionState
from gpucluster.text import listed

_AGAIN = "until there are as many again"
_OTHERS_END = "until others end, and one that is above it alone never starts"
_ON_WAITING = ("afterok-waits", "afterany-waits")
_ON_CANCELLED = ("afterok-cancelled", "afterany-cancelled")
_STATES = {
    PartitionState.DOWN: "partition-down",
    PartitionState.DRAIN: "partition-drain",
    PartitionState.INACTIVE: "partition-inactive",
}
_CLOSED = ("partition-down", "partition-inactive")


def clauses(old: SlurmPlan, new: SlurmPlan | None, way: Way) -> tuple[Clause, ...]:
    """Return the clauses about jobs. `new` is None if Slurm leaves, with its queue."""
    return () if new is None else (*_queued(old, new, way), *_running(old, new, way), *_new(old, new))


def texts(found: Iterable[Clause], *subjects: str) -> tuple[str, ...]:
    """Return those of these jobs."""
    return tuple(one.text for one in found if one.subject in subjects)


def _queued(old: SlurmPlan, new: SlurmPlan, way: Way) -> Iterator[Clause]:
    """A job that depends on one that never starts is named once, at the end."""
    version, never = new.slurm.version, False
    found = _together((*_licences(old, new), *_of_partitions(old, new), *_accounts(old, new)))
    for one, fates in _in_order([(one, fates_of(one.row, version, way)) for one in found]):
        never = never or _never_starts(one, fates)
        yield Clause(subject="queued", text=_sentence(one, fates), rows=(one.row,))
    enforced = tuple(_enforced(old, new))
    yield from enforced
    if never or any(NEVER in one.text for one in enforced):
        yield _dependents(version, way)


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
    """Jobs on nodes that leave their partition, and stay in the cluster."""
    row = "partition-other-nodes"
    found = fates_of(row, new.slurm.version, way).running
    moved = [one.name for one in old.partitions if _leave(one, old, new)]
    if moved and found is not None and found.outcome is Outcome.GOES_ON:
        yield Clause(subject="running", text=f"those on nodes that leave {listed(moved)} go on", rows=(row,))


def _new(old: SlurmPlan, new: SlurmPlan) -> Iterator[Clause]:
    """Jobs that name no partition, where the default one goes."""
    was, now = _default(old), _default(new)
    if not was or was == now:
        return
    which = "new ones that name no partition"
    row, what = (
        ("default-moved", f"{which} go to {now}")
        if now
        else ("default-removed", f"sbatch refuses {which}: none is the default")
    )
    yield Clause(subject="new", text=f"after the change, {what}", rows=(row,))


def _default(plan: SlurmPlan) -> str:
    return next((one.name for one in plan.partitions if one.default), "")


def _sentence(one: Lost, fates: Fates) -> str:
    where = f" in {listed(one.of)}" if one.of else ""
    refused = " (sbatch refuses new ones)" if fates.new.outcome is Outcome.REFUSED else ""
    who = "others" if one.others else "those"
    return f"{who}{where} {one.jobs} {_fate(fates, one.until)}{refused}{one.then}".replace("  ", " ")


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
            yield Lost("licence-too-few", jobs, until=_AGAIN)


# --- partitions ---------------------------------------------------------------------------------------
def _of_partitions(old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    """All jobs of a partition that is closed wait, so nothing else is said of them."""
    after = {one.name: one for one in new.partitions}
    for one in old.partitions:
        if one.name in after:
            state = tuple(_of_state(one.name, old, new))
            yield from state
            if not any(found.row in _CLOSED for found in state):
                yield from _of_partition(one, after[one.name], old, new)


def _of_partition(one: Partition, after: Partition, old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    was, now = _pools(one, old), _pools(after, new)
    yield from lost_gres(one.name, was, now, new.pools)
    yield from _features(one.name, was, now)
    yield from _sizes(one.name, was, now, _leave(one, old, new))
    yield from _max_nodes(one.name, old, new)
    yield from _own_qos(one, after, old, new)


def _pools(partition: Partition, plan: SlurmPlan) -> tuple[Pool, ...]:
    return tuple(pool for pool in plan.pools if pool.name in partition.pools)


def _features(name: str, was: tuple[Pool, ...], now: tuple[Pool, ...]) -> Iterator[Lost]:
    kept = {feature for pool in now for feature in pool.features}
    gone = [feature for pool in was for feature in pool.features if feature not in kept]
    if gone:
        yield Lost("feature-removed", f"that need the feature {' or '.join(dict.fromkeys(gone))}", (name,))


def _leave(partition: Partition, old: SlurmPlan, new: SlurmPlan) -> frozenset[str]:
    """Return the nodes that the partition loses, and the cluster keeps."""
    after = next((one for one in new.partitions if one.name == partition.name), None)
    if after is None:
        return frozenset()
    every = {node for pool in new.pools for node in pool.node_names}
    return (frozenset(partition.node_names(old.pools)) & every) - frozenset(after.node_names(new.pools))


def _sizes(name: str, was: tuple[Pool, ...], now: tuple[Pool, ...], leave: frozenset[str]) -> Iterator[Lost]:
    """Nodes and CPUs of the partition, and memory of a node. `leave`: nodes that only the partition loses."""
    fewer, what = _nodes(now) < _nodes(was), "partition" if leave else "nodes"
    if leave:
        yield Lost("partition-other-nodes", "that wait for nodes that leave the partition", (name,))
    if fewer:
        yield Lost(f"{what}-too-few", "that need more nodes than are left", (name,), _AGAIN)
    if _cpus(now) < _cpus(was):
        row = f"{what}-too-few-cpus" if fewer else "cpus-too-few"
        yield Lost(row, "that need more CPUs than are left", (name,), _AGAIN)
    if (left := _memory(now)) < _memory(was):
        yield Lost("memory-too-low", f"that ask for more than {left} MiB of a node", (name,))


def _nodes(pools: Iterable[Pool]) -> int:
    return sum(len(one.node_names) for one in pools)


def _cpus(pools: Iterable[Pool]) -> int:
    return sum(one.shape.job_cpus * len(one.node_names) for one in pools)


def _memory(pools: Iterable[Pool]) -> int:
    return max((one.shape.job_memory_mib for one in pools), default=0)


def _of_state(name: str, old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    was, now = (
        PartitionState(_setting(name, "State", plan).upper() or PartitionState.UP) for plan in (old, new)
    )
    if was != now and (row := _STATES.get(now)):
        yield Lost(row, "", (name,), "until it is UP")


def _max_nodes(name: str, old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    most, left = (_setting(name, "MaxNodes", plan) for plan in (old, new))
    if left.isdecimal() and (not most.isdecimal() or int(left) < int(most)):
        yield Lost("partition-max-nodes", f"that ask for more than {left} nodes", (name,))


def _setting(name: str, key: str, plan: SlurmPlan) -> str:
    """Return what `extra` gives the partition; empty: nothing."""
    of_it = (one for one in plan.slurm.settings if (one.kind, one.of) == ("partition", name))
    return next((one.value for one in of_it if one.key == key and one.value), "")


def _own_qos(was: Partition, now: Partition, old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    """The limits of another QOS of the partition itself. `field_effects` has those of one QOS that change."""
    if now.qos is None or was.qos == now.qos:
        return
    before, after = (_limits(_qos(one.qos, plan)) for one, plan in ((was, old), (now, new)))
    for row, (limit, what) in after.items():
        if row not in before or limit < before[row][0]:
            until = "until the next month" if row.endswith("minutes") else _OTHERS_END
            yield Lost(row, f"that bring {what} (QOS {now.qos})", (now.name,), until)


def _limits(qos: Qos | None) -> dict[str, tuple[int, str]]:
    """Return the limits of a partition's QOS by the row of each, with what is limited."""
    if qos is None:
        return {}
    of, hours = qos.limits, qos.gpu_hours_per_month
    found = {
        "partition-own-qos": (of.gpus, f"its jobs above {of.gpus} GPUs"),
        "partition-own-qos-user": (of.gpus_per_user, f"a user above {of.gpus_per_user} GPUs"),
        "partition-own-qos-cpus": (of.cpus_per_user, f"a user above {of.cpus_per_user} CPUs"),
        "partition-own-qos-minutes": (hours, f"its jobs above {hours} GPU hours of the month"),
    }
    return {row: (limit, what) for row, (limit, what) in found.items() if limit is not None}


def _qos(name: str | None, plan: SlurmPlan) -> Qos | None:
    every = () if plan.slurm.accounting is None else plan.slurm.accounting.qos
    return next((one for one in every if one.name == name), None)


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


def _enforced(old: SlurmPlan, new: SlurmPlan) -> Iterator[Clause]:
    """Accounts that are needed first, or no more (S50). `identity` has accounting that comes or goes, and another name."""
    was, now = old.slurm.accounting, new.slurm.accounting
    if was is None or now is None or was.enforced == now.enforced:
        return
    if was.enforced:
        text = "those above a limit of accounts or QOS may start, as none holds any more"
        yield Clause(subject="queued", text=text, rows=())
    elif not is_renamed(old, new):
        text = f"those without an association wait with InvalidAccount or PartitionConfig, {NEVER}"
        yield Clause(subject="queued", text=text, rows=())
        refused = "after the change, sbatch refuses those of users without an account"
        yield Clause(subject="new", text=refused, rows=())


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
        yield Lost("qos-of-account", jobs, until="until they get another QOS")


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
            yield Lost("account-moved-limit", jobs, until=_OTHERS_END)


def _above(one: Account, every: Mapping[str, Account]) -> Iterator[Account]:
    while (parent := every.get(one.parent)) is not None:
        yield parent
        one = parent
