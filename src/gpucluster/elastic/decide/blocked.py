"""Blocked slots: slots without available capacity are drained, so that jobs wait, with a reason, and no hook is called.

For each (pool, zone), the offers without a refusal give the number of slots that may be free. An offer with a refusal is
*half open*, which means that one gang may test it, in these cases:
- the refusal has expired;
- the refusal is of larger gangs only: half open for a smaller gang;
- the cooldown of the pool's breaker is over: all offers of the pool.

While a refusal is half open:
- A job waits: the slots that this job lacks in one zone are undrained as a test. A success removes the refusal.
- No job waits: the refusal is removed at once.
- Slurm does not use the undrained slots, for a reason that is not visible here: after PROBE_S the next job or zone is
  tested, but no slot is drained again within SCHEDULES_S. After FORGET_S the refusal is removed, and Slurm itself chooses among all slots.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from gpucluster.elastic.decide import limits
from gpucluster.elastic.decide.bundle_drains import has_no_other_slot
from gpucluster.elastic.decide.gangs import comment_jobs
from gpucluster.elastic.decide.offers import Headroom, Offer, largest_gang, refusal_of, why_none
from gpucluster.elastic.decide.placement import Need, is_open, lacking, needs_of, pools_of_job, waiting
from gpucluster.elastic.decide.sizes import REMEDY, Sizes
from gpucluster.elastic.decide.world import HAS_INSTANCE, World, names_in
from gpucluster.elastic.events import BreakerReset, Event, RefusalsForgotten
from gpucluster.elastic.model import Action, Block, Drain, Undrain
from gpucluster.plan.model import Pool
from gpucluster.plan.names import REASON_PREFIX
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import SlurmPhase
from gpucluster.slurm.values import SlurmJob, SlurmNode

PROBE_S = 75.0  # slurmctld starts a job on an undrained slot within 8 s (24.11), backfill within 30 s
FORGET_S = 6 * PROBE_S


@dataclass(frozen=True, slots=True)
class PoolZone:
    """A pool in one zone: its slots, and what the zone can provide now."""

    pool: Pool
    name: str
    slots: tuple[str, ...]
    free: tuple[str, ...]  # off, no instance, not drained by others; those without a drain come first
    blocked: tuple[str, ...]  # the slots of `free` that we drained
    open_headroom: int  # the largest headroom of an offer that has no refusal, not even an expired one
    offer_limits: tuple[
        tuple[int, int], ...
    ]  # of each offer: its headroom, and the largest gang that no refusal excludes
    idle: tuple[str, ...]  # nodes that are up and take a job
    testing: bool  # a gang is starting here
    offers: tuple[Offer, ...]
    nodes: Mapping[str, SlurmNode]

    def test_headroom(self, size: int) -> int:
        """Return the headroom of offers that a gang of `size` may test."""
        return max((headroom for headroom, most in self.offer_limits if size <= most), default=0)

    def idle_for(self, need: Need) -> tuple[str, ...]:
        """Return the idle nodes that the need allows."""
        return tuple(s for s in self.idle if need.allows(self.nodes[s]))

    def lacks(self, need: Need) -> tuple[str, ...] | None:
        """Return the slots that the need lacks here; None if the zone cannot serve it."""
        free = tuple(s for s in self.free if need.allows(self.nodes[s]))
        return lacking(need, self.idle_for(need), free, self.slots)

    def serves(self, need: Need) -> bool:
        """Return whether the need can start here without a test."""
        slots = self.lacks(need)
        return slots is not None and len(slots) <= self.open_headroom

    def may_test(self, slots: tuple[str, ...]) -> bool:
        return len(slots) <= self.test_headroom(max(1, len(slots)))

    def is_closed_for(self, need: Need) -> bool:
        """Return whether the zone lacks the capacity for the need: no idle node is for it, and no required one is busy."""
        too_few = self.open_headroom < need.count and self.test_headroom(need.count) < need.count
        required = need.required.intersection(self.slots)
        return too_few and not self.idle_for(need) and required.issubset(self.free)


def forgotten(world: World, offers: Mapping[tuple[str, str], tuple[Offer, ...]]) -> Iterator[Event]:
    """Return events for expired refusals and half-open breakers that no waiting or starting job tests."""
    expired = {k for k, r in world.memory.refusals.items() if r.until <= world.now and not r.for_this_run}
    if not expired and not world.memory.breakers:
        return
    jobs = (
        *waiting(world),
        *world.starting,  # a job that was just placed may be listed before the new states of its nodes
    )
    wanted = {pool for job in jobs for pool in pools_of_job(world, job)}
    booting = {(world.slots[s].pool.name, world.slots[s].zone) for s in world.group(SlurmPhase.POWERING_UP)}
    untested = {k for k in expired if world.memory.refusals[k].until + FORGET_S <= world.now}
    for (pool, zone), some in offers.items():
        tested = {o.key for o in some} | {k for k in expired if k.startswith(f"source/{pool}/")}
        if (pool, zone) in booting:
            expired -= tested
        elif pool in wanted:
            expired -= tested - untested
    if expired:
        yield RefusalsForgotten(keys=tuple(sorted(expired)))
    for pool, breaker in sorted(world.memory.breakers.items()):
        if breaker.until + FORGET_S <= world.now and pool in wanted and pool not in {p for p, _ in booting}:
            yield BreakerReset(pool=pool, by="no job tested the pool")


def block(
    world: World,
    headroom: Headroom,
    offers: Mapping[tuple[str, str], tuple[Offer, ...]],
    sent_back: tuple[SlurmJob, ...],
    lifted: frozenset[str],
) -> Iterator[Action]:
    """Drain and undrain slots of each zone as its offers permit. Comment jobs that wait only for capacity.

    `lifted`: slots whose drains this pass lifts before.
    """
    queue = (*sent_back, *waiting(world))
    found: dict[str, tuple[PoolZone, ...]] = {}
    for pool in world.plan.pools:
        zones = tuple(_zone(world, headroom, (pool, span.zone), offers, lifted) for span in pool.slots)
        needs = needs_of(world, pool, queue)
        if needs and limits.half_open(world, pool.name):
            zones = tuple(replace(zone, open_headroom=0) for zone in zones)
        for zone, opened in _opened(world, zones, needs):
            yield from _open_or_block(world, headroom, zone, opened)
        found[pool.name] = zones
    yield from _comments(world, headroom, found)


def drained_by(actions: Iterable[Action]) -> frozenset[str]:
    """Return the slots that these actions drain."""
    return frozenset(slot for action in actions if isinstance(action, Block | Drain) for slot in action.slots)


def _zone(
    world: World,
    headroom: Headroom,
    place: tuple[Pool, str],
    offers: Mapping[tuple[str, str], tuple[Offer, ...]],
    lifted: frozenset[str],
) -> PoolZone:
    pool, name = place
    here = offers[(pool.name, name)]
    by_phase = _by_phase(world, pool, name)
    off = (
        *by_phase.get(SlurmPhase.OFF, ()),
        *by_phase.get(SlurmPhase.POWERING_DOWN, ()),  # off within seconds
        *(
            slot
            for phase in (SlurmPhase.DOWN_OFF, SlurmPhase.FUTURE)
            for slot in by_phase.get(phase, ())
            if slot in lifted
        ),
    )
    drained = frozenset(slot for slot in off if world.node(slot).drained) - lifted
    free = sorted((s for s in off if _may_drain(world, s, drained)), key=lambda s: s in drained)
    return PoolZone(
        pool=pool,
        name=name,
        slots=names_in(world.plan).get((pool.name, name), ()),
        free=tuple(free),
        blocked=tuple(s for s in free if s in drained),
        open_headroom=max((headroom.of(o) for o in here if refusal_of(world.memory, o) is None), default=0),
        offer_limits=tuple((headroom.of(o), largest_gang(world.memory, o, world.now)) for o in here),
        idle=tuple(s for s in by_phase.get(SlurmPhase.UP, ()) if is_open(world.node(s))),
        testing=bool(by_phase.get(SlurmPhase.POWERING_UP)),
        offers=here,
        nodes=world.slurm.nodes,
    )


def _by_phase(world: World, pool: Pool, zone: str) -> Mapping[SlurmPhase, list[str]]:
    found: dict[SlurmPhase, list[str]] = {}
    for slot in names_in(world.plan).get((pool.name, zone), ()):
        phase = world.phases.get(slot)
        if phase is not None:
            found.setdefault(phase, []).append(slot)
    return found


def _may_drain(world: World, slot: str, drained: frozenset[str]) -> bool:
    """Return whether this module may drain or undrain the slot.

    It drains no slot with an instance, which counts against `max`. It undrains its own drains, and Slurm's own drains of
    slots without an instance. It leaves slots alone that a held bundle removes, or whose old instance cannot be terminated:
    they are drained for that.
    """
    node = world.node(slot)
    if world.is_removed(slot) or world.refused_end(slot) is not None:
        return False
    if slot not in drained:
        return slot not in world.memory.incarnations or world.instance_status(slot) not in HAS_INSTANCE
    return node.drain_owner is DrainOwner.CAPACITY or (
        node.drained_by_slurm and world.instance_status(slot) not in HAS_INSTANCE
    )


def _opened(
    world: World, zones: tuple[PoolZone, ...], needs: tuple[Need, ...]
) -> Iterator[tuple[PoolZone, frozenset[str]]]:
    """Yield each zone with those of its free slots that stay undrained."""
    probe = _probe(world, zones, needs)
    for zone in zones:
        within = _within_headroom(zone, needs) if zone.open_headroom else frozenset[str]()
        tested = frozenset(probe[1]) if probe is not None and zone is probe[0] else frozenset[str]()
        yield zone, within | tested | _begun(world, zone)


def _begun(world: World, zone: PoolZone) -> frozenset[str]:
    """Return the slots of a test in which Slurm may still start its job. A refusal of every offer ends the test."""
    if not zone.test_headroom(1):
        return frozenset()
    return frozenset(slot for slot in zone.free if world.just_opened(slot))


def _within_headroom(zone: PoolZone, needs: tuple[Need, ...]) -> frozenset[str]:
    """Return all free slots. If a job needs more than the headroom, only as many: those of the most urgent jobs first."""
    if not any(need.count - len(zone.idle_for(need)) > zone.open_headroom for need in needs):
        return frozenset(zone.free)
    chosen: dict[str, None] = {}
    for need in needs:
        more = dict.fromkeys(s for s in zone.lacks(need) or () if s not in chosen)
        if len(chosen) + len(more) <= zone.open_headroom:
            chosen |= more
    rest = [s for s in zone.free if s not in chosen]
    return frozenset((*chosen, *rest[: zone.open_headroom - len(chosen)]))


def _probe(
    world: World, zones: tuple[PoolZone, ...], needs: tuple[Need, ...]
) -> tuple[PoolZone, tuple[str, ...]] | None:
    """Return the zone to test and its slots that a waiting job lacks. None if no test is needed or possible now.

    No test starts without a waiting job and a half-open zone, while a half-open zone starts a gang, or if some zone can
    serve the most urgent job without a test. The most urgent job is tried first; a test that no job uses gives way to the
    next one. A test that has begun goes on while Slurm may still start its job.
    """
    half_open = [z for z in zones if z.test_headroom(1) > z.open_headroom]
    if not needs or not half_open or any(z.testing for z in half_open):
        return None
    tests = [
        (zone, slots)
        for need in needs
        if all(job.begins_at <= world.now for job in need.jobs)  # Slurm holds a requeued job for some time
        for zone in half_open
        if (slots := zone.lacks(need)) and zone.may_test(slots)
    ]
    begun = next((t for t in tests if any(world.just_opened(slot) for slot in t[1])), None)
    if begun is not None or not tests or any(zone.serves(needs[0]) for zone in zones):
        return begun
    return tests[int(_half_open_s(world, half_open) // PROBE_S) % len(tests)]


def _half_open_s(world: World, zones: Iterable[PoolZone]) -> float:
    """Return the seconds since when a refusal of these zones, or the breaker, is half open."""
    keys = {key for zone in zones for some in zone.offers for key in some.keys}
    untils = [r.until for key in sorted(keys) if (r := world.memory.refusals.get(key)) is not None]
    breakers = (world.memory.breakers.get(zone.pool.name) for zone in zones)
    untils += [breaker.until for breaker in breakers if breaker is not None]
    return world.now - min((until for until in untils if until <= world.now), default=world.now)


def _open_or_block(
    world: World, headroom: Headroom, zone: PoolZone, opened: frozenset[str]
) -> Iterator[Action]:
    extra = tuple(s for s in zone.free if s not in opened and s not in zone.blocked)
    undrained = tuple(s for s in zone.blocked if s in opened and world.phases[s] is SlurmPhase.OFF)
    if extra:
        yield Block(slots=extra, reason=_sentence(world, headroom, zone, len(opened) + 1))
    elif not opened and not zone.testing:
        yield from _update_reason(world, zone, _sentence(world, headroom, zone, 1))
    if undrained:
        whole = len(opened) >= len(zone.free)
        yield Undrain(
            slots=undrained,
            reason="launches in the zone are tried again" if whole else "one job may test the zone",
        )


def _update_reason(world: World, zone: PoolZone, sentence: str) -> Iterator[Action]:
    """Update the reason of the blocked nodes to the present state of the offers."""
    stale = tuple(s for s in zone.blocked if world.node(s).reason != sentence)
    if stale:
        yield Block(slots=stale, reason=sentence)


def _sentence(world: World, headroom: Headroom, zone: PoolZone, count: int) -> str:
    return f"{REASON_PREFIX} {why_none(world, headroom, zone.pool, zone.name, zone.offers, count=count)}"


def _comments(
    world: World, headroom: Headroom, zones: Mapping[str, tuple[PoolZone, ...]]
) -> Iterator[Action]:
    """Write the reason to each job that can never start, or that no zone of its pools can serve now.

    If a held bundle removes all slots of a job, the job has the comment of that bundle.
    """

    @cache
    def reason_of(pool: str, zone: int, count: int) -> str:
        z = zones[pool][zone]
        return why_none(world, headroom, z.pool, z.name, z.offers, count=count)

    sizes = Sizes(world)
    by_sentence: dict[str, list[SlurmJob]] = {}
    for job in waiting(world):
        if world.removed and has_no_other_slot(world, job):
            continue
        if never := sizes.never_starts(job):
            by_sentence.setdefault(f"{REASON_PREFIX} {never}: {REMEDY}", []).append(job)
            continue
        mine = [(pool, n, z) for pool in pools_of_job(world, job) for n, z in enumerate(zones[pool])]
        need = Need.of(world, (job,))
        if mine and all(z.is_closed_for(need) for _, _, z in mine):
            words = dict.fromkeys(reason_of(pool, n, job.node_count) for pool, n, _ in mine)
            by_sentence.setdefault(f"{REASON_PREFIX} {'; '.join(words)}", []).append(job)
    for sentence, jobs in sorted(by_sentence.items()):
        yield from comment_jobs(tuple(jobs), sentence)
