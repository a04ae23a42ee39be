"""Limits of launches: operators' orders, the budget, and the breaker of each pool.

A stopped pool launches nothing; its running nodes and jobs continue. An order never ends a job, except `replace` with
`now`. Other effects of orders are rows of the node table (pause, drain, keep) and interruptions (replace).
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from gpucluster.elastic import ledger
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import (
    BreakerReset,
    BreakerTripped,
    BudgetCrossed,
    Event,
    LaunchRefused,
    OrderCompleted,
    Verb,
)
from gpucluster.elastic.memory import OperatorOrder
from gpucluster.plan.model import Budget, Pool
from gpucluster.slurm.states import SlurmPhase
from gpucluster.text import format_money, utc_minute

_PAUSES = {Verb.POOL_PAUSE: "paused", Verb.POOL_DRAIN: "drained"}


def limit_events(world: World) -> Iterator[Event]:
    """Return events: crossed budget lines, breakers that open or close, throttled requests of stopped pools."""
    if world.plan.budget is not None:
        yield from _budget(world, world.plan.budget)
    for pool in world.plan.pools:
        yield from _breaker(world, pool)
    yield from _given_up(world)


def stop_of(world: World, pool: str) -> str:
    """Return the reason why the pool may launch nothing now; empty if it may."""
    return _of_pool(world, pool) or _spent_up(world)


def is_resumed_by_order(world: World, pool: str) -> bool:
    """Return whether `pool resume` ends the stop of the pool: an order or an open breaker, not a budget."""
    return bool(_of_pool(world, pool))


def _of_pool(world: World, pool: str) -> str:
    return _order(world, pool) or _open_breaker(world, pool)


def half_open(world: World, pool: str) -> bool:
    """Return whether the pool's breaker permits one gang as a test."""
    tripped = world.memory.breakers.get(pool)
    return tripped is not None and tripped.until <= world.now


def trial(world: World, pool: str) -> str:
    """Return the message of a half-open breaker for waiting jobs; empty without one."""
    if not half_open(world, pool):
        return ""
    return f"breaker: {world.memory.breakers[pool].words}; one job at a time may test it"


def spent(world: World) -> int:
    """Return the month's spend so far, in micro-USD, from our own ledger."""
    living = (
        (incarnation.price, incarnation.counts_from)
        for incarnation in world.memory.incarnations.values()
        if incarnation.instance
    )
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
        yield BreakerReset(pool=pool.name, by="a node that is up")
    elif failed > tripped.boots if tripped is not None else failed >= pool.breaker.boots:
        words = f"{failed} boots failed in a row, the last: {_last_words(world, pool.name)}"
        until = world.now + pool.breaker.cooldown_s
        yield BreakerTripped(pool=pool.name, words=words, until=until)


def _given_up(world: World) -> Iterator[Event]:
    """Give up throttled requests while launches are stopped. A request that may have launched is repeated instead (T01)."""
    for request, launch in world.memory.launches.items():
        if launch.came_to_nothing and (words := world.halted or stop_of(world, launch.request.pool)):
            yield LaunchRefused(request=request, key=None, words=words, until=world.now)


def _last_words(world: World, pool: str) -> str:
    incarnations = world.memory.incarnations.items()
    failed = (
        (incarnation.launched_at, incarnation.failed)
        for s, incarnation in incarnations
        if incarnation.failed and _is_of(world, s, pool)
    )
    return max(failed, default=(0.0, "no message was recorded"))[1]


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
    return f"breaker: {tripped.words}; launches stop until {utc_minute(tripped.until)} or until the pool is resumed"


def _spent_up(world: World) -> str:
    """Return the sentence for the budget. It names the line and not the spend, so it does not change with each pass."""
    budget = world.plan.budget
    if budget is None or world.memory.budget != f"{ledger.month_of(world.now)}/stop":
        return ""
    now, opens = (datetime.fromtimestamp(at, UTC) for at in (world.now, ledger.next_month(world.now)))
    return (
        f"budget: {format_money(budget.stop_scaling_at)} of {format_money(budget.monthly)} of {now:%B} are spent; "
        f"launches stop until {opens:%B} 1 or a higher budget"
    )


def completed_orders(world: World) -> Iterator[Event]:
    """Return events for replace orders that are done and keep orders that expired."""
    for target, order in world.memory.orders.items():
        if _is_over(world, target, order):
            yield OrderCompleted(verb=order.verb, target=target)


def _is_over(world: World, target: str, order: OperatorOrder) -> bool:
    match order.verb:
        case Verb.NODE_KEEP:
            return order.until is not None and order.until <= world.now
        case Verb.NODE_REPLACE:
            return _is_replaced(world, target, order)
        case _:
            return False


def _is_replaced(world: World, slot: str, order: OperatorOrder) -> bool:
    """Return whether the replaced instance is gone. The next launch waits for a job or for the pool's minimum."""
    incarnation = world.incarnation(slot)
    if incarnation is None:  # after a lost journal its instance may not be adopted yet
        return world.phases.get(slot, SlurmPhase.OFF) is SlurmPhase.OFF
    if incarnation.request is not None:
        return False
    return incarnation.instance is None or incarnation.launched_at > order.at
