"""Credentials: munge on the head itself, and between the head and another machine each way."""

import re
from dataclasses import dataclass, replace

from gpucluster.checks.model import (
    TIMED_OUT,
    Answer,
    Ask,
    Judgement,
    ParseError,
    Place,
    failed,
    passed,
    short,
)

_LIMIT_S = 5.0  # munged answers in milliseconds, or hangs
_MAKE = ("munge", "--no-input")
_READ = ("sh", "-c", 'printf %s "$1" | unmunge --keys=STATUS,UID', "sh", "{fed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Munge:
    """Root's credentials are believed on both sides; `alone`: the head's by itself, before others are asked."""

    alone: bool = False


def ask_munge(want: Munge) -> tuple[Ask, ...]:
    make, read = Ask(argv=_MAKE, limit_s=_LIMIT_S), Ask(argv=_READ, limit_s=_LIMIT_S)
    if want.alone:
        return (make, read)
    return (replace(make, at=Place.HEAD), read, make, replace(read, at=Place.HEAD))


def parse_munge(got: tuple[Answer, ...]) -> tuple[str, ...]:
    """What each reader says of a credential: `uid N`, or munge's words."""
    return tuple(_read(made, read) for made, read in zip(got[::2], got[1::2], strict=True))


def judge_munge(found: tuple[str, ...], want: Munge) -> Judgement:
    sides = ("of its own",) if want.alone else ("here, of the head's", "on the head, of this machine's")
    expected = "its own credential" if want.alone else "each believes the other's credential"
    wrong = [f"{side}: {words}" for side, words in zip(sides, found, strict=True) if words != "uid 0"]
    if wrong:
        return failed("; ".join(wrong), f"{expected}, made by uid 0")
    return passed("its own, uid 0" if want.alone else "both ways, uid 0", f"{expected}, made by uid 0")


def _read(made: Answer, read: Answer) -> str:
    """`uid N`, or why the credential is refused."""
    if TIMED_OUT in (made.code, read.code):
        return "munged does not answer in time"
    if made.code != 0:
        return f"munge made none: {short(made.stderr, 80) or f'exit {made.code}'}"
    status = re.search(r"^STATUS:\s+(.+?) \(([0-9]+)\)$", read.stdout, re.MULTILINE)
    if status is None and read.code != 0:
        return short(read.stderr, 80) or f"unmunge ended with {read.code}"
    uid = re.search(r"^UID:\s+(?:\S+ \()?([0-9]+)\)?$", read.stdout, re.MULTILINE)
    if status is None or (status[2] == "0" and uid is None):
        raise ParseError(f"unmunge said {short(read.stdout, 80)}")
    return f"uid {uid[1]}" if status[2] == "0" and uid else short(status[1], 80)
