"""Gangs: whole or not at all, one zone, one request each; and what happens when a zone has nothing for one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucluster.elastic.decide import batches
from gpucluster.elastic.decide.asks import refused_for, same_token
from gpucluster.elastic.decide.batches import Gang
from gpucluster.elastic.decide.offers import Offer, Room, choose, why_none
from gpucluster.elastic.decide.pace import Pace
from gpucluster.elastic.decide.world import World, urgency
from gpucluster.elastic.events import Entry, Refused
from gpucluster.elastic.model import (
    Action,
    Comment,
    LaunchGang,
    MarkDown,
    Phase,
    PowerDown,
    Remember,
    SlurmJob,
)
from gpucluster.elastic.owners import Stranger
from gpucluster.plan.names import REASON_PREFIX

MAX_BOOTS = 3  # in one life; then the gang fails with the node's own last word


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gangs come to; `sent_back` are the jobs that wait again."""

    actions: tuple[Action, ...]
    sent_back: tuple[SlurmJob, ...]


def gangs(world: World) -> tuple[Gang, ...]:
    """Those that lack something, the most urgent job's first; a slot belongs to its most urgent job's gang."""
    joined = _joined(world.starting)
    parts: dict[tuple[tuple[int, int], str, str, str], list[str]] = {}
    for slot in world.group(Phase.WANTED):
        if not _lacks(world, slot):
            continue
        place, jobs = world.slots[slot], world.starting_on.get(slot, ())
        if jobs:
            leader = joined[_gang_id(jobs[0])][0]
            key = ((-leader.priority, _gang_id(leader)), place.pool.name, place.zone, "")
        elif _alone(world, slot):
            key = ((1, 0), place.pool.name, place.zone, slot)  # after every job
        else:
            continue
        parts.setdefault(key, []).append(slot)
    return tuple(
        Gang(world.slots[slots[0]].pool, zone, tuple(slots), () if single else joined[gang_id])
        for ((_, gang_id), _, zone, single), slots in sorted(parts.items())
    )


def serve(
    world: World, room: Room, offers: Mapping[tuple[str, str], tuple[Offer, ...]], pace: Pace
) -> Verdict:
    """Repeat what has no outcome, launch what can be had, give up what a zone refuses."""
    actions: list[Action] = list(_repeats(world))
    sent_back: list[SlurmJob] = []
    wanted: list[batches.Chosen] = []
    for parts in _whole(gangs(world)):
        failed = [(g, bad) for g in parts if (bad := tuple(s for s in g.slots if _hopeless(world, g, s)))]
        if failed:
            actions.extend(a for gang, bad in failed for a in _fail(world, gang, bad))
            continue
        chosen, lacking = _choose_all(world, room, offers, parts)
        for gang in lacking:
            here = offers[(gang.pool.name, gang.zone)]
            sentence = (
                f"{REASON_PREFIX} {why_none(world, room, gang.pool, gang.zone, here, count=len(gang.slots))}"
            )
            actions.extend(_refused(world, gang, sentence))
            sent_back.extend(gang.jobs if gang.returns else ())
        if lacking:
            continue
        wanted.append(chosen)
        for gang, some in chosen:
            room.take(gang.pool.name, some.source.position, len(gang.slots))
    actions.extend(batches.launches(world, pace, wanted, offers))
    return Verdict(tuple(actions), tuple(sent_back))


def tell(jobs: tuple[SlurmJob, ...], sentence: str) -> Iterator[Comment]:
    """Say it once."""
    unaware = tuple(sorted(job.id for job in jobs if job.admin_comment != sentence))
    if unaware:
        yield Comment(jobs=unaware, reason=sentence)


def _whole(found: tuple[Gang, ...]) -> Iterator[tuple[Gang, ...]]:
    """One job's parts in several pools or zones (het components, a partition over two pools) together."""
    parts: dict[tuple[int, ...] | str, tuple[Gang, ...]] = {}
    for gang in found:
        key = tuple(job.id for job in gang.jobs) or gang.slots[0]
        parts[key] = (*parts.get(key, ()), gang)
    yield from parts.values()


