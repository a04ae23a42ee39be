"""Requests to the cloud: how one is made, what its failure means, and when its identical call is due again."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpucluster.cloud.fleet import fault_of, judge, without_echoes
from gpucluster.cloud.port import CloudError, Fault, FleetError
from gpucluster.elastic.decide.offers import Offer
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import (
    Alternative,
    Ask,
    Event,
    LaunchDeferred,
    LaunchRefused,
    Refused,
    source_key,
)
from gpucluster.elastic.memory import Launch, Memory, Refusal
from gpucluster.elastic.memory.launches import shared_out, smaller
from gpucluster.plan.model import Times

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0  # a lost or throttled call: doubled from the first to the longest
# "No capacity" that has nothing to do with how many were asked for.
OF_ANY_SIZE = frozenset({"SpotMaxPriceTooLow", "InvalidCapacityReservationState.PendingActivation"})
OF_THE_PRICE = "SpotMaxPriceTooLow"
# Names that a bundle brings. A call that was asked under an older one is refused for them, and it says nothing of today's:
# after `down` and `up` the journal on the kept disk may end with such a call.
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
class Party:
    """Whom a request serves: slots of whole gangs, their sizes, and their jobs."""

    slots: tuple[str, ...]
    gangs: tuple[int, ...] = ()
    jobs: tuple[int, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    accounts: tuple[str, ...] = ()

    @property
    def singles(self) -> int:
        """How many single nodes, where there is nothing else in it."""
        return len(self.gangs) if self.gangs and max(self.gangs) == 1 else 0


def ask_for(world: World, some: Offer, party: Party, request: int) -> Ask:
    """A new request. Its token differs whenever anything in it differs (T01 to T04)."""
    slots = party.slots
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
        gangs=party.gangs if len(party.gangs) > 1 else (),
        jobs=party.jobs,
        price=some.price,
        reservation=some.source.reservation,
        max_price=some.source.max_price,
        alternatives=party.alternatives,
        accounts=party.accounts,
        placement_group=some.placement_group,
        interfaces=some.interfaces,
        group=some.group,
    )


def outcome(times: Times, memory: Memory, ask: Ask, error: CloudError, now: float) -> Event:
    """What a launch that failed means, by the fault's class (aws-traps.md 1i)."""
    words = _words(error)
    match error.fault:
        case Fault.THROTTLED | Fault.LOST:
            wait = _backoff(memory.launches.get(ask.request))
            throttled = error.fault is Fault.THROTTLED
            return LaunchDeferred(request=ask.request, retry_at=now + wait, words=words, pace_all=throttled)
        case Fault.TOKEN:
            return LaunchRefused(request=ask.request, key=None, words=words, until=now)
        case Fault.UNSUPPORTED:
            return LaunchRefused(
                request=ask.request, key=ask.offer, words=words, until=now, for_this_run=True
            )
        case Fault.CONFIGURATION if error.code in OF_THE_BUNDLE and _again(memory.launches.get(ask.request)):
            return LaunchRefused(request=ask.request, key=None, words=words, until=now)
        case Fault.QUOTA | Fault.CONFIGURATION:
            key = source_key(ask.pool, ask.source)
            return LaunchRefused(request=ask.request, key=key, words=words, until=now + times.refusal_max_s)
        case Fault.NO_CAPACITY | Fault.GONE:
            key = ask.priced(ask.machine) if error.code == OF_THE_PRICE else ask.offer
            size = 0 if error.code in OF_ANY_SIZE else ask.at_least
            until = now + refused_for(times, memory.refusals.get(key), size, now)
            return LaunchRefused(request=ask.request, key=key, words=words, until=until, size=size)


def shortfall(
    times: Times, memory: Memory, ask: Ask, count: int, errors: Sequence[FleetError], *, now: float
) -> Iterator[Event]:
    """After fewer came than were asked for: the offer has nothing for gangs of the sizes that were not served (T05)."""
    lacking = shared_out(ask, count)[1]
    if not lacking or not all(fault_of(e) in _OF_CAPACITY for e in without_echoes(errors)):
        return
    size = min(len(gang) for gang in lacking)
    words = f"gave {count} of {len(ask.slots)}, nothing"
    for machine in (ask.machine, *(other.machine for other in ask.alternatives)):
        key = ask.offer_of(machine)
        until = now + refused_for(times, memory.refusals.get(key), size, now)
        yield Refused(key=key, words=words, until=until, size=size)


def nothing(
    times: Times, memory: Memory, ask: Ask, errors: Sequence[FleetError], now: float
) -> Iterator[Event]:
    """After an answer without instances of use: a fleet's errors are judged together (T13), and the token is spent.

    Only if nothing in them speaks of something else do they say anything about capacity, each of its own machine.
    """
    error = judge(errors) if errors else CloudError(Fault.NO_CAPACITY, "Partial", "no gang whole")
    if error.fault in _OF_CAPACITY:
        yield LaunchRefused(request=ask.request, key=None, words=error.code, until=now)
        yield from _each_refused(times, memory, ask, errors, now)
        return
    yield outcome(times, memory, ask, error, now)
    if error.fault in (Fault.THROTTLED, Fault.LOST):  # it paused the rest; a repeat would get the same answer
        yield LaunchRefused(request=ask.request, key=None, words=error.code, until=now)


def _each_refused(
    times: Times, memory: Memory, ask: Ask, errors: Sequence[FleetError], now: float
) -> Iterator[Event]:
    found = {e.machine: e for e in without_echoes(errors)} or {
        ask.machine: FleetError(machine=ask.machine, code="Partial", message="")
    }
    for machine, error in sorted(found.items()):
        of_price = error.code == OF_THE_PRICE
        key = ask.priced(machine) if of_price else ask.offer_of(machine)
        size = 0 if error.code in OF_ANY_SIZE else ask.at_least
        until = now + refused_for(times, memory.refusals.get(key), size, now)
        if fault_of(error) is Fault.UNSUPPORTED:
            until, size = now + times.refusal_max_s, 0
        yield Refused(key=key, words=error.code, until=until, size=size)


def refused_for(times: Times, old: Refusal | None, size: int = 0, now: float = 0.0) -> float:
    """How long the next refusal stands: doubled with each one in a row."""
    row = old.times if old else 0
    if smaller(old, size, now):  # the same refusal, found to hold for smaller gangs too
        row -= 1
    return min(times.refusal_s * 2.0 ** min(row, 20), times.refusal_max_s)


def same_token(launches: Mapping[str, Launch], now: float, paced_until: float) -> tuple[Ask, ...]:
    """Requests whose identical call is due again."""
    due = [x.ask for x in launches.values() if waited(x.retry_at, now) and waited(paced_until, now)]
    return tuple(sorted(due, key=lambda ask: int(ask.request[1:])))


def waited(until: float, now: float) -> bool:
    """Whether a pause is over; one longer than any that we make was set by a clock that has gone back since."""
    return not now < until <= now + LONGEST_RETRY_S


def _again(launch: Launch | None) -> bool:
    """Whether this was not the call's first try."""
    return launch is not None and (launch.doubtful or launch.tries > 1)


def _backoff(launch: Launch | None) -> float:
    tries = launch.tries if launch else 1
    return min(FIRST_RETRY_S * 2.0 ** (tries - 1), LONGEST_RETRY_S)


def _words(error: CloudError) -> str:
    """The cloud's code; its message too when a person has to act on it. Others' text: printable, short."""
    tell = error.fault in (Fault.QUOTA, Fault.CONFIGURATION)
    text = f"{error.code} ({error.message})" if tell and error.message else error.code
    return "".join(c for c in text if c.isprintable())[:160]
