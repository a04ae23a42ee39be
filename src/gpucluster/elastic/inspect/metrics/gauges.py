"""Gauges of the present state: nodes by state, waiting jobs by cause, cost, limits, view ages. Pure except `Since`."""

import threading
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpucluster.cloud.limits import left
from gpucluster.elastic.abilities import Dependency
from gpucluster.elastic.decide import limits
from gpucluster.elastic.decide.node_table import NodeTable, row_for
from gpucluster.elastic.decide.offers import Headroom, all_offers
from gpucluster.elastic.decide.terminations import strays
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.inspect.silent import silent_nodes
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why.case import hourly_rate, unpriced
from gpucluster.elastic.inspect.why.causes import CauseFinder
from gpucluster.elastic.memory.launches import RATES
from gpucluster.slurm.states import SlurmPhase

Row = tuple[str, tuple[str, ...], float]
DAY_S = 86_400.0
# Slurm or the daemon works on these; a node that stays here is stuck
MOVING = frozenset(SlurmPhase) - {SlurmPhase.OFF, SlurmPhase.UP}


@dataclass(frozen=True, slots=True)
class Gauge:
    """The help text of a gauge, and its labels."""

    words: str
    labels: tuple[str, ...] = ()


GAUGES: Mapping[str, Gauge] = {
    "info": Gauge("The cluster, and the daemon that holds the lease.", ("cluster", "holder")),
    "lease_held": Gauge("1 while this daemon holds the lease."),
    "view_age_seconds": Gauge("Age of the last answer of Slurm or of the cloud.", ("of",)),
    "queue_silent_seconds": Gauge(
        "Time since when the queue of interruption events gives no answer; 0: it answers."
    ),
    "slurmctld_silent_seconds": Gauge("Time since when slurmctld runs and does not answer; 0: it answers."),
    "slurmctld_restarts_day": Gauge("Restarts of a silent slurmctld by the agent within 24 hours."),
    "nodes": Gauge("Slots by their phase in Slurm's power saving.", ("pool", "state")),
    "node_rows": Gauge("Slots by their row in the daemon's node table.", ("pool", "row")),
    "nodes_unhealthy": Gauge(
        "Nodes that fail a health check and are not drained, because the pool has its most drained nodes.",
        ("pool",),
    ),
    "nodes_silent": Gauge(
        "Nodes that are up in Slurm, and whose slurmd does not run or does not answer.", ("pool",)
    ),
    "transition_seconds": Gauge(
        "Longest time that a node has been in a transitional phase.", ("pool", "state")
    ),
    "unknown_states": Gauge("Nodes in a state without a row in the node table."),
    "instances": Gauge("Instances of the cluster's pools.", ("pool", "market", "machine", "zone")),
    "instances_end_refused": Gauge("Instances that EC2 refuses to terminate; their slots take no job."),
    "stray_instances": Gauge("Instances of this cluster that belong to no slot."),
    "stray_instance_seconds": Gauge("Age of the oldest stray instance."),
    "jobs_waiting": Gauge(
        "Pending jobs by the cause of their wait; each task of an array is one.", ("cause",)
    ),
    "jobs_waiting_seconds": Gauge("Longest wait of these jobs.", ("cause",)),
    "jobs_starting": Gauge("Jobs that wait for their nodes to boot."),
    "jobs_stalled": Gauge("Running jobs whose heartbeat stopped."),
    "interrupted": Gauge("Instances with an interruption, by its kind.", ("kind",)),
    "offer_refused": Gauge("Consecutive refusals of an offer that is not requested now.", ("offer",)),
    "spend_month_usd": Gauge("Cost of the current month, from the daemon's ledger and catalog prices."),
    "spend_rate_usd_per_hour": Gauge("Hourly cost of the present instances."),
    "instances_without_price": Gauge("Instances of unknown price, which the costs do not include."),
    "budget_usd": Gauge("The limits of the budget.", ("line",)),
    "halted": Gauge("1 while launches are stopped for the whole cluster."),
    "pool_stopped": Gauge("1 while launches are stopped for the pool.", ("pool", "by")),
    "bucket_tokens": Gauge(
        "Tokens left in a token bucket of the API, by the daemon's own model.", ("bucket",)
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatus:
    """Whether this daemon may act, and which daemon acts."""

    held: bool = True
    holder: str = ""


class Since:
    """The times since which things are in their state, kept from scrape to scrape."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: dict[str, dict[Hashable, float]] = {}

    def ages(self, kind: str, things: Iterable[Hashable], now: float) -> Mapping[Hashable, float]:
        """Return the age of each of `things`. Others of their kind are dropped."""
        with self._lock:
            old = self._first.get(kind, {})
            self._first[kind] = {thing: min(old.get(thing, now), now) for thing in things}
            return {thing: now - first for thing, first in self._first[kind].items()}


def gauge_rows(snapshot: ClusterSnapshot, lease: LeaseStatus, since: Since) -> Iterator[Row]:
    """Return every gauge's rows."""
    yield "info", (snapshot.plan.name, lease.holder), 1.0
    yield "lease_held", (), float(lease.held)
    yield from _views(snapshot)
    yield from _queue(snapshot)
    yield from _controller(snapshot)
    yield from _bounds(snapshot)
    world = snapshot.world
    if world is None:
        return
    yield from _nodes(world, since)
    if not world.blind:  # else no machine would be counted
        yield from _machines(world)
    yield from _jobs(world, since)
    yield from _money(world)


def _views(snapshot: ClusterSnapshot) -> Iterator[Row]:
    """Return the age of a view; the largest age if it was never read."""
    for of, view in (("slurm", snapshot.observation.slurm), ("cloud", snapshot.observation.cloud)):
        yield "view_age_seconds", (of,), max(0.0, snapshot.now - view.at) if view else float("inf")


def _queue(snapshot: ClusterSnapshot) -> Iterator[Row]:
    silent = snapshot.observation.lost.get(Dependency.QUEUE)
    since = snapshot.now if silent is None or silent.since is None else silent.since
    yield "queue_silent_seconds", (), max(0.0, snapshot.now - since)


def _controller(snapshot: ClusterSnapshot) -> Iterator[Row]:
    watch, now = snapshot.controller, snapshot.now
    silent = 0.0 if watch.silent_since is None else max(0.0, now - watch.silent_since)
    yield "slurmctld_silent_seconds", (), silent
    yield "slurmctld_restarts_day", (), float(sum(1 for at in watch.restarts if now - at < DAY_S))


def _bounds(snapshot: ClusterSnapshot) -> Iterator[Row]:
    memory = snapshot.memory
    yield (
        "halted",
        (),
        float(bool(snapshot.observation.halted) or snapshot.memory.unrestored_since is not None),
    )
    yield "unknown_states", (), float(len(memory.unknown))
    yield "jobs_stalled", (), float(len(memory.stalled))
    for key, refusal in sorted(memory.refusals.items()):
        if refusal.for_this_run or refusal.until > snapshot.now:
            yield "offer_refused", (key,), float(refusal.times)
    for bucket, rate in sorted(RATES.items()):
        level = memory.levels.get(bucket)
        yield (
            "bucket_tokens",
            (bucket,),
            left(rate, level.tokens, snapshot.now - level.at) if level else rate[0],
        )
    kinds = Counter(
        incarnation.interruption.kind.value
        for incarnation in memory.incarnations.values()
        if incarnation.interruption is not None
    )
    for kind, count in sorted(kinds.items()):
        yield "interrupted", (kind,), float(count)
    budget = snapshot.plan.budget
    if budget is not None:
        lines = (("monthly", budget.monthly), ("warn", budget.warn_at), ("stop", budget.stop_scaling_at))
        for line, amount in lines:
            yield "budget_usd", (line,), amount / 1e6


def _nodes(world: World, since: Since) -> Iterator[Row]:
    counts: Counter[tuple[str, str]] = Counter()
    for pool in world.plan.pools:
        counts.update({(pool.name, phase.value): 0 for phase in SlurmPhase})
    counts.update((world.slots[slot].pool.name, phase.value) for slot, phase in world.phases.items())
    for labels, count in sorted(counts.items()):
        yield "nodes", labels, float(count)
    for pool in world.plan.pools:
        bad = sum(
            1 for s in world.phases if world.slots[s].pool.name == pool.name and world.node(s).unhealthy
        )
        yield "nodes_unhealthy", (pool.name,), float(bad)
    silent = Counter(world.slots[one.name].pool.name for one in silent_nodes(world))
    for pool in world.plan.pools:
        yield "nodes_silent", (pool.name,), float(silent[pool.name])
    table = NodeTable(world)
    rows = Counter((world.slots[s].pool.name, row_for(table.context(s)).name) for s in world.phases)
    for labels, count in sorted(rows.items()):
        yield "node_rows", labels, float(count)
    moving = [(slot, phase) for slot, phase in world.phases.items() if phase in MOVING]
    slowest: dict[tuple[str, str], float] = {}
    ages = since.ages("moving", moving, world.now)
    for slot, phase in moving:
        key = (world.slots[slot].pool.name, phase.value)
        slowest[key] = max(slowest.get(key, 0.0), ages[slot, phase])
    for labels, age in sorted(slowest.items()):
        yield "transition_seconds", labels, age


def _machines(world: World) -> Iterator[Row]:
    owned = {
        incarnation.instance: slot
        for slot, incarnation in world.memory.incarnations.items()
        if incarnation.instance
    }
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for instance in world.cloud.instances.values():
        place = world.slots.get(owned.get(instance.id, ""))
        if instance.living and place is not None:
            pool = place.pool.name
            counts[pool, instance.market.value, instance.machine, instance.zone] += 1
    for labels, count in sorted(counts.items()):
        yield "instances", labels, float(count)
    refused = (known for known in world.memory.refused_ends.values() if known.refused)
    yield "instances_end_refused", (), float(sum(1 for _ in refused))
    alone = tuple(strays(world, {i for i, slot in owned.items() if slot in world.slots}))
    yield "stray_instances", (), float(len(alone))
    yield (
        "stray_instance_seconds",
        (),
        max((world.now - world.memory.strays.get(i.id, world.now) for i in alone), default=0.0),
    )


def _jobs(world: World, since: Since) -> Iterator[Row]:
    """Return how long jobs wait. A requeue resets Slurm's submit time, so the first time is kept here."""
    yield "jobs_starting", (), float(len(world.starting))
    pending = [job for job in world.slurm.jobs if job.pending]
    seen = since.ages("jobs", [j.id for j in world.slurm.jobs if j.pending or j.configuring], world.now)
    finder = CauseFinder(world, Headroom(world), all_offers(world))
    counts: Counter[str] = Counter()
    longest: dict[str, float] = {}
    for job in pending:
        cause = finder.cause_of(job).value
        counts[cause] += job.tasks
        longest[cause] = max(longest.get(cause, 0.0), seen[job.id], world.now - job.submitted_at)
    for cause, age in sorted(longest.items()):
        yield "jobs_waiting", (cause,), float(counts[cause])
        yield "jobs_waiting_seconds", (cause,), age


def _money(world: World) -> Iterator[Row]:
    yield "spend_month_usd", (), limits.spent(world) / 1e6
    yield "spend_rate_usd_per_hour", (), hourly_rate(world) / 1e6
    yield "instances_without_price", (), float(unpriced(world))
    for pool in world.plan.pools:
        stop = limits.stop_of(world, pool.name)
        if stop:
            yield "pool_stopped", (pool.name, _whose(stop)), 1.0


def _whose(stop: str) -> str:
    """Return the first word of the reason that stops a pool: budget, breaker, paused, drained."""
    return stop.replace(":", " ").split(" ", 1)[0]
