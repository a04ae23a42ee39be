"""Jobs that show as running and have only half started: no report of the Prolog, or no batch script."""

from dataclasses import replace
from typing import Any

import pytest
from support.cluster_states import (
    BUSY,
    NOW,
    OFF,
    WAKING,
    burst,
    instance,
    job,
    living,
    node,
    report_of,
    sight,
)

from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.jobs import MAX_RESTARTS
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import Action, Comment, RecordEvents, Requeue
from gpucluster.plan.messages import NodePhase
from gpucluster.slurm.values import SlurmJob

SLOT, PLAN = "h200-2a-1", burst()
LONG = NOW - PLAN.times.prolog_s - 1


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"reason": "Prolog", "started_at": LONG}, [Requeue]),
        ({"reason": "Prolog", "started_at": LONG, "requeueable": False}, [Comment]),
        ({"reason": "Prolog", "started_at": LONG, "restarts": MAX_RESTARTS - 1}, [Requeue]),
        ({"reason": "Prolog", "started_at": LONG, "restarts": MAX_RESTARTS}, [Comment]),
        ({"reason": "Prolog", "started_at": NOW - 10}, []),
        ({"reason": "None", "started_at": LONG}, []),
    ],
    ids=[
        "it never reported",
        "it may not be queued again",
        "it may once more",
        "it came back too often",
        "it may still report",
        "it runs",
    ],
)
def test_half_started_job_is_requeued(changes: dict[str, Any], kinds: list[type]) -> None:
    s = sight(PLAN, nodes=[node(SLOT, BUSY)], jobs=[job(7, SLOT, **changes)])
    found = decide(s.plan, s.bindings, s.observation, s.memory, s.now)
    assert [type(a) for a in told(found)] == kinds


def told(actions: tuple[Action, ...]) -> list[Requeue | Comment]:
    """Without the comment that lets slurmctld save the start of a job."""
    return [
        a for a in actions if isinstance(a, Requeue | Comment) and not (isinstance(a, Comment) and a.again)
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "it is queued again"),
        ({"requeueable": False}, "cancel it, and submit it again"),
        ({"restarts": MAX_RESTARTS}, f"it came back {MAX_RESTARTS} times, so it is left to run: look at its Prolog"),
    ],
)  # fmt: skip
def test_reason_of_a_half_started_job_names_the_next_step(changes: dict[str, Any], words: str) -> None:
    one = job(7, SLOT, reason="Prolog", started_at=LONG, **changes)
    s = sight(PLAN, nodes=[node(SLOT, BUSY)], jobs=[one])
    found = decide(s.plan, s.bindings, s.observation, s.memory, s.now)
    reasons = [a.reason for a in told(found)]
    assert [reason.partition("half started: ")[2] for reason in reasons] == [words]


@pytest.mark.parametrize(("ago", "found"), [(PLAN.times.prolog_s - 1, 0), (PLAN.times.prolog_s, 1)])
def test_job_is_half_started_after_the_time_for_its_prolog(ago: float, found: int) -> None:
    one = job(7, SLOT, reason="Prolog", started_at=NOW - ago)
    s = sight(PLAN, nodes=[node(SLOT, BUSY)], jobs=[one])
    actions = decide(s.plan, s.bindings, s.observation, s.memory, s.now)
    assert len([a for a in actions if isinstance(a, Requeue)]) == found


def seen(memory: Memory, states: str, one: SlurmJob) -> tuple[Memory, tuple[Action, ...]]:
    """The memory after a pass that sees the job and its slot so, and the actions of the pass."""
    s = sight(PLAN, nodes=[node(SLOT, states)], jobs=[one])
    found = decide(s.plan, s.bindings, s.observation, memory, s.now)
    entries = [entry for a in found if isinstance(a, RecordEvents) for entry in a.entries]
    return fold(memory, entries), found


def refused(memory: Memory, restarts: int) -> Memory:
    """The memory after a start of job 7 that Slurm ended while its node booted, and that it counts as a restart."""
    memory, _ = seen(memory, WAKING, job(7, SLOT, starts=True, restarts=restarts))
    return seen(memory, OFF, job(7, restarts=restarts + 1))[0]


def test_starts_that_never_began_are_no_restarts() -> None:
    """E10: each test of capacity that EC2 refuses requeues the job, and its first run began with restart 4 to 6."""
    memory = Memory(epoch="e")
    for restarts in range(MAX_RESTARTS):
        memory = refused(memory, restarts)
    half = job(7, SLOT, reason="Prolog", started_at=LONG, restarts=MAX_RESTARTS)
    assert [type(a) for a in told(seen(memory, BUSY, half)[1])] == [Requeue]


LOST = {"reason": "None", "started_at": NOW - 300.0}


@pytest.mark.parametrize(
    ("why", "changes", "report", "kinds"),
    [
        ("the node lacks the script", {}, {}, [Requeue]),
        ("a run without a script never ends", {"restarts": MAX_RESTARTS}, {}, [Requeue]),
        ("it may not be queued again", {"requeueable": False}, {}, [Comment]),
        ("another job lacks it", {}, {"without_script": (8,)}, []),
        ("nothing is missing", {}, {"without_script": ()}, []),
        ("the report is of the run before", {"started_at": NOW - 30.0}, {}, []),
        (
            "the report is of the last moment that slurmd has for the script",
            {"started_at": NOW - 65.0},
            {},
            [],
        ),
        ("the report is of the next moment", {"started_at": NOW - 65.1}, {}, [Requeue]),
        ("the report is of another job's node", {"nodes": ("h200-2a-2",)}, {}, []),
        ("the job may have ended since Slurm was read", {}, {"at": NOW}, []),
        ("it waits for its nodes", {"states": frozenset({"RUNNING", "CONFIGURING"})}, {}, []),
    ],
)
def test_job_without_batch_script_is_requeued(
    why: str, changes: dict[str, Any], report: dict[str, Any], kinds: list[type]
) -> None:
    """Regression: slurmctld, killed between a start and its launch message, had the job running until its time limit."""
    sent = report_of(0, phase=NodePhase.UP)
    lacks = replace(sent.report, without_script=report.get("without_script", (7,)))
    s = sight(
        PLAN, *living(SLOT), nodes=[node(SLOT, BUSY)], jobs=[job(7, SLOT, **{**LOST, **changes})],
        instances=[instance(0)], reports={"i-0": replace(sent, report=lacks, at=report.get("at", NOW - 5))},
    )  # fmt: skip
    found = decide(s.plan, s.bindings, s.observation, s.memory, s.now)
    assert [type(a) for a in told(found)] == kinds, why
