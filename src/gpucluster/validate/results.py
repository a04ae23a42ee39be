"""What came of a run: one Result an expectation, and the whole as JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpucluster.checks.model import HEALTHY, Verdict

SCHEMA = 1  # of the JSON; raised when a field changes its meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`target` is the expectation's and stays the same from run to run; `machine` is who sat there this time."""

    check: str
    target: str
    machine: str
    tier: int
    title: str
    verdict: Verdict
    found: str
    expected: str
    remedy: str  # empty for a pass
    seconds: float
    culprits: tuple[str, ...] = ()  # the units, files or nodes that it is about, where they can be named
    blocked_by: str = ""  # id of the check whose failure left this one unasked

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
        """Every check was asked, answered and healthy; a run without a check proves nothing."""
        return bool(self.results) and all(result.healthy for result in self.results)

    def counts(self) -> dict[str, int]:
        """Verdict -> how many."""
        return {v.value: sum(r.verdict is v for r in self.results) for v in Verdict}

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


def troubled(results: Iterable[Result]) -> tuple[Result, ...]:
    """What is not healthy, root causes first."""
    bad = [result for result in results if not result.healthy]
    return tuple(sorted(bad, key=lambda r: (r.verdict is not Verdict.FAIL, r.blocked_by != "")))


def to_look_at(results: Sequence[Result]) -> tuple[Result, ...]:
    """What someone must mend, and then what is about to become so."""
    return (*troubled(results), *(result for result in results if result.verdict is Verdict.WARN))


def find(results: Sequence[Result], ident: str) -> Result | None:
    """The result of `check[target]`."""
    return next((result for result in results if result.id == ident), None)
