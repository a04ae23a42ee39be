"""What stops launches: the budget, a pool's breaker, a pause; each says so, and none ends a running job.

A breaker is *half open* when its cooldown is over: one gang may try, a node that comes up closes it, another boot that
fails trips it again.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from gpucluster.elastic import ledger
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import BreakerReset, BreakerTripped, BudgetCrossed, Event, LaunchRefused, Verb
from gpucluster.plan.model import Budget, Pool

_PAUSES = {Verb.POOL_PAUSE: "paused", Verb.POOL_DRAIN: "drained"}
_MICRO = 1_000_000


def noticed(world: World) -> Iterator[Event]:
    """Lines that the month's spend crossed, breakers that trip or close, throttled requests that a stop overtook."""
    if world.plan.budget is not None:
        yield from _budget(world, world.plan.budget)
    for pool in world.plan.pools:
        yield from _breaker(world, pool)
    yield from _given_up(world)


def stop_of(world: World, pool: str) -> str:
    """Why the pool may launch nothing now, in words; empty: it may."""
    return _order(world, pool) or _open_breaker(world, pool) or _spent_up(world)


def half_open(world: World, pool: str) -> bool:
    """Whether the pool's breaker lets one gang try."""
    tripped = world.memory.breakers.get(pool)
    return tripped is not None and tripped.until <= world.now


def trial(world: World, pool: str) -> str:
    """What a half-open breaker says to those who wait; empty: there is none."""
    if not half_open(world, pool):
        return ""
    return f"breaker: {world.memory.breakers[pool].words}; one job at a time may try"


def spent(world: World) -> int:
    """This month's spend so far, in micro-USD, by our own ledger."""
    living = ((life.price, life.launched_at) for life in world.memory.lives.values() if life.instance)
    return ledger.spent(world.memory.spent, living, world.now)


def _budget(world: World, budget: Budget) -> Iterator[Event]:
    amount, month = spent(world), ledger.month_of(world.now)
    line = "stop" if amount >= budget.stop_scaling_at else "warn" if amount >= budget.warn_at else "open"
    known = world.memory.budget
    if f"{month}/{line}" != known and (known or line != "open"):
        yield BudgetCrossed(line=line, month=month, spent=amount)


def _breaker(world: World, pool: Pool) -> Iterator[Event]:
    tripped = world.memory.breakers.get(pool.name)
    failed = world.memory.boots.get(pool.name, 0)
    if tripped is not None and not failed:
        yield BreakerReset(pool=pool.name, by="a node that came up")
    elif failed > tripped.boots if tripped is not None else failed >= pool.breaker.boots:
        words = f"{failed} boots failed in a row, the last: {_last_words(world, pool.name)}"
        until = world.now + pool.breaker.cooldown_s
        yield BreakerTripped(pool=pool.name, words=words, until=until)


def _given_up(world: World) -> Iterator[Event]:
    """A call that only waits for tokens would launch after the stop; one that may have launched is repeated (T01)."""
    for request, launch in world.memory.launches.items():
        if launch.came_to_nothing and (words := stop_of(world, launch.ask.pool)):
            yield LaunchRefused(request=request, key=None, words=words, until=world.now)


def _last_words(world: World, pool: str) -> str:
    lives = world.memory.lives.items()
    failed = ((life.launched_at, life.failed) for s, life in lives if life.failed and _is_of(world, s, pool))
    return max(failed, default=(0.0, "its words are lost"))[1]


def _is_of(world: World, slot: str, pool: str) -> bool:
    place = world.slots.get(slot)
    return place is not None and place.pool.name == pool


def _order(world: World, pool: str) -> str:
    order = world.memory.orders.get(pool)
    if order is None or order.verb not in _PAUSES:
        return ""
    return f"{_PAUSES[order.verb]} by {order.by}" + (f": {order.words}" if order.words else "")


def _open_breaker(world: World, pool: str) -> str:
    tripped = world.memory.breakers.get(pool)
    if tripped is None or tripped.until <= world.now:
        return ""
    until = datetime.fromtimestamp(tripped.until, UTC).strftime("%H:%M UTC")
    return f"breaker: {tripped.words}; launches stop until {until} or `gpucluster pool resume`"


def _spent_up(world: World) -> str:
    """The line and not the running sum, so that the sentence stays the same."""
    budget = world.plan.budget
    if budget is None or world.memory.budget != f"{ledger.month_of(world.now)}/stop":
        return ""
    now, opens = (datetime.fromtimestamp(at, UTC) for at in (world.now, ledger.next_month(world.now)))
    return (
        f"budget: {_usd(budget.stop_scaling_at)} of {_usd(budget.monthly)} USD of {now:%B} are spent, "
        f"launches stop until {opens:%B} 1 or a higher budget"
    )


def _usd(amount: int) -> str:
    return f"{amount / _MICRO:,.2f}".removesuffix(".00")
