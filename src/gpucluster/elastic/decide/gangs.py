"""Gangs: each is launched whole or not at all, in one zone, by one request. Also the handling of a refused gang."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucluster.elastic.decide import launches
from gpucluster.elastic.decide.api_rate import Pace
from gpucluster.elastic.decide.launches import Gang, refused_for, repeats_due
from gpucluster.elastic.decide.offers import Headroom, Offer, choose, why_none
from gpucluster.elastic.decide.world import World, urgency
from gpucluster.elastic.events import DOES_NOT_BOOT, Entry, OfferRefused
from gpucluster.elastic.model import Action, Comment, LaunchGang, MarkDown, PowerDown, RecordEvents
from gpucluster.plan.names import REASON_PREFIX
from gpucluster.slurm import drains, hostlist
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import SlurmPhase
from gpucluster.slurm.values import SlurmJob

MAX_BOOTS = 3  # boots in one incarnation; then the gang fails with the node's last boot message


@dataclass(frozen=True, slots=True)
class GangDecision:
    """The actions for all gangs; `sent_back` are the jobs that were requeued."""

    actions: tuple[Action, ...]
    sent_back: tuple[SlurmJob, ...]


def gangs(world: World) -> tuple[Gang, ...]:
    """Return the gangs that lack instances, most urgent job first. A slot belongs to the gang of its most urgent job."""
    joined = _joined(world.starting)
    parts: dict[tuple[tuple[int, int], str, str, str], list[str]] = {}
    for slot in world.group(SlurmPhase.POWERING_UP):
        if not _lacks(world, slot):
            continue
        place, jobs = world.slots[slot], world.starting_on.get(slot, ())
        if jobs:
            leader = joined[_gang_id(jobs[0])][0]
            key = ((-leader.priority, _gang_id(leader)), place.pool.name, place.zone, "")
        elif _needed_without_job(world, slot):
            key = ((1, 0), place.pool.name, place.zone, slot)  # after all jobs
        else:
            continue
        parts.setdefault(key, []).append(slot)
    return tuple(
        Gang(world.slots[slots[0]].pool, zone, tuple(slots), () if single else joined[gang_id])
        for ((_, gang_id), _, zone, single), slots in sorted(parts.items())
    )


def serve(
    world: World, headroom: Headroom, offers: Mapping[tuple[str, str], tuple[Offer, ...]], pace: Pace
) -> GangDecision:
    """Repeat launches without an outcome, launch gangs that have an offer, give up gangs that a zone refuses."""
    actions: list[Action] = list(_repeats(world))
    sent_back: list[SlurmJob] = []
    wanted: list[launches.JobOffers] = []
    for parts in _whole(gangs(world)):
        failed = [
            (g, bad) for g in parts if (bad := tuple(s for s in g.slots if _has_failed_for_good(world, g, s)))
        ]
        if failed:
            actions.extend(a for gang, bad in failed for a in _fail(world, gang, bad))
            continue
        if removed := _removed(world, parts):
            actions.extend(a for gang in parts for a in _refused(world, gang, removed))
            sent_back.extend(job for gang in parts if gang.returns for job in gang.jobs)
            continue
        chosen, lacking = _choose_all(world, headroom, offers, parts)
        for gang in lacking:
            here = offers[(gang.pool.name, gang.zone)]
            sentence = f"{REASON_PREFIX} {why_none(world, headroom, gang.pool, gang.zone, here, count=len(gang.slots))}"
            actions.extend(_refused(world, gang, sentence))
            sent_back.extend(gang.jobs if gang.returns else ())
        if lacking:
            continue
        wanted.append(chosen)
        for gang, offer in chosen:
            headroom.take(gang.pool.name, offer.source.position, len(gang.slots))
    actions.extend(launches.new_launches(world, pace, wanted, offers))
    return GangDecision(tuple(actions), tuple(sent_back))


def comment_jobs(jobs: tuple[SlurmJob, ...], sentence: str) -> Iterator[Comment]:
    """Write the comment to the jobs that do not have it yet."""
    unaware = tuple(sorted(job.id for job in jobs if job.admin_comment != sentence))
    if unaware:
        yield Comment(jobs=unaware, reason=sentence)


def _whole(found: tuple[Gang, ...]) -> Iterator[tuple[Gang, ...]]:
    """Yield the parts of each job together: het components, or a partition over two pools."""
    parts: dict[tuple[int, ...] | str, tuple[Gang, ...]] = {}
    for gang in found:
        key = tuple(job.id for job in gang.jobs) or gang.slots[0]
        parts[key] = (*parts.get(key, ()), gang)
    yield from parts.values()


def _choose_all(
    world: World,
    headroom: Headroom,
    offers: Mapping[tuple[str, str], tuple[Offer, ...]],
    parts: tuple[Gang, ...],
) -> tuple[tuple[tuple[Gang, Offer], ...], tuple[Gang, ...]]:
    """Return the parts with an offer within the headroom, and the parts without one."""
    chosen: list[tuple[Gang, Offer]] = []
    lacking: list[Gang] = []
    for gang in parts:
        offer = choose(world, headroom, offers[(gang.pool.name, gang.zone)], len(gang.slots), gang.jobs)
        if offer is None:
            lacking.append(gang)
            continue
        chosen.append((gang, offer))
        headroom.take(gang.pool.name, offer.source.position, len(gang.slots))
    for gang, offer in chosen:
        headroom.take(gang.pool.name, offer.source.position, -len(gang.slots))
    return tuple(chosen), tuple(lacking)


def _joined(starting: tuple[SlurmJob, ...]) -> dict[int, tuple[SlurmJob, ...]]:
    """Return jobs by gang. The components of a het job are one gang, led by the most urgent component."""
    found: dict[int, tuple[SlurmJob, ...]] = {}
    for job in sorted(starting, key=urgency):
        found[_gang_id(job)] = (*found.get(_gang_id(job), ()), job)
    return found


def _gang_id(job: SlurmJob) -> int:
    return job.het_id or job.id


def _lacks(world: World, slot: str) -> bool:
    incarnation = world.incarnation(slot)
    return incarnation is not None and incarnation.request is None and incarnation.instance is None


def _needed_without_job(world: World, slot: str) -> bool:
    """Return whether a slot without a job needs an instance: it is always on, or a person powered it up.

    A slot that was powered up for a job does not need one after the job is cancelled.
    """
    incarnation = world.incarnation(slot)
    return world.node(slot).idle and (
        world.slots[slot].always_on or incarnation is None or not incarnation.idle_is_unwanted
    )


def _has_failed_for_good(world: World, gang: Gang, slot: str) -> bool:
    """Return whether too many boots failed, or one failed and Slurm's ResumeTimeout is near."""
    incarnation = world.memory.incarnations[slot]
    if incarnation.failed is None:
        return False
    return incarnation.failed_boots >= MAX_BOOTS or incarnation.since + gang.pool.boot_timeout_s <= world.now


