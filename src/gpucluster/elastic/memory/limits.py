"""Folds of limits: operators' orders, breakers, budget lines, unknown states, drains."""

from dataclasses import replace

from gpucluster.elastic.events import (
    DRAIN_ORDERS,
    BreakerReset,
    BreakerTripped,
    BudgetCrossed,
    CopiedOrder,
    DrainsSeen,
    IntentRestored,
    OrderCompleted,
    OrderGiven,
    PersonDrained,
    PersonDrainLifted,
    ReplacementBegan,
    SlotsForgotten,
    Stamp,
    StateLingers,
    UnknownState,
    Verb,
)
from gpucluster.elastic.memory.draft import Draft, folds
from gpucluster.elastic.memory.values import (
    LingeringState,
    Memory,
    OpenBreaker,
    OperatorOrder,
    PersonDrain,
    SeenDrain,
)
from gpucluster.slurm import hostlist

HOUR_S = 3600.0
UNDONE = 256  # ends of orders that are remembered
_UNDONE_BY = {Verb.POOL_RESUME, Verb.NODE_RELEASE}


@folds(OrderGiven)
def _order_given(draft: Draft, at: float, event: OrderGiven) -> None:
    if event.verb is Verb.ORDERS_CONFIRM:
        draft.unrestored_since = None
        return
    if event.verb in DRAIN_ORDERS:
        draft.drain_orders[event.target] = OperatorOrder(
            verb=event.verb, at=at, by=event.by, words=event.words
        )
        return
    stamp = draft.next_stamp()
    if event.verb in _UNDONE_BY:
        _end_order(draft, event.target, stamp)
        if event.verb is Verb.POOL_RESUME:
            _reset(draft, event.target)
        return
    draft.undone.pop(event.target, None)
    draft.orders[event.target] = OperatorOrder(
        verb=event.verb,
        at=at,
        by=event.by,
        words=event.words,
        until=event.until,
        now=event.now,
        stamp=stamp,
    )


@folds(OrderCompleted)
def _order_completed(draft: Draft, at: float, event: OrderCompleted) -> None:
    if event.verb in DRAIN_ORDERS:
        draft.drain_orders.pop(event.target, None)
        return
    order = draft.orders.get(event.target)
    if order is not None and order.verb is event.verb:
        _end_order(draft, event.target, draft.next_stamp())


@folds(IntentRestored)
def _intent_restored(draft: Draft, at: float, event: IntentRestored) -> None:
    """Take over what is newer. The spend is never less than that of the copy."""
    stamps = [event.budget_stamp, *(one.stamp for one in event.orders)]
    epoch, waited = max(stamps).epoch, draft.unrestored_since is not None
    draft.unrestored_since = None
    draft.sequence = max(draft.sequence, *(stamp.sequence for stamp in stamps))
    if epoch > max(draft.lease, draft.copied_epoch) or (waited and epoch == draft.lease):
        _stamp_anew(draft, epoch)
    for copied in [one for one in event.orders if one.stamp > last_stamp(draft, one.target)]:
        _restore(draft, copied)
    if (event.budget_stamp, event.budget) > (draft.budget_stamp, draft.budget):
        draft.budget, draft.budget_stamp = event.budget, event.budget_stamp
    for month, amount in event.spent.items():
        draft.spent[month] = max(draft.spent.get(month, 0), amount)


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
    draft.budget, draft.budget_stamp = f"{event.month}/{event.line}", draft.next_stamp()


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
            draft.person_drains[slot] = PersonDrain(
                reason=event.reason,
                by=event.by,
                at=event.at,
                drained=event.drained,
                was_down=event.was_down,
            )
        else:
            draft.person_drains.pop(slot, None)


@folds(PersonDrainLifted)
def _person_drain_lifted(draft: Draft, at: float, event: PersonDrainLifted) -> None:
    for slot in event.slots:
        if (drain := draft.person_drains.get(slot)) is not None:
            draft.person_drains[slot] = replace(drain, lifted=True)


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


def _restore(draft: Draft, copied: CopiedOrder) -> None:
    if copied.verb is None:
        _end_order(draft, copied.target, copied.stamp)
        return
    draft.undone.pop(copied.target, None)
    draft.orders[copied.target] = OperatorOrder(
        verb=copied.verb,
        at=copied.at,
        by=copied.by,
        words=copied.words,
        until=copied.until,
        now=copied.now,
        stamp=copied.stamp,
        instance=copied.instance,
    )


def _stamp_anew(draft: Draft, epoch: int) -> None:
    """Make the orders and ends of this journal newer than those of a copy with `epoch`.

    The lease does not reach that epoch, so control object and journal were lost: what was ordered since is newer.
    """
    draft.copied_epoch = epoch
    for target, order in sorted(draft.orders.items(), key=lambda one: (one[1].stamp, one[0])):
        draft.orders[target] = replace(order, stamp=draft.next_stamp())
    for target in sorted(draft.undone, key=lambda one: (draft.undone[one], one)):
        draft.undone[target] = draft.next_stamp()


def _end_order(draft: Draft, target: str, stamp: Stamp) -> None:
    """Remove the order, and keep its end: an older copy has the order still. Only the newest ends are kept."""
    draft.orders.pop(target, None)
    draft.undone[target] = stamp
    if len(draft.undone) > UNDONE:
        oldest = min(draft.undone, key=lambda one: (draft.undone[one], one))
        draft.dropped = max(draft.dropped, draft.undone.pop(oldest))


def last_stamp(memory: Memory | Draft, target: str) -> Stamp:
    """Return the stamp of the target's order or of its end. For an unknown target: that of the newest end that was dropped."""
    order = memory.orders.get(target)
    return memory.undone.get(target, memory.dropped) if order is None else order.stamp


def _slots(names: str) -> tuple[str, ...]:
    """Return the names of a hostlist; none of a text that no daemon wrote."""
    try:
        return hostlist.expand_slurm(names)
    except hostlist.HostlistError:
        return ()


def _reset(draft: Draft, pool: str) -> None:
    draft.breakers.pop(pool, None)
    draft.boots.pop(pool, None)
