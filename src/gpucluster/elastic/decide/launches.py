"""Launch requests: gangs with the same needs share one request, within the tokens of the EC2 API.

The most urgent gang comes first. If a gang waits for tokens, no later gang is launched: it would take those tokens.
MinCount of a request is its smallest gang, MaxCount is the sum of its gangs. The instances fill whole gangs, first to
last. A gang larger than the full bucket is launched in chunks. After a refusal or a failed boot, one request at a time
tests the offer.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpucluster.cloud.fleet import fault_of, fleet_error, without_echoes
from gpucluster.cloud.port import CloudError, Fault, FleetError
from gpucluster.elastic.decide import limits
from gpucluster.elastic.decide.api_rate import LAUNCHES, Pace
from gpucluster.elastic.decide.offers import Offer, refusal_of
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import (
    Alternative,
    Event,
    LaunchDeferred,
    LaunchRefused,
    LaunchRequest,
    OfferRefused,
    source_key,
)
from gpucluster.elastic.memory import Launch, Memory, Refusal
from gpucluster.elastic.memory.launches import shared_out, smaller
from gpucluster.elastic.model import LaunchGang
from gpucluster.plan.model import Market, Pool, Times
from gpucluster.slurm.states import SlurmPhase
from gpucluster.slurm.values import SlurmJob
from gpucluster.text import short

# Seconds before a lost or throttled call is repeated: doubled from the first to the longest.
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
# these errors do not depend on the number of instances
OF_ANY_SIZE = frozenset({"SpotMaxPriceTooLow", "InvalidCapacityReservationState.PendingActivation"})
OF_THE_PRICE = "SpotMaxPriceTooLow"
# Names that the bundle sets. A call with an old name is refused for the name; this says nothing about the new name.
# After `down` and `up`, the journal on the retained disk may end with such a call.
OF_THE_BUNDLE = frozenset(
    {
        "InvalidGroup.NotFound",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.VersionNotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidPlacementGroup.Unknown",
        "InvalidSubnetID.NotFound",
    }
)
_OF_CAPACITY = (Fault.NO_CAPACITY, Fault.UNSUPPORTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchBatch:
    """The gangs that one request serves: their slots, sizes and jobs."""

    slots: tuple[str, ...]
    gangs: tuple[int, ...] = ()
    jobs: tuple[int, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    accounts: tuple[str, ...] = ()

    @property
    def singles(self) -> int:
        """Return the number of single nodes, if the request has no larger gang."""
        return len(self.gangs) if self.gangs and max(self.gangs) == 1 else 0


def new_request(world: World, offer: Offer, batch: LaunchBatch, number: int) -> LaunchRequest:
    """Return a new request. Its token differs from any other of this cluster (T01 to T04).

    Slots, number and generation come again after a journal is restored from a backup; the lease's epoch does not.
    """
    slots = batch.slots
    generation = (
        max((incarnation.generation for s in slots if (incarnation := world.incarnation(s))), default=0) + 1
    )
    attempt = (
        max((incarnation.failed_boots for s in slots if (incarnation := world.incarnation(s))), default=0) + 1
    )
    parts = (
        world.plan.name,
        world.memory.epoch,
        str(world.memory.lease),
        f"r{number}",
        str(generation),
        str(attempt),
        repr(offer.spec),
        *slots,
    )
    return LaunchRequest(
        id=f"r{number}",
        token="gpucluster-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40],
        pool=offer.pool,
        source=offer.source.position,
        slots=slots,
        spec=offer.spec,
        gangs=batch.gangs if len(batch.gangs) > 1 else (),
        jobs=batch.jobs,
        price=offer.price,
        alternatives=batch.alternatives,
        accounts=batch.accounts,
    )


def event_of_error(
    times: Times, memory: Memory, request: LaunchRequest, error: CloudError, now: float
) -> Event:
    """Return the event after a failed launch, by the class of its error (docs/facts/aws.md, error codes)."""
    words = _words(error)
    match error.fault:
        case Fault.THROTTLED | Fault.LOST:
            wait = _backoff(memory.launches.get(request.id))
            throttled = error.fault is Fault.THROTTLED
            return LaunchDeferred(request=request.id, retry_at=now + wait, words=words, pace_all=throttled)
        case Fault.TOKEN:
            return LaunchRefused(request=request.id, key=None, words=words, until=now)
        case Fault.UNSUPPORTED:
            return LaunchRefused(
                request=request.id, key=request.offer_key, words=words, until=now, for_this_run=True
            )
        case Fault.CONFIGURATION if error.code in OF_THE_BUNDLE and _again(memory.launches.get(request.id)):
            return LaunchRefused(request=request.id, key=None, words=words, until=now)
        case Fault.QUOTA | Fault.CONFIGURATION:
            key = source_key(request.pool, request.source)
            return LaunchRefused(request=request.id, key=key, words=words, until=now + times.refusal_max_s)
        case Fault.NO_CAPACITY | Fault.GONE:
            key = (
                request.price_key_of(request.spec.machine)
                if error.code == OF_THE_PRICE
                else request.offer_key
            )
            size = 0 if error.code in OF_ANY_SIZE else request.smallest_gang
            until = now + refused_for(times, memory.refusals.get(key), size, now)
            return LaunchRefused(request=request.id, key=key, words=words, until=until, size=size)


def events_of_shortfall(
    times: Times,
    memory: Memory,
    request: LaunchRequest,
    count: int,
    errors: Sequence[FleetError],
    *,
    now: float,
) -> Iterator[Event]:
    """Return the refusal after a partial launch: the offer has no capacity for gangs of the unserved sizes (T05)."""
    lacking = shared_out(request, count)[1]
    if not lacking or not all(fault_of(e) in _OF_CAPACITY for e in without_echoes(errors)):
        return
    size = min(len(gang) for gang in lacking)
    words = f"gave {count} of {len(request.slots)}, nothing"
    for machine in request.machines:
        key = request.offer_key_of(machine)
        until = now + refused_for(times, memory.refusals.get(key), size, now)
        yield OfferRefused(key=key, words=words, until=until, size=size)


def events_of_nothing(
    times: Times, memory: Memory, request: LaunchRequest, errors: Sequence[FleetError], now: float
) -> Iterator[Event]:
    """Return events for a fleet without usable instances. Its errors are classified together (T13); its token is used.

    They count as capacity errors, each for its machine type, only if none of them has another cause.
    """
    error = fleet_error(errors) if errors else CloudError(Fault.NO_CAPACITY, "Partial", "no gang whole")
    if error.fault in _OF_CAPACITY:
        yield LaunchRefused(request=request.id, key=None, words=error.code, until=now)
        yield from _each_refused(times, memory, request, errors, now)
        return
    yield event_of_error(times, memory, request, error, now)
    if error.fault in (Fault.THROTTLED, Fault.LOST):  # other calls wait; a repeat gets the same answer
        yield LaunchRefused(request=request.id, key=None, words=error.code, until=now)


def _each_refused(
    times: Times, memory: Memory, request: LaunchRequest, errors: Sequence[FleetError], now: float
) -> Iterator[Event]:
    found = {e.machine: e for e in without_echoes(errors)} or {
        request.spec.machine: FleetError(machine=request.spec.machine, code="Partial", message="")
    }
    for machine, error in sorted(found.items()):
        of_price = error.code == OF_THE_PRICE
        key = request.price_key_of(machine) if of_price else request.offer_key_of(machine)
        size = 0 if error.code in OF_ANY_SIZE else request.smallest_gang
        until = now + refused_for(times, memory.refusals.get(key), size, now)
        if fault_of(error) is Fault.UNSUPPORTED:
            until, size = now + times.refusal_max_s, 0
        yield OfferRefused(key=key, words=error.code, until=until, size=size)


def refused_for(times: Times, old: Refusal | None, size: int = 0, now: float = 0.0) -> float:
    """Return the seconds until the next refusal expires: doubled with each consecutive refusal."""
    row = old.times if old else 0
    if smaller(old, size, now):  # the same refusal, now for smaller gangs too
        row -= 1
    return min(times.refusal_s * 2.0 ** min(row, 20), times.refusal_max_s)


def repeats_due(launches: Mapping[str, Launch], now: float, paced_until: float) -> tuple[LaunchRequest, ...]:
    """Return requests whose repeat is due."""
    due = [x.request for x in launches.values() if is_over(x.retry_at, now) and is_over(paced_until, now)]
    return tuple(sorted(due, key=lambda request: int(request.id[1:])))


def is_over(until: float, now: float) -> bool:
    """Return whether a pause is over. If it is longer than the longest backoff, the clock was set back: then it is over."""
    return not now < until <= now + LONGEST_RETRY_S


def _again(launch: Launch | None) -> bool:
    """Return whether the call was a repeat."""
    return launch is not None and (launch.doubtful or launch.tries > 1)


def _backoff(launch: Launch | None) -> float:
    tries = launch.tries if launch else 1
    return min(FIRST_RETRY_S * 2.0 ** (tries - 1), LONGEST_RETRY_S)


def _words(error: CloudError) -> str:
    """Return the cloud's error code; with its message if a person has to act. The text is made printable and short."""
    with_message = error.fault in (Fault.QUOTA, Fault.CONFIGURATION)
    text = f"{error.code} ({error.message})" if with_message and error.message else error.code
    return short(text, 160)


