"""The offers of each (pool, zone) in their order, the remembered refusals, and the headroom below `max`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpucluster.cloud.port import LaunchSpec
from gpucluster.elastic.decide import block_reservations, limits
from gpucluster.elastic.decide.world import HAS_INSTANCE, World
from gpucluster.elastic.events import offer_key, price_detail, source_key
from gpucluster.elastic.memory import Memory, Refusal
from gpucluster.plan.model import Bindings, Market, Pool, SlurmPlan, Source
from gpucluster.plan.names import ROLE_NODE, TAG_POOL, TAG_REQUEST, placement_key
from gpucluster.slurm.values import SlurmJob

ANY_SIZE = 1_000_000_000  # the largest gang for an offer without a refusal: no limit


@dataclass(frozen=True, slots=True)
class Offer:
    """One (source, machine type) in one zone that can be launched."""

    pool: str
    source: Source
    spec: LaunchSpec
    price: int  # micro-USD an hour; 0: unknown or prepaid
    keys: tuple[
        str, ...
    ]  # keys of the refusals that close it: of the offer, its machine type, its price, its source

    @property
    def key(self) -> str:
        return self.keys[0]

    @property
    def words(self) -> str:
        return f"{self.spec.market.value} {self.spec.machine}"


def offers_in(world: World, pool: Pool, zone: str) -> tuple[Offer, ...]:
    """Return the offers in the order of attempts: sources by position, machines in their order."""
    subnet = world.bindings.subnets.get(zone)
    group = world.bindings.groups.get(ROLE_NODE, "")
    templates = {(t.source, t.machine): t for t in pool.templates}
    return tuple(
        Offer(
            pool=pool.name,
            source=source,
            spec=LaunchSpec(
                machine=machine,
                market=source.market,
                zone=zone,
                subnet_id=subnet,
                template_id=bound.id,
                template_version=bound.version,
                reservation=source.reservation,
                max_price=source.max_price,
                placement_group=_placement(world, pool, source, zone),
                interfaces=template.interfaces if group else (),
                security_group=group,
            ),
            price=template.price or 0,
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


_Offers = Mapping[tuple[str, str], tuple[Offer, ...]]
_last: tuple[SlurmPlan, Bindings, _Offers] | None = None


def all_offers(world: World) -> _Offers:
    """Return the offers of every (pool, zone). They depend on plan and bindings only, so the last ones are kept."""
    global _last  # noqa: PLW0603
    last = _last
    if last is None or last[0] is not world.plan or last[1] is not world.bindings:
        offers = {
            (pool.name, span.zone): offers_in(world, pool, span.zone)
            for pool in world.plan.pools
            for span in pool.slots
        }
        last = _last = world.plan, world.bindings, offers
    return last[2]


def refusal_of(memory: Memory, offer: Offer) -> Refusal | None:
    """Return the refusal of an offer that expires last: of the offer, its price or its source."""
    found = (memory.refusals[key] for key in offer.keys if key in memory.refusals)
    return max(found, key=lambda r: (r.for_this_run, r.until), default=None)


def largest_gang(memory: Memory, offer: Offer, now: float) -> int:
    """Return the largest gang that no refusal excludes now. A refusal of eight does not exclude two (T06)."""
    found = (memory.refusals[key] for key in offer.keys if key in memory.refusals)
    standing = (r for r in found if r.for_this_run or r.until > now)
    return min((0 if r.for_this_run or not r.size else r.size - 1 for r in standing), default=ANY_SIZE)


def closed(memory: Memory, offer: Offer, now: float, size: int = ANY_SIZE) -> bool:
    """Return whether a refusal excludes a gang of `size` now."""
    return largest_gang(memory, offer, now) < size


class Headroom:
    """How many more instances a pool and its sources may have. A pass subtracts each launch that it decides."""

    def __init__(self, world: World) -> None:
        self._pools: Counter[str] = Counter()
        self._sources: Counter[tuple[str, int]] = Counter()
        self._used: Counter[str] = Counter()  # of reservations: used since the last list of the cloud
        self._world = world
        self.stops = {p.name: world.halted or limits.stop_of(world, p.name) for p in world.plan.pools}
        self._maxima = {p.name: 0 if self.stops[p.name] else p.max for p in world.plan.pools}
        self._reserved = {
            (p.name, s.position): s.reservation for p in world.plan.pools for s in p.sources if s.reservation
        }
        read_at = world.observation.reservations_at
        listed_at = world.cloud.at if read_at is None else read_at
        owned: set[str] = set()
        for slot, incarnation in world.memory.incarnations.items():
            place = world.slots.get(slot)
            if place is None or not incarnation.instance:
                continue
            owned.add(incarnation.instance)
            if world.instance_status(slot) in HAS_INSTANCE:
                self._pools[place.pool.name] += 1
                self._sources[(place.pool.name, incarnation.source)] += 1
                if incarnation.launched_at > listed_at:
                    self._use(place.pool.name, incarnation.source, 1)
        for launch in world.memory.launches.values():
            self.take(launch.request.pool, launch.request.source, len(launch.request.slots))
        self._count_spares(owned, listed_at)
        self._count_strays(owned)

    def take(self, pool: str, source: int, count: int) -> None:
        self._pools[pool] += count
        self._sources[(pool, source)] += count
        self._use(pool, source, count)

    def of_pool(self, pool: str) -> int:
        return max(0, self._maxima[pool] - self._pools[pool])

    def of(self, offer: Offer) -> int:
        """Return the headroom of this offer: the least of the pool's, the source's and the reservation's."""
        headroom = self.of_pool(offer.pool)
        if offer.source.max is not None:
            headroom = min(headroom, offer.source.max - self._sources[(offer.pool, offer.source.position)])
        if headroom > 0 and offer.source.reservation:
            headroom = min(headroom, self._free(offer))
        return max(0, headroom)

    def lacks(self, offer: Offer, count: int) -> str:
        """Return the reason why the offer has no headroom for `count`; empty if it has."""
        source = offer.source
        if source.reservation:
            unusable, free = (
                block_reservations.why_unusable(self._world, source.reservation),
                self._free(offer),
            )
            if unusable or free < count:
                return f"{source.reservation} {unusable or _too_few('is full', free, count)}"
        if source.max is not None:
            left = source.max - self._sources[(offer.pool, source.position)]
            return f"max {source.max} {_too_few('reached', left, count)}" if left < count else ""
        return ""

    def lacks_in(self, pool: Pool, count: int) -> str:
        """Return the reason why the pool has no headroom for `count`; empty if it has."""
        left = self.of_pool(pool.name)
        return f"max {pool.max} {_too_few('reached', left, count)}" if left < count else ""

    def _free(self, offer: Offer) -> int:
        """Return the free instances of the reservation or block; 0 if the cloud does not list it."""
        name = offer.source.reservation or ""
        listed = self._world.reservations.get(name)
        if listed is None or block_reservations.why_unusable(self._world, name):
            return 0
        return listed.free - self._used[name]

    def _use(self, pool: str, source: int, count: int) -> None:
        if self._reserved and (name := self._reserved.get((pool, source))):
            self._used[name] += count

    def _count_spares(self, owned: set[str], listed_at: float) -> None:
        """Count the instances of partial launches until the cloud lists their end: the list may not have them yet."""
        for instance, spare in self._world.memory.spares.items():
            listed = self._world.cloud.instances.get(instance)
            if instance in owned or (listed is not None and not listed.living):
                continue
            owned.add(instance)
            self._pools[spare.pool] += 1
            self._sources[(spare.pool, spare.source)] += 1
            if spare.launched_at > listed_at:
                self._use(spare.pool, spare.source, 1)

    def _count_strays(self, owned: set[str]) -> None:
        """Count stray living instances in their pools: they cost the same as the others."""
        launches = self._world.memory.launches
        tokens = {launch.request.token for launch in launches.values()}
        for instance in self._world.cloud.instances.values():
            if instance.id in owned or not instance.living:
                continue
            pool = instance.tags.get(TAG_POOL)
            in_flight = instance.token in tokens or instance.tags.get(TAG_REQUEST) in launches
            if pool and not in_flight:
                self._pools[pool] += 1


