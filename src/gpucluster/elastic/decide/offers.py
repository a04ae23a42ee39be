"""What may be launched where: the ranked offers of a (pool, zone), refusals remembered, and room below `max`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpucluster.elastic.decide import limits, windows
from gpucluster.elastic.decide.world import HAS, World
from gpucluster.elastic.events import at_most, offer, source_key
from gpucluster.elastic.memory import Memory, Refusal
from gpucluster.elastic.model import SlurmJob
from gpucluster.plan.model import Interface, Market, Pool, Source
from gpucluster.plan.names import ROLE_NODE, TAG_POOL, TAG_REQUEST, placement_key

ANY_SIZE = 1_000_000_000  # what an offer admits that nothing stands against


@dataclass(frozen=True, slots=True)
class Offer:
    """One (source, machine) in one zone, ready to be asked for."""

    pool: str
    source: Source
    zone: str
    machine: str
    template_id: str
    template_version: int
    subnet_id: str
    price: int  # micro-USD an hour; 0: unknown or paid ahead
    placement_group: str | None  # what was bought ahead stands where it was bought (T27)
    interfaces: tuple[Interface, ...]  # that a launch lists
    group: str  # of the interfaces
    keys: tuple[
        str, ...
    ]  # all that a refusal of it may stand under: itself, its kind of machine, its price, its source

    @property
    def market(self) -> Market:
        return self.source.market

    @property
    def key(self) -> str:
        return self.keys[0]

    @property
    def words(self) -> str:
        return f"{self.source.market.value} {self.machine}"


def offers_in(world: World, pool: Pool, zone: str) -> tuple[Offer, ...]:
    """In the order in which they are tried: sources by position, machines in their order."""
    subnet = world.bindings.subnets.get(zone)
    group = world.bindings.groups.get(ROLE_NODE, "")
    templates = {(t.source, t.machine): t for t in pool.templates}
    return tuple(
        Offer(
            pool=pool.name,
            source=source,
            zone=zone,
            machine=machine,
            template_id=bound.id,
            template_version=bound.version,
            subnet_id=subnet,
            price=template.price or 0,
            placement_group=_placement(world, pool, source, zone),
            interfaces=template.interfaces if group else (),
            group=group,
            keys=_keys(pool, source, machine, zone),
        )
        for source in sorted(pool.sources, key=lambda s: s.position)
        if zone in source.zones
        for machine in source.machines
        if (template := templates.get((source.position, machine))) is not None
        and (bound := world.bindings.templates.get(template.key)) is not None
        and subnet is not None
    )


def _placement(world: World, pool: Pool, source: Source, zone: str) -> str | None:
    if not pool.placement or source.market not in (Market.SPOT, Market.ON_DEMAND):
        return None
    return world.bindings.placement_groups.get(placement_key(pool.name, zone))


def all_offers(world: World) -> Mapping[tuple[str, str], tuple[Offer, ...]]:
    """Every (pool, zone)'s offers; few, however many slots there are."""
    return {
        (pool.name, span.zone): offers_in(world, pool, span.zone)
        for pool in world.plan.pools
        for span in pool.slots
    }


def refusal_of(memory: Memory, some: Offer) -> Refusal | None:
    """The refusal that stands longest against an offer: its own, its price's or its source's."""
    found = (memory.refusals[key] for key in some.keys if key in memory.refusals)
    return max(found, key=lambda r: (r.for_this_run, r.until), default=None)


def admits(memory: Memory, some: Offer, now: float) -> int:
    """The largest gang that no refusal stands against now: a refusal of eight says nothing of two (T06)."""
    found = (memory.refusals[key] for key in some.keys if key in memory.refusals)
    standing = (r for r in found if r.for_this_run or r.until > now)
    return min((0 if r.for_this_run or not r.size else r.size - 1 for r in standing), default=ANY_SIZE)


def closed(memory: Memory, some: Offer, now: float, size: int = ANY_SIZE) -> bool:
    """Whether a refusal stands against it now, for a gang of `size`."""
    return admits(memory, some, now) < size


