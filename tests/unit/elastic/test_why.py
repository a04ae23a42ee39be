"""`why`, row by row: every reason of Slurm, every state of a node, hostile words, and a fleet's whole story without a gap."""

from dataclasses import replace
from pathlib import Path

import pytest
from builders import a_plan
from fleet import Fleet
from hypothesis import given
from hypothesis import strategies as st
from moments import BUSY, NOW, OFF, UP, WAKING, instance, job, living, node, sight

from gpucluster.elastic.decide.restarts import HELD, RESTARTS
from gpucluster.elastic.sight import Sight
from gpucluster.elastic.why import Cause, Screen, text, why
from gpucluster.elastic.why.past import meaning
from gpucluster.elastic.why.reasons import ROWS, Kind, reason_of
from gpucluster.elastic.why.screen import span, when

PLAN = a_plan()
A1, A2 = "h200-2a-1", "h200-2a-2"


def said(shown: Screen) -> str:
    return text(shown, NOW)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.begins)
def test_each_reason_of_slurm_is_put_in_words_with_a_remedy(row: object) -> None:
    assert isinstance(row, type(ROWS[0]))
    shown = why(sight(PLAN, jobs=(job(41, reason=row.begins, begins_at=NOW + 60),)), "41")
    assert shown.cause not in (Cause.UNKNOWN, Cause.UNSEEN)
    assert reason_of(row.begins) is row
    if row.kind not in (Kind.NONE, Kind.RESOURCES, Kind.PRIORITY):
        assert row.words in said(shown)
        assert row.remedy.replace("JOB", "41") in said(shown)
    assert "JOB" not in said(shown)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("QOSMaxGRESPerUser", Kind.LIMIT),
        ("QOSGrpNodeLimit", Kind.LIMIT),
        ("QOSNotAllowed", Kind.REQUEST),
        ("AssocGrpGRES", Kind.LIMIT),
        ("AssocMaxWallDurationPerJobLimit", Kind.LIMIT),
        ("MaxGRESPerAccount", Kind.LIMIT),
        ("DependencyNeverSatisfied", Kind.DEPENDENCY),
        ("launch_failed_requeued_held", Kind.HELD),
        ("job_requeued_in_held_state", Kind.HELD),
        ("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved", Kind.RESOURCES),
        ("ReqNodeNotAvail, UnavailableNodes:h200-2a-1", Kind.RESOURCES),
        ("SomethingOf30.05", Kind.OTHER),
        ("", Kind.NONE),
    ],
)
def test_slurms_words_fall_to_the_row_that_is_meant(word: str, kind: Kind) -> None:
    assert reason_of(word).kind is kind


def test_a_job_that_was_held_for_the_gpus_that_failed_in_it_says_so() -> None:
    held = sight(PLAN, jobs=(job(41, reason="JobHeldAdmin", priority=0),))
    assert HELD not in said(why(held, "41"))
    shown = why(replace(held, memory=replace(held.memory, breaks={"41": RESTARTS + 1})), "41")
    assert HELD in said(shown)
    assert "scontrol release 41" in said(shown)


def test_a_job_of_a_foreign_partition_is_slurms_alone() -> None:
    shown = why(sight(PLAN, jobs=(job(41, partitions=("other",), reason="Resources"),)), "41")
    assert shown.cause is Cause.RESOURCES
    assert "no pool of ours (partition other)" in said(shown)


@pytest.mark.parametrize(
    "states",
    [OFF, UP, BUSY, WAKING, "IDLE CLOUD POWERING_DOWN", "DOWN CLOUD", "DOWN CLOUD POWERED_DOWN", "IDLE CLOUD POWER_DOWN",
     "IDLE CLOUD POWERED_DOWN POWER_DOWN", "IDLE CLOUD NOT_RESPONDING", "IDLE CLOUD DRAIN", "UNKNOWN CLOUD"],
)  # fmt: skip
@pytest.mark.parametrize("lives", [True, False], ids=["with a machine", "without"])
def test_each_state_of_a_node_is_told(states: str, lives: bool) -> None:
    events = living(A1) if lives else ()
    moment = sight(PLAN, *events, nodes=(node(A1, states),), instances=(instance(0),) if lives else ())
    shown = why(moment, A1)
    assert shown.cause is Cause.NODE
    assert shown.headline
    assert "Slurm says" in said(shown)


