"""The parts of a check: queries, a parser, a rule and a remedy.

The parser turns the answers to the queries into a typed value, and raises only `ParseError`. The rule compares the value
with what the plan wants. A missing answer is `unknown`, never a pass.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from gpucluster.text import short

V = TypeVar("V")  # the parser's result
W = TypeVar("W")  # the expected value: a frozen dataclass that plan.codec can write and read
TIMED_OUT = 124  # the exit code of coreutils' timeout


class CheckStatus(StrEnum):
    """The result of a check. Only `pass` and `warn` are healthy."""

    PASS = "pass"  # noqa: S105  no password
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


HEALTHY = (CheckStatus.PASS, CheckStatus.WARN)


class Location(StrEnum):
    """Where a query runs."""

    SELF = "self"  # on the machine that is checked
    HEAD = "head"
    STEP = "step"  # a step of validation's own job; argv goes to srun
    JOB = "job"  # a job of its own, until its end; argv goes to sbatch
    SAMPLES = "samples"  # the samples of the job's nodes, from before they boot until they are off
    CLOUD = "cloud"  # an answer of AWS: argv is its name in `validate.cloud_reader`, and words `key=value`
    API = "api"  # an answer of Kubernetes' API server: argv are words of kubectl
    STATUS = "status"  # the JSON of `gpucluster k8s status`
    POD = "pod"  # an attempt of one of validation's pods: argv is pool, role, destination and what is awaited


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One command. `as_user`: as an ordinary user, not as root.

    In argv `{fed}` is the output of the query before, and `{machine}` the machine that is asked: `head`, or its name.
    """

    argv: tuple[str, ...] = ()
    at: Location = Location.SELF
    as_user: bool = False
    limit_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOutput:
    """The output of a query; `code` is the exit code of the program."""

    code: int
    stdout: str
    stderr: str = ""

    def text(self) -> str:
        """The output of a program that succeeded; ParseError if it failed."""
        if self.code == TIMED_OUT:
            raise ParseError("no answer in time")
        if self.code != 0:
            raise ParseError(f"exit {self.code}: {short(self.stderr or self.stdout) or 'no output'}")
        return self.stdout


class ParseError(ValueError):
    """The answer cannot be read; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The rule's result, in one line each. `culprits` are the faulty parts, where parts have names.

    `family`: the kind of fault, a member of `Check.families`. `remedy`: the commands that heal this fault, in the form of
    `Check.remedy`, which they replace. `blocks`: whether checks
    that need this one are unknown; without culprits all of them are. `stops_work`: of a warning, whether jobs wait until a
    person or the cloud acts. It blocks no other check, but the run is not green.
    """

    verdict: CheckStatus
    found: str
    expected: str
    culprits: tuple[str, ...] = ()
    remedy: str = ""
    family: str = ""
    blocks: bool = True
    stops_work: bool = False

    @property
    def is_healthy(self) -> bool:
        return self.verdict in HEALTHY


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[V, W]):
    """One row of the table of checks.

    `needs` are the checks that must pass first: `id` on the same machine, `id@head`, `id@pool` for the job that booted
    the machine, or `id@nodes` for each node of the job. `id:part` blocks this check only if `part` is a culprit there;
    `{partition}` in it is the partition of the job, `{user}` the user who submits it.

    `causes` are checks in the same form whose fault may make this one fail, and need not: this one runs, and a pass counts.
    Only its own fault is unknown, because of theirs.

    `families`: the kinds of its faults, where each has a remedy of its own. Empty: what it finds has one remedy, or names
    each part with the command that heals it.
    """

    id: str
    tier: int  # 0: seconds, while jobs run; 1: minutes, with jobs of its own
    title: str
    query: Callable[[W], tuple[Query, ...]]
    parse: Callable[[tuple[QueryOutput, ...]], V]
    evaluate: Callable[[V, W], CheckResult]
    want: type[W]
    remedy: str  # `{machine}` is replaced by the machine to type it on
    needs: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    families: tuple[str, ...] = ()


class Need(NamedTuple):
    """One of `Check.needs` or `causes`, divided: `check@where:part`. `where` is empty for the same machine."""

    check: str
    where: str
    part: str


def need_of(text: str) -> Need:
    """Divide one of `Check.needs` or `causes`."""
    place, _, part = text.partition(":")
    check, _, where = place.partition("@")
    return Need(check, where, part)


def passed(found: str, expected: str = "") -> CheckResult:
    return CheckResult(verdict=CheckStatus.PASS, found=found, expected=expected or found)


def warned(
    found: str, expected: str, remedy: str = "", *, stops_work: bool = False, family: str = ""
) -> CheckResult:
    return CheckResult(
        verdict=CheckStatus.WARN,
        found=found,
        expected=expected,
        remedy=remedy,
        family=family,
        stops_work=stops_work,
    )


def failed(
    found: str, expected: str, culprits: tuple[str, ...] = (), remedy: str = "", *, family: str = ""
) -> CheckResult:
    return CheckResult(
        verdict=CheckStatus.FAIL,
        found=found,
        expected=expected,
        culprits=culprits,
        remedy=remedy,
        family=family,
    )


def unknown(found: str, expected: str) -> CheckResult:
    return CheckResult(verdict=CheckStatus.UNKNOWN, found=found, expected=expected)


def listed(words: "tuple[str, ...] | list[str]", limit: int = 6) -> str:
    """The first `limit` words, and the number of the others."""
    more = len(words) - limit
    return ", ".join(words[:limit]) + (f" and {more} more" if more > 0 else "")
