"""What may be launched where: the ranked offers of a (pool, zone), refusals remembered, and room below `max`."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster.cloud.port import CloudError, Fault
from gpucluster.elastic.decide.world import HAS, World
from gpucluster.elastic.events import (
    Ask,
    Event,
    LaunchDeferred,
    LaunchRefused,
    offer,
    source_key,
)
from gpucluster.elastic.memory import Launch, Memory, Refusal
from gpucluster.plan.model import Market, Pool, Source, Times
from gpucluster.plan.names import TAG_POOL

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0  # a lost or throttled call: doubled from the first to the longest


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

    @property
    def market(self) -> Market:
        return self.source.market

    @property
    def key(self) -> str:
        return offer(self.source.market, self.machine, self.zone)

    @property
    def words(self) -> str:
        return f"{self.source.market.value} {self.machine}"


def offers_in(world: World, pool: Pool, zone: str) -> tuple[Offer, ...]:
    """In the order in which they are tried: sources by position, machines in their order."""
    subnet = world.bindings.subnets.get(zone)
    templates = {(t.source, t.machine): world.bindings.templates.get(t.key) for t in pool.templates}
    return tuple(
        Offer(pool.name, source, zone, machine, template.id, template.version, subnet)
        for source in sorted(pool.sources, key=lambda s: s.position)
        if zone in source.zones
        for machine in source.machines
        if (template := templates.get((source.position, machine))) is not None and subnet is not None
    )


def all_offers(world: World) -> Mapping[tuple[str, str], tuple[Offer, ...]]:
    """Every (pool, zone)'s offers; few, however many slots there are."""
    return {
        (pool.name, span.zone): offers_in(world, pool, span.zone)
        for pool in world.plan.pools
        for span in pool.slots
    }


def refusal_of(memory: Memory, some: Offer) -> Refusal | None:
    """The refusal that stands longest against an offer: its own, or its source's."""
    own = memory.refusals.get(some.key)
    source = memory.refusals.get(source_key(some.pool, some.source.position))
    both = (r for r in (own, source) if r is not None)
    return max(both, key=lambda r: (r.for_this_run, r.until), default=None)


def closed(memory: Memory, some: Offer, now: float) -> bool:
    """Whether a refusal stands against it now."""
    refusal = refusal_of(memory, some)
    return refusal is not None and (refusal.for_this_run or refusal.until > now)


class Room:
    """How many more a pool and its sources may have; counts down as a pass decides to launch."""

    def __init__(self, world: World) -> None:
        self._pools: Counter[str] = Counter()
        self._sources: Counter[tuple[str, int]] = Counter()
        self._maxima = {p.name: 0 if world.halted else p.max for p in world.plan.pools}
        owned: set[str] = set()
        for slot, life in world.memory.lives.items():
            place = world.slots.get(slot)
            if place is None or not life.instance:
                continue
            owned.add(life.instance)
            if world.fate(slot) in HAS:
                self.take(place.pool.name, life.source, 1)
        for launch in world.memory.launches.values():
            self.take(launch.ask.pool, launch.ask.source, len(launch.ask.slots))
        self._count_strays(world, owned)

    def take(self, pool: str, source: int, count: int) -> None:
        self._pools[pool] += count
        self._sources[(pool, source)] += count

    def of_pool(self, pool: str) -> int:
        return max(0, self._maxima[pool] - self._pools[pool])

    def of(self, some: Offer) -> int:
        """Room for this offer: the lesser of the pool's and the source's."""
        room = self.of_pool(some.pool)
        if some.source.max is None:
            return room
        return max(0, min(room, some.source.max - self._sources[(some.pool, some.source.position)]))

    def _count_strays(self, world: World, owned: set[str]) -> None:
        """Living instances of ours that no slot owns count too: they cost the same."""
        in_flight = {launch.ask.token for launch in world.memory.launches.values()}
        for instance in world.cloud.instances.values():
            pool = instance.tags.get(TAG_POOL)
            if instance.living and instance.id not in owned and instance.token not in in_flight and pool:
                self._pools[pool] += 1


def choose(world: World, room: Room, offers: tuple[Offer, ...], count: int) -> Offer | None:
    """The first offer that is not refused now and has room for all of `count`."""
    return next((o for o in offers if not closed(world.memory, o, world.now) and room.of(o) >= count), None)


