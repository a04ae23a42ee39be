"""The evacuation table: the steps for each kind of interruption, from the notice to the end of the instance."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gpucluster.elastic.decide import limits
from gpucluster.elastic.decide import replacements as hourly
from gpucluster.elastic.decide.gangs import comment_jobs
from gpucluster.elastic.decide.interruptions import (
    interruption_reason,
)
from gpucluster.elastic.decide.jobs import HELD_REASON, died_of_signal, held_reason, is_held, is_held_for
from gpucluster.elastic.decide.offers import Headroom, choose, offers_in
from gpucluster.elastic.decide.placement import Need
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import InterruptionKind, Verb
from gpucluster.elastic.memory import Incarnation, Interruption, Placement
from gpucluster.elastic.model import (
    Action,
    Drain,
    JobRun,
    MarkDown,
    PowerDown,
    PowerUp,
    Requeue,
    Signal,
    Undrain,
)
from gpucluster.plan.model import Termination
from gpucluster.slurm import drains
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import JobState, SlurmPhase
from gpucluster.slurm.values import SlurmJob

DEFAULT_NOTICE_S = 120.0  # a spot notice without a time (T34)


@dataclass(frozen=True, slots=True)
class EvacuationContext:
    """An interruption, and the termination settings of its pool."""

    interruption: Interruption
    termination: Termination
    now_ordered_at: float | None = None  # the operator ordered `now`: do not wait for jobs


def evacuation_of(world: World, slot: str, interruption: Interruption) -> EvacuationContext:
    """Return the interruption of a slot with the settings of the pool and the operator's order."""
    order = world.memory.orders.get(slot)
    now_ordered = order is not None and order.verb is Verb.NODE_REPLACE and order.now
    return EvacuationContext(
        interruption, world.slots[slot].pool.termination, order.at if order and now_ordered else None
    )


TimeOf = Callable[[EvacuationContext], float | None]


@dataclass(frozen=True, slots=True)
class EvacuationRow:
    """The steps for one kind of interruption, with functions that return their times; None: the step is never done."""

    drains: bool  # drain the node, so that it gets no new job
    signal_at: TimeOf  # signal the batch scripts
    requeue_at: TimeOf  # requeue the jobs
    power_down_at: (
        TimeOf  # from this time on power down the node, also with jobs; before it only an idle node
    )
    replaced: bool  # launch a replacement now, so that it is up when the job comes back
    ends_idle: bool = True  # power down the node when it is idle


def _never(_: EvacuationContext) -> None:
    return None


def _at_once(context: EvacuationContext) -> float:
    return context.interruption.since


def _end(context: EvacuationContext) -> float:
    return (
        context.interruption.ends_at
        if context.interruption.ends_at is not None
        else context.interruption.since + DEFAULT_NOTICE_S
    )


def _before_end(context: EvacuationContext) -> float:
    """Return the lead time before the end, in seconds. A short notice leaves half of its time to the batch script."""
    end = _end(context)
    return end - min(float(context.termination.lead_s), max(0.0, (end - context.interruption.since) / 2))


def _shortly_before(context: EvacuationContext) -> float | None:
    """Return the time until which jobs may end by themselves: the end, less lead and grace. None without an end."""
    end = context.interruption.ends_at
    return None if end is None else end - context.termination.lead_s - context.termination.grace_s


def _before_known_end(context: EvacuationContext) -> float | None:
    return None if context.interruption.ends_at is None else _before_end(context)


def _after_grace(context: EvacuationContext) -> float:
    return context.interruption.since + context.termination.grace_s


def _if_now_ordered(context: EvacuationContext) -> float | None:
    return None if context.now_ordered_at is None else max(context.now_ordered_at, context.interruption.since)


def _after_grace_if_now_ordered(context: EvacuationContext) -> float | None:
    at = _if_now_ordered(context)
    return None if at is None else at + context.termination.grace_s


def _earliest(*rules: TimeOf) -> TimeOf:
    """Return a function for the earliest of these times."""

    def earliest(context: EvacuationContext) -> float | None:
        return min((at for rule in rules if (at := rule(context)) is not None), default=None)

    return earliest