# Instances. While tokens are scarce, waiting jobs are joined until a request has this many: one call each
# 25 s instead of one per job.
JOIN = 50
CHUNK = 500  # of a chunk: large enough for few calls, small enough that the bucket is not full before the next call
NAMED = 10  # number of job ids in a reason
# From this number of single nodes on, one CreateFleet requests all machine types of a source. It saves one call
# per refused machine type. Its lost answer can be found by tags only, so it is used for bursts (decision 0002).
FLEET_FROM = 10


@dataclass(frozen=True, slots=True)
class Gang:
    """Slots of one starting job (het components joined) in one pool and zone that lack an instance."""

    pool: Pool
    zone: str
    slots: tuple[str, ...]
    jobs: tuple[
        SlurmJob, ...
    ]  # empty: powered up by hand, or always on; all parts of a job have the same jobs

    @property
    def returns(self) -> bool:
        """Return whether Slurm requeues every job of the gang, so that giving up loses no job."""
        return all(job.requeues_on_failure for job in self.jobs)


JobOffers = tuple[tuple[Gang, Offer], ...]  # the parts of a job, and the offer of each
_Batches = dict[object, list[tuple[Gang, Offer]]]


def new_launches(
    world: World, pace: Pace, wanted: Sequence[JobOffers], offers: Mapping[tuple[str, str], tuple[Offer, ...]]
) -> Iterator[LaunchGang]:
    """Return the launches of this pass. Other gangs wait; waiting is not a refusal."""
    if not is_over(world.memory.paced_until, world.now):
        return
    testing = _Tests(world)
    number = world.memory.requests
    for parts in _affordable(pace, [chosen for chosen in wanted if testing.may(chosen)]).values():
        number += 1
        gang, offer = parts[0]
        batch = _batch([gang for gang, _ in parts])
        if batch.singles >= FLEET_FROM:
            others = _alternatives(world, offer, offers[(gang.pool.name, gang.zone)])
            batch = replace(batch, alternatives=others)
        request = new_request(world, offer, batch, number)
        yield LaunchGang(request=request, repeat=False, reason=_for_whom(request.jobs))


