"""The overview of a cluster: what is applied, up, paused, refused, draining, spending and waiting. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gpucluster.cloud.bundle_status import Published
from gpucluster.elastic import ledger
from gpucluster.elastic.abilities import Ability
from gpucluster.elastic.decide import limits, replacements
from gpucluster.elastic.decide.launch_trials import trial_key
from gpucluster.elastic.decide.node_table import HOURLY_LIMITS, NodeTable, row_for
from gpucluster.elastic.decide.offers import Headroom, all_offers, refusal_of
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import source_key
from gpucluster.elastic.inspect import losses
from gpucluster.elastic.inspect.daemon_view import ACTING, UNKNOWN, DaemonView
from gpucluster.elastic.inspect.silent import SilentNode, silent_nodes
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why.case import hourly_rate, unpriced
from gpucluster.elastic.inspect.why.causes import CauseFinder
from gpucluster.elastic.model import LaunchTrial
from gpucluster.plan.model import Pool
from gpucluster.slurm import hostlist
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import SlurmPhase
from gpucluster.slurm.values import SlurmJob
from gpucluster.text import format_money, relative_time, short

SHORT = 12  # characters of a digest
_LONGEST = 300  # characters of EC2's answer to a dry run
MOST = 8  # lines of one kind in the text; JSON has all
_UP = frozenset({SlurmPhase.UP, SlurmPhase.POWER_DOWN_PENDING, SlurmPhase.NOT_RESPONDING})
_QUIET = _UP | {SlurmPhase.OFF}  # each zone has a slot for every node of the pool, so most are off


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOverview:
    """One pool. `nodes` counts its nodes by phase; `stopped` says why nothing is launched.

    `resumes`: `pool resume` ends the stop.
    """

    name: str
    size: int
    nodes: Mapping[str, int]
    stopped: str = ""
    resumes: bool = False

    @property
    def up(self) -> int:
        """Nodes with a slurmd."""
        return sum(count for phase, count in self.nodes.items() if SlurmPhase(phase) in _UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedOffer:
    """An offer that the cloud refused, and the time until which it is not requested. `until` None: until the daemon starts again.

    `for_capacity`: the cloud has none now. Else a quota, a right or the offer itself is at fault.
    """

    offer: str
    words: str
    times: int
    until: float | None
    for_capacity: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedOffer:
    """An offer that a dry run has tried at `at`, and why EC2 refuses it; empty: it would take the launch, if it has capacity."""

    offer: str
    at: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining:
    """Nodes that take no new job, with their common reason."""

    nodes: str  # hostlist
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReplaced:
    """Unhealthy nodes that stay drained, because their pool has had its most replacements of an hour."""

    nodes: str  # hostlist
    per_hour: int
    again_at: float | None  # the next replacement may begin then; None: a loss denies it


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """Nodes that are up in Slurm with one fault of slurmd (`silent`): the earliest `since` and `down_by` of them."""

    nodes: str  # hostlist
    words: str
    since: float | None
    down_by: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Jobs that wait for one cause, each task of an array as one; `job` is the one that was submitted first."""

    cause: str
    jobs: int
    job: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Micro-USD. `unpriced` machines are in no sum."""

    month: str
    spent: int
    hourly: int
    unpriced: int
    budget: int | None
    stop_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """If `unanswered` is `slurmctld`, pools, refusals, drains, jobs and costs are not known. `lost`: see `losses`.

    `offers`: how many sources, machine types and zones the daemon can launch; `tried`: those of them with a dry run.
    `daemon`: this machine's daemon acts; if not, `daemon_state` says why. `holder`: the machine whose daemon acts instead.
    """

    cluster: str
    applied: str  # digest of the bundle
    published: Published
    held: str = ""  # what a held bundle waits for
    daemon: bool = True
    daemon_state: str = ""
    holder: str = ""
    halted: str = ""
    unanswered: str = ""
    lost: tuple[str, ...] = ()
    not_copied: str = ""  # since when orders wait for their copy in the bucket, and why
    pools: tuple[PoolOverview, ...] = ()
    refused: tuple[RefusedOffer, ...] = ()
    offers: int = 0
    tried: tuple[TriedOffer, ...] = ()
    draining: tuple[Draining, ...] = ()
    not_replaced: tuple[NotReplaced, ...] = ()
    silent: tuple[Silent, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    running: int = 0
    spending: Spending | None = None

    @property
    def settled(self) -> bool:
        """Whether the head has applied the published bundle, and its agent is ready with it."""
        return bool(self.applied) and self.applied == self.published.bundle and self.published.ready


def overview(
    snapshot: ClusterSnapshot, applied: str, published: Published, daemon: DaemonView | None = None
) -> Overview:
    """Return the overview of a snapshot. `daemon`: this machine's; None: only whether it acts is known."""
    daemon = daemon or (ACTING if snapshot.daemon else UNKNOWN)
    held, world = snapshot.observation.held, snapshot.world
    made = Overview(
        cluster=snapshot.plan.name,
        applied=applied,
        published=published,
        held="" if held is None else held.waits_for,
        daemon=daemon.acts,
        daemon_state=daemon.effect,
        holder=daemon.holder,
        halted=snapshot.observation.halted,
        lost=losses.of(snapshot),
        not_copied=losses.not_copied(snapshot.copy, snapshot.now),
        unanswered=snapshot.unanswered,
    )
    if world is None:
        return made
    return replace(
        made,
        pools=pools(world),
        refused=tuple(_refused(world)),
        offers=sum(len(some) for some in all_offers(world).values()),
        tried=tuple(_tried(world, snapshot.trials)),
        draining=tuple(_draining(world)),
        not_replaced=tuple(_not_replaced(world)),
        silent=tuple(_silent(world)),
        waiting=tuple(_waiting(world)),
        running=sum(1 for job in world.slurm.jobs if job.running or job.configuring),
        spending=None if world.plan.aws is None else _spending(world),
    )


