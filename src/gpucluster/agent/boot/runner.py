"""The step runner: run an ordered table of steps, repeat each until it succeeds, and save each result."""

import hashlib
import logging
from collections.abc import Callable, Sequence

from gpucluster.agent.boot import boot_state
from gpucluster.agent.boot.boot_state import BootState
from gpucluster.agent.machine import Machine, NotYetError
from gpucluster.errors import GpuclusterError
from gpucluster.plan.messages import Step
from gpucluster.shell import CommandError
from gpucluster.text import short

StepFunction = Callable[[Machine, BootState], BootState]
StepTable = Sequence[tuple[str, StepFunction]]
Deadline = Callable[[BootState], float]  # time of Machine.now; it may depend on the state

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
UNCLASSIFIED_LIMIT_S = 60.0  # for errors of the system or of a command, which may be temporary
DETAIL_CHARS = 300

log = logging.getLogger(__name__)


class StepFailedError(GpuclusterError):
    """A step has failed; `state` is the result of the steps before it, and the cause is the error of the step."""

    def __init__(self, step: str, reason: str, state: BootState) -> None:
        super().__init__(f"{step}: {reason}")
        self.state = state


def run_steps(machine: Machine, table: StepTable, state: BootState, *, until: Deadline) -> BootState:
    """Run the steps in order; StepFailedError if one fails or is not done at the deadline."""
    for name, step in table:
        state = _run_until_done(machine, name, step, state, until)
    return state


def backoff(attempt: int, seed: str) -> float:
    """Return the seconds before the next try. They double each time, and `seed` spreads the tries of a fleet."""
    spread = hashlib.sha256(f"{seed}/{attempt}".encode()).digest()[0] / 255
    return min(FIRST_PAUSE_S * 2 ** min(attempt, 10), LONGEST_PAUSE_S) * (0.75 + 0.5 * spread)


def one_line(error: BaseException) -> str:
    """Return the error as one printable line of bounded length."""
    return short(str(error), DETAIL_CHARS) or type(error).__name__


def _run_until_done(
    machine: Machine, name: str, step: StepFunction, state: BootState, until: Deadline
) -> BootState:
    began, attempt, last_detail = machine.now(), 0, ""
    while True:
        try:
            state = step(machine, state)
        except (GpuclusterError, OSError) as error:
            failure, detail, limit = error, one_line(error), _limit_s(error)
        else:
            _record(machine, Step(name=name, ok=True, seconds=_since(machine, began)))
            return state
        took = _since(machine, began)
        over = took >= limit or machine.now() >= until(state)
        if detail != last_detail or over:
            _record(machine, Step(name=name, ok=False, seconds=took, detail=detail))
        if over:
            raise StepFailedError(name, detail, state) from failure
        last_detail = detail
        machine.pause(backoff(attempt, state.identity.instance_id if state.identity else name))
        attempt += 1


def _limit_s(error: GpuclusterError | OSError) -> float:
    """Return how many seconds the step may fail with this error."""
    if isinstance(error, NotYetError):
        return float("inf") if error.limit_s is None else error.limit_s
    return UNCLASSIFIED_LIMIT_S if isinstance(error, CommandError | OSError) else 0.0


def _since(machine: Machine, began: float) -> float:
    return round(machine.now() - began, 3)


def _record(machine: Machine, step: Step) -> None:
    """Save and log the result, unless the step was done before and is still done."""
    before = next((s for s in boot_state.load(machine).steps if s.name == step.name), None)
    if before is not None and before.ok and step.ok:
        return
    log.info("%s %s %.2f s %s", step.name, "ok" if step.ok else "waits:", step.seconds, step.detail)
    boot_state.record(machine, step)