def wait_s(pace: Pace, lacking: Sequence[Gang]) -> float | None:
    """Return the seconds for which the gangs wait for tokens; None if they do not wait for tokens."""
    count = sum(len(gang.slots) for gang in lacking)
    if not lacking or not count:
        return None
    first = len(lacking[0].slots)
    enough = min(first, CHUNK) if first > pace.size(LAUNCHES) else max(first, min(count, JOIN))
    return pace.wait_s(LAUNCHES, enough) or None


class _Tests:
    """The offers and pools that a request in progress tests. Only one request at a time tests each of them."""

    def __init__(self, world: World) -> None:
        self._world = world
        requests = [launch.request for launch in world.memory.launches.values()]
        self._offers = {r.offer_key_of(machine) for r in requests for machine in r.machines}
        self._pools = {p.name for p in world.plan.pools if limits.half_open(world, p.name)}
        self._busy = set(self._booting()) if self._pools else set[str]()
        self._decided: dict[str, tuple[str, int]] = {}

    def may(self, chosen: JobOffers) -> bool:
        """Return whether each part may be launched now. If so, mark its offer and pool as being tested."""
        if not all(self._pool_may(gang) and self._offer_may(gang, offer) for gang, offer in chosen):
            return False
        for gang, offer in chosen:
            self._busy.add(gang.pool.name)
            self._decided.setdefault(offer.key, (gang.pool.name, offer.source.position))
        return True

    def _pool_may(self, gang: Gang) -> bool:
        return gang.pool.name not in self._pools or gang.pool.name not in self._busy

    def _offer_may(self, gang: Gang, offer: Offer) -> bool:
        if refusal_of(self._world.memory, offer) is None:
            return True
        mine = (gang.pool.name, offer.source.position)
        return offer.key not in self._offers and self._decided.get(offer.key, mine) == mine

    def _booting(self) -> Iterator[str]:
        yield from (launch.request.pool for launch in self._world.memory.launches.values())
        for slot in self._world.group(SlurmPhase.POWERING_UP):
            incarnation = self._world.incarnation(slot)
            if incarnation is not None and incarnation.instance and incarnation.failed is None:
                yield self._world.slots[slot].pool.name


