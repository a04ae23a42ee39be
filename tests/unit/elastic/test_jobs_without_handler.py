"""A batch script without a handler dies of the signal that was to help it: its job comes back all the same."""

from dataclasses import replace
from typing import Any

import pytest
from support.cluster_states import BUSY, NOW, burst, instance, job, living, node, sight

from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.jobs import MAX_RESTARTS
from gpucluster.elastic.events import (
    Event,
    Interrupted,
    InterruptionKind,
    JobPlaced,
    JobReleased,
    JobsRequeued,
    JobsSignalled,
)
from gpucluster.elastic.memory import fold
from gpucluster.elastic.model import RecordEvents, Requeue

SLOT, PLAN = "h200-2a-1", burst()
USR1 = 10


def after(*more: tuple[float, Event], **changes: Any) -> tuple[list[int], list[int]]:
    """The jobs that are queued again and those that left, when job 41 was signalled and shows so."""
    events = (
        *living(SLOT),
        (60.0, JobPlaced(job=41, slots=(SLOT,), submitted_at=0.0)),
        (20.0, JobsSignalled(instance="i-0", jobs=(41,), signal="USR1")),
        *more,
    )
    found = job(41, SLOT, **{"states": frozenset({"FAILED"}), "exit_signal": USR1, **changes})
    s = sight(PLAN, *events, nodes=[node(SLOT, BUSY)], jobs=[found], instances=[instance(0)])
    actions = decide(s.plan, s.bindings, s.observation, s.memory, s.now)
    back = [i for a in actions if isinstance(a, Requeue) for i in a.jobs]
    facts = [e.event for a in actions if isinstance(a, RecordEvents) for e in a.entries]
    return back, [e.job for e in facts if isinstance(e, JobReleased)]


@pytest.mark.parametrize(
    ("changes", "back", "left"),
    [
        ({}, [41], []),
        ({"states": frozenset({"FAILED", "COMPLETING"})}, [], []),
        ({"exit_signal": 0}, [], [41]),
        ({"exit_signal": 9}, [], [41]),
        ({"states": frozenset({"COMPLETED"}), "exit_signal": 0}, [], [41]),
        ({"requeueable": False}, [], [41]),
    ],
    ids=[
        "it died of our signal",
        "Slurm still ends it, and would not queue it again now",
        "it failed by itself",
        "it was killed by another",
        "it came to its end",
        "it may not be queued again",
    ],
)
def test_signalled_job_is_requeued_if_the_signal_ended_it(
    changes: dict[str, Any], back: list[int], left: list[int]
) -> None:
    assert after(**changes) == (back, left)


@pytest.mark.parametrize("kind", [InterruptionKind.SPOT, InterruptionKind.FAULT])
def test_job_is_requeued_and_its_signal_recorded_after_a_kill_between_signal_and_record(
    kind: InterruptionKind,
) -> None:
    cause = Interrupted(slot=SLOT, instance="i-0", kind=kind, words="it is taken", ends_at=NOW + 100)
    found = job(41, SLOT, states=frozenset({"FAILED"}), exit_signal=USR1)
    s = sight(
        PLAN, *living(SLOT), (20.0, cause), nodes=[node(SLOT, BUSY)], jobs=[found], instances=[instance(0)]
    )
    actions = decide(s.plan, s.bindings, s.observation, s.memory, s.now)
    assert [i for a in actions if isinstance(a, Requeue) for i in a.jobs] == [41]
    entries = [e for a in actions if isinstance(a, RecordEvents) for e in a.entries]
    told = [e.event for e in entries if isinstance(e.event, JobsSignalled)]
    assert told == [JobsSignalled(instance="i-0", jobs=(41,), signal="USR1")]
    memory = fold(s.memory, entries)
    assert memory.breaks.get("41", 0) == (kind is InterruptionKind.FAULT)
    again = decide(s.plan, s.bindings, s.observation, memory, s.now)
    recorded = [e.event for a in again if isinstance(a, RecordEvents) for e in a.entries]
    assert not [e for e in recorded if isinstance(e, JobsSignalled)]


def test_ended_job_is_requeued_once() -> None:
    assert after((5.0, JobsRequeued(instance="", jobs=(41,)))) == ([], [41])


@pytest.mark.parametrize(("runs", "held"), [(MAX_RESTARTS, False), (MAX_RESTARTS + 1, True)])
def test_requeued_job_with_a_gpu_fault_in_each_run_is_held(runs: int, held: bool) -> None:
    found = job(41, SLOT, states=frozenset({"FAILED"}), exit_signal=USR1)
    told = (20.0, JobsSignalled(instance="i-0", jobs=(41,), signal="USR1"))
    placed = (60.0, JobPlaced(job=41, slots=(SLOT,), submitted_at=0.0))
    s = sight(
        PLAN, *living(SLOT), placed, told, nodes=[node(SLOT, BUSY)], jobs=[found], instances=[instance(0)]
    )
    memory = replace(s.memory, breaks={"41": runs})
    actions = decide(s.plan, s.bindings, s.observation, memory, s.now)
    assert [(a.jobs, a.held) for a in actions if isinstance(a, Requeue)] == [((41,), held)]
