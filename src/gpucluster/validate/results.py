"""The results of a run: one Result for each expectation, and the JSON of all."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpucluster.checks.check import HEALTHY, CheckStatus

SCHEMA = 1  # of the JSON; increased when the meaning of a field changes


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
    culprits: tuple[str, ...] = ()  # the faulty units, files or nodes, where they have names
    blocked_by: str = ""  # id of the failed check that this one needs

    @property
    def id(self) -> str:
        """`gpu.count[h200/1]`"""
        return f"{self.check}[{self.target}]"

    @property
    def healthy(self) -> bool:
        return self.verdict in HEALTHY


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A whole run."""

    name: str
    results: tuple[Result, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every result is healthy; a run without a check proves nothing."""
        return bool(self.results) and all(result.healthy for result in self.results)

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
    """The unhealthy results, then the warnings."""
    return (*unhealthy(results), *(result for result in results if result.verdict is CheckStatus.WARN))


def find(results: Sequence[Result], ident: str) -> Result | None:
    """The result of `check[target]`."""
    return next((result for result in results if result.id == ident), None)
