"""One screen of plain text: a headline and dated lines, the same for people, programs and tests."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from gpucluster.elastic.abilities import Ability
from gpucluster.elastic.inspect.why.causes import Cause
from gpucluster.text import relative_time, short

LONGEST = 600  # characters of a sentence


class Part(StrEnum):
    """The kind of a line; lines are shown in this order."""

    REQUEST = "request"
    REASON = "reason"
    DONE = "done"  # what the daemon did
    STATE = "state"
    NEXT = "next"
    COST = "cost"
    REMEDY = "remedy"  # what a person can do


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One sentence; `at` is its time, past or future."""

    part: Part
    words: str
    at: float | None = None
    needs: Ability | None = (
        None  # of a next step: the daemon's ability that it rests on; None: another's step
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The answer. `headline` is the sentence that the daemon wrote into Slurm, if it wrote one."""

    subject: str  # `job 41`, `node h200-2a-1`
    cause: Cause
    headline: str
    lines: tuple[Line, ...] = ()
    # Of a node: the action that the daemon does now, as `reconcile --dry-run` names it.
    actions: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        return self.cause is not Cause.UNKNOWN


def screen(
    subject: str, cause: Cause, headline: str, lines: Iterable[Line] = (), actions: tuple[str, ...] = ()
) -> Screen:
    """Return the screen with its lines in order. Control characters of other programs' text are removed."""
    order = tuple(Part)
    kept = [replace(x, words=short(x.words, LONGEST)) for x in dict.fromkeys(lines)]
    kept.sort(key=lambda line: (order.index(line.part), line.at is None, line.at or 0.0))
    return Screen(
        subject=subject, cause=cause, headline=short(headline, LONGEST), lines=tuple(kept), actions=actions
    )


def text(shown: Screen, now: float) -> str:
    """Format for a terminal: each kind of line is named once, times are in UTC and relative to now."""
    joint = ": " if shown.cause is Cause.NODE else " "
    return "\n".join((f"{shown.subject}{joint}{shown.headline}", *_lines(shown, now)))


def _lines(shown: Screen, now: float) -> Iterator[str]:
    last: Part | None = None
    for line in shown.lines:
        name = line.part.value if line.part is not last else ""
        # A past time counts as now.
        due = line.at if line.at is None or line.part is not Part.NEXT else max(line.at, now)
        at = f"{relative_time(due, now)}: " if due is not None else ""
        last = line.part
        yield f"  {name:9} {at}{line.words}"
