"""Count work and not time: a count is the same on a busy machine."""

import sys
from collections.abc import Callable
from types import FrameType


def calls_of(work: Callable[[], object]) -> int:
    """Return how many Python functions `work` calls in this thread."""
    count = 0

    def trace(_frame: FrameType, _event: str, _arg: object) -> None:
        nonlocal count
        count += 1

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
