"""The words of a check.

A question is one or more `Ask`s; the parser turns their answers into a typed value and raises nothing but `ParseError`;
the rule holds the value against what the plan wants. A signal that is missing is `unknown`, never a pass.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

V = TypeVar("V")  # what the parser makes of the answers
TIMED_OUT = 124  # the code of coreutils' timeout
W = TypeVar("W")  # what the plan wants, a frozen dataclass that plan.codec can write and read


class Verdict(StrEnum):
    """How a check ended. Only `pass` and `warn` are healthy."""

    PASS = "pass"  # noqa: S105  no password
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


HEALTHY = (Verdict.PASS, Verdict.WARN)


class Place(StrEnum):
    """Where a question is asked."""

    SELF = "self"  # on the machine that is checked
    HEAD = "head"
    STEP = "step"  # a step of validation's own job; argv goes to srun
    JOB = "job"  # a job of its own, awaited; argv goes to sbatch
    WATCH = "watch"  # what was seen of the job's nodes from before they booted until they were off
    CLOUD = "cloud"  # the cloud's list of the cluster's instances


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One question. `as_user`: as an ordinary user, not as root. `{fed}` in argv is what the ask before said."""

    argv: tuple[str, ...] = ()
    at: Place = Place.SELF
    as_user: bool = False
    limit_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back; `code` is the program's own."""

    code: int
    stdout: str
    stderr: str = ""

    def text(self) -> str:
        """The output of a program that succeeded."""
        if self.code == TIMED_OUT:
            raise ParseError("no answer in time")
        if self.code != 0:
            raise ParseError(f"exit {self.code}: {short(self.stderr or self.stdout) or 'it said nothing'}")
        return self.stdout


class ParseError(ValueError):
    """The answer says nothing that could be judged; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the rule says, in one line each; `culprits` are the parts that it is about, where a part can be named."""

    verdict: Verdict
    found: str
    expected: str
    culprits: tuple[str, ...] = ()

    @property
    def is_healthy(self) -> bool:
        return self.verdict in HEALTHY


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[V, W]):
    """One thing that can be asked, read, judged and mended.

    `needs` are checks that must not have failed before this one means anything: `id` on the same machine, `id@head`,
    or `id@pool` for the job that brought the machine up. `id:part` is hurt only by that part among the culprits.
    """

    id: str
    tier: int  # 0: seconds, beside running jobs; 1: minutes, with jobs of its own
    title: str
    question: Callable[[W], tuple[Ask, ...]]
    parse: Callable[[tuple[Answer, ...]], V]
    judge: Callable[[V, W], Judgement]
    want: type[W]
    remedy: str  # `{machine}` stands for where to type it
    needs: tuple[str, ...] = ()


def passed(found: str, expected: str = "") -> Judgement:
    return Judgement(verdict=Verdict.PASS, found=found, expected=expected or found)


def warned(found: str, expected: str) -> Judgement:
    return Judgement(verdict=Verdict.WARN, found=found, expected=expected)


def failed(found: str, expected: str, culprits: tuple[str, ...] = ()) -> Judgement:
    return Judgement(verdict=Verdict.FAIL, found=found, expected=expected, culprits=culprits)


def unknown(found: str, expected: str) -> Judgement:
    return Judgement(verdict=Verdict.UNKNOWN, found=found, expected=expected)


def short(text: str, limit: int = 200) -> str:
    """Other people's text as one printable line: control characters would move a terminal's cursor."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: limit * 4]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def listed(words: "tuple[str, ...] | list[str]", limit: int = 6) -> str:
    """Some of many, and how many more there are."""
    more = len(words) - limit
    return ", ".join(words[:limit]) + (f" and {more} more" if more > 0 else "")
