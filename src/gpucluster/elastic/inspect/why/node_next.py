"""`why NODE`: what the daemon does with the node now, or its next step and the latest time of it."""

from collections.abc import Iterator, Mapping

from gpucluster.elastic.abilities import Ability
from gpucluster.elastic.decide import replacements
from gpucluster.elastic.decide.node_context import NodeContext
from gpucluster.elastic.decide.node_table import (
    AWAITED,
    EXPECTED,
    FAULT_LIMIT,
    HOURLY_LIMITS,
    IDLE,
    NEEDED_BOOTS,
    NOT_RESPONDING,
    OFF,
    OFF_GRACE,
    Decision,
    Row,
)
from gpucluster.elastic.decide.offers import Headroom, closed, refusal_of, why_none
from gpucluster.elastic.decide.terminations import boot_limit, left_alone
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.inspect.why.allocated import terminated
from gpucluster.elastic.inspect.why.causes import Offers
from gpucluster.elastic.inspect.why.repeated import DOES
from gpucluster.elastic.inspect.why.screen import Line, Part
from gpucluster.elastic.model import (
    Action,
    PowerDown,
)
from gpucluster.text import rounded_duration

_LATER: Mapping[Decision, str] = {  # decisions of rows that the daemon does not carry out in this pass
    Decision.WAIT: "its state changes without an action of the daemon",
    Decision.LAUNCH: "the daemon launches an instance for it as soon as an offer and the API's rate limit allow it",
    Decision.POWER_UP: "the daemon powers it up as soon as its pool may launch",
    Decision.TERMINATE: "the daemon terminates its instance as soon as the API's rate limit allows it",
    Decision.OFF: "the daemon powers it down in a later pass",
    Decision.DOWN_AND_OFF: "the daemon sets it DOWN and powers it down in a later pass",
    Decision.SET_DOWN: "the daemon sets it DOWN in a later pass",
    Decision.RESET: "the daemon resumes it in a later pass",
    Decision.DRAIN: "the daemon drains it in a later pass",
    Decision.UNDRAIN: "the daemon removes its drain in a later pass",
}


_NEEDS: Mapping[Decision, Ability] = {  # what a decision needs; others need no act of the daemon
    Decision.LAUNCH: Ability.LAUNCH,
    Decision.TERMINATE: Ability.TERMINATE,
    **dict.fromkeys(
        (
            Decision.POWER_UP,
            Decision.OFF,
            Decision.DOWN_AND_OFF,
            Decision.SET_DOWN,
            Decision.RESET,
            Decision.DRAIN,
            Decision.UNDRAIN,
        ),
        Ability.UPDATE,
    ),
}


def now(world: World, mine: tuple[Action, ...]) -> Iterator[Line]:
    """Return the daemon's action on the node in this pass."""
    steps = tuple(dict.fromkeys(DOES[type(action).__name__] for action in mine))
    needs = Ability.END_IDLE if all(isinstance(action, PowerDown) for action in mine) else None
    yield Line(part=Part.NEXT, at=world.now, needs=needs, words=f"the daemon {' and '.join(steps)}")


def later(world: World, headroom: Headroom, offers: Offers, context: NodeContext, row: Row) -> Iterator[Line]:
    """Return the next step of its row, and its time: exact, or at the latest after a bound."""
    name, incarnation = context.slot, context.incarnation
    if row is NOT_RESPONDING:
        return  # `silent` has the next step
    if row.decision is Decision.TERMINATE:
        yield from _terminated(world, context, row)
    elif row.decision is Decision.CAPACITY:
        yield _lifted(world, headroom, offers, name)
    elif row is OFF:
        yield Line(part=Part.NEXT, needs=Ability.LAUNCH, words="it is powered up when a job is placed on it")
    elif row in (IDLE, AWAITED, EXPECTED):
        yield _idle_end(context, row)
    elif row in HOURLY_LIMITS:
        yield from _limited(world, context, row)
    elif row is OFF_GRACE and incarnation is not None and incarnation.unneeded_at is not None:
        at = incarnation.unneeded_at + context.times.orphan_grace_s
        yield Line(
            part=Part.NEXT,
            at=at,
            needs=Ability.TERMINATE,
            words="the daemon terminates its instance if no job needs it",
        )
    elif row is NEEDED_BOOTS and incarnation is not None:
        limit = boot_limit(world, name, incarnation)
        then = "the daemon sets it DOWN" if limit.last else f"its instance is {terminated(world, name)}"
        words = f"if {limit.missing} by then, its boot has failed, and {then}"
        yield Line(part=Part.NEXT, at=limit.at, needs=Ability.UPDATE, words=words)
    elif row.decision in _LATER or row.then:
        yield _in_a_later_pass(context, row)