def pools(world: World) -> tuple[PoolOverview, ...]:
    """Return each pool of the plan."""
    return tuple(_pool(world, pool) for pool in world.plan.pools)


def text(shown: Overview, now: float) -> str:
    """Format for a terminal: a headline, and one line for each part that has something to say."""
    rows = [
        row
        for part in (_lines_of_bundle, _lines_of_daemon, _lines_of_nodes, _lines_of_jobs)
        for row in part(shown, now)
    ]
    lines: list[str] = []
    for n, (name, words) in enumerate(rows):
        lines.append(f"  {name if n == 0 or rows[n - 1][0] != name else '':9} {words}")
    return "\n".join((f"{shown.cluster}: {_headline(shown)}", *lines))


def _pool(world: World, pool: Pool) -> PoolOverview:
    mine = Counter(phase.value for slot, phase in world.phases.items() if world.slots[slot].pool is pool)
    stopped = "" if world.plan.aws is None else limits.stop_of(world, pool.name)
    return PoolOverview(
        name=pool.name,
        size=pool.max,
        nodes=dict(sorted(mine.items())),
        stopped=stopped,
        resumes=bool(stopped) and limits.is_resumed_by_order(world, pool.name),
    )


def _refused(world: World) -> Iterator[RefusedOffer]:
    found: dict[str, RefusedOffer] = {}
    for offer in (one for some in all_offers(world).values() for one in some):
        refusal = refusal_of(world.memory, offer)
        if refusal is not None and (refusal.for_this_run or refusal.until > world.now):
            name = f"{offer.words} in {offer.spec.zone}"
            of_source = world.memory.refusals.get(source_key(offer.pool, offer.source.position)) is refusal
            found[name] = RefusedOffer(
                offer=name,
                words=short(refusal.words),
                times=refusal.times,
                until=None if refusal.for_this_run else refusal.until,
                for_capacity=not (refusal.for_this_run or of_source),
            )
    yield from found.values()


def _tried(world: World, trials: Mapping[str, LaunchTrial]) -> Iterator[TriedOffer]:
    for key in sorted(trial_key(offer) for some in all_offers(world).values() for offer in some):
        if (trial := trials.get(key)) is not None:
            yield TriedOffer(offer=key, at=trial.at, words=short(trial.words, _LONGEST))


def _draining(world: World) -> Iterator[Draining]:
    reasons: dict[str, list[str]] = {}
    for node in world.slurm.nodes.values():
        if (
            node.drained and node.drain_owner is not DrainOwner.CAPACITY
        ):  # a slot without capacity is in `refused`
            reasons.setdefault(short(node.reason) or "no reason", []).append(node.name)
    for reason, nodes in sorted(reasons.items()):
        yield Draining(nodes=hostlist.fold(nodes), reason=reason)


def _not_replaced(world: World) -> Iterator[NotReplaced]:
    """Return the unhealthy nodes of each pool that the hourly limit keeps. The daemon replaces only cloud machines."""
    table, kept = NodeTable(world), dict[str, list[str]]()
    for slot in world.group(SlurmPhase.UP):
        if world.node(slot).drained and row_for(table.context(slot)) in HOURLY_LIMITS:
            kept.setdefault(world.slots[slot].pool.name, []).append(slot)
    for pool in world.plan.pools:
        if pool.name in kept:
            again = replacements.next_at(world, pool) if world.may(Ability.UPDATE) else None
            nodes = hostlist.fold(kept[pool.name])
            yield NotReplaced(nodes=nodes, per_hour=pool.replacements_per_hour, again_at=again)


def _silent(world: World) -> Iterator[Silent]:
    by_words: dict[str, list[SilentNode]] = {}
    for node in silent_nodes(world):
        by_words.setdefault(node.words, []).append(node)
    for words, nodes in sorted(by_words.items()):
        yield Silent(
            nodes=hostlist.fold([node.name for node in nodes]),
            words=words,
            since=min((node.since for node in nodes if node.since is not None), default=None),
            down_by=min((node.down_by for node in nodes if node.down_by is not None), default=None),
        )