def why_none(world: World, room: Room, pool: Pool, zone: str, offers: tuple[Offer, ...]) -> str:
    """One stable sentence for people: what each offer of the zone said."""
    said: list[str] = []
    if world.halted:
        said.append(world.halted)
    elif not room.of_pool(pool.name):
        said.append(f"max {pool.max} reached")
    else:
        for some in offers:
            refusal = refusal_of(world.memory, some)
            if refusal is not None and closed(world.memory, some, world.now):
                said.append(f"{some.words} {refusal.words}")
            elif some.source.max is not None:
                said.append(f"{some.words} max {some.source.max} reached")
    return f"no {pool.name} in {zone}: " + ("; ".join(dict.fromkeys(said)) or "no source has room")


def ask_for(world: World, some: Offer, slots: tuple[str, ...], request: int) -> Ask:
    """A new request. Its token differs whenever anything in it differs (T01 to T04)."""
    generation = max((life.generation for s in slots if (life := world.life(s))), default=0) + 1
    attempt = max((life.failed_boots for s in slots if (life := world.life(s))), default=0) + 1
    parts = (
        world.plan.name,
        world.memory.epoch,
        f"r{request}",
        str(generation),
        str(attempt),
        some.zone,
        some.machine,
        some.market.value,
        some.template_id,
        str(some.template_version),
        *slots,
    )
    return Ask(
        request=f"r{request}",
        token="gpucluster-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40],
        pool=some.pool,
        source=some.source.position,
        slots=slots,
        zone=some.zone,
        machine=some.machine,
        market=some.market,
        template_id=some.template_id,
        template_version=some.template_version,
        subnet_id=some.subnet_id,
    )


def outcome(times: Times, memory: Memory, ask: Ask, error: CloudError, now: float) -> Event:
    """What a launch that failed means, by the fault's class (aws-traps.md 1i)."""
    launch = memory.launches.get(ask.request)
    words = _words(error)
    match error.fault:
        case Fault.THROTTLED | Fault.LOST:
            wait = _backoff(launch)
            throttled = error.fault is Fault.THROTTLED
            return LaunchDeferred(request=ask.request, retry_at=now + wait, words=words, pace_all=throttled)
        case Fault.TOKEN:
            return LaunchRefused(request=ask.request, key=None, words=words, until=now)
        case Fault.UNSUPPORTED:
            return LaunchRefused(
                request=ask.request, key=ask.offer, words=words, until=now, for_this_run=True
            )
        case Fault.QUOTA | Fault.CONFIGURATION:
            key = source_key(ask.pool, ask.source)
            return LaunchRefused(request=ask.request, key=key, words=words, until=now + times.refusal_max_s)
        case Fault.NO_CAPACITY | Fault.GONE:
            until = now + refused_for(times, memory.refusals.get(ask.offer))
            return LaunchRefused(request=ask.request, key=ask.offer, words=words, until=until)


def refused_for(times: Times, old: Refusal | None) -> float:
    """How long the next refusal stands: doubled with each one in a row."""
    return min(times.refusal_s * 2.0 ** min(old.times if old else 0, 20), times.refusal_max_s)


def same_token(launches: Mapping[str, Launch], now: float, paced_until: float) -> tuple[Ask, ...]:
    """Requests whose identical call is due again."""
    due = [x.ask for x in launches.values() if waited(x.retry_at, now) and waited(paced_until, now)]
    return tuple(sorted(due, key=lambda ask: int(ask.request[1:])))


def waited(until: float, now: float) -> bool:
    """Whether a pause is over; one longer than any that we make was set by a clock that has gone back since."""
    return not now < until <= now + LONGEST_RETRY_S


def _backoff(launch: Launch | None) -> float:
    tries = launch.tries if launch else 1
    return min(FIRST_RETRY_S * 2.0 ** (tries - 1), LONGEST_RETRY_S)


def _words(error: CloudError) -> str:
    """The cloud's code; its message too when a person has to act on it. Others' text: printable, short."""
    tell = error.fault in (Fault.QUOTA, Fault.CONFIGURATION)
    text = f"{error.code} ({error.message})" if tell and error.message else error.code
    return "".join(c for c in text if c.isprintable())[:160]
