"""The daemon's memory: computed from the journal's events, and only from them.

An event is a fact that was observed or a step that was taken. The journal stores it before the step (an intent) or right
after it (a result). Only `fold` changes memory, and it is pure.
"""

from collections.abc import Iterable

from gpucluster.elastic.events import Entry
from gpucluster.elastic.memory import incarnations, interruptions, launches, limits
from gpucluster.elastic.memory.draft import FOLDS, Draft
from gpucluster.elastic.memory.values import (
    BucketLevel,
    Incarnation,
    Interruption,
    Launch,
    Memory,
    OpenBreaker,
    OperatorOrder,
    PersonDrain,
    Placement,
    Refusal,
    RefusedEnd,
    SeenDrain,
    StalledJob,
    UnbegunStarts,
)

__all__ = [
    "BucketLevel",
    "Incarnation",
    "Interruption",
    "Launch",
    "Memory",
    "OpenBreaker",
    "OperatorOrder",
    "PersonDrain",
    "Placement",
    "Refusal",
    "RefusedEnd",
    "SeenDrain",
    "StalledJob",
    "UnbegunStarts",
    "fold",
]  # fmt: skip
_RULES = (launches, limits, incarnations, interruptions)  # importing these modules fills FOLDS


def fold(memory: Memory, entries: Iterable[Entry]) -> Memory:
    """Return the memory after `entries`."""
    draft = Draft(memory)
    for entry in entries:
        FOLDS[type(entry.event)](draft, entry.at, entry.event)
    return draft.done()