def _idle_end(context: NodeContext, row: Row) -> Line:
    """Return the end of an idle node. A node that waits for a requeued job has no known one."""
    at = context.expected_until if row is EXPECTED else context.idle_until
    words = "the daemon powers it down if no job is placed on it before"
    if row is AWAITED:
        at, words = (
            None,
            "the daemon powers it down once the job waits no longer for it, and its idle time is over",
        )
    return Line(part=Part.NEXT, needs=Ability.END_IDLE, at=at, words=words)


def _terminated(world: World, context: NodeContext, row: Row) -> Iterator[Line]:
    instance = (context.incarnation.instance if context.incarnation is not None else None) or ""
    asked = world.memory.endings.get(instance)
    if context.end_refused:
        return  # `refused_end_lines` has the next request
    if instance in left_alone(world):
        yield Line(
            part=Part.NEXT, words="its machine ends itself as soon as slurmctld shows that its node is off"
        )
    elif asked is not None:
        yield Line(part=Part.DONE, at=asked, words="the daemon requested the termination of its instance")
    else:
        yield _in_a_later_pass(context, row)


def _in_a_later_pass(context: NodeContext, row: Row) -> Line:
    bound = row.bound(context)
    within = f"; this state lasts at most {rounded_duration(bound)}" if bound else ""
    if row.then:
        return Line(part=Part.NEXT, needs=Ability.UPDATE, words=f"the daemon {row.then}{within}")
    return Line(part=Part.NEXT, needs=_NEEDS.get(row.decision), words=f"{_LATER[row.decision]}{within}")


def _limited(world: World, context: NodeContext, row: Row) -> Iterator[Line]:
    """Return when the pool may replace one more instance, and what a person can do before."""
    pool, name = context.place.pool, context.slot
    yield Line(
        part=Part.NEXT,
        needs=Ability.UPDATE,
        at=replacements.next_at(world, pool),
        words=f"pool {pool.name} may replace another instance: at most {pool.replacements_per_hour} an hour (health.replace_per_hour)",
    )
    words = f"look for a common cause, for example a driver or a mount; `gpucluster node replace {name} -c {world.plan.name}` replaces it now"
    if row is not FAULT_LIMIT:  # the daemon drains a node with a failed GPU again
        words += f"; scontrol update nodename={name} state=resume returns it"
    yield Line(part=Part.REMEDY, words=words)


def _lifted(world: World, headroom: Headroom, offers: Offers, name: str) -> Line:
    """Return when it may be tried again, or what must change first."""
    place = world.slots[name]
    here = offers.get((place.pool.name, place.zone), ())
    ends = [r.until for o in here if (r := refusal_of(world.memory, o)) is not None and r.until > world.now]
    if ends and not headroom.stops[place.pool.name] and headroom.of_pool(place.pool.name):
        return Line(
            part=Part.NEXT,
            needs=Ability.UPDATE,
            at=min(ends),
            words="the first refusal in this zone expires: the daemon tests it with one gang, and undrains the zone after a success",
        )
    if any(refusal_of(world.memory, o) is not None and not closed(world.memory, o, world.now) for o in here):
        return Line(
            part=Part.NEXT,
            needs=Ability.UPDATE,
            words="the pause after a refusal is over: one waiting gang tests the zone, and the daemon undrains it after a success",
        )
    now = why_none(world, headroom, place.pool, place.zone, here)
    return Line(part=Part.NEXT, needs=Ability.UPDATE, words=f"the daemon undrains it when this ends: {now}")