EVACUATION_TABLE: Mapping[InterruptionKind, EvacuationRow] = {
    InterruptionKind.SPOT: EvacuationRow(
        drains=True, signal_at=_at_once, requeue_at=_before_end, power_down_at=_end, replaced=True
    ),
    InterruptionKind.REBALANCE: EvacuationRow(
        drains=False, signal_at=_never, requeue_at=_never, power_down_at=_never, replaced=False
    ),
    InterruptionKind.MAINTENANCE: EvacuationRow(
        drains=True,
        signal_at=_earliest(_shortly_before, _if_now_ordered),
        requeue_at=_earliest(_before_known_end, _after_grace_if_now_ordered),
        power_down_at=_never,
        replaced=True,
    ),
    InterruptionKind.BLOCK_END: EvacuationRow(
        drains=True, signal_at=_at_once, requeue_at=_before_end, power_down_at=_end, replaced=False
    ),
    InterruptionKind.FAULT: EvacuationRow(
        drains=True, signal_at=_at_once, requeue_at=_after_grace, power_down_at=_never, replaced=True
    ),
    InterruptionKind.REPLACE: EvacuationRow(
        drains=True,
        signal_at=_if_now_ordered,
        requeue_at=_after_grace_if_now_ordered,
        power_down_at=_never,
        replaced=True,
    ),
}


def rule_of(world: World, slot: str, interruption: Interruption) -> EvacuationRow:
    """Return the steps for the interruption of this slot now. The hourly limit keeps an instance, not the jobs on it."""
    rule = EVACUATION_TABLE[interruption.kind]
    return replace(rule, replaced=False, ends_idle=False) if hourly.is_kept(world, slot) else rule


def untold_at(rule: EvacuationRow, context: EvacuationContext, run: Placement) -> float | None:
    """Return when the run of a job is signalled for this interruption; None: never, or the last signal told of it.

    One signal tells of all that is due within the grace after it: the script writes its checkpoint in that time.
    """
    at = rule.signal_at(context)
    if at is None or not run.signalled:
        return at
    told = run.signalled_at is None or at <= run.signalled_at + context.termination.grace_s
    return None if told else at


def comes_back(world: World, job: SlurmJob) -> bool:
    """Return whether Slurm queues the job again when its instance ends. A job that reaches its time limit before is over then."""
    if not job.requeues_on_failure:
        return False
    if not job.running or job.time_limit_s is None:
        return True
    return job.started_at + job.time_limit_s > min(_requeues(world, job), default=0.0)


def _requeues(world: World, job: SlurmJob) -> Iterator[float]:
    """Yield the time at which each interrupted instance of the job requeues it."""
    for slot in job.nodes:
        incarnation = world.incarnation(slot)
        if slot in world.slots and incarnation is not None and incarnation.interruption is not None:
            interruption = incarnation.interruption
            at = rule_of(world, slot, interruption).requeue_at(evacuation_of(world, slot, interruption))
            if at is not None:
                yield at


def is_healthy(world: World, slot: str) -> bool:
    """Return whether the slot has no interruption: its agent can read notices and reports none, or there is no instance."""
    incarnation = world.incarnation(slot)
    if incarnation is None or not incarnation.instance:
        return world.free(slot)
    received = world.reports.get(incarnation.instance)
    return incarnation.interruption is None and received is not None and received.report.watched


def interruption_notice(interruption: Interruption) -> str:
    """Return the notice that the node reads: `spot 1700000000`; empty for a hint."""
    if not EVACUATION_TABLE[interruption.kind].drains:
        return ""
    return (
        interruption.kind.value
        if interruption.ends_at is None
        else f"{interruption.kind.value} {interruption.ends_at:.0f}"
    )


NO_PLACEMENT = Placement(slots=())
NO_HANDLER_REASON = (
    "its batch script has no handler for the signal that announced the end of its instance: requeued"
)
# While an interruption is younger than this, or its end nearer than this, passes are frequent.
FRESH_S = 600.0


@dataclass(frozen=True, slots=True)
class EvacuatingNode:
    """A slot with an interrupted instance, its rule, and the jobs on it."""

    slot: str
    incarnation: Incarnation
    evacuation: EvacuationContext
    rule: EvacuationRow
    jobs: tuple[SlurmJob, ...]

    @property
    def signal_at(self) -> float | None:
        return self.rule.signal_at(self.evacuation)

    @property
    def requeue_at(self) -> float | None:
        return self.rule.requeue_at(self.evacuation)

    @property
    def power_down_at(self) -> float | None:
        return self.rule.power_down_at(self.evacuation)

    @property
    def reason(self) -> str:
        return interruption_reason(self.evacuation.interruption)


def evacuate(world: World, headroom: Headroom) -> Iterator[Action]:
    """Drain, signal, requeue, replace and power down, each at its time in the table. Replacements take their headroom."""
    nodes = _evacuating_nodes(world)
    yield from _leave(world, nodes)
    yield from _take_down(world, nodes)
    if to_replace := _to_replace(world, nodes):
        yield from replacements(world, headroom, to_replace)
    yield from _undrain(world)


