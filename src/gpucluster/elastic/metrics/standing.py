"""What stands now: nodes by state, jobs that wait by cause, money, limits, and how old the views are. Pure but for `Since`."""

import threading
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpucluster.cloud.limits import left
from gpucluster.elastic.decide import limits
from gpucluster.elastic.decide.endings import strays
from gpucluster.elastic.decide.life import Lives, row_for
from gpucluster.elastic.decide.offers import Room, all_offers
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.memory.launches import RATES
from gpucluster.elastic.model import Phase
from gpucluster.elastic.sight import Sight
from gpucluster.elastic.why import money
from gpucluster.elastic.why.causes import Judge

Row = tuple[str, tuple[str, ...], float]
# Slurm or the daemon is at work on these: one that stays is stuck
MOVING = frozenset(Phase) - {Phase.OFF, Phase.UP}


@dataclass(frozen=True, slots=True)
class Gauge:
    """What it tells, and its labels."""

    words: str
    labels: tuple[str, ...] = ()


GAUGES: Mapping[str, Gauge] = {
    "info": Gauge("Which cluster, and who acts for it.", ("cluster", "holder")),
    "lease_held": Gauge("1 while this daemon may act."),
    "view_age_seconds": Gauge("How old the last answer of Slurm or of the cloud is.", ("of",)),
    "nodes": Gauge("Slots by where Slurm stands with them.", ("pool", "state")),
    "node_rows": Gauge("Slots by their row in the table of a node's life.", ("pool", "row")),
    "moving_seconds": Gauge(
        "How long the slowest node has been in a state that must pass.", ("pool", "state")
    ),
    "unknown_states": Gauge("Nodes in a state that no row of the table has."),
    "machines": Gauge("Machines that live.", ("pool", "market", "machine", "zone")),
    "strays": Gauge("Machines that live and that no slot owns."),
    "stray_seconds": Gauge("How long the oldest of them has lived."),
    "jobs_waiting": Gauge("Pending jobs by what they wait for.", ("cause",)),
    "jobs_waiting_seconds": Gauge("How long the oldest of them has waited.", ("cause",)),
    "jobs_starting": Gauge("Jobs whose nodes boot."),
    "jobs_hung": Gauge("Running jobs whose heartbeat stopped."),
    "troubled": Gauge("Machines that are to be left, by why.", ("kind",)),
    "offer_refused": Gauge("Refusals in a row of an offer that is not asked for now.", ("offer",)),
    "spend_month_usd": Gauge("What the month has cost so far, by the daemon's ledger at catalog prices."),
    "spend_rate_usd_per_hour": Gauge("What lives now costs an hour."),
    "machines_without_price": Gauge("Machines that live and are not in the sums of money."),
    "budget_usd": Gauge("The budget's lines.", ("line",)),
    "halted": Gauge("1 while nothing may be launched at all."),
    "pool_stopped": Gauge("1 while nothing may be launched for the pool.", ("pool", "by")),
    "bucket_tokens": Gauge("What is left in a bucket of the API, by our own model of it.", ("bucket",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """Whether this daemon may act, and who does."""

    held: bool = True
    holder: str = ""


class Since:
    """When something was first seen to be as it is: kept from scrape to scrape, by whoever scrapes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: dict[str, dict[Hashable, float]] = {}

    def ages(self, kind: str, things: Iterable[Hashable], now: float) -> Mapping[Hashable, float]:
        """How long each of `things` has been; what of their kind is not among them is forgotten."""
        with self._lock:
            old = self._first.get(kind, {})
            self._first[kind] = {thing: min(old.get(thing, now), now) for thing in things}
            return {thing: now - first for thing, first in self._first[kind].items()}


def standing(sight: Sight, office: Office, since: Since) -> Iterator[Row]:
    """Every gauge's rows."""
    yield "info", (sight.plan.name, office.holder), 1.0
    yield "lease_held", (), float(office.held)
    yield from _views(sight)
    yield from _bounds(sight)
    world = sight.world
    if world is None:
        return
    yield from _nodes(world, since)
    yield from _machines(world)
    yield from _jobs(world, since)
    yield from _money(world)


def _views(sight: Sight) -> Iterator[Row]:
    """A view that was never had is as old as can be."""
    for of, view in (("slurm", sight.seen.slurm), ("cloud", sight.seen.cloud)):
        yield "view_age_seconds", (of,), max(0.0, sight.now - view.at) if view else float("inf")


def _bounds(sight: Sight) -> Iterator[Row]:
    memory = sight.memory
    yield "halted", (), float(bool(sight.seen.halted))
    yield "unknown_states", (), float(len(memory.unknown))
    yield "jobs_hung", (), float(len(memory.hanging))
    for key, refusal in sorted(memory.refusals.items()):
        if refusal.for_this_run or refusal.until > sight.now:
            yield "offer_refused", (key,), float(refusal.times)
    for bucket, rate in sorted(RATES.items()):
        level = memory.levels.get(bucket)
        yield "bucket_tokens", (bucket,), left(rate, level.tokens, sight.now - level.at) if level else rate[0]
    kinds = Counter(life.trouble.kind.value for life in memory.lives.values() if life.trouble is not None)
    for kind, count in sorted(kinds.items()):
        yield "troubled", (kind,), float(count)
    budget = sight.plan.budget
    if budget is not None:
        lines = (("monthly", budget.monthly), ("warn", budget.warn_at), ("stop", budget.stop_scaling_at))
        for line, amount in lines:
            yield "budget_usd", (line,), amount / 1e6


def _nodes(world: World, since: Since) -> Iterator[Row]:
    counts: Counter[tuple[str, str]] = Counter()
    for pool in world.plan.pools:
        counts.update({(pool.name, phase.value): 0 for phase in Phase})
    counts.update((world.slots[slot].pool.name, phase.value) for slot, phase in world.phases.items())
    for labels, count in sorted(counts.items()):
        yield "nodes", labels, float(count)
    lives = Lives(world)
    rows = Counter((world.slots[s].pool.name, row_for(lives.stand(s)).name) for s in world.phases)
    for labels, count in sorted(rows.items()):
        yield "node_rows", labels, float(count)
    moving = [(slot, phase) for slot, phase in world.phases.items() if phase in MOVING]
    slowest: dict[tuple[str, str], float] = {}
    ages = since.ages("moving", moving, world.now)
    for slot, phase in moving:
        key = (world.slots[slot].pool.name, phase.value)
        slowest[key] = max(slowest.get(key, 0.0), ages[slot, phase])
    for labels, age in sorted(slowest.items()):
        yield "moving_seconds", labels, age


def _machines(world: World) -> Iterator[Row]:
    owned = {life.instance: slot for slot, life in world.memory.lives.items() if life.instance}
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for instance in world.cloud.instances.values():
        place = world.slots.get(owned.get(instance.id, ""))
        if instance.living and place is not None:
            pool = place.pool.name
            counts[pool, instance.market.value, instance.machine, instance.zone] += 1
    for labels, count in sorted(counts.items()):
        yield "machines", labels, float(count)
    alone = tuple(strays(world, {i for i, slot in owned.items() if slot in world.slots}))
    yield "strays", (), float(len(alone))
    yield "stray_seconds", (), max((world.now - i.launched_at for i in alone), default=0.0)


def _jobs(world: World, since: Since) -> Iterator[Row]:
    """A requeue sets Slurm's submit time anew, so how long a job waits is also counted here."""
    yield "jobs_starting", (), float(len(world.starting))
    pending = [job for job in world.slurm.jobs if job.pending]
    seen = since.ages("jobs", [j.id for j in world.slurm.jobs if j.pending or j.configuring], world.now)
    judge = Judge(world, Room(world), all_offers(world))
    waits: dict[str, list[float]] = {}
    for job in pending:
        waits.setdefault(judge.waits_for(job).value, []).append(
            max(seen[job.id], world.now - job.submitted_at)
        )
    for cause, ages in sorted(waits.items()):
        yield "jobs_waiting", (cause,), float(len(ages))
        yield "jobs_waiting_seconds", (cause,), max(ages)


def _money(world: World) -> Iterator[Row]:
    yield "spend_month_usd", (), limits.spent(world) / 1e6
    yield "spend_rate_usd_per_hour", (), money.rate(world) / 1e6
    yield "machines_without_price", (), float(money.unpriced(world))
    for pool in world.plan.pools:
        stop = limits.stop_of(world, pool.name)
        if stop:
            yield "pool_stopped", (pool.name, _whose(stop)), 1.0


def _whose(stop: str) -> str:
    """The first word of what stops a pool: budget, breaker, paused, drained."""
    return stop.replace(":", " ").split(" ", 1)[0]
