"""Gangs that wait for the same are joined into one request, as far as the API's tokens go.

Most urgent first, and nobody overtakes: who passes a gang that waits for tokens takes them from it. A request's
MinCount is its smallest gang and its MaxCount all of them; what comes fills whole gangs, first to last. A gang larger
than the bucket can ever be comes in chunks. What was refused, or does not boot, is tried by one request at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpucluster.elastic.decide import limits
from gpucluster.elastic.decide.asks import Party, ask_for, waited
from gpucluster.elastic.decide.offers import Offer, refusal_of
from gpucluster.elastic.decide.pace import LAUNCHES, Pace
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Alternative
from gpucluster.elastic.model import LaunchGang, Phase, SlurmJob
from gpucluster.plan.model import Market, Pool

# Instances. While tokens come one by one, jobs that wait for them are joined until a request has so many: one call each
# 25 s and not one a job.
JOIN = 50
CHUNK = 500  # of a gang larger than the bucket: few calls, and the bucket never overflows meanwhile
NAMED = 10  # jobs that a reason names
# Single nodes at once from which on one CreateFleet asks for all machines of a source. It saves the call that each
# machine's refusal would take, and its lost answer is found by tags only: worth it for a burst (decision 0002).
FLEET_FROM = 10


@dataclass(frozen=True, slots=True)
class Gang:
    """Slots of one starting job (het components joined) in one pool and zone that lack an instance."""

    pool: Pool
    zone: str
    slots: tuple[str, ...]
    jobs: tuple[
        SlurmJob, ...
    ]  # empty: powered up by hand, or always on; parts with the same jobs go together

    @property
    def returns(self) -> bool:
        """Whether giving up costs nobody a job."""
        return all(job.returns for job in self.jobs)


Chosen = tuple[tuple[Gang, Offer], ...]  # a job's parts, and what each is to be launched from
_Batches = dict[object, list[tuple[Gang, Offer]]]


def launches(
    world: World, pace: Pace, wanted: Sequence[Chosen], offers: Mapping[tuple[str, str], tuple[Offer, ...]]
) -> Iterator[LaunchGang]:
    """What is launched now; the rest waits, and nothing is concluded from that."""
    if not waited(world.memory.paced_until, world.now):
        return
    testing = _Tests(world)
    number = world.memory.requests
    for batch in _affordable(pace, [chosen for chosen in wanted if testing.may(chosen)]).values():
        number += 1
        gang, some = batch[0]
        party = _party([gang for gang, _ in batch])
        if party.singles >= FLEET_FROM:
            others = _alternatives(world, some, offers[(gang.pool.name, gang.zone)])
            party = replace(party, alternatives=others)
        ask = ask_for(world, some, party, number)
        yield LaunchGang(ask=ask, repeat=False, reason=_for_whom(ask.jobs))


def wait_s(pace: Pace, lacking: Sequence[Gang]) -> float | None:
    """How long the gangs that lack instances wait for tokens; None: for something else."""
    count = sum(len(gang.slots) for gang in lacking)
    if not lacking or not count:
        return None
    first = len(lacking[0].slots)
    enough = min(first, CHUNK) if first > pace.size(LAUNCHES) else max(first, min(count, JOIN))
    return pace.wait_s(LAUNCHES, enough) or None


class _Tests:
    """Which offers and pools are put to the test by a request under way: one at a time."""

    def __init__(self, world: World) -> None:
        self._world = world
        asks = [launch.ask for launch in world.memory.launches.values()]
        self._offers = {
            a.offer_of(m) for a in asks for m in (a.machine, *(o.machine for o in a.alternatives))
        }
        self._pools = {p.name for p in world.plan.pools if limits.half_open(world, p.name)}
        self._busy = set(self._booting()) if self._pools else set[str]()
        self._decided: dict[str, tuple[str, int]] = {}

    def may(self, chosen: Chosen) -> bool:
        """Whether each part may be asked for now; what may is under way from then on."""
        if not all(self._pool_may(gang) and self._offer_may(gang, some) for gang, some in chosen):
            return False
        for gang, some in chosen:
            self._busy.add(gang.pool.name)
            self._decided.setdefault(some.key, (gang.pool.name, some.source.position))
        return True

    def _pool_may(self, gang: Gang) -> bool:
        return gang.pool.name not in self._pools or gang.pool.name not in self._busy

    def _offer_may(self, gang: Gang, some: Offer) -> bool:
        if refusal_of(self._world.memory, some) is None:
            return True
        mine = (gang.pool.name, some.source.position)
        return some.key not in self._offers and self._decided.get(some.key, mine) == mine

    def _booting(self) -> Iterator[str]:
        yield from (launch.ask.pool for launch in self._world.memory.launches.values())
        for slot in self._world.group(Phase.WANTED):
            life = self._world.life(slot)
            if life is not None and life.instance and life.failed is None:
                yield self._world.slots[slot].pool.name


def _affordable(pace: Pace, wanted: Sequence[Chosen]) -> _Batches:
    """Requests by what they ask for, as far as the tokens go."""
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
                return {}  # soon there are tokens for both
            break
        pace.take(LAUNCHES, count, new)
        taken += count
        for part in chosen:
            found.setdefault(_key(number, chosen, part), []).append(part)
    return found


def _key(number: int, chosen: Chosen, part: tuple[Gang, Offer]) -> object:
    """What may be one request. The parts of a job in several pools or zones stay their own."""
    gang, some = part
    if len(chosen) > 1:
        return (number, gang.pool.name, gang.zone)
    return (gang.pool.name, gang.zone, some.source.position, some.machine)


def _add_chunk(pace: Pace, found: _Batches, number: int, chosen: Chosen, count: int) -> None:
    """As much of the gang as there are tokens for, if it is worth a call."""
    room = min(pace.instances(LAUNCHES), count)
    if room < CHUNK:
        return
    for gang, some in chosen:
        slots = gang.slots[:room]
        room -= len(slots)
        if slots and pace.calls(LAUNCHES):
            pace.take(LAUNCHES, len(slots))
            found[(number, gang.pool.name, gang.zone, "chunk")] = [(replace(gang, slots=slots), some)]


def _party(gangs: Sequence[Gang]) -> Party:
    jobs = tuple(dict.fromkeys(job.id for gang in gangs for job in gang.jobs))
    slots = tuple(slot for gang in gangs for slot in gang.slots)
    accounts = tuple(sorted({job.account for gang in gangs for job in gang.jobs if job.account}))
    sizes = tuple(len(gang.slots) for gang in gangs)
    return Party(slots=slots, gangs=sizes, jobs=jobs, accounts=accounts)


def _alternatives(world: World, some: Offer, here: Sequence[Offer]) -> tuple[Alternative, ...]:
    """The other machines of its source that may be had; of a reservation or a block there are none."""
    if some.source.market not in (Market.SPOT, Market.ON_DEMAND):
        return ()
    return tuple(
        Alternative(
            machine=other.machine,
            template_id=other.template_id,
            template_version=other.template_version,
            price=other.price,
        )
        for other in here
        if other.source == some.source and other != some and refusal_of(world.memory, other) is None
    )


def _for_whom(jobs: tuple[int, ...]) -> str:
    if not jobs:
        return "powered up without a job"
    more = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
    return f"for job {', '.join(map(str, jobs[:NAMED]))}{more}"
