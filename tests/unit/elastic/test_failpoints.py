"""A kill at each border of the act step: over the same journal and cloud the good end is reached, nothing twice."""

from collections import Counter
from pathlib import Path

import pytest
from builders import a_plan
from fleet import NO_TRIP, Fleet

from gpucluster.elastic.act import Failpoint

VISITS = (1, 2, 3)


class KilledError(Exception):
    """The process is gone."""


def story(f: Fleet) -> None:
    """A refusal, a zone switch, three jobs and three idle ends: every kind of step is taken, three times."""
    f.model.set_capacity(zone="us-east-2a", free=0)
    jobs = [f.slurm.submit(2, lasts=20)]
    for _ in range(3):
        live(f, 400)
        if len(jobs) < 3:
            jobs.append(f.slurm.submit(1, lasts=20))
    assert [job.state for job in jobs] == ["COMPLETED"] * 3, f.story()
    assert [len(job.runs) for job in jobs] == [1, 1, 1]
    assert len(f.model.describe((), f.now)) == 4, "one instance for each slot and life"
    assert not f.living()


def live(f: Fleet, seconds: float) -> None:
    """Let time pass; a kill is followed by a start."""
    end = f.now + seconds
    while f.now < end:
        try:
            f.run(1)
        except KilledError:
            f.trip = NO_TRIP
            f.restart()


@pytest.mark.parametrize("visit", VISITS)
@pytest.mark.parametrize("point", list(Failpoint))
def test_a_kill_does_no_harm(tmp_path: Path, point: Failpoint, visit: int) -> None:
    f = Fleet(a_plan(("idle: 5m", "idle: 1m")), tmp_path)
    seen: Counter[Failpoint] = Counter()

    def trip(at: Failpoint) -> None:
        seen[at] += 1
        if at is point and seen[at] == visit:
            raise KilledError

    f.trip = trip
    story(f)
    assert seen[point] == visit, f"{point} was not visited {visit} times: the story does not test it"
