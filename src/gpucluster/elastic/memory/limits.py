"""Folds of what bounds the fleet: orders of people, breakers, the budget's lines, unknown states."""

from gpucluster.elastic.events import (
    BreakerReset,
    BreakerTripped,
    BudgetCrossed,
    Lingers,
    Ordered,
    Served,
    Unknown,
    Verb,
)
from gpucluster.elastic.memory.draft import Draft, folds
from gpucluster.elastic.memory.values import Linger, Order, Tripped

_UNDONE_BY = {Verb.POOL_RESUME, Verb.NODE_RELEASE}


@folds(Ordered)
def _ordered(draft: Draft, at: float, event: Ordered) -> None:
    if event.verb in _UNDONE_BY:
        draft.orders.pop(event.target, None)
        if event.verb is Verb.POOL_RESUME:
            _reset(draft, event.target)
        return
    draft.orders[event.target] = Order(
        verb=event.verb, at=at, by=event.by, words=event.words, until=event.until, now=event.now
    )


@folds(Served)
def _served(draft: Draft, at: float, event: Served) -> None:
    order = draft.orders.get(event.target)
    if order is not None and order.verb is event.verb:
        del draft.orders[event.target]


@folds(BreakerTripped)
def _tripped(draft: Draft, at: float, event: BreakerTripped) -> None:
    draft.breakers[event.pool] = Tripped(
        until=event.until, words=event.words, boots=draft.boots.get(event.pool, 0)
    )


@folds(BreakerReset)
def _breaker_reset(draft: Draft, at: float, event: BreakerReset) -> None:
    _reset(draft, event.pool)


@folds(BudgetCrossed)
def _budget(draft: Draft, at: float, event: BudgetCrossed) -> None:
    draft.budget = f"{event.month}/{event.line}"


@folds(Unknown)
def _unknown(draft: Draft, at: float, event: Unknown) -> None:
    if event.states:
        draft.unknown[event.slot] = event.states
    else:
        draft.unknown.pop(event.slot, None)


@folds(Lingers)
def _lingers(draft: Draft, at: float, event: Lingers) -> None:
    if event.phase:
        draft.lingers[event.slot] = Linger(phase=event.phase, since=at, bound_s=event.bound_s)
    else:
        draft.lingers.pop(event.slot, None)


def _reset(draft: Draft, pool: str) -> None:
    draft.breakers.pop(pool, None)
    draft.boots.pop(pool, None)