def leave(world: World) -> Iterator[Action]:
    """Drain, signal and requeue only: the steps that need no view of the cloud."""
    return _leave(world, _evacuating_nodes(world))


def _leave(world: World, nodes: tuple[EvacuatingNode, ...]) -> Iterator[Action]:
    yield from _drain(world, nodes)
    yield from _notify_jobs(world, nodes)
    yield from _requeue_dead(world)


def next_due(world: World) -> float:
    """Return the time of the next step; now, if an interruption is new or near its end."""
    due = float("inf")
    for slot, incarnation in world.memory.incarnations.items():
        if incarnation.interruption is None or not incarnation.instance or slot not in world.slots:
            continue
        evacuation, rule = (
            evacuation_of(world, slot, incarnation.interruption),
            rule_of(world, slot, incarnation.interruption),
        )
        times = [
            at
            for at in (
                rule.signal_at(evacuation),
                rule.requeue_at(evacuation),
                rule.power_down_at(evacuation),
            )
            if at
        ]
        if rule.drains and any(
            abs(at - world.now) < FRESH_S for at in (incarnation.interruption.since, *times)
        ):
            return world.now
        due = min([due, *(at for at in times if at > world.now)])
    return due


def _evacuating_nodes(world: World) -> tuple[EvacuatingNode, ...]:
    interrupted = {
        slot: (incarnation, incarnation.interruption)
        for slot, incarnation in world.memory.incarnations.items()
        if incarnation.interruption is not None and incarnation.instance and slot in world.slots
    }
    if not interrupted:
        return ()
    jobs: dict[str, tuple[SlurmJob, ...]] = {}
    for job in world.slurm.jobs:
        if job.running or job.configuring or job.suspended:
            for node in interrupted.keys() & set(job.nodes):
                jobs[node] = (*jobs.get(node, ()), job)
    return tuple(
        EvacuatingNode(
            slot,
            incarnation,
            evacuation_of(world, slot, interruption),
            rule_of(world, slot, interruption),
            jobs.get(slot, ()),
        )
        for slot, (incarnation, interruption) in interrupted.items()
        if world.phases.get(slot) in (SlurmPhase.UP, SlurmPhase.NOT_RESPONDING, SlurmPhase.POWER_DOWN_PENDING)
    )


def drain_reason(world: World, slot: str) -> str:
    """Return why the slot is kept drained until its instance ends; empty if it is not."""
    incarnation = world.incarnation(slot)
    if incarnation is None or incarnation.interruption is None or not incarnation.instance:
        return ""
    drains = rule_of(world, slot, incarnation.interruption).drains
    return interruption_reason(incarnation.interruption) if drains else ""


def _drain(world: World, nodes: tuple[EvacuatingNode, ...]) -> Iterator[Drain]:
    """Drain the node. If it is already drained, only a reason that we wrote is updated."""
    found: dict[str, list[str]] = {}
    for one in nodes:
        if one.rule.drains and (not world.node(one.slot).drained or _says_else(world, one)):
            found.setdefault(one.reason, []).append(one.slot)
    for reason, slots in sorted(found.items()):
        yield Drain(slots=tuple(slots), reason=reason)


def _says_else(world: World, one: EvacuatingNode) -> bool:
    """Return whether the end was moved. Slurm may change other texts, so only reasons with a time are compared."""
    node = world.node(one.slot)
    timed = one.evacuation.interruption.ends_at is not None
    return timed and node.drain_owner is DrainOwner.EVACUATION and node.reason != one.reason


# --- jobs ------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class EvacuatingJob:
    """A job and its interrupted instances, the most urgent first. The components of a het job are one job.

    `jobs`: those on these instances; `components`: all. Slurm begins the batch script when all components are ready.
    """

    id: int
    jobs: tuple[SlurmJob, ...]
    components: tuple[SlurmJob, ...]
    nodes: tuple[EvacuatingNode, ...]

    @property
    def is_requeued(self) -> bool:
        return all(job.requeues_on_failure for job in self.jobs)

    @property
    def running(self) -> bool:
        return all(job.running for job in self.components)

    @property
    def is_starting(self) -> bool:
        return any(job.configuring for job in self.components)

    def due(self, now: float, at: Callable[[EvacuatingNode], float | None]) -> EvacuatingNode | None:
        return next((one for one in self.nodes if (t := at(one)) is not None and t <= now), None)

    def words(self, world: World, one: EvacuatingNode) -> tuple[str, bool]:
        """Return the comment of the job, and whether it is held when it is requeued."""
        interruption = one.evacuation.interruption
        held = self.is_requeued and any(is_held_for(world, job, interruption) for job in self.jobs)
        return (held_reason(interruption) if held else one.reason), held

    def run(self, world: World) -> Placement:
        """Return the steps that were done in this run of the job, for any of its instances."""
        return world.memory.jobs.get(str(self.id), NO_PLACEMENT)

    def seen_run(self, world: World) -> JobRun:
        """Return the run of the job, or of the leader of the het job, which may be on other nodes."""
        leader = next((job for job in world.slurm.jobs if job.id == self.id), self.jobs[0])
        return replace(JobRun.of(leader), job=self.id)


