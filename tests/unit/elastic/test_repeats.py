"""Acts that the daemon decides pass after pass: `why` says since when, how often, and what prevents them."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from support.builders import a_plan
from support.cluster_states import NOW
from support.fleet import Fleet

from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why import Line, Part, repeated, why
from gpucluster.elastic.model import Action, Drain, JobRun, Repeat, Requeue
from gpucluster.elastic.repeats import KEPT_S, Repeats
from gpucluster.errors import GpuclusterError

ERROR = "slurm_update error: Invalid user id"
RUN = JobRun(job=7, started_at=NOW - 60, nodes=("a-1",))


@pytest.fixture
def f(tmp_path: Path) -> Fleet:
    return Fleet(a_plan(), tmp_path)


def looked(f: Fleet) -> ClusterSnapshot:
    return ClusterSnapshot(
        plan=f.plan,
        bindings=f.bindings,
        observation=replace(f.reconciler.observation, slurm=f.slurm.read(f.now)),
        memory=f.journal.memory,
        now=f.now,
    )


def said(f: Fleet, subject: str) -> list[Line]:
    lines = why(looked(f), subject).lines
    return [line for line in lines if line.part is Part.STATE and "since then the daemon" in line.words]


def test_refused_update_is_told_since_its_first_try_with_its_error(f: Fleet) -> None:
    """`why` said "now: the daemon powers it down" for hours, and the refusal was only in the daemon's log."""
    job = f.slurm.submit(1, lasts=10.0)
    f.until(lambda: job.state == "COMPLETED", 400)
    slot = next(iter(f.agents.values())).slot
    real = f.slurm.update_nodes

    def refused(*arguments: object) -> None:
        raise GpuclusterError(ERROR)

    f.slurm.update_nodes = refused  # type: ignore[method-assign]
    f.until(lambda: bool(said(f, slot)), 1000)
    began = f.now
    f.run(300)
    (line,) = said(f, slot)
    assert line.at is not None
    assert began - 5 <= line.at <= began
    assert line.words.startswith("since then the daemon powers it down in each pass (")
    assert line.words.endswith(f"): {ERROR}")
    f.slurm.update_nodes = real  # type: ignore[method-assign]
    f.run(KEPT_S + 60)
    assert not said(f, slot)
    assert not f.reconciler.status.repeats


def test_launch_that_the_control_object_prevents_is_told_for_its_node_and_job(f: Fleet) -> None:
    """Launches stop at once; the whole cluster counts as halted only a minute later."""
    f.run(60)
    f.control.readable = False
    job = f.slurm.submit(1)
    f.until(lambda: bool(said(f, str(job.id))), 50)
    (line,) = said(f, str(job.id))
    (slot,) = job.nodes
    assert line.words.startswith(f"{slot}: since then the daemon launches an instance for it in each pass (")
    assert "the control object: cannot be read" in line.words
    assert [x.words for x in said(f, slot)] == [line.words.removeprefix(f"{slot}: ")]


def test_act_that_succeeds_without_an_effect_is_told_after_a_time() -> None:
    """Passes between two tries decide nothing: a termination is requested again only after AGAIN_S."""
    repeats, act = Repeats(60.0), Drain(slots=("a-1",), reason="r")
    for after in range(0, 60, 15):
        repeats.decided((act,), NOW + after)
        repeats.tried(act, "")
        repeats.decided((), NOW + after + 10)
        assert repeats.shown() == ()
    repeats.decided((act,), NOW + 61)
    assert repeats.shown() == (Repeat(act="Drain", target="a-1", since=NOW, last=NOW + 61, times=5),)


@pytest.mark.parametrize("passes_s", [10.0, 120.0], ids=["sandbox", "AWS"])
def test_act_that_worked_is_not_told_after_a_time(passes_s: float) -> None:
    """Regression: `why` of a completed job said that nothing shows that its instance was launched."""
    repeats, act = Repeats(passes_s), Drain(slots=("a-1",), reason="r")
    repeats.decided((act,), NOW)
    repeats.tried(act, "")
    for after in range(5, 300, 5):
        repeats.decided((), NOW + after)
        assert repeats.shown() == ()


@pytest.mark.parametrize("passes_s", [10.0, 120.0], ids=["sandbox", "AWS"])
def test_same_act_for_the_next_job_is_another_act(passes_s: float) -> None:
    """Regression: the launches of one node for six jobs were told as one launch that had no effect."""
    repeats, act = Repeats(passes_s), Drain(slots=("a-1",), reason="r")
    for job in range(0, 300, 50):
        repeats.decided((act,), NOW + job)
        repeats.tried(act, "")
        for after in (10, 20, 30):
            repeats.decided((), NOW + job + after)
        assert repeats.shown() == ()


def test_pass_without_a_view_of_ec2_shows_nothing_of_an_act() -> None:
    repeats, act = Repeats(10.0), Drain(slots=("a-1",), reason="r")
    for after in range(0, 15, 5):
        repeats.decided((act,), NOW + after)
        repeats.decided((), NOW + after + 2, whole=False)
    repeats.decided((), NOW + 60, whole=False)
    repeats.decided((act,), NOW + 61)
    assert [(one.since, one.times) for one in repeats.shown()] == [(NOW, 4)]


def test_failed_act_that_no_pass_decides_is_forgotten() -> None:
    repeats, act = Repeats(10.0), Requeue(runs=(RUN,), instance="i-1", reason="spot")
    repeats.decided((act,), NOW)
    repeats.tried(act, ERROR)
    repeats.decided((), NOW + KEPT_S)
    assert [one.target for one in repeats.shown()] == ["7"]
    repeats.decided((), NOW + KEPT_S + 1)
    assert repeats.shown() == ()


def test_each_act_with_targets_has_words() -> None:
    acts = {one.__name__ for one in get_args(Action)}
    without = {"RecordEvents", "Comment", "SetReservation", "DeleteReservation", "DeleteMessages"}
    assert repeated.DOES.keys() == acts - without


def test_nothing_is_told_of_a_cluster_that_works(f: Fleet) -> None:
    jobs = [f.slurm.submit(2, lasts=60.0) for _ in range(2)]
    shown: set[Repeat] = set()

    def over() -> bool:
        shown.update(f.reconciler.status.repeats)
        return all(job.state == "COMPLETED" for job in jobs) and not f.living()

    f.until(over, 4000)
    assert not shown
