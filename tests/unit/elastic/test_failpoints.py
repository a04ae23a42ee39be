"""A kill at each border of the act step: over the same journal and cloud the good end is reached, nothing twice."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from builders import a_plan
from fleet import NO_TRIP, Fleet
from slurm_model import SlurmModel

from gpucluster.cloud.model import CloudModel, ModelCloud, ModelControl
from gpucluster.cloud.port import Told
from gpucluster.elastic.act import Actor, Failpoint, Hands
from gpucluster.elastic.events import SentBack, Signalled
from gpucluster.elastic.journal import Journal
from gpucluster.elastic.lanes import Inline
from gpucluster.elastic.model import Action, Forget, Requeue, Signal

VISITS = (1, 2, 3)
LEASE = [
    p for p in Failpoint if p.value.endswith(("lease", "renewal"))
]  # the edge: tests/sandbox/test_standby.py
FAREWELL = [p for p in Failpoint if any(word in p.value for word in ("signal", "requeue", "forget"))]


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
@pytest.mark.parametrize("point", [p for p in Failpoint if p not in {*FAREWELL, *LEASE}])
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


class Queue:
    """The NoticePort with one message, until it is forgotten."""

    def __init__(self) -> None:
        self.held = {"m1"}

    def receive(self, wait_s: float) -> tuple[Told, ...]:
        return ()

    def forget(self, handles: Sequence[str]) -> None:
        self.held -= set(handles)


@pytest.mark.parametrize("point", FAREWELL)
def test_a_kill_in_a_farewell_leaves_no_job_untold(tmp_path: Path, point: Failpoint) -> None:
    plan = a_plan()
    slurm, queue = SlurmModel(plan, lambda kind, hosts: None), Queue()
    job = slurm.submit(1)
    slurm.tick(1.0)
    seen: Counter[Failpoint] = Counter()

    def trip(at: Failpoint) -> None:
        seen[at] += 1
        if at is point and seen[at] == 1:
            raise KilledError

    def hands(journal: Journal) -> Hands:
        return Hands(
            cluster=plan.name,
            times=plan.times,
            cloud=ModelCloud(CloudModel(Random(1)), lambda: 1.0),  # noqa: S311 -- the same each time
            slurm=slurm,
            control=ModelControl(),
            journal=journal,
            clouds=Inline(),
            slurms=Inline(),
            clock=lambda: 1.0,
            ring=lambda: None,
            trip=trip,
            notices=queue,
        )

    todo: tuple[tuple[type[object], Action], ...] = (
        (Signalled, Signal(jobs=(job.id,), signal="USR1", instance="i-1", reason="spot")),
        (SentBack, Requeue(jobs=(job.id,), instance="i-1", reason="spot")),
    )
    for _ in range(2):  # a life that is killed, and one that is not
        journal = Journal.open(tmp_path / "j", 1.0)
        written = {type(entry.event) for entry in journal.entries()}
        left = [action for kind, action in todo if kind not in written]
        with contextlib.suppress(KilledError):
            Actor(hands(journal)).act([*left, Forget(handles=tuple(queue.held))])
        journal.close()
    assert seen[point]
    assert 1 <= len(slurm.signals) <= 2
    assert job.restarts == 1, "a second requeue finds it pending"
    assert not queue.held
