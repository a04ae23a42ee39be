"""Checks between the head and another machine: a munge credential each way."""

import re
from dataclasses import dataclass

from gpucluster.checks.model import Answer, Ask, Judgement, ParseError, Place, failed, passed, short

MAKE = ("munge", "--no-input")
READ = ("sh", "-c", 'printf %s "$1" | unmunge --keys=STATUS,UID', "sh", "{fed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Munge:
    """Root's credentials are believed on both sides."""


def ask_munge(_want: Munge) -> tuple[Ask, ...]:
    return (
        Ask(argv=MAKE, at=Place.HEAD),
        Ask(argv=READ),
        Ask(argv=MAKE),
        Ask(argv=READ, at=Place.HEAD),
    )


def parse_munge(got: tuple[Answer, ...]) -> tuple[str, str]:
    """What each side says of the other's credential; `Success` or munge's words."""
    return _read(*got[0:2]), _read(*got[2:4])


def judge_munge(found: tuple[str, str], _want: Munge) -> Judgement:
    expected = "each believes the other's credential, made by uid 0"
    there, back = found
    wrong = [
        f"{side}: {words}"
        for side, words in (("here, of the head's", there), ("on the head", back))
        if words != "uid 0"
    ]
    return failed("; ".join(wrong), expected) if wrong else passed("both ways, uid 0", expected)


def _read(made: Answer, read: Answer) -> str:
    """`uid N`, or why the credential is refused."""
    if made.code != 0:
        return f"munge made none: {short(made.stderr, 80)}"
    status = re.search(r"^STATUS:\s+(.+?) \(([0-9]+)\)$", read.stdout, re.MULTILINE)
    if status is None and read.code != 0:
        return short(read.stderr, 80) or f"unmunge ended with {read.code}"
    uid = re.search(r"^UID:\s+(?:\S+ \()?([0-9]+)\)?$", read.stdout, re.MULTILINE)
    if status is None or (status[2] == "0" and uid is None):
        raise ParseError(f"unmunge said {short(read.stdout, 80)}")
    return f"uid {uid[1]}" if status[2] == "0" and uid else short(status[1], 80)
