"""A kill at each border of the act step: over the same journal and cloud the good end is reached, nothing twice."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from support.builders import a_plan
from support.fleet import Fleet
from support.slurm_model import SlurmModel

from gpucluster.cloud.port import QueueNotice
from gpucluster.elastic.act import Actor, Clients, Failpoint
from gpucluster.elastic.events import JobsRequeued, JobsSignalled
from gpucluster.elastic.executors import InlineExecutor
from gpucluster.elastic.journal import Journal
from gpucluster.elastic.model import Action, DeleteMessages, JobRun, Requeue, Signal
from gpucluster.sandbox.aws.ec2.state.client import ModelCloud, ModelControl
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel

VISITS = (1, 3)  # of each failpoint: the process ends there, and the next one passes it again
LEASE = [
    p for p in Failpoint if p.value.endswith(("lease", "renewal"))
]  # the edge: tests/sandbox/test_standby.py
TERMINATION = [p for p in Failpoint if any(word in p.value for word in ("signal", "requeue", "forget"))]


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
    assert [job.state for job in jobs] == ["COMPLETED"] * 3, f.report()
    assert [len(job.runs) for job in jobs] == [1, 1, 1]
    assert len(f.model.describe((), f.now)) == 4, "one instance for each slot and incarnation"
    assert not f.living()


def live(f: Fleet, seconds: float) -> None:
    """Let time pass; a kill is followed by a start."""
    end = f.now + seconds
    while f.now < end:
        try:
            f.run(end - f.now)
        except KilledError:
            f.restart()


@pytest.mark.parametrize("point", [p for p in Failpoint if p not in {*TERMINATION, *LEASE}])
def test_kill_at_any_failpoint_is_harmless(tmp_path: Path, point: Failpoint) -> None:
    f = Fleet(a_plan(("idle: 5m", "idle: 1m")), tmp_path)
    seen: Counter[Failpoint] = Counter()

    def hit(at: Failpoint) -> None:
        seen[at] += 1
        if at is point and seen[at] in VISITS:
            raise KilledError

    f.hit = hit
    story(f)
    assert seen[point] >= max(VISITS), f"the story passes {point} {seen[point]} times: it does not test it"


class Queue:
    """The NoticePort with one message, until it is forgotten."""

    def __init__(self) -> None:
        self.held = {"m1"}

    def receive(self, wait_s: float) -> tuple[QueueNotice, ...]:
        return ()

    def forget(self, handles: Sequence[str]) -> None:
        self.held -= set(handles)


@pytest.mark.parametrize("point", TERMINATION)
def test_kill_during_an_evacuation_leaves_no_job_without_its_signal(tmp_path: Path, point: Failpoint) -> None:
    plan = a_plan()
    slurm, queue = SlurmModel(plan, lambda kind, hosts: None), Queue()
    job = slurm.submit(1)
    slurm.tick(1.0)
    run = JobRun(job=job.id, started_at=job.started, nodes=job.nodes)
    seen: Counter[Failpoint] = Counter()

    def hit(at: Failpoint) -> None:
        seen[at] += 1
        if at is point and seen[at] == 1:
            raise KilledError

    def clients(journal: Journal) -> Clients:
        return Clients(
            cluster=plan.name,
            times=plan.times,
            cloud=ModelCloud(CloudModel(Random(1)), lambda: 1.0),  # noqa: S311 -- the same each time
            slurm=slurm,
            control=ModelControl(),
            journal=journal,
            cloud_executor=InlineExecutor(),
            slurm_executor=InlineExecutor(),
            clock=lambda: 1.0,
            start_pass=lambda: None,
            hit=hit,
            notices=queue,
        )

    todo: tuple[tuple[type[object], Action], ...] = (
        (JobsSignalled, Signal(jobs=(job.id,), signal="USR1", instance="i-1", reason="spot")),
        (JobsRequeued, Requeue(runs=(run,), instance="i-1", reason="spot")),
    )
    for _ in range(2):  # one run that is killed, and one that is not
        journal = Journal.open(tmp_path / "j", 1.0)
        written = {type(entry.event) for entry in journal.entries()}
        left = [action for kind, action in todo if kind not in written]
        with contextlib.suppress(KilledError):
            Actor(clients(journal)).act([*left, DeleteMessages(handles=tuple(queue.held))])
        journal.close()
    assert seen[point]
    assert 1 <= len(slurm.signals) <= 2
    assert job.restarts == 1, "a second requeue finds it pending"
    assert not queue.held