def _notify_jobs(world: World, nodes: tuple[EvacuatingNode, ...]) -> Iterator[Action]:
    signals: dict[tuple[str, str, str], list[int]] = {}
    back: dict[tuple[str, str, bool], list[JobRun]] = {}
    for job in _evacuated_jobs(world, nodes):
        one = job.due(world.now, lambda x: x.signal_at)
        if one is None:
            continue
        reason, held = job.words(world, one)
        yield from comment_jobs(job.jobs, reason)
        instance = one.incarnation.instance or ""
        done = job.run(world)
        untold = job.due(world.now, lambda x, done=done: untold_at(x.rule, x.evacuation, done))
        if job.running and untold is not None:
            key = (untold.incarnation.instance or "", untold.evacuation.termination.signal, untold.reason)
            signals.setdefault(key, []).append(job.id)
        last = job.due(world.now, lambda x: x.requeue_at)
        if job.is_requeued and (last or job.is_starting) and not done.sent_back:
            back.setdefault((instance, reason, held), []).append(job.seen_run(world))
    for (instance, signal, reason), jobs in sorted(signals.items()):
        yield Signal(jobs=tuple(sorted(jobs)), signal=signal, instance=instance, reason=reason)
    for (instance, reason, held), runs in sorted(back.items()):
        by_job = tuple(sorted(runs, key=lambda run: run.job))
        yield Requeue(runs=by_job, instance=instance, reason=reason, held=held)


def _requeue_dead(world: World) -> Iterator[Requeue]:
    """Requeue jobs that our signal ended: without a handler, the batch script ends as failed.

    Slurm does not requeue a job that is still completing.
    """
    known = world.memory.jobs
    fallen = [
        job
        for job in world.slurm.jobs
        if died_of_signal(world, job, known.get(str(job.id))) and JobState.COMPLETING not in job.states
    ]
    for held, words in ((False, NO_HANDLER_REASON), (True, HELD_REASON)):
        if runs := tuple(JobRun.of(job) for job in fallen if is_held(world, job) is held):
            reason = drains.reason(DrainOwner.EVACUATION, words)
            yield Requeue(runs=runs, instance="", reason=reason, held=held)


def _evacuated_jobs(world: World, nodes: tuple[EvacuatingNode, ...]) -> tuple[EvacuatingJob, ...]:
    members: dict[int, tuple[dict[int, SlurmJob], list[EvacuatingNode]]] = {}
    for one in nodes:
        for job in one.jobs:
            jobs, where = members.setdefault(job.het_id or job.id, ({}, []))
            jobs[job.id] = job
            if one not in where:
                where.append(one)
    return tuple(
        EvacuatingJob(
            number, tuple(jobs.values()), components(world, number), tuple(sorted(where, key=_urgency))
        )
        for number, (jobs, where) in sorted(members.items())
    )


def components(world: World, number: int) -> tuple[SlurmJob, ...]:
    """Return the components that have not ended: a person may cancel one of them, and the script runs on."""
    parts = (job for job in world.slurm.jobs if number in (job.id, job.het_id))
    return tuple(one for one in parts if one.pending or one.configuring or one.running or one.suspended)


def _urgency(one: EvacuatingNode) -> tuple[float, str]:
    at = one.requeue_at
    return (float("inf") if at is None else at, one.slot)


# --- nodes -----------------------------------------------------------------------------------------
def _take_down(world: World, nodes: tuple[EvacuatingNode, ...]) -> Iterator[Action]:
    """Set the node DOWN, so that Slurm skips the epilog, and power it down. For a rebalance recommendation: power down only an idle node."""
    hinted: dict[str, list[str]] = {}
    gone: dict[str, list[str]] = {}
    for one in nodes:
        if is_held_up(world, one.slot):
            continue  # drained, and its jobs requeued
        node = world.node(one.slot)
        empty = node.idle and not one.jobs
        if not one.rule.drains:
            up = world.phases[one.slot] is SlurmPhase.UP and not world.just_undrained(one.slot)
            if empty and up:
                hinted.setdefault(one.evacuation.interruption.words, []).append(one.slot)
            continue
        over = one.power_down_at is not None and one.power_down_at <= world.now
        if over or (empty and node.drained and one.rule.ends_idle):
            gone.setdefault(one.reason, []).append(one.slot)
    for reason, slots in sorted(hinted.items()):
        yield PowerDown(slots=tuple(slots), reason=reason)
    for reason, slots in sorted(gone.items()):
        yield MarkDown(slots=tuple(slots), reason=reason)
        yield PowerDown(slots=tuple(slots), reason=reason)


