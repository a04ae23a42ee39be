"""Machines that are to be left: drained, their jobs signalled and sent back in time, and replaced.

One table says for each kind of trouble what happens when. A job that Slurm cannot queue again is signalled and told:
it dies with its machine, or, where the machine sets no end, is waited for. A job on several nodes is one job: it is
signalled once and sent back once, whatever happens to how many of them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gpucluster.elastic import owners
from gpucluster.elastic.decide.facts import fell
from gpucluster.elastic.decide.gangs import tell
from gpucluster.elastic.decide.leaving import RULES, Moment, Rule, moment_of, sentence, well
from gpucluster.elastic.decide.notices import noticed, storms, useless
from gpucluster.elastic.decide.restarts import HELD, held, held_sentence, holds
from gpucluster.elastic.decide.substitutes import substitutes
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Verb
from gpucluster.elastic.memory import Life, Placement
from gpucluster.elastic.model import (
    Action,
    Drain,
    MarkDown,
    Phase,
    PowerDown,
    Requeue,
    Signal,
    SlurmJob,
    Unblock,
)
from gpucluster.elastic.owners import Owner

__all__ = ["leave", "next_due", "noticed", "sentence", "storms", "useless"]
_UNTOLD = Placement(slots=())
FELL = "its batch script had no handler for the signal that told it of its machine's end: queued again"
FRESH_S = 600.0  # so long after it began, and before its end, a trouble is looked at often


@dataclass(frozen=True, slots=True)
class Leaver:
    """A slot with a machine that is to be left, and what runs there."""

    slot: str
    life: Life
    moment: Moment
    rule: Rule
    jobs: tuple[SlurmJob, ...]

    @property
    def signal_at(self) -> float | None:
        return self.rule.signals(self.moment)

    @property
    def requeue_at(self) -> float | None:
        return self.rule.requeues(self.moment)

    @property
    def take_at(self) -> float | None:
        return self.rule.takes(self.moment)

    @property
    def sentence(self) -> str:
        return sentence(self.moment.trouble)


def leave(world: World) -> Iterator[Action]:
    """Drain, signal, send back, ask for another, let go: each when the table says so."""
    leavers = _leavers(world)
    if leavers:
        yield from _drain(world, leavers)
        yield from _farewells(world, leavers)
        yield from _let_go(world, leavers)
        if missed := _missed(world, leavers):
            yield from substitutes(world, missed)
    yield from _fallen(world)
    yield from _lift(world)


def next_due(world: World) -> float:
    """When the next step of a trouble is due; now, while one is fresh or near its end."""
    due = float("inf")
    for slot, life in world.memory.lives.items():
        if life.trouble is None or not life.instance or slot not in world.slots:
            continue
        moment, rule = moment_of(world, slot, life.trouble), RULES[life.trouble.kind]
        times = [at for at in (rule.signals(moment), rule.requeues(moment), rule.takes(moment)) if at]
        if rule.drains and any(abs(at - world.now) < FRESH_S for at in (life.trouble.since, *times)):
            return world.now
        due = min([due, *(at for at in times if at > world.now)])
    return due


def _leavers(world: World) -> tuple[Leaver, ...]:
    troubled = {
        slot: (life, life.trouble)
        for slot, life in world.memory.lives.items()
        if life.trouble is not None and life.instance and slot in world.slots
    }
    if not troubled:
        return ()
    jobs: dict[str, tuple[SlurmJob, ...]] = {}
    for job in world.slurm.jobs:
        if job.running or job.configuring or job.suspended:
            for node in troubled.keys() & set(job.nodes):
                jobs[node] = (*jobs.get(node, ()), job)
    return tuple(
        Leaver(slot, life, moment_of(world, slot, trouble), RULES[trouble.kind], jobs.get(slot, ()))
        for slot, (life, trouble) in troubled.items()
        if world.phases.get(slot) in (Phase.UP, Phase.SILENT, Phase.LEAVING)
    )


def _drain(world: World, leavers: tuple[Leaver, ...]) -> Iterator[Drain]:
    """Whoever drained it already: no job comes, and only a reason of our own is brought up to date."""
    found: dict[str, list[str]] = {}
    for one in leavers:
        if one.rule.drains and (not world.node(one.slot).drained or _says_else(world, one)):
            found.setdefault(one.sentence, []).append(one.slot)
    for reason, slots in sorted(found.items()):
        yield Drain(slots=tuple(slots), reason=reason)


def _says_else(world: World, one: Leaver) -> bool:
    """An end that was moved. Words of others may come back changed from Slurm, so only what has a time is compared."""
    reason = world.node(one.slot).reason
    timed = one.moment.trouble.ends_at is not None
    return timed and owners.owner_of(reason) is Owner.TROUBLE and reason != one.sentence


# --- jobs ------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Party:
    """A job (a het job's components are one) and the machines of it that are to be left, the most urgent first."""

    id: int
    jobs: tuple[SlurmJob, ...]
    leavers: tuple[Leaver, ...]

    @property
    def returns(self) -> bool:
        return all(job.returns for job in self.jobs)

    @property
    def running(self) -> bool:
        return all(job.running for job in self.jobs)

    @property
    def starts(self) -> bool:
        return any(job.configuring for job in self.jobs)

    def due(self, now: float, at: Callable[[Leaver], float | None]) -> Leaver | None:
        return next((one for one in self.leavers if (t := at(one)) is not None and t <= now), None)

    def words(self, world: World, one: Leaver) -> tuple[str, bool]:
        """What is said of it, and whether it is held when it is queued again."""
        trouble = one.moment.trouble
        stops = self.returns and any(holds(world, job, trouble) for job in self.jobs)
        return (held_sentence(trouble) if stops else one.sentence), stops

    def run(self, world: World) -> Placement:
        """What was done already, in this run of the job and for whichever of its machines."""
        return world.memory.jobs.get(str(self.id), _UNTOLD)


def _farewells(world: World, leavers: tuple[Leaver, ...]) -> Iterator[Action]:
    signals: dict[tuple[str, str, str], list[int]] = {}
    back: dict[tuple[str, str, bool], list[int]] = {}
    for party in _parties(leavers):
        one = party.due(world.now, lambda x: x.signal_at)
        if one is None:
            continue
        reason, stops = party.words(world, one)
        yield from tell(party.jobs, reason)
        instance = one.life.instance or ""
        done = party.run(world)
        if party.running and not done.signalled:
            key = (instance, one.moment.farewell.signal, one.sentence)
            signals.setdefault(key, []).append(party.id)
        last = party.due(world.now, lambda x: x.requeue_at)
        if party.returns and (last or party.starts) and not done.sent_back:
            back.setdefault((instance, reason, stops), []).append(party.id)
    for (instance, signal, reason), jobs in sorted(signals.items()):
        yield Signal(jobs=tuple(sorted(jobs)), signal=signal, instance=instance, reason=reason)
    for (instance, reason, stops), jobs in sorted(back.items()):
        yield Requeue(jobs=tuple(sorted(jobs)), instance=instance, reason=reason, held=stops)


def _fallen(world: World) -> Iterator[Requeue]:
    """A script without a handler died of our signal and ended as failed: its job comes back as the others do.

    Slurm queues nothing again that still completes.
    """
    known = world.memory.jobs
    fallen = [
        job
        for job in world.slurm.jobs
        if fell(world, job, known.get(str(job.id))) and "COMPLETING" not in job.states
    ]
    for stops, words in ((False, FELL), (True, HELD)):
        if ids := tuple(job.id for job in fallen if held(world, job) is stops):
            yield Requeue(jobs=ids, instance="", reason=owners.reason(Owner.TROUBLE, words), held=stops)


def _parties(leavers: tuple[Leaver, ...]) -> tuple[Party, ...]:
    members: dict[int, tuple[dict[int, SlurmJob], list[Leaver]]] = {}
    for one in leavers:
        for job in one.jobs:
            jobs, where = members.setdefault(job.het_id or job.id, ({}, []))
            jobs[job.id] = job
            if one not in where:
                where.append(one)
    return tuple(
        Party(number, tuple(jobs.values()), tuple(sorted(where, key=_urgency)))
        for number, (jobs, where) in sorted(members.items())
    )


def _urgency(one: Leaver) -> tuple[float, str]:
    at = one.requeue_at
    return (float("inf") if at is None else at, one.slot)


# --- nodes -----------------------------------------------------------------------------------------
def _let_go(world: World, leavers: tuple[Leaver, ...]) -> Iterator[Action]:
    """Down, so that the epilog is not waited for, and off; a hint alone only powers an idle node down."""
    hinted: dict[str, list[str]] = {}
    gone: dict[str, list[str]] = {}
    for one in leavers:
        if world.kept(one.slot):
            continue  # drained, its jobs sent back; an operator wants to look at it
        node = world.node(one.slot)
        empty = node.idle and not one.jobs
        if not one.rule.drains:
            if empty and _ours_to_take(world, one) and world.phases[one.slot] is Phase.UP:
                hinted.setdefault(one.moment.trouble.words, []).append(one.slot)
            continue
        over = one.take_at is not None and one.take_at <= world.now
        if (over or (empty and node.drained)) and _ours_to_take(world, one):
            gone.setdefault(one.sentence, []).append(one.slot)
    for reason, slots in sorted(hinted.items()):
        yield PowerDown(slots=tuple(slots), reason=reason)
    for reason, slots in sorted(gone.items()):
        yield MarkDown(slots=tuple(slots), reason=reason)
        yield PowerDown(slots=tuple(slots), reason=reason)


def _ours_to_take(world: World, one: Leaver) -> bool:
    """Not what a person drained, unless a person said to replace it."""
    node = world.node(one.slot)
    if not node.drained or node.spoiled or owners.owner_of(node.reason) is not None:
        return True
    order = world.memory.orders.get(one.slot)
    return order is not None and order.verb is Verb.NODE_REPLACE


def _missed(world: World, leavers: tuple[Leaver, ...]) -> Mapping[tuple[str, str], int]:
    """How many machines the jobs that come back will lack, by pool and zone."""
    found: Counter[tuple[str, str]] = Counter()
    for one in leavers:
        due = one.signal_at is not None and one.signal_at <= world.now
        trouble = one.moment.trouble
        back = any(job.returns and not holds(world, job, trouble) for job in one.jobs)
        if due and one.rule.replaced and back:
            place = world.slots[one.slot]
            found[(place.pool.name, place.zone)] += 1
    return found


def _lift(world: World) -> Iterator[Unblock]:
    """Drains of ours on machines that are to be left no more."""
    found = tuple(
        slot
        for slot in world.group(Phase.UP, Phase.OFF)
        if world.node(slot).drained
        and owners.owner_of(world.node(slot).reason) is Owner.TROUBLE
        and well(world, slot)
    )
    if found:
        yield Unblock(slots=found, reason="its trouble is over")
