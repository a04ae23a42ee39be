"""How tests wait: until they see what they wait for, with one limit that only a test that hangs reaches."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
BOUND_S = 600.0  # only a test that hangs takes so long, not one on a busy machine


def eventually(
    what: str,
    seen: Callable[[], T | None],
    *,
    within: float = BOUND_S,
    poll: float = 0.1,
    picture: Callable[[], str] = str,
) -> T:
    """Ask until the answer is true, and return it. AssertionError with `picture()` after `within` seconds."""
    end = time.monotonic() + within
    while not (found := seen()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {within:g} s: {what}\n{picture()}".strip())
        time.sleep(poll)
    return found


def lasting(seconds: float) -> None:
    """Let a fault, or a time in which nothing may happen, last. It never waits for an event."""
    time.sleep(seconds)