@pytest.mark.parametrize(
    ("reason", "by", "words"),
    [
        ("gpucluster: no h200", "slurm", "for want of capacity"),
        ("gpucluster: [trouble] XID 79", "slurm", "because its machine is to be left"),
        ("gpucluster: [order] by alice", "slurm", "gpucluster node release lifts it"),
        ("gpucluster: [future] x", "slurm", "a version of the daemon that this one does not know"),
        ("Prolog error", "slurm", "Slurm itself"),
        ("broken fan", "alice", "alice, who alone lifts it"),
        ("broken fan", "", "somebody, who alone lifts it"),
    ],
)
def test_a_drain_has_its_owner_named(reason: str, by: str, words: str) -> None:
    drained = node(A1, "IDLE CLOUD DRAIN", reason=reason, reason_by=by, reason_at=NOW - 60)
    assert words in said(why(sight(PLAN, nodes=(drained,)), A1))


def test_names_of_nothing_are_answered_with_what_there_is() -> None:
    moment = sight(PLAN)
    for subject in ("h200-2c-1", "h200-2a-17", "h200-2a-01", "x" * 500, "\x1b[2J", "41; rm"):
        shown = why(moment, subject)
        assert shown.cause is Cause.UNKNOWN
        assert not shown.known
    assert why(moment, "999999999999").cause is Cause.UNKNOWN


@given(words=st.text(max_size=300))
def test_others_words_cannot_act_on_a_terminal(words: str) -> None:
    held = node(A1, "IDLE CLOUD DRAIN", reason=f"x{words}", reason_by=words, reason_at=NOW)
    one = job(41, reason=words, admin_comment=f"gpucluster: {words}", partitions=("gpu", words))
    moment = sight(PLAN, nodes=(held,), jobs=(one,))
    for subject in (A1, "41"):
        assert all(c.isprintable() or c == "\n" for c in said(why(moment, subject)))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (119, "119 s"), (121, "2 min"), (7199, "119 min"), (7200, "2 h"), (7500, "2 h 5 min"), (2e5, "2 d 7 h"), (-5, "0 s")],
)  # fmt: skip
def test_a_span_is_read_at_a_glance(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_times_are_utc_and_told_from_now() -> None:
    assert when(NOW - 60, NOW) == "13:59:00 UTC, 60 s ago"
    assert when(NOW + 90_000, NOW) == "2026-11-18 15:00:00 UTC, in 25 h"
    assert when(NOW, NOW) == "14:00:00 UTC, now"


def test_codes_of_the_cloud_have_a_meaning_and_others_none() -> None:
    assert "none free" in meaning("InsufficientInstanceCapacity")
    assert "quota" in meaning("VcpuLimitExceeded (x)")
    assert meaning("does not boot: i-1") == ""


def test_nothing_is_lost_in_the_story_of_a_fleet(tmp_path: Path) -> None:
    """Whatever the moment, every job and node has an answer, and one that waits has a cause and a next step."""
    f = Fleet(a_plan(("idle: 5m", "idle: 1m")), tmp_path)
    f.model.set_capacity(zone="us-east-2a", free=0)
    f.broken = lambda i: "mount failed" if i.zone == "us-east-2b" and f.now < began + 120 else None
    began = f.now
    jobs = [
        f.slurm.submit(2, lasts=40),
        f.slurm.submit(17, lasts=5),
        f.slurm.submit(1, lasts=30, batch=False),
    ]
    causes: set[Cause] = set()
    for _ in range(60):
        f.run(10)
        entries = tuple(f.journal.entries())
        moment = Sight(
            plan=f.plan,
            bindings=f.bindings,
            seen=f.keeper.seen,
            memory=f.journal.memory,
            now=f.now,
            entries=entries,
        )
        for one in jobs:
            shown = why(moment, str(one.id))
            causes.add(shown.cause)
            assert shown.known, said(shown)
            if shown.cause not in (Cause.RUNNING, Cause.FINISHED):
                assert any(line.part.value in ("next", "do") for line in shown.lines), said(shown)
        for slot in (A1, A2, "h200-2b-1"):
            assert why(moment, slot).cause is Cause.NODE
    assert {Cause.TOO_LARGE, Cause.BOOTING, Cause.FINISHED} <= causes
