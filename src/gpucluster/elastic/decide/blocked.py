"""Blocked slots: what cannot be had now is drained, so the job waits, says why, and no hook is called in vain.

For each (pool, zone) the offers without a standing refusal say how many slots may be free. A refusal that ran out
is *half open*: with a job waiting, the slots of one gang in one zone are lifted, and a success forgets the refusal;
with no job waiting it is forgotten at once. A refusal that stands for larger gangs only is half open for a smaller one,
and so is a whole pool whose breaker's cooldown is over.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from gpucluster.elastic.decide import limits
from gpucluster.elastic.decide.gangs import tell
from gpucluster.elastic.decide.offers import Offer, Room, admits, refusal_of, why_none
from gpucluster.elastic.decide.world import HAS, World, names_in, urgency
from gpucluster.elastic.events import Event, Forgot
from gpucluster.elastic.model import Action, Block, Phase, SlurmJob, Unblock
from gpucluster.elastic.owners import Owner
from gpucluster.plan.model import Pool
from gpucluster.plan.names import REASON_PREFIX

HELD = ("JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied")
SOON_S = 600.0  # a job that may begin only later than this does not count as waiting


@dataclass(frozen=True, slots=True)
class Zone:
    """What one zone could give a pool now."""

    pool: Pool
    name: str
    free: tuple[str, ...]  # powered down, no instance, drained by nobody else
    blocked: tuple[str, ...]  # those of them that we drained
    sure: int  # room by offers that no refusal, not even an old one, stands against
    shelves: tuple[tuple[int, int], ...]  # of each offer its room, and the largest gang that may try it
    idle: int  # nodes up and idle
    trying: bool  # a gang is starting here
    offers: tuple[Offer, ...]

    def maybe(self, size: int) -> int:
        """Room by offers that may be tried for a gang of `size`."""
        return max((room for room, most in self.shelves if size <= most), default=0)

    def lacks(self, job: SlurmJob) -> int:
        """How many nodes the job would need beside those that are up."""
        return max(0, job.node_count - self.idle)

    def shut(self, job: SlurmJob) -> bool:
        """Whether it cannot have the job, and nothing idles here that may be for it."""
        count = max(1, job.node_count)
        return not self.idle and self.sure < count and self.maybe(count) < count


def forgotten(world: World, offers: Mapping[tuple[str, str], tuple[Offer, ...]]) -> Iterator[Event]:
    """Refusals that ran out and that no job, waiting or starting, would put to the test."""
    ripe = {k for k, r in world.memory.refusals.items() if r.until <= world.now and not r.for_this_run}
    if not ripe:
        return
    jobs = (
        *waiting(world),
        *world.starting,
    )  # one that has just been placed may be ahead of its nodes' states
    wanted = {pool for job in jobs for pool in pools_of(world, job)}
    busy = {world.slots[s].pool.name for s in world.group(Phase.WANTED)}
    for (pool, _), some in offers.items():
        if pool in wanted or pool in busy:
            ripe -= {o.key for o in some} | {k for k in ripe if k.startswith(f"source/{pool}/")}
    if ripe:
        yield Forgot(keys=tuple(sorted(ripe)))


def block(
    world: World,
    room: Room,
    offers: Mapping[tuple[str, str], tuple[Offer, ...]],
    sent_back: tuple[SlurmJob, ...],
) -> Iterator[Action]:
    """Bring each zone's drains to what its offers allow; tell the jobs that wait for nothing else."""
    queue = (*sent_back, *waiting(world))
    found: dict[str, tuple[Zone, ...]] = {}
    for pool in world.plan.pools:
        zones = tuple(_zone(world, room, pool, span.zone, offers) for span in pool.slots)
        jobs = tuple(job for job in queue if pool.name in pools_of(world, job))
        if jobs and limits.half_open(world, pool.name):
            zones = tuple(replace(zone, sure=0) for zone in zones)
        for zone, limit in _limits(zones, jobs):
            yield from _bring(world, room, zone, limit)
        found[pool.name] = zones
    yield from _comments(world, room, found)


def drained_by(actions: Iterable[Action]) -> frozenset[str]:
    """The slots that these actions block."""
    return frozenset(slot for action in actions if isinstance(action, Block) for slot in action.slots)


def waiting(world: World) -> tuple[SlurmJob, ...]:
    """Pending jobs that could start soon, the most urgent first."""
    soon = world.now + SOON_S
    jobs = (j for j in world.slurm.jobs if j.pending and j.priority > 0 and j.begins_at <= soon)
    return tuple(sorted((j for j in jobs if j.reason not in HELD), key=urgency))


def pools_of(world: World, job: SlurmJob) -> tuple[str, ...]:
    """The pools behind a job's partitions."""
    return tuple(p for part in world.plan.partitions if part.name in job.partitions for p in part.pools)


