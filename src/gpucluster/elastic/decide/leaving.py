"""For each kind of trouble what is done when, from the notice to the machine's end: the one table, and its words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpucluster.elastic import owners
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import TroubleKind, Verb
from gpucluster.elastic.memory import Trouble
from gpucluster.elastic.owners import Owner
from gpucluster.plan.model import Farewell

UNTOLD_S = 120.0  # a spot notice that tells no time (T34)


@dataclass(frozen=True, slots=True)
class Moment:
    """A trouble, and what its pool says of farewells."""

    trouble: Trouble
    farewell: Farewell
    hurried_at: float | None = None  # an operator said then not to wait for jobs


def moment_of(world: World, slot: str, trouble: Trouble) -> Moment:
    """A slot's trouble, and what pool and operator say of it."""
    order = world.memory.orders.get(slot)
    hurried = order is not None and order.verb is Verb.NODE_REPLACE and order.now
    return Moment(trouble, world.slots[slot].pool.farewell, order.at if order and hurried else None)


When = Callable[[Moment], float | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """What is done at which time; None: never."""

    drains: bool  # no new job
    signals: When  # the batch scripts are told
    requeues: When
    takes: When  # the node leaves with whatever still runs there; before that only when it is empty
    replaced: bool  # another machine is asked for at once, so that it is up when the job comes back


def _never(_: Moment) -> None:
    return None


def _at_once(m: Moment) -> float:
    return m.trouble.since


def _end(m: Moment) -> float:
    return m.trouble.ends_at if m.trouble.ends_at is not None else m.trouble.since + UNTOLD_S


def _before_end(m: Moment) -> float:
    """The lead before the end; of a short notice half is left to the script."""
    end = _end(m)
    return end - min(float(m.farewell.lead_s), max(0.0, (end - m.trouble.since) / 2))


def _shortly_before(m: Moment) -> float | None:
    """Jobs may end by themselves until there is just the time for a farewell; without a time they all may."""
    end = m.trouble.ends_at
    return None if end is None else end - m.farewell.lead_s - m.farewell.grace_s


def _before_end_if_told(m: Moment) -> float | None:
    return None if m.trouble.ends_at is None else _before_end(m)


def _after_grace(m: Moment) -> float:
    return m.trouble.since + m.farewell.grace_s


def _if_hurried(m: Moment) -> float | None:
    return None if m.hurried_at is None else max(m.hurried_at, m.trouble.since)


def _after_grace_if_hurried(m: Moment) -> float | None:
    at = _if_hurried(m)
    return None if at is None else at + m.farewell.grace_s


def _first(*rules: When) -> When:
    """Whichever comes first."""

    def when(m: Moment) -> float | None:
        return min((at for rule in rules if (at := rule(m)) is not None), default=None)

    return when


RULES: Mapping[TroubleKind, Rule] = {
    TroubleKind.SPOT: Rule(drains=True, signals=_at_once, requeues=_before_end, takes=_end, replaced=True),
    TroubleKind.REBALANCE: Rule(drains=False, signals=_never, requeues=_never, takes=_never, replaced=False),
    TroubleKind.MAINTENANCE: Rule(
        drains=True,
        signals=_first(_shortly_before, _if_hurried),
        requeues=_first(_before_end_if_told, _after_grace_if_hurried),
        takes=_never,
        replaced=True,
    ),
    TroubleKind.BLOCK_END: Rule(
        drains=True, signals=_at_once, requeues=_before_end, takes=_end, replaced=False
    ),
    TroubleKind.FAULT: Rule(
        drains=True, signals=_at_once, requeues=_after_grace, takes=_never, replaced=True
    ),
    TroubleKind.REPLACE: Rule(
        drains=True, signals=_if_hurried, requeues=_after_grace_if_hurried, takes=_never, replaced=True
    ),
}


def sentence(trouble: Trouble) -> str:
    """What stands in the node's reason and in its jobs' comments."""
    return owners.reason(Owner.TROUBLE, trouble.words)


def well(world: World, slot: str) -> bool:
    """Whether a machine is to be left no more; one that has not spoken since our start may be."""
    life = world.life(slot)
    if life is None or not life.instance:
        return world.free(slot)
    heard = world.reports.get(life.instance)
    return life.trouble is None and heard is not None and heard.report.watched


def farewell_of(trouble: Trouble) -> str:
    """What a node hears of its own end: `spot 1700000000`; empty for a mere hint."""
    if not RULES[trouble.kind].drains:
        return ""
    return trouble.kind.value if trouble.ends_at is None else f"{trouble.kind.value} {trouble.ends_at:.0f}"