def choose(
    world: World, headroom: Headroom, offers: tuple[Offer, ...], count: int, jobs: Sequence[SlurmJob] = ()
) -> Offer | None:
    """Return the first offer without a refusal that lasts as long as the jobs and has headroom for all of `count`."""
    return next(
        (
            offer
            for offer in offers
            if not closed(world.memory, offer, world.now, count)
            and headroom.of(offer) >= count
            and _lasts(world, offer, jobs)
        ),
        None,
    )


def why_none(
    world: World, headroom: Headroom, pool: Pool, zone: str, offers: tuple[Offer, ...], *, count: int = 1
) -> str:
    """Return one stable sentence for people: the last refusal of each offer of the zone for so many instances."""
    stop = headroom.stops[pool.name] or headroom.lacks_in(pool, count) or limits.trial(world, pool.name)
    reasons = (
        [stop]
        if stop
        else [words for offer in offers if (words := _offer_reason(world, headroom, offer, count))]
    )
    return f"no {pool.name} in {zone}: " + (
        "; ".join(dict.fromkeys(reasons)) or "no source has capacity left"
    )


def _offer_reason(world: World, headroom: Headroom, offer: Offer, count: int) -> str:
    refusal = refusal_of(world.memory, offer)
    if refusal is not None and closed(world.memory, offer, world.now):
        at_once = f" for {refusal.size} at once" if refusal.size > 1 else ""
        return f"{offer.words} {refusal.words}{at_once}"
    if refusal is not None:
        return f"{offer.words} was refused ({refusal.words}), and one gang may test it now"
    words = headroom.lacks(offer, count)
    return f"{offer.words} {words}" if words else ""


def _too_few(none: str, left: int, count: int) -> str:
    return none if left <= 0 else f"leaves too few for {count}"


def _keys(pool: Pool, source: Source, machine: str, zone: str) -> tuple[str, ...]:
    details = (source.reservation or "", "", price_detail(source.max_price))
    own = (offer_key(source.market, machine, zone, detail) for detail in details)
    return (*own, source_key(pool.name, source.position))


def _lasts(world: World, offer: Offer, jobs: Sequence[SlurmJob]) -> bool:
    """Return whether the job fits. A job with a time limit past the block's end does not."""
    if offer.spec.market is not Market.CAPACITY_BLOCK:
        return True
    until = block_reservations.until(world, offer.source.reservation or "")
    return until is None or all(
        job.time_limit_s is not None and world.now + job.time_limit_s <= until for job in jobs
    )
