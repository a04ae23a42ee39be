"""Walking through an ordered table of steps: each until it is done, each reported."""

import hashlib
import logging
from collections.abc import Callable, Sequence

from gpucluster.errors import GpuclusterError
from gpucluster.node import state
from gpucluster.node.known import Known
from gpucluster.node.machine import Machine, NotYetError
from gpucluster.plan.messages import Step
from gpucluster.shell import CommandError

StepCall = Callable[[Machine, Known], Known]
Table = Sequence[tuple[str, StepCall]]
Deadline = Callable[[Known], float]  # on Machine.now; it may depend on what is known by then

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
UNSURE_S = 60.0  # an error of the system or of a program may pass, but not for longer
DETAIL_CHARS = 300

log = logging.getLogger(__name__)


class StoppedError(GpuclusterError):
    """A step cannot be done; `known` is what the steps before it found out."""

    def __init__(self, step: str, reason: str, known: Known) -> None:
        super().__init__(f"{step}: {reason}")
        self.known = known


def walk(machine: Machine, table: Table, known: Known, *, until: Deadline) -> Known:
    """Run the steps in order; StoppedError if one cannot be done, or not `until` then."""
    for name, step in table:
        known = _until_done(machine, name, step, known, until)
    return known


def backoff(attempt: int, seed: str) -> float:
    """Seconds before the next try: doubled each time, spread by `seed` so that a fleet does not knock at once."""
    spread = hashlib.sha256(f"{seed}/{attempt}".encode()).digest()[0] / 255
    return min(FIRST_PAUSE_S * 2 ** min(attempt, 10), LONGEST_PAUSE_S) * (0.75 + 0.5 * spread)


def one_line(error: BaseException) -> str:
    """The error as a reason: one line, of bounded length, printable."""
    text = " ".join(str(error).split()) or type(error).__name__
    return "".join(c if c.isprintable() else "?" for c in text)[:DETAIL_CHARS]


def _until_done(machine: Machine, name: str, step: StepCall, known: Known, until: Deadline) -> Known:
    began, attempt, said = machine.now(), 0, ""
    while True:
        try:
            known = step(machine, known)
        except (GpuclusterError, OSError) as error:
            detail, limit = one_line(error), _patience(error)
        else:
            _record(machine, Step(name=name, ok=True, seconds=_since(machine, began)))
            return known
        took = _since(machine, began)
        over = took >= limit or machine.now() >= until(known)
        if detail != said or over:
            _record(machine, Step(name=name, ok=False, seconds=took, detail=detail))
        if over:
            raise StoppedError(name, detail, known)
        said = detail
        machine.pause(backoff(attempt, known.identity.instance_id if known.identity else name))
        attempt += 1


def _patience(error: GpuclusterError | OSError) -> float:
    """How long the step may go on failing like this."""
    if isinstance(error, NotYetError):
        return float("inf") if error.limit_s is None else error.limit_s
    return UNSURE_S if isinstance(error, CommandError | OSError) else 0.0


def _since(machine: Machine, began: float) -> float:
    return round(machine.now() - began, 3)


def _record(machine: Machine, step: Step) -> None:
    """Report it; that a step is still done, as it was at the last look, is no news."""
    before = next((s for s in state.load(machine).steps if s.name == step.name), None)
    if before is not None and before.ok and step.ok:
        return
    log.info("%s %s %.2f s %s", step.name, "ok" if step.ok else "waits:", step.seconds, step.detail)
    state.record(machine, step)
