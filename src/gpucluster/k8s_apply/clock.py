"""Time of the caller, repeats within a deadline, and waits that say what they wait for."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import tenacity

from gpucluster.errors import StateError
from gpucluster.k8s_apply.faults import TransientError, UnservedError
from gpucluster.text import printable

T = TypeVar("T")
Report = Callable[[str], None]
REPEAT_S = 120.0  # an API server that restarts, or a webhook that starts, is back after this time
_POLL_S = 2.0


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of the caller."""

    now: Callable[[], datetime]  # aware
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]


def patiently(call: Callable[[], T], clock: Clock, report: Report, limit_s: float = REPEAT_S) -> T:
    """Return the result. Repeat after a TransientError, with longer pauses, until `limit_s`; then raise the last one."""
    end = clock.monotonic() + limit_s

    def stop(_: tenacity.RetryCallState) -> bool:
        return clock.monotonic() >= end

    def tell(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        report(f"again in a moment: {str(error).splitlines()[0] if error else ''}")

    repeats = tenacity.Retrying(
        sleep=clock.sleep,
        stop=stop,
        wait=tenacity.wait_exponential(multiplier=1, min=1, max=15),
        retry=tenacity.retry_if_exception_type(TransientError),
        before_sleep=tell,
        reraise=True,
    )
    return repeats(call)


def until(
    what: str,
    waiting: Callable[[], list[str]],
    clock: Clock,
    report: Report,
    *,
    limit_s: float,
    next_step: str | Callable[[], str],
) -> None:
    """Return when `waiting` returns no line. StateError after `limit_s`, with the lines and what to type.

    Each new set of lines is reported once. An API server that is away is waited for, too.
    """
    end, shown = clock.monotonic() + limit_s, list[str]()
    while True:
        try:
            left = waiting()
        except UnservedError as error:
            left = [error.message]
        except TransientError as error:
            left = [f"the API server is away: {error.message}"]
        if not left:
            return
        if left != shown:
            shown = left
            report(f"waiting for {what}: {some(left)}")
        if clock.monotonic() >= end:
            step = next_step if isinstance(next_step, str) else next_step()
            raise StateError(f"not done after {limit_s:g} s: {what}: {some(left, 8)}", next_step=step)
        clock.sleep(_POLL_S)


def some(lines: list[str], most: int = 3) -> str:
    """Return the first lines in one, and how many more there are. Words of a controller are untrusted."""
    more = f"; and {len(lines) - most} more" if len(lines) > most else ""
    return "; ".join(printable(line) for line in lines[:most]) + more