def _affordable(pace: Pace, wanted: Sequence[JobOffers]) -> _Batches:
    """Group gangs with the same needs into requests, while there are tokens."""
    found: _Batches = {}
    taken = 0
    for number, chosen in enumerate(wanted):
        count = sum(len(gang.slots) for gang, _ in chosen)
        new = len({_key(number, chosen, part) for part in chosen} - found.keys())
        if new > pace.calls(LAUNCHES):
            break
        if count > pace.instances(LAUNCHES):
            if count > pace.size(LAUNCHES):
                _add_chunk(pace, found, number, chosen, count)
            elif taken and taken + count <= JOIN:
                return {}  # the tokens for both are available soon
            break
        pace.take(LAUNCHES, count, new)
        taken += count
        for part in chosen:
            found.setdefault(_key(number, chosen, part), []).append(part)
    return found


def _key(number: int, chosen: JobOffers, part: tuple[Gang, Offer]) -> object:
    """Return the key of gangs that may share a request. Parts of a job in several pools or zones stay separate."""
    gang, offer = part
    if len(chosen) > 1:
        return (number, gang.pool.name, gang.zone)
    return (gang.pool.name, gang.zone, offer.source.position, offer.spec.machine)


def _add_chunk(pace: Pace, found: _Batches, number: int, chosen: JobOffers, count: int) -> None:
    """Add as much of the gang as there are tokens for, if this is worth a call."""
    room = min(pace.instances(LAUNCHES), count)
    if room < CHUNK:
        return
    for gang, offer in chosen:
        slots = gang.slots[:room]
        room -= len(slots)
        if slots and pace.calls(LAUNCHES):
            pace.take(LAUNCHES, len(slots))
            found[(number, gang.pool.name, gang.zone, "chunk")] = [(replace(gang, slots=slots), offer)]


def _batch(gangs: Sequence[Gang]) -> LaunchBatch:
    jobs = tuple(dict.fromkeys(job.id for gang in gangs for job in gang.jobs))
    slots = tuple(slot for gang in gangs for slot in gang.slots)
    accounts = tuple(sorted({job.account for gang in gangs for job in gang.jobs if job.account}))
    sizes = tuple(len(gang.slots) for gang in gangs)
    return LaunchBatch(slots=slots, gangs=sizes, jobs=jobs, accounts=accounts)


def _alternatives(world: World, offer: Offer, here: Sequence[Offer]) -> tuple[Alternative, ...]:
    """Return the other available machine types of the source. A reservation or a block has none."""
    if offer.source.market not in (Market.SPOT, Market.ON_DEMAND):
        return ()
    return tuple(
        Alternative(spec=other.spec, price=other.price)
        for other in here
        if other.source == offer.source and other != offer and refusal_of(world.memory, other) is None
    )


def _for_whom(jobs: tuple[int, ...]) -> str:
    if not jobs:
        return "powered up without a job"
    more = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
    return f"for job {', '.join(map(str, jobs[:NAMED]))}{more}"