def _zone(
    world: World, room: Room, pool: Pool, name: str, offers: Mapping[tuple[str, str], tuple[Offer, ...]]
) -> Zone:
    here = offers[(pool.name, name)]
    by_phase = _by_phase(world, pool, name)
    off = (
        *by_phase.get(Phase.OFF, ()),
        *by_phase.get(Phase.ENDING, ()),
    )  # what is off can be had at once
    free = tuple(s for s in off if _may_drain(world, s))
    return Zone(
        pool=pool,
        name=name,
        free=free,
        blocked=tuple(s for s in free if world.node(s).drained),
        sure=max((room.of(o) for o in here if refusal_of(world.memory, o) is None), default=0),
        shelves=tuple((room.of(o), admits(world.memory, o, world.now)) for o in here),
        idle=sum(1 for s in by_phase.get(Phase.UP, ()) if world.node(s).idle),
        trying=bool(by_phase.get(Phase.WANTED)),
        offers=here,
    )


def _by_phase(world: World, pool: Pool, zone: str) -> Mapping[Phase, list[str]]:
    found: dict[Phase, list[str]] = {}
    for slot in names_in(world.plan).get((pool.name, zone), ()):
        phase = world.phases.get(slot)
        if phase is not None:
            found.setdefault(phase, []).append(slot)
    return found


def _may_drain(world: World, slot: str) -> bool:
    """Ours to drain or to lift. One that still has its instance counts against `max` by itself: it is let go first."""
    node = world.node(slot)
    if not node.drained:
        return slot not in world.memory.lives or world.fate(slot) not in HAS
    return node.whose is Owner.CAPACITY or (node.spoiled and world.fate(slot) not in HAS)


def _limits(zones: tuple[Zone, ...], jobs: tuple[SlurmJob, ...]) -> Iterator[tuple[Zone, int]]:
    """How many free slots each zone may show to Slurm."""
    probe = _probe(zones, jobs)
    for zone in zones:
        if zone.sure:
            wants_more = any(job.node_count - zone.idle > zone.sure for job in jobs)
            limit = zone.sure if wants_more else len(zone.free)
        else:
            limit = 0
        if probe is not None and zone is probe[0]:
            limit = max(limit, zone.lacks(probe[1]))
        yield zone, limit


def _probe(zones: tuple[Zone, ...], jobs: tuple[SlurmJob, ...]) -> tuple[Zone, SlurmJob] | None:
    """The one zone and job that may put it to the test: half open, nothing under way, no surer place for the first job.

    The most urgent job that may try does; where a refusal stands for its size, a smaller job's turn comes.
    """
    half_open = [z for z in zones if z.maybe(1) > z.sure]
    if not jobs or not half_open or any(z.trying for z in half_open):
        return None
    wanted = jobs[0].node_count
    if any(min(len(z.free), z.sure) + z.idle >= wanted for z in zones):
        return None
    first: dict[int, SlurmJob] = {}  # of each size
    for job in jobs:
        first.setdefault(job.node_count, job)
    for job in first.values():
        fit = [z for z in half_open if z.lacks(job) <= min(len(z.free), z.maybe(max(1, z.lacks(job))))]
        under_way = [z for z in fit if len(z.blocked) < len(z.free)]
        if fit:
            return (under_way or fit)[0], job
    return None


def _bring(world: World, room: Room, zone: Zone, limit: int) -> Iterator[Action]:
    open_now = [s for s in zone.free if not world.node(s).drained]
    if len(open_now) > limit:
        yield Block(slots=tuple(open_now[limit:]), reason=_sentence(world, room, zone, limit + 1))
    elif not limit and not zone.trying:
        yield from _say_why(world, zone, _sentence(world, room, zone, 1))
    elif zone.blocked and len(open_now) < limit:
        lift = tuple(s for s in zone.blocked if world.phases[s] is Phase.OFF)[: limit - len(open_now)]
        if lift:
            whole = limit >= len(zone.free)
            yield Unblock(slots=lift, reason="the zone is open again" if whole else "one gang may try")


def _say_why(world: World, zone: Zone, sentence: str) -> Iterator[Action]:
    """The reason on the nodes follows what the offers say now."""
    stale = tuple(s for s in zone.blocked if world.node(s).reason != sentence)
    if stale:
        yield Block(slots=stale, reason=sentence)


def _sentence(world: World, room: Room, zone: Zone, count: int) -> str:
    return f"{REASON_PREFIX} {why_none(world, room, zone.pool, zone.name, zone.offers, count=count)}"


def _comments(world: World, room: Room, zones: Mapping[str, tuple[Zone, ...]]) -> Iterator[Action]:
    """A job all of whose pools are shut everywhere hears why."""

    @cache
    def said(pool: str, zone: int, count: int) -> str:
        z = zones[pool][zone]
        return why_none(world, room, z.pool, z.name, z.offers, count=count)

    by_sentence: dict[str, list[SlurmJob]] = {}
    for job in waiting(world):
        mine = [(pool, n, z) for pool in pools_of(world, job) for n, z in enumerate(zones[pool])]
        if mine and all(z.shut(job) for _, _, z in mine):
            words = dict.fromkeys(said(pool, n, job.node_count) for pool, n, _ in mine)
            by_sentence.setdefault(f"{REASON_PREFIX} {'; '.join(words)}", []).append(job)
    for sentence, jobs in sorted(by_sentence.items()):
        yield from tell(tuple(jobs), sentence)
