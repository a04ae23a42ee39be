"""Folds of limits: operators' orders, breakers, budget lines, unknown states, drains."""

from gpucluster.elastic.events import (
    BreakerReset,
    BreakerTripped,
    BudgetCrossed,
    DrainsSeen,
    OrderCompleted,
    OrderGiven,
    PersonDrained,
    ReplacementBegan,
    SlotsForgotten,
    StateLingers,
    UnknownState,
    Verb,
)
from gpucluster.elastic.memory.draft import Draft, folds
from gpucluster.elastic.memory.values import (
    LingeringState,
    OpenBreaker,
    OperatorOrder,
    PersonDrain,
    SeenDrain,
)
from gpucluster.slurm import hostlist

HOUR_S = 3600.0
_UNDONE_BY = {Verb.POOL_RESUME, Verb.NODE_RELEASE}


@folds(OrderGiven)
def _order_given(draft: Draft, at: float, event: OrderGiven) -> None:
    if event.verb in _UNDONE_BY:
        draft.orders.pop(event.target, None)
        if event.verb is Verb.POOL_RESUME:
            _reset(draft, event.target)
        return
    draft.orders[event.target] = OperatorOrder(
        verb=event.verb, at=at, by=event.by, words=event.words, until=event.until, now=event.now
    )


@folds(OrderCompleted)
def _order_completed(draft: Draft, at: float, event: OrderCompleted) -> None:
    order = draft.orders.get(event.target)
    if order is not None and order.verb is event.verb:
        del draft.orders[event.target]


@folds(BreakerTripped)
def _breaker_tripped(draft: Draft, at: float, event: BreakerTripped) -> None:
    draft.breakers[event.pool] = OpenBreaker(
        until=event.until, words=event.words, boots=draft.boots.get(event.pool, 0)
    )


@folds(BreakerReset)
def _breaker_reset(draft: Draft, at: float, event: BreakerReset) -> None:
    _reset(draft, event.pool)


@folds(BudgetCrossed)
def _budget_crossed(draft: Draft, at: float, event: BudgetCrossed) -> None:
    draft.budget = f"{event.month}/{event.line}"


@folds(ReplacementBegan)
def _replacement_began(draft: Draft, at: float, event: ReplacementBegan) -> None:
    """Keep the times of the last hour. Later ones are of a clock that was set back."""
    recent = (one for one in draft.replaced.get(event.pool, ()) if at - HOUR_S < one <= at)
    draft.replaced[event.pool] = (*recent, at)
    incarnation = draft.incarnations.get(event.slot)
    if incarnation is not None and incarnation.instance == event.instance:
        draft.change(event.slot, replaced_at=at)


@folds(UnknownState)
def _unknown(draft: Draft, at: float, event: UnknownState) -> None:
    if event.states:
        draft.unknown[event.slot] = event.states
    else:
        draft.unknown.pop(event.slot, None)


@folds(PersonDrained)
def _person_drained(draft: Draft, at: float, event: PersonDrained) -> None:
    for slot in event.slots:
        if event.reason:
            draft.person_drains[slot] = PersonDrain(reason=event.reason, by=event.by)
        else:
            draft.person_drains.pop(slot, None)


@folds(StateLingers)
def _state_lingers(draft: Draft, at: float, event: StateLingers) -> None:
    if event.phase:
        draft.lingers[event.slot] = LingeringState(phase=event.phase, since=at, bound_s=event.bound_s)
    else:
        draft.lingers.pop(event.slot, None)


@folds(DrainsSeen)
def _drains_seen(draft: Draft, at: float, event: DrainsSeen) -> None:
    for names, blocked in ((event.blocked, True), (event.drained, False)):
        for slot in _slots(names):
            draft.drains[slot] = SeenDrain(drained=True, blocked=blocked, since=at)
    for slot in _slots(event.undrained):
        old = draft.drains.get(slot)
        draft.drains[slot] = SeenDrain(drained=False, blocked=old is not None and old.blocked, since=at)


@folds(SlotsForgotten)
def _slots_forgotten(draft: Draft, at: float, event: SlotsForgotten) -> None:
    """Orders stay: the pool may return. The number of a later launch stays new without the slot's generation."""
    for slot in _slots(event.slots):
        for by_slot in (
            draft.incarnations,
            draft.drains,
            draft.person_drains,
            draft.unknown,
            draft.lingers,
        ):
            by_slot.pop(slot, None)


def _slots(names: str) -> tuple[str, ...]:
    """Return the names of a hostlist; none of a text that no daemon wrote."""
    try:
        return hostlist.expand_slurm(names)
    except hostlist.HostlistError:
        return ()


def _reset(draft: Draft, pool: str) -> None:
    draft.breakers.pop(pool, None)
    draft.boots.pop(pool, None)
