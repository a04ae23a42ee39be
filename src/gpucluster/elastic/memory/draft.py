"""The mutable copy of memory while a batch of events is folded, and the registry of the folds."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from gpucluster.elastic.events import Stamp
from gpucluster.elastic.memory.values import Launch, Memory

E = TypeVar("E")


class Draft:
    """A mutable copy: one copy per batch, not per event. Its attributes are Memory's fields, mappings as dicts."""

    def __init__(self, memory: Memory) -> None:
        self.epoch, self.requests, self.paced_until = memory.epoch, memory.requests, memory.paced_until
        self.lost_at = memory.lost_at
        self.budget, self.budget_stamp = memory.budget, memory.budget_stamp
        self.unrestored_since, self.lease = memory.unrestored_since, memory.lease
        self.copied_epoch, self.dropped = memory.copied_epoch, memory.dropped
        self.sequence, self.undone = memory.sequence, dict(memory.undone)
        self.incarnations, self.launches = dict(memory.incarnations), dict(memory.launches)
        self.refusals, self.endings, self.jobs = (
            dict(memory.refusals),
            dict(memory.endings),
            dict(memory.jobs),
        )
        self.levels, self.orders, self.boots = dict(memory.levels), dict(memory.orders), dict(memory.boots)
        self.breakers, self.stalled = dict(memory.breakers), dict(memory.stalled)
        self.spent, self.unknown = dict(memory.spent), dict(memory.unknown)
        self.taken, self.lingers = dict(memory.taken), dict(memory.lingers)
        self.unbegun = dict(memory.unbegun)
        self.breaks, self.refused_ends = dict(memory.breaks), dict(memory.refused_ends)
        self.replaced, self.spares = dict(memory.replaced), dict(memory.spares)
        self.strays = dict(memory.strays)
        self.drains = dict(memory.drains)
        self.person_drains = dict(memory.person_drains)
        self.drain_orders = dict(memory.drain_orders)

    def done(self) -> Memory:
        return Memory(**{f.name: getattr(self, f.name) for f in fields(Memory)})

    def change(self, slot: str, **changes: Any) -> None:
        """Change a slot's incarnation. A slot without one (never needed) does not change."""
        incarnation = self.incarnations.get(slot)
        if incarnation is not None:
            self.incarnations[slot] = replace(incarnation, **changes)

    def next_stamp(self) -> Stamp:
        """Count a change of an order or of the budget's state, and return its stamp."""
        self.sequence += 1
        return Stamp(epoch=max(self.lease, self.copied_epoch), sequence=self.sequence)

    def release(self, request: str) -> Launch | None:
        """Remove a request from the requests with unknown outcome."""
        launch = self.launches.pop(request, None)
        for slot in launch.request.slots if launch else ():
            if (incarnation := self.incarnations.get(slot)) is not None and incarnation.request == request:
                self.change(slot, request=None)
        return launch


FOLDS: dict[type[Any], Callable[[Draft, float, Any], None]] = {}


def folds(
    kind: type[E],
) -> Callable[[Callable[[Draft, float, E], None]], Callable[[Draft, float, E], None]]:
    """Register how an event of `kind` changes memory."""

    def note(function: Callable[[Draft, float, E], None]) -> Callable[[Draft, float, E], None]:
        FOLDS[kind] = function
        return function

    return note
