"""The results of a run: one Result for each expectation, and the JSON of all."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpucluster.checks.check import HEALTHY, CheckResult, CheckStatus
from gpucluster.text import short
from gpucluster.validate.expectation import Expectation

SCHEMA = 1  # of the JSON; increased when the meaning of a field changes
_LONGEST = 2000  # characters of a finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one expectation. `target` is the same in every run; `machine` is the machine of this run."""

    check: str
    target: str
    machine: str
    tier: int
    title: str
    verdict: CheckStatus
    found: str
    expected: str
    remedy: str  # empty for a pass
    seconds: float
    family: str = ""  # of its fault, where the check has several
    culprits: tuple[str, ...] = ()  # the faulty units, files or nodes, where they have names
    blocks: bool = True  # whether the checks that need this one are unknown if it is unhealthy
    blocked_by: str = ""  # id of the failed check that this one needs
    stops_work: bool = False  # of a warning: jobs wait until a person or the cloud acts

    @property
    def id(self) -> str:
        """`gpu.count[h200/1]`"""
        return f"{self.check}[{self.target}]"

    @property
    def healthy(self) -> bool:
        return self.verdict in HEALTHY


def result_of(
    expectation: Expectation,
    finding: CheckResult,
    *,
    machine: str,
    tier: int,
    remedy: str,
    seconds: float,
    blocked_by: str,
) -> Result:
    """Return the result of a finding. Texts are shortened, and a pass has no remedy."""
    return Result(
        check=expectation.check,
        target=expectation.target,
        machine=machine,
        tier=tier,
        title=expectation.of.title,
        verdict=finding.verdict,
        found=short(finding.found, _LONGEST),
        expected=short(finding.expected, _LONGEST),
        remedy="" if finding.verdict is CheckStatus.PASS else remedy,
        seconds=round(seconds, 3),
        family=str(finding.family),
        culprits=finding.culprits,
        blocks=finding.blocks,
        blocked_by=blocked_by,
        stops_work=finding.stops_work,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A whole run."""

    name: str
    results: tuple[Result, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every result is healthy and no warning stops work; a run without a check proves nothing."""
        return bool(self.results) and not unhealthy(self.results) and not self.stopped()

    def stopped(self) -> int:
        """The number of warnings that stop work."""
        return sum(result.stops_work for result in self.results)

    def counts(self) -> dict[str, int]:
        """Verdict -> number of results."""
        return {v.value: sum(r.verdict is v for r in self.results) for v in CheckStatus}

    def as_json(self) -> dict[str, Any]:
        """For `--output json`."""
        rows = [{"id": result.id, **asdict(result)} for result in self.results]
        return {
            "validation_schema": SCHEMA,
            "name": self.name,
            "seconds": round(self.seconds, 2),
            "counts": self.counts(),
            "results": rows,
        }


def unhealthy(results: Iterable[Result]) -> tuple[Result, ...]:
    """The unhealthy results, root causes first."""
    bad = [result for result in results if not result.healthy]
    return tuple(sorted(bad, key=lambda r: (r.verdict is not CheckStatus.FAIL, r.blocked_by != "")))


def needs_attention(results: Sequence[Result]) -> tuple[Result, ...]:
    """The unhealthy results, then the warnings, those that stop work first."""
    warnings = [result for result in results if result.verdict is CheckStatus.WARN]
    return (*unhealthy(results), *sorted(warnings, key=lambda result: not result.stops_work))


def find(results: Sequence[Result], ident: str) -> Result | None:
    """The result of `check[target]`."""
    return next((result for result in results if result.id == ident), None)