def _choose_all(
    world: World, room: Room, offers: Mapping[tuple[str, str], tuple[Offer, ...]], parts: tuple[Gang, ...]
) -> tuple[tuple[tuple[Gang, Offer], ...], tuple[Gang, ...]]:
    """An offer for each part, all of them within the room; and the parts that there is none for."""
    chosen: list[tuple[Gang, Offer]] = []
    lacking: list[Gang] = []
    for gang in parts:
        some = choose(world, room, offers[(gang.pool.name, gang.zone)], len(gang.slots), gang.jobs)
        if some is None:
            lacking.append(gang)
            continue
        chosen.append((gang, some))
        room.take(gang.pool.name, some.source.position, len(gang.slots))
    for gang, some in chosen:
        room.take(gang.pool.name, some.source.position, -len(gang.slots))
    return tuple(chosen), tuple(lacking)


def _joined(starting: tuple[SlurmJob, ...]) -> dict[int, tuple[SlurmJob, ...]]:
    """Jobs by gang: a het job's components are one, led by the most urgent."""
    found: dict[int, tuple[SlurmJob, ...]] = {}
    for job in sorted(starting, key=urgency):
        found[_gang_id(job)] = (*found.get(_gang_id(job), ()), job)
    return found


def _gang_id(job: SlurmJob) -> int:
    return job.het_id or job.id


def _lacks(world: World, slot: str) -> bool:
    life = world.life(slot)
    return life is not None and life.request is None and life.instance is None


def _alone(world: World, slot: str) -> bool:
    """Powered up by hand or always on; not what a cancelled job left behind, nor what Slurm does for nobody."""
    life = world.life(slot)
    return world.node(slot).idle and (
        world.slots[slot].always_on or life is None or not life.idle_is_unwanted
    )


def _hopeless(world: World, gang: Gang, slot: str) -> bool:
    """Too many boots failed, or one did and Slurm's own ResumeTimeout is near."""
    life = world.memory.lives[slot]
    if life.failed is None:
        return False
    return life.failed_boots >= MAX_BOOTS or life.since + gang.pool.boot_timeout_s <= world.now


def _repeats(world: World) -> Iterator[LaunchGang]:
    for ask in same_token(world.memory.launches, world.now, world.memory.paced_until):
        if any(world.phases.get(slot) is Phase.WANTED for slot in ask.slots):
            yield LaunchGang(ask=ask, repeat=True, reason="its outcome is unknown: the identical call again")


def _fail(world: World, gang: Gang, failed: tuple[str, ...]) -> Iterator[Action]:
    """Too many boots failed: the job hears the node's own last word, and the offer is left alone for a while."""
    life = world.memory.lives[failed[0]]
    times = "once" if life.failed_boots == 1 else f"{life.failed_boots} times"
    words = f"{failed[0]} did not boot, tried {times}: {life.failed}"
    key = life.offer
    until = world.now + refused_for(world.plan.times, world.memory.refusals.get(key))
    refused = Refused(key=key, words=f"does not boot: {life.failed}", until=until)
    yield Remember(entries=(Entry(at=world.now, event=refused),))
    yield from _down(world, gang.jobs, failed, f"{REASON_PREFIX} {words}")


def _refused(world: World, gang: Gang, sentence: str) -> Iterator[Action]:
    """A job that Slurm queues again goes elsewhere at once; another keeps its nodes until the boot timeout."""
    since = min(world.memory.lives[slot].since for slot in gang.slots)
    if gang.returns or since + gang.pool.boot_timeout_s <= world.now:
        yield from _down(world, gang.jobs, gang.slots, sentence)
    else:
        yield from tell(gang.jobs, sentence)


def _down(
    world: World, jobs: tuple[SlurmJob, ...], slots: tuple[str, ...], sentence: str
) -> Iterator[Action]:
    """Down first: Slurm ignores a power-down of a node that powers up (24.11, seen).

    What a person drained and powered up without a job is left to Slurm's ResumeTimeout: a power-down lifts the drain.
    """
    if not jobs:
        slots = tuple(slot for slot in slots if not _persons(world, slot))
        if not slots:
            return
    yield from tell(jobs, sentence)
    yield MarkDown(slots=slots, reason=sentence)
    yield PowerDown(slots=slots, reason=sentence)


def _persons(world: World, slot: str) -> bool:
    node = world.node(slot)
    return node.drained and isinstance(node.whose, Stranger) and not node.spoiled
