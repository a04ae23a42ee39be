"""The one mutable copy while a batch of events is folded, and the registry of the folds."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from gpucluster.elastic.memory.values import Launch, Memory

E = TypeVar("E")


class Draft:
    """Copies cost once, not per event. Its attributes are Memory's fields, mappings as dicts."""

    def __init__(self, memory: Memory) -> None:
        self.epoch, self.requests, self.paced_until = memory.epoch, memory.requests, memory.paced_until
        self.budget = memory.budget
        self.lives, self.launches = dict(memory.lives), dict(memory.launches)
        self.refusals, self.endings, self.jobs = (
            dict(memory.refusals),
            dict(memory.endings),
            dict(memory.jobs),
        )
        self.levels, self.orders, self.boots = dict(memory.levels), dict(memory.orders), dict(memory.boots)
        self.breakers, self.hanging = dict(memory.breakers), dict(memory.hanging)
        self.spent, self.unknown = dict(memory.spent), dict(memory.unknown)
        self.taken, self.lingers = dict(memory.taken), dict(memory.lingers)
        self.breaks = dict(memory.breaks)

    def done(self) -> Memory:
        return Memory(**{f.name: getattr(self, f.name) for f in fields(Memory)})

    def change(self, slot: str, **changes: Any) -> None:
        """Change a slot's life; a slot without one (never asked) is left alone."""
        life = self.lives.get(slot)
        if life is not None:
            self.lives[slot] = replace(life, **changes)

    def release(self, request: str) -> Launch | None:
        """Take a request off the list of unknown outcomes."""
        launch = self.launches.pop(request, None)
        for slot in launch.ask.slots if launch else ():
            if (life := self.lives.get(slot)) is not None and life.request == request:
                self.change(slot, request=None)
        return launch


FOLDS: dict[type[Any], Callable[[Draft, float, Any], None]] = {}


def folds(
    kind: type[E],
) -> Callable[[Callable[[Draft, float, E], None]], Callable[[Draft, float, E], None]]:
    """Register how an event of `kind` changes what is remembered."""

    def note(function: Callable[[Draft, float, E], None]) -> Callable[[Draft, float, E], None]:
        FOLDS[kind] = function
        return function

    return note