class Room:
    """How many more a pool and its sources may have; counts down as a pass decides to launch."""

    def __init__(self, world: World) -> None:
        self._pools: Counter[str] = Counter()
        self._sources: Counter[tuple[str, int]] = Counter()
        self._held: Counter[str] = Counter()  # of reservations: taken since the cloud was asked
        self._world = world
        self.stops = {p.name: world.halted or limits.stop_of(world, p.name) for p in world.plan.pools}
        self._maxima = {p.name: 0 if self.stops[p.name] else p.max for p in world.plan.pools}
        self._reserved = {
            (p.name, s.position): s.reservation for p in world.plan.pools for s in p.sources if s.reservation
        }
        told_at = world.cloud.at if world.cloud.reservations_at is None else world.cloud.reservations_at
        owned: set[str] = set()
        for slot, life in world.memory.lives.items():
            place = world.slots.get(slot)
            if place is None or not life.instance:
                continue
            owned.add(life.instance)
            if world.fate(slot) in HAS:
                self._pools[place.pool.name] += 1
                self._sources[(place.pool.name, life.source)] += 1
                if life.launched_at > told_at:
                    self._hold(place.pool.name, life.source, 1)
        for launch in world.memory.launches.values():
            self.take(launch.ask.pool, launch.ask.source, len(launch.ask.slots))
        self._count_strays(owned)

    def take(self, pool: str, source: int, count: int) -> None:
        self._pools[pool] += count
        self._sources[(pool, source)] += count
        self._hold(pool, source, count)

    def of_pool(self, pool: str) -> int:
        return max(0, self._maxima[pool] - self._pools[pool])

    def of(self, some: Offer) -> int:
        """Room for this offer: the least of the pool's, the source's and the reservation's."""
        room = self.of_pool(some.pool)
        if some.source.max is not None:
            room = min(room, some.source.max - self._sources[(some.pool, some.source.position)])
        if room > 0 and some.source.reservation:
            room = min(room, self._free(some))
        return max(0, room)

    def lacks(self, some: Offer, count: int) -> str:
        """Why the offer has no room of its own for so many, in words; empty: it has."""
        source = some.source
        if source.reservation:
            shut, free = windows.shut(self._world, source.reservation), self._free(some)
            if shut or free < count:
                return f"{source.reservation} {shut or _too_few('is full', free, count)}"
        if source.max is not None:
            left = source.max - self._sources[(some.pool, source.position)]
            return f"max {source.max} {_too_few('reached', left, count)}" if left < count else ""
        return ""

    def lacks_in(self, pool: Pool, count: int) -> str:
        """Why the pool has no room for so many, in words; empty: it has."""
        left = self.of_pool(pool.name)
        return f"max {pool.max} {_too_few('reached', left, count)}" if left < count else ""

    def _free(self, some: Offer) -> int:
        """What is not known is not asked for."""
        name = some.source.reservation or ""
        listed = self._world.cloud.reservations.get(name)
        if listed is None or windows.shut(self._world, name):
            return 0
        return listed.free - self._held[name]

    def _hold(self, pool: str, source: int, count: int) -> None:
        if self._reserved and (name := self._reserved.get((pool, source))):
            self._held[name] += count

    def _count_strays(self, owned: set[str]) -> None:
        """Living instances of ours that no slot owns count too: they cost the same."""
        launches = self._world.memory.launches
        tokens = {launch.ask.token for launch in launches.values()}
        for instance in self._world.cloud.instances.values():
            if instance.id in owned or not instance.living:
                continue
            pool = instance.tags.get(TAG_POOL)
            in_flight = instance.token in tokens or instance.tags.get(TAG_REQUEST) in launches
            if pool and not in_flight:
                self._pools[pool] += 1


def choose(
    world: World, room: Room, offers: tuple[Offer, ...], count: int, jobs: Sequence[SlurmJob] = ()
) -> Offer | None:
    """The first offer that is not refused now, lasts as long as the jobs may, and has room for all of `count`."""
    return next(
        (
            some
            for some in offers
            if not closed(world.memory, some, world.now, count)
            and room.of(some) >= count
            and _lasts(world, some, jobs)
        ),
        None,
    )


def why_none(
    world: World, room: Room, pool: Pool, zone: str, offers: tuple[Offer, ...], *, count: int = 1
) -> str:
    """One stable sentence for people: what each offer of the zone said to so many at once."""
    stop = room.stops[pool.name] or room.lacks_in(pool, count) or limits.trial(world, pool.name)
    said = [stop] if stop else [words for some in offers if (words := _said(world, room, some, count))]
    return f"no {pool.name} in {zone}: " + ("; ".join(dict.fromkeys(said)) or "no source has room")


def _said(world: World, room: Room, some: Offer, count: int) -> str:
    refusal = refusal_of(world.memory, some)
    if refusal is not None and closed(world.memory, some, world.now):
        at_once = f" for {refusal.size} at once" if refusal.size > 1 else ""
        return f"{some.words} {refusal.words}{at_once}"
    words = room.lacks(some, count)
    return f"{some.words} {words}" if words else ""


def _too_few(none: str, left: int, count: int) -> str:
    return none if left <= 0 else f"leaves no room for {count}"


def _keys(pool: Pool, source: Source, machine: str, zone: str) -> tuple[str, ...]:
    details = (source.reservation or "", "", at_most(source.max_price))
    own = (offer(source.market, machine, zone, detail) for detail in details)
    return (*own, source_key(pool.name, source.position))


def _lasts(world: World, some: Offer, jobs: Sequence[SlurmJob]) -> bool:
    """A capacity block is no place for a job whose time limit runs into its end."""
    if some.market is not Market.CAPACITY_BLOCK:
        return True
    until = windows.until(world, some.source.reservation or "")
    return until is None or all(
        job.time_limit_s is not None and world.now + job.time_limit_s <= until for job in jobs
    )
