"""A month of 100,000 jobs on a simulated clock: the journal's file and a pass stay as small as on the first day.

What is counted is bytes and calls of functions, which are the same on each machine. Times are figures of `bench/`.
"""

import cProfile
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.builders import a_plan
from support.fleet import Fleet

from gpucluster.elastic import status_endpoint
from gpucluster.plan import codec

DAYS, JOBS_A_DAY, DAY_S = 30, 3334, 86400.0
AT_ONCE, JOB_S = 64, 30.0  # one for each node of the pool
MOST_BYTES = 20_000_000
MOST_GROWTH = 1.5
IN_MEMORY = Path("/dev/shm")  # each entry of the journal is synced


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """What a pass at the end of a day weighs."""

    calls: int  # of functions
    memory: int  # bytes of the daemon's memory, and of what it publishes
    file: int  # bytes of the journal with its log


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_month_of_jobs_leaves_journal_and_pass_small(folder: Path) -> None:
    """Nothing pruned the journal: 3.2 MB for 850 jobs are 380 MB for such a month."""
    fleet = Fleet(a_plan(("idle: 5m", "idle: 1m"), ("max: 16", "max: 64")), folder)
    _day(fleet)  # a pool has a slot for each node in each zone: after this day each of them was used once
    weights = [_day(fleet) for _ in range(DAYS)]
    first, last, largest = weights[0], weights[-1], max(one.file for one in weights)
    jobs = fleet.slurm._next - 1
    sys.stdout.write(f"{jobs} jobs: journal at most {largest} bytes; first day {first}, last day {last}\n")
    assert jobs >= 100_000
    assert largest <= MOST_BYTES
    assert last.calls <= MOST_GROWTH * first.calls
    assert last.memory <= MOST_GROWTH * first.memory


def _day(fleet: Fleet) -> Weight:
    """Run a day's jobs in bursts, with a machine that is reclaimed early; weigh a pass of the last burst; let the rest of the day pass."""
    ends, bursts = fleet.now + DAY_S, math.ceil(JOBS_A_DAY / AT_ONCE)
    for number in range(bursts - 1):
        if number == 1:
            fleet.interrupt(fleet.living()[0].id)
        _burst(fleet)
    weight = _burst(fleet)
    fleet.until(lambda: not fleet.living())
    fleet.now = ends
    return weight


def _burst(fleet: Fleet) -> Weight:
    """Run a job on each node; weigh a pass while they run."""
    jobs = [fleet.slurm.submit(1, lasts=JOB_S) for _ in range(AT_ONCE)]
    fleet.until(lambda: all(job.state == "RUNNING" or job.ended for job in jobs))
    weight = _weigh(fleet)
    fleet.until(lambda: all(job.ended for job in jobs))
    fleet.slurm.jobs.clear()  # slurmctld forgets them after MinJobAge
    return weight


def _weigh(fleet: Fleet) -> Weight:
    """Count twice, because the first pass may have work to do; the smaller count is that of a quiet pass."""
    calls = min(_calls_of_a_pass(fleet) for _ in range(2))
    status = status_endpoint.to_json(fleet.reconciler.status)
    files = (one for one in fleet.folder.iterdir() if one.name.startswith("journal"))
    return Weight(
        calls=calls,
        memory=len(codec.message(fleet.journal.memory)) + len(status),
        file=sum(one.stat().st_size for one in files),
    )


def _calls_of_a_pass(fleet: Fleet) -> int:
    counted = cProfile.Profile()
    counted.runcall(fleet.reconciler._pass)
    return sum(int(row.callcount) for row in counted.getstats())
