"""How tests wait: until they see what they wait for, with one limit that only a test that hangs reaches."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
BOUND_S = 600.0  # only a test that hangs takes so long, not one on a busy machine
LATER = 0.08  # of the time so far: a look costs CPU, and an answer after 30 s may be seen 2.4 s late


def eventually(
    what: str,
    seen: Callable[[], T | None],
    *,
    within: float = BOUND_S,
    poll: float = 0.1,
    later: float = LATER,
    picture: Callable[[], str] = str,
) -> T:
    """Ask until the answer is true, each `poll` seconds, and later less often by `later`, and return it.

    AssertionError with `picture()` after `within` seconds.
    """
    began = time.monotonic()
    while not (found := seen()):
        passed = time.monotonic() - began
        if passed > within:
            raise AssertionError(f"not within {within:g} s: {what}\n{picture()}".strip())
        time.sleep(max(poll, later * passed))
    return found


def lasting(seconds: float) -> None:
    """Let a fault, or a time in which nothing may happen, last. It never waits for an event."""
    time.sleep(seconds)
