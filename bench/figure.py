"""One measured figure, its limit or baseline measured in the same run, and how it is printed."""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`ratio` is value / limit: below 1 is good."""

    name: str
    value: float
    unit: str
    limit: float
    ratio: float

    @property
    def line(self) -> str:
        return json.dumps(asdict(self))


def figure(name: str, value: float, unit: str, limit: float) -> Figure:
    """Round for people, and compute the ratio."""
    return Figure(
        name=name, value=round(value, 3), unit=unit, limit=round(limit, 3), ratio=round(value / limit, 3)
    )


def median_ms(work: Callable[[], object], times: int) -> float:
    """The median of `times` runs, in milliseconds, after one that does not count."""
    work()
    taken: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)
