"""One screen of plain words: a headline and dated lines, made once for people, programs and tests."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from gpucluster.elastic.why.causes import Cause


class Part(StrEnum):
    """What a line tells; they are shown in this order."""

    ASKED = "asked"
    ANSWERED = "answered"
    DONE = "done"  # what the daemon did
    STANDS = "stands"  # how it is now
    NEXT = "next"
    MONEY = "money"
    DO = "do"  # what a person can do


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One sentence; `at` is when it was or will be."""

    part: Part
    words: str
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The answer. `headline` is the sentence that stands in Slurm too, where we wrote it there."""

    subject: str  # `job 41`, `node h200-2a-1`
    cause: Cause
    headline: str
    lines: tuple[Line, ...] = ()

    @property
    def known(self) -> bool:
        return self.cause is not Cause.UNKNOWN


def screen(subject: str, cause: Cause, headline: str, lines: Iterable[Line] = ()) -> Screen:
    """The screen with its lines in order; words of others lose what a terminal would obey."""
    order = tuple(Part)
    kept = [Line(part=x.part, words=plain(x.words), at=x.at) for x in dict.fromkeys(lines)]
    kept.sort(key=lambda line: (order.index(line.part), line.at is None, line.at or 0.0))
    return Screen(subject=subject, cause=cause, headline=plain(headline), lines=tuple(kept))


def text(shown: Screen, now: float) -> str:
    """For a terminal: each kind of line once named, its times in UTC and from now."""
    joint = ": " if shown.cause is Cause.NODE else " "
    return "\n".join((f"{shown.subject}{joint}{shown.headline}", *_lines(shown, now)))


def when(at: float, now: float) -> str:
    """`14:02:11 UTC, 3 min ago`; with the date where it is another day."""
    try:
        date, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    except (OverflowError, OSError, ValueError):
        return "at no time that a calendar has"
    clock = date.strftime("%H:%M:%S" if date.date() == today.date() else "%Y-%m-%d %H:%M:%S")
    return f"{clock} UTC, {_ago(at - now)}"


def span(seconds: float) -> str:
    """`40 s`, `3 min`, `2 h 5 min`, `3 d 2 h`."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 120:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h" + (f" {minutes % 60} min" if minutes % 60 else "")
    return f"{days} d" + (f" {hours % 24} h" if hours % 24 else "")


def money(micro_usd: int) -> str:
    """`12.50 USD`."""
    return f"{micro_usd / 1e6:,.2f} USD"


def plain(words: str) -> str:
    """Printable, and no longer than a screen can bear."""
    return "".join(c for c in words if c.isprintable())[:600]


def _lines(shown: Screen, now: float) -> Iterator[str]:
    last: Part | None = None
    for line in shown.lines:
        name = line.part.value if line.part is not last else ""
        due = line.at if line.at is None or line.part is not Part.NEXT else max(line.at, now)  # late is now
        at = f"{when(due, now)}: " if due is not None else ""
        last = line.part
        yield f"  {name:9} {at}{line.words}"


def _ago(seconds: float) -> str:
    return f"in {span(seconds)}" if seconds > 0.5 else f"{span(-seconds)} ago" if seconds < -0.5 else "now"
