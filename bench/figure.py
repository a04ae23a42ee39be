"""One measured figure with its limit, which is measured in the same run.

A limit is a ratio to something measured in the same run: a bare interpreter, a bare import, the engine's own time, or `unit_ms`, the time that
this machine takes for a fixed loop. A limit in seconds would say more about the machine than about the code.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`ratio` is value / limit; above 1 the limit is exceeded."""

    name: str
    value: float
    unit: str
    limit: float
    ratio: float

    @property
    def over(self) -> bool:
        """Whether the limit is exceeded. A base in milliseconds is only for comparison; a ratio (`x`) is a limit."""
        return self.ratio > 1 and (self.unit == "x" or "over_bare" not in self.name)

    @property
    def line(self) -> str:
        return json.dumps(asdict(self))


def figure(name: str, value: float, unit: str, limit: float) -> Figure:
    """Round the figures and compute the ratio."""
    return Figure(
        name=name, value=round(value, 3), unit=unit, limit=round(limit, 3), ratio=round(value / limit, 3)
    )


def median_ms(
    work: Callable[[], object], times: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the median of `times` calls in milliseconds of the clock, after a first call that does not count."""
    work()
    taken: list[float] = []
    for _ in range(times):
        began = clock()
        work()
        taken.append((clock() - began) * 1000)
    return statistics.median(taken)


def cpu_ms(argv: Sequence[str], times: int, cwd: Path | None = None) -> float:
    """Return the median CPU time of `times` runs of Python with `argv` and its children, after a first run that does not count.

    CPU time, because another program on the machine doubles the wall time and not this. Bytecode is on disk, as after an
    installation: with PYTHONDONTWRITEBYTECODE each run would compile our modules, and not those of the bare import.
    """
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    taken: list[float] = []
    for _ in range(times + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *argv], check=True, capture_output=True, env=environ, cwd=cwd)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
    return statistics.median(taken[1:])


def own_cpu_ms(work: Callable[[], object], times: int) -> float:
    """Return the median CPU time of `times` calls in this process in milliseconds, after a first call that does not count."""
    return median_ms(work, times, time.process_time)


def unit_ms() -> float:
    """Return the CPU milliseconds of a fixed loop of calls, dictionaries and texts: the present speed of this machine."""
    return own_cpu_ms(_loop, 7)


def _loop() -> int:
    table: dict[str, tuple[int, str]] = {}
    for number in range(20_000):
        name = f"slot-{number % 977}"
        before, _ = table.get(name, (0, ""))
        table[name] = (before + number, name.upper())
    return sum(one for one, _ in sorted(table.values()))
