"""What the daemon remembers: a fold of the journal's events, and nothing that is not in them.

An event is a fact that was seen or a step that was taken. The journal stores it before (an intent) or right after
(a result); `fold` is the only place that changes what is remembered, and it is pure.
"""

from collections.abc import Iterable

from gpucluster.elastic.events import Entry
from gpucluster.elastic.memory import launches, limits, lives, troubles
from gpucluster.elastic.memory.draft import FOLDS, Draft
from gpucluster.elastic.memory.values import (
    Hanging,
    Launch,
    Level,
    Life,
    Memory,
    Order,
    Placement,
    Refusal,
    Tripped,
    Trouble,
)

__all__ = [
    "Hanging", "Launch", "Level", "Life", "Memory", "Order", "Placement", "Refusal", "Tripped", "Trouble", "fold",
]  # fmt: skip
_RULES = (launches, limits, lives, troubles)  # importing them fills FOLDS


def fold(memory: Memory, entries: Iterable[Entry]) -> Memory:
    """Return what is remembered after `entries`."""
    draft = Draft(memory)
    for entry in entries:
        FOLDS[type(entry.event)](draft, entry.at, entry.event)
    return draft.done()