def is_held_up(world: World, slot: str) -> bool:
    """Return whether a person holds the node, so that we do not power it down: by `keep`, or by a drain without an order to replace it."""
    if world.kept(slot):
        return True
    node, order = world.node(slot), world.memory.orders.get(slot)
    by_person = node.drained and not node.drained_by_slurm and not node.drain_owner.is_daemon
    return by_person and (order is None or order.verb is not Verb.NODE_REPLACE)


def _to_replace(
    world: World, nodes: tuple[EvacuatingNode, ...]
) -> Mapping[tuple[str, str], tuple[Need, ...]]:
    """Return what the requeued jobs will need again, by pool and zone: one need for each instance."""
    found: dict[tuple[str, str], tuple[Need, ...]] = {}
    for one in nodes:
        due = one.signal_at is not None and one.signal_at <= world.now
        interruption = one.evacuation.interruption
        back = [j for j in one.jobs if not is_held_for(world, j, interruption)] if due else []
        if one.rule.replaced and (back := [job for job in back if comes_back(world, job)]):
            place = world.slots[one.slot]
            key = (place.pool.name, place.zone)
            found[key] = (*found.get(key, ()), Need.of(world, back))
    return found


def _undrain(world: World) -> Iterator[Undrain]:
    """Remove our drains of instances after their interruption is over."""
    found = tuple(
        slot
        for slot in world.group(SlurmPhase.UP, SlurmPhase.OFF)
        if world.node(slot).drained
        and world.node(slot).drain_owner is DrainOwner.EVACUATION
        and is_healthy(world, slot)
        and not world.is_removed(slot)
    )
    if found:
        yield Undrain(slots=found, reason="its interruption is over")


def replacements(
    world: World, headroom: Headroom, to_replace: Mapping[tuple[str, str], tuple[Need, ...]]
) -> Iterator[PowerUp]:
    """Power up the nodes that the requeued jobs need in each (pool, zone), less booting and idle nodes, if there is capacity."""
    found = list[str]()
    for name, zone in sorted(to_replace):
        needs = to_replace[name, zone]
        pool = next(p for p in world.plan.pools if p.name == name)
        ready = [slot for slot in _ready_nodes(world, name, zone) if _serves(world, slot, needs)]
        wanted = min(len(needs) - len(ready), headroom.of_pool(name))
        if wanted < 1 or limits.stop_of(world, name):
            continue
        offer = choose(world, headroom, offers_in(world, pool, zone), wanted)
        if offer is None:
            continue
        free = [slot for slot in _free_slots(world, name, zone) if _serves(world, slot, needs)][:wanted]
        headroom.take(name, offer.source.position, len(free))
        found.extend(free)
    if found:
        yield PowerUp(slots=tuple(found), reason="replacement for an interrupted instance")


def powered_up(actions: Iterable[Action]) -> frozenset[str]:
    """Return the slots that these actions power up. No other action may change them in this pass."""
    return frozenset(slot for action in actions if isinstance(action, PowerUp) for slot in action.slots)


def _serves(world: World, slot: str, needs: tuple[Need, ...]) -> bool:
    return any(need.allows(world.node(slot)) for need in needs)


def _ready_nodes(world: World, pool: str, zone: str) -> list[str]:
    """Return the nodes without a job that are idle or booting."""
    return [
        slot
        for slot in world.group(SlurmPhase.UP, SlurmPhase.POWERING_UP)
        if _is_in(world, slot, pool, zone)
        and world.node(slot).idle
        and not world.node(slot).drained
        and not world.starting_on.get(slot)
        and ((incarnation := world.incarnation(slot)) is None or incarnation.interruption is None)
    ]


def _free_slots(world: World, pool: str, zone: str) -> list[str]:
    return [
        slot
        for slot in world.group(SlurmPhase.OFF)
        if _is_in(world, slot, pool, zone)
        and not world.node(slot).drained
        and world.free(slot)
        and not world.is_removed(slot)
    ]


def _is_in(world: World, slot: str, pool: str, zone: str) -> bool:
    place = world.slots[slot]
    return place.pool.name == pool and place.zone == zone
