"""A job's story, as the demo draws it."""

import json
from pathlib import Path

import pytest
from support.builders import a_plan
from support.cluster_states import NOW, living
from support.fleet import Fleet

from gpucluster.elastic.events import (
    BreakerTripped,
    Entry,
    Event,
    GpuFaulted,
    HeartbeatStopped,
    InstanceAdopted,
    Interrupted,
    InterruptionKind,
    JobPlaced,
    JobReleased,
    JobRunning,
    JobsRequeued,
    JobsSignalled,
    OrderGiven,
    TerminationRequested,
    Verb,
)
from gpucluster.elastic.inspect import timeline
from gpucluster.elastic.journal import KEPT_S, SNAPSHOT_EVERY, Journal, read_only
from gpucluster.plan import codec, names
from gpucluster.plan.model import Market
from gpucluster.slurm.job_records import JobRecord

ACCOUNTING = ('version: "24.11"', 'version: "24.11"\n  accounting: {database: local}')


def test_job_has_every_stage_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    f = Fleet(a_plan(("idle: 5m", "idle: 1m")), tmp_path)
    other = f.slurm.submit(1, lasts=30)
    job = f.slurm.submit(2, lasts=30)
    f.until(lambda: job.state == "COMPLETED" and not f.living(), 1000)
    f.run(60)
    path = tmp_path / "journal.sqlite"
    moments = timeline.timeline(job.id, read_only(path))
    stages = (
        "submitted",
        "power-up",
        "requested",
        "launched",
        "booted",
        "registered",
        "up",
        "running",
        "released",
        "idle",
        "gone",
    )
    first = [next(m.at for m in moments if m.what == stage) for stage in stages]
    assert first == sorted(first)
    assert {m.slot for m in moments if m.what == "gone"} == {m.slot for m in moments if m.what == "launched"}
    assert len([m for m in moments if m.what == "gone"]) == 2
    assert timeline.main([str(job.id), "--json", "--journal", str(path)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [m["what"] for m in shown] == [m.what for m in moments]
    assert timeline.main([str(other.id), "--journal", str(path)]) == 0
    assert "registered" in capsys.readouterr().out


def test_refusal_and_requeue_are_moments_of_the_job(tmp_path: Path) -> None:
    f = Fleet(a_plan(), tmp_path)
    f.model.set_capacity(zone="us-east-2a", free=0)
    job = f.slurm.submit(2)
    f.until(lambda: job.state == "RUNNING", 400)
    f.run(5)
    what = [m.what for m in timeline.timeline(job.id, read_only(tmp_path / "journal.sqlite"))]
    assert what.count(timeline.Moment.REFUSED) == 3
    assert what.count(timeline.Moment.PLACED) == 2
    assert what.count(timeline.Moment.SUBMITTED) == 1
    assert "running" in what


def test_each_stage_has_its_duration_and_ids(tmp_path: Path) -> None:
    f = Fleet(a_plan(("idle: 5m", "idle: 1m")), tmp_path)
    job = f.slurm.submit(2, lasts=30)
    f.until(lambda: job.state == "COMPLETED" and not f.living(), 1000)
    f.run(60)
    moments = timeline.timeline(job.id, read_only(tmp_path / "journal.sqlite"))
    assert {m.what for m in moments if m.took_s is None} == {"submitted", "power-up"}
    for up in (m for m in moments if m.what == "up"):
        before = next(m for m in moments if m.what == "registered" and m.slot == up.slot)
        assert up.took_s == pytest.approx(up.at - before.at)
        assert up.instance == before.instance
    launched = [m for m in moments if m.what == "launched"]
    assert {m.request for m in launched} == {m.request for m in moments if m.what == "requested"}
    text = timeline.lines(moments)
    assert len(text) == len(moments)
    assert any(launched[0].instance in line and "up" in line for line in text)


def test_interruptions_orders_and_stalls_are_moments_of_the_job() -> None:
    slots = ("h200-2a-1", "h200-2a-2")
    events = (
        *living(*slots),
        (50.0, OrderGiven(verb=Verb.POOL_PAUSE, target="h200", by="alice", words="upgrade")),
        (40.0, HeartbeatStopped(job=41, since=NOW - 100, words="no heartbeat")),
        (
            30.0,
            GpuFaulted(slot=slots[1], instance="i-1", xid=79, device="0000:53:00", count=1, severity="fatal"),
        ),
        (30.0, Interrupted(slot=slots[1], instance="i-1", kind=InterruptionKind.FAULT, words="XID 79")),
        (29.0, JobsSignalled(instance="i-1", jobs=(41,), signal="USR1")),
        (9.0, JobsRequeued(instance="i-1", jobs=(41,))),
        (8.0, JobReleased(job=41)),
        (7.0, TerminationRequested(instances=("i-1",), words="replaced")),
    )
    entries = [Entry(at=NOW - ago, event=event) for ago, event in events]
    moments = timeline.timeline(41, entries)
    what = [m.what for m in moments]
    assert what[-8:] == [
        "ordered",
        "heartbeat-stopped",
        "gpu-fault",
        "interrupted",
        "signalled",
        "requeued",
        "released",
        "terminating",
    ]
    back = next(m for m in moments if m.what == "requeued")
    assert (back.slot, back.instance, back.took_s) == (slots[1], "i-1", 21.0)
    assert timeline.timeline(42, entries) == ()


@pytest.mark.parametrize(
    "first",
    [
        InstanceAdopted(slot="a-1", instance="i-1", machine="p5.48xlarge", market=Market.SPOT),
        Interrupted(slot="a-1", instance="i-1", kind=InterruptionKind.SPOT, words="spot"),
    ],
    ids=("the journal is new", "the launch is pruned"),
)
def test_notice_for_an_instance_without_a_launch_is_a_moment_of_its_job(first: Event) -> None:
    """After a lost journal a job on an adopted instance was shown without its notice, its signal and its requeue."""
    events = (
        JobPlaced(job=41, slots=("a-1",), submitted_at=NOW),
        JobRunning(job=41),
        first,
        JobsSignalled(instance="i-1", jobs=(41,), signal="USR1"),
        JobsRequeued(instance="i-1", jobs=(41,)),
    )
    entries = tuple(Entry(at=NOW + n, event=event) for n, event in enumerate(events))
    assert [m.what for m in timeline.timeline(41, entries)][-2:] == ["signalled", "requeued"]


def test_requeue_without_an_instance_is_a_moment_of_its_job() -> None:
    """A job that died of its signal, or that only half started, was shown as if it came back by itself."""
    events = (*living("h200-2a-1"), (9.0, JobsRequeued(instance="", jobs=(41,))))
    entries = [Entry(at=NOW - ago, event=event) for ago, event in events]
    back = timeline.timeline(41, entries)[-1]
    assert (back.what, back.slot, back.instance, back.took_s) == ("requeued", "", "", None)


@pytest.mark.parametrize("back", [False, True], ids=["it is over", "it was requeued"])
def test_order_for_a_pool_after_the_job_counts_only_if_it_is_requeued(back: bool) -> None:
    slots = ("h200-2a-1",)
    events = [
        *living(*slots),
        (90.0, JobReleased(job=41)),
        (30.0, OrderGiven(verb=Verb.POOL_PAUSE, target="h200", by="alice")),
        (29.0, BreakerTripped(pool="h200", words="two boots failed", until=NOW)),
    ]
    if back:
        events.append((20.0, JobPlaced(job=41, slots=slots, submitted_at=NOW - 300)))
    moments = timeline.timeline(41, [Entry(at=NOW - ago, event=event) for ago, event in events])
    assert {"ordered", "breaker"} & {m.what for m in moments} == ({"ordered", "breaker"} if back else set())
    assert [m.at for m in moments] == sorted(m.at for m in moments)


def test_unknown_job_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Fleet(a_plan(), tmp_path)
    where = ["--journal", str(tmp_path / "journal.sqlite")]
    assert timeline.main(["7", *where]) == 1
    assert capsys.readouterr().err.endswith("has no event of job 7\n  next: gpucluster why 7 -c NAME\n")
    (tmp_path / names.PLAN_FILE).write_text(codec.dumps(a_plan()))
    assert timeline.main(["7", *where, "--bundle", str(tmp_path)]) == 1
    assert capsys.readouterr().err.endswith("\n  next: gpucluster why 7 -c burst\n")
    assert timeline.main(["7", "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert timeline.main(["7", "--journal", str(tmp_path / "none")]) == 2


def test_records_say_what_held_the_job_and_how_its_runs_ended() -> None:
    """The times of records are whole seconds, so an end may be up to a second after its time."""
    slots = ("h200-1a-1",)
    entries = [
        Entry(at=NOW + 10.4, event=JobPlaced(job=7, slots=slots, submitted_at=NOW)),
        Entry(at=NOW + 12.7, event=JobRunning(job=7)),
        Entry(at=NOW + 14.1, event=JobReleased(job=7)),
        Entry(at=NOW + 20.2, event=JobPlaced(job=7, slots=slots, submitted_at=NOW)),
        Entry(at=NOW + 20.3, event=JobRunning(job=7)),
    ]
    second = int(NOW)
    records = [
        JobRecord(submitted_at=second, started_at=second + 10, ended_at=second + 12, state="PREEMPTED", reason="QOSGrpGRES", exit_code="0:0"),
        JobRecord(submitted_at=second + 12, started_at=second + 20, ended_at=second + 20, state="FAILED", reason="", exit_code="3:0"),
    ]  # fmt: skip
    found = timeline.timeline(7, entries, records)
    assert [(one.what, one.detail) for one in found] == [
        ("submitted", ""),
        ("waited", "the last reason was QOSGrpGRES"),
        ("placed", "h200-1a-1"),
        ("running", ""),
        ("preempted", "for a job that comes first"),
        ("released", ""),
        ("placed", "h200-1a-1"),
        ("running", ""),
        ("ended", "FAILED, exit code 3:0"),
    ]


def test_run_that_the_daemon_did_not_see_is_a_moment() -> None:
    """The journal has the second run only, whose submission is the requeue."""
    entries = [
        Entry(at=NOW + 20.2, event=JobPlaced(job=7, slots=("h200-1a-1",), submitted_at=NOW + 12)),
        Entry(at=NOW + 20.3, event=JobRunning(job=7)),
    ]
    second = int(NOW)
    preempted = JobRecord(submitted_at=second, started_at=second + 10, ended_at=second + 12, state="PREEMPTED", reason="", exit_code="0:0")  # fmt: skip
    again = JobRecord(submitted_at=second + 12, started_at=second + 20, ended_at=0, state="RUNNING", reason="", exit_code="0:0")  # fmt: skip
    expected = ["submitted", "running", "preempted", "placed", "running"]
    assert [one.what for one in timeline.timeline(7, entries, [preempted, again])] == expected
    assert [one.what for one in timeline.timeline(7, [], [preempted, again])] == [
        what for what in expected if what != "placed"
    ]


def test_job_that_is_cancelled_while_it_waits_has_its_end() -> None:
    record = JobRecord(submitted_at=NOW, started_at=0, ended_at=NOW + 5, state="CANCELLED by 5001", reason="AssocGrpGRES", exit_code="0:0")  # fmt: skip
    found = timeline.timeline(7, [], [record])
    assert [one.what for one in found] == ["submitted", "waited", "ended"]
    assert found[-1].detail == "CANCELLED by 5001, exit code 0:0"


def test_job_that_still_waits_has_no_end_of_its_wait() -> None:
    record = JobRecord(submitted_at=NOW, started_at=0, ended_at=0, state="PENDING", reason="AssocGrpGRES", exit_code="0:0")  # fmt: skip
    assert [(one.at, one.what) for one in timeline.timeline(7, [], [record])] == [(NOW, "submitted")]


def test_accounting_that_does_not_answer_leaves_the_journal_s_moments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / names.PLAN_FILE).write_text(codec.dumps(a_plan(ACCOUNTING)))
    monkeypatch.setenv("PATH", str(tmp_path))
    sacct = tmp_path / "sacct"
    sacct.write_text("#!/bin/sh\necho 'slurmdbd is away' >&2; exit 1\n")
    sacct.chmod(0o755)
    f = Fleet(a_plan(), tmp_path)
    job = f.slurm.submit(1, lasts=30)
    f.until(lambda: job.state == "RUNNING", 400)
    argv = [str(job.id), "--bundle", str(tmp_path), "--journal", str(tmp_path / "journal.sqlite")]
    assert timeline.main(argv) == 0
    shown = capsys.readouterr()
    assert "registered" in shown.out
    assert "warning: without the records of accounting: " in shown.err
    assert "slurmdbd is away" in shown.err
    sacct.write_text(f"#!/bin/sh\necho '{job.id}|{int(NOW)}|{int(NOW)}|{int(NOW) + 9}|PREEMPTED|None|0:0'\n")
    assert timeline.main(argv) == 0
    assert "preempted" in capsys.readouterr().out


PRUNED_AT = 1_793_000_000.0
PLACED = timeline.TimelineEvent(at=PRUNED_AT + 60.0, what=timeline.Moment.PLACED)


@pytest.mark.parametrize(
    ("events", "pruned_before", "told"),
    [
        ((), None, False),
        ((), PRUNED_AT, True),
        ((PLACED,), PRUNED_AT, False),
        ((PLACED,), PRUNED_AT + 61.0, True),
        ((timeline.TimelineEvent(at=PRUNED_AT + 60.0, what=timeline.Moment.RELEASED),), PRUNED_AT, True),
        ((timeline.TimelineEvent(at=PRUNED_AT + 60.0, what=timeline.Moment.RELEASED),), None, False),
    ],
)
def test_timeline_says_when_earlier_events_may_be_pruned(
    events: tuple[timeline.TimelineEvent, ...], pruned_before: float | None, told: bool
) -> None:
    """A job of before the first kept event looked as if it had begun there, or as if it were unknown."""
    assert bool(timeline.pruned_note(events, pruned_before)) is told


def test_timeline_of_a_pruned_job_names_the_begin_of_the_journal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal.open(tmp_path / "j", 0.0)
    journal.append((Entry(at=PRUNED_AT, event=JobPlaced(job=7, slots=("a-1",), submitted_at=PRUNED_AT)),))
    for _ in range(SNAPSHOT_EVERY):
        journal.append((Entry(at=PRUNED_AT, event=JobRunning(job=8)),) * 2)
        journal.tidy(PRUNED_AT + KEPT_S + 60.0)
    journal.close()
    assert timeline.main(["7", "--journal", str(tmp_path / "j")]) == 1
    told = capsys.readouterr().err
    assert "older events are pruned: the journal begins at 2026-10-26 07:33 UTC" in told
    assert "the journal has no event of job 7" in told