def _removed(world: World, parts: tuple[Gang, ...]) -> str:
    """Return the sentence for a job on slots that a held bundle removes; empty without such a slot. They get no instance."""
    gone = [slot for gang in parts for slot in gang.slots if world.is_removed(slot)]
    if not gone:
        return ""
    words = f"a new bundle removes or changes {hostlist.fold(gone)}, so nothing is launched for it"
    return drains.reason(DrainOwner.BUNDLE, words)


def _repeats(world: World) -> Iterator[LaunchGang]:
    for request in repeats_due(world.memory.launches, world.now, world.memory.paced_until):
        if any(world.phases.get(slot) is SlurmPhase.POWERING_UP for slot in request.slots):
            yield LaunchGang(
                request=request, repeat=True, reason="its outcome is unknown: the identical call is repeated"
            )


def _fail(world: World, gang: Gang, failed: tuple[str, ...]) -> Iterator[Action]:
    """Fail the gang after too many failed boots. Its jobs get the boot message, and its offer is refused for a time."""
    incarnation = world.memory.incarnations[failed[0]]
    times = "once" if incarnation.failed_boots == 1 else f"{incarnation.failed_boots} times"
    words = f"{failed[0]} did not boot, tried {times}: {incarnation.failed}"
    key, why = incarnation.offer_key, f"{DOES_NOT_BOOT}: {incarnation.failed}"
    old = world.memory.refusals.get(key)
    if old is None or old.until <= world.now or old.words != why:  # else an earlier pass refused it
        until = world.now + refused_for(world.plan.times, old)
        refused = OfferRefused(key=key, words=why, until=until)
        yield RecordEvents(entries=(Entry(at=world.now, event=refused),))
    yield from _down(world, gang.jobs, failed, f"{REASON_PREFIX} {words}")


def _refused(world: World, gang: Gang, sentence: str) -> Iterator[Action]:
    """Set the nodes DOWN if Slurm then requeues all jobs of the gang, or after the boot timeout. Else only comment the jobs."""
    since = min(world.memory.incarnations[slot].since for slot in gang.slots)
    if gang.returns or since + gang.pool.boot_timeout_s <= world.now:
        yield from _down(world, gang.jobs, gang.slots, sentence)
    else:
        yield from comment_jobs(gang.jobs, sentence)


def _down(
    world: World, jobs: tuple[SlurmJob, ...], slots: tuple[str, ...], sentence: str
) -> Iterator[Action]:
    """Set the nodes DOWN, then power them down. Slurm ignores a power-down of a node that powers up (24.11, observed).

    A node that a person drained and powered up without a job is left to ResumeTimeout: a power-down removes the drain.
    """
    if not jobs:
        slots = tuple(slot for slot in slots if not _drained_by_person(world, slot))
        if not slots:
            return
    yield from comment_jobs(jobs, sentence)
    yield MarkDown(slots=slots, reason=sentence)
    yield PowerDown(slots=slots, reason=sentence)


def _drained_by_person(world: World, slot: str) -> bool:
    node = world.node(slot)
    return node.drained and not node.drain_owner.is_daemon and not node.drained_by_slurm