def _waiting(world: World) -> Iterator[Waiting]:
    finder = CauseFinder(world, Headroom(world), all_offers(world))
    causes: dict[str, list[SlurmJob]] = {}
    for job in world.slurm.jobs:
        if job.pending:
            causes.setdefault(finder.cause_of(job).value, []).append(job)
    found = [
        Waiting(
            cause=cause,
            jobs=sum(job.tasks for job in jobs),
            job=min(jobs, key=lambda job: (job.submitted_at, job.id)).id,
        )
        for cause, jobs in causes.items()
    ]
    yield from sorted(found, key=lambda one: (-one.jobs, one.cause))


def _spending(world: World) -> Spending:
    budget = world.plan.budget
    return Spending(
        month=ledger.month_of(world.now),
        spent=limits.spent(world),
        hourly=hourly_rate(world),
        unpriced=unpriced(world),
        budget=None if budget is None else budget.monthly,
        stop_at=None if budget is None else budget.stop_scaling_at,
    )


def _headline(shown: Overview) -> str:
    mine, wanted = shown.applied[:SHORT] or "no bundle", shown.published.bundle[:SHORT]
    if not wanted:
        return f"{mine} is applied; {shown.published.unread}"
    if shown.applied == shown.published.bundle:
        return f"{mine} is applied"
    return f"{mine} is applied, {wanted} is published"


def _lines_of_bundle(shown: Overview, _now: float) -> Iterator[tuple[str, str]]:
    published = shown.published
    if published.refused:
        yield "bundle", f"{published.bundle[:SHORT]} is refused: {published.refused}"
    elif shown.held:
        yield "bundle", f"{shown.held}: gpucluster bundle show -c {shown.cluster}"
    elif published.detail:
        yield "head", published.detail
    if published.bundle and published.unread:
        yield "head", published.unread


def _lines_of_daemon(shown: Overview, now: float) -> Iterator[tuple[str, str]]:
    if shown.daemon_state:
        yield "head", shown.daemon_state
    for words in shown.lost:
        yield "lost", words
    if shown.not_copied:
        yield "orders", shown.not_copied
    if shown.halted:
        yield "halted", shown.halted
    if shown.unanswered:
        yield "head", f"{shown.unanswered} does not answer: nodes, jobs and costs are not known"


def _lines_of_nodes(shown: Overview, now: float) -> Iterator[tuple[str, str]]:
    for pool in shown.pools:
        others = {phase: n for phase, n in pool.nodes.items() if SlurmPhase(phase) not in _QUIET}
        parts = ", ".join((f"{pool.up} of {pool.size} up", *(f"{n} {phase}" for phase, n in others.items())))
        stop = f"; launches stop: {pool.stopped}" if pool.stopped else ""
        yield "pools", f"{pool.name}: {parts}{stop}"
    refused = [f"{one.offer}: {one.words}, again {_again(one, now)}" for one in shown.refused]
    yield from _most("refused", refused)
    dry = [
        f"{one.offer}: {one.words}, {relative_time(one.at, now)}, in a dry run"
        for one in shown.tried
        if one.words
    ]
    yield from _most("refused", dry)
    yield from _most("draining", [f"{one.nodes}: {one.reason}" for one in shown.draining])
    for one in shown.not_replaced:
        again = "" if one.again_at is None else f", the next {relative_time(one.again_at, now)}"
        words = f"{one.nodes}: unhealthy, and not replaced: at most {one.per_hour} an hour{again}"
        yield "limit", words
    yield from _most("silent", [f"{one.nodes}: {_words_of_silent(one, now)}" for one in shown.silent])


def _again(one: RefusedOffer, now: float) -> str:
    return "when the daemon starts again" if one.until is None else relative_time(one.until, now)


def _words_of_silent(one: Silent, now: float) -> str:
    since = "" if one.since is None else f", since {relative_time(one.since, now)}"
    if one.down_by is None:
        return f"{one.words}{since}"
    down = "DOWN by" if one.down_by > now else "not DOWN, which was due"
    return f"{one.words}{since}; {down} {relative_time(one.down_by, now)}"


def _lines_of_jobs(shown: Overview, _now: float) -> Iterator[tuple[str, str]]:
    spending = shown.spending
    if spending is not None:
        least = "at least " if spending.unpriced else ""
        limit = "" if spending.budget is None else f" of {format_money(spending.budget)}"
        words = f"{least}{format_money(spending.spent)}{limit} in {spending.month}, now {format_money(spending.hourly)} an hour"
        yield "spending", words
    if shown.running:
        yield "running", _count(shown.running)
    waiting = [
        f"{_count(one.jobs)}: {one.cause}; gpucluster why {one.job} -c {shown.cluster}"
        for one in shown.waiting
    ]
    yield from _most("waiting", waiting)


def _most(name: str, found: Iterable[str]) -> Iterator[tuple[str, str]]:
    lines = tuple(found)
    yield from ((name, line) for line in lines[:MOST])
    if len(lines) > MOST:
        yield name, f"and {len(lines) - MOST} more"


def _count(jobs: int) -> str:
    return f"{jobs} job{'s' if jobs != 1 else ''}"
