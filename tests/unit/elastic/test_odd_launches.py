"""Launches at odd moments: a boot until its limit, and a stop of all launches while a call waits to be repeated."""

from dataclasses import replace

import pytest
from support.builders import a_plan
from support.cluster_states import NOW, WAKING, ask, instance, job, node, report_of, sight

from gpucluster.cloud.port import InstanceState
from gpucluster.elastic.events import (
    BootFailed,
    Entry,
    InstanceGone,
    InstanceRunning,
    JobPlaced,
    LaunchDeferred,
    LaunchDone,
    LaunchRefused,
    LaunchRequested,
    NodeNeeded,
    NodeRegistered,
    OrderGiven,
    Verb,
)
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot, after_facts, would_do
from gpucluster.elastic.inspect.why import Cause, Part, why
from gpucluster.elastic.memory import fold
from gpucluster.elastic.model import (
    Action,
    CloudView,
    LaunchGang,
    MarkDown,
    PowerDown,
    RecordEvents,
    Terminate,
)

PLAN = a_plan()
POOL = PLAN.pools[0]
A1 = "h200-2a-1"
STOPPED = "launches are stopped, by gpucluster down"


def booting(ago: float, **changes: object) -> ClusterSnapshot:
    """A job whose only instance reports boot steps since `ago` seconds."""
    one = ask(1, A1)
    return sight(
        PLAN,
        (ago, NodeNeeded(slot=A1, incarnation=1, jobs=(41,))),
        (ago, JobPlaced(job=41, slots=(A1,), submitted_at=NOW - ago)),
        (ago, LaunchRequested(request=one)),
        (ago, LaunchDone(request="r1", instances=("i-0",))),
        (ago - 10, InstanceRunning(slot=A1, instance="i-0")),
        (ago - 30, NodeRegistered(slot=A1, instance="i-0")),
        nodes=[node(A1, WAKING)],
        jobs=[job(41, A1, starts=True, **changes)],
        instances=[instance(0, ago)],
        reports={"i-0": report_of(0, "key")},
    )


def promised(shown: ClusterSnapshot, subject: str) -> list[str]:
    return [line.words for line in why(shown, subject).lines if line.part is Part.NEXT]


@pytest.mark.parametrize(("requeueable", "then"), [(True, "is queued again"), (False, "fails")])
def test_boot_that_reaches_its_limit_ends_the_start_of_the_job(requeueable: bool, then: str) -> None:
    """Slurm's ResumeTimeout leaves no time for another boot. `why` promised another instance."""
    young = booting(600.0, requeueable=requeueable)
    assert f"{A1} is set DOWN if it is not up by then, and the job {then}" in promised(young, "41")
    assert "if it is not up by then, its boot has failed, and the daemon sets it DOWN" in promised(young, A1)
    late = booting(POOL.boot_timeout_s + 1.0, requeueable=requeueable)
    actions = would_do(late)
    assert not [a for a in actions if isinstance(a, LaunchGang)]
    assert [a.instances for a in actions if isinstance(a, Terminate)] == [("i-0",)]
    assert [a.slots for a in after_end(late) if isinstance(a, MarkDown)] == [(A1,)]


def after_end(snapshot: ClusterSnapshot) -> tuple[Action, ...]:
    """Return the acts of the pass in which EC2 shows the end of the instance."""
    known = after_facts(snapshot, would_do(snapshot))
    ended = CloudView(at=NOW, instances={"i-0": instance(0, 2000.0, state=InstanceState.SHUTTING_DOWN)})
    return would_do(replace(known, observation=replace(known.observation, cloud=ended)))


@pytest.mark.parametrize("throttled", [True, False])
def test_stop_of_all_launches_while_a_call_waits_to_be_repeated(throttled: bool) -> None:
    """No call is repeated while launches are stopped: the job kept its slots until ResumeTimeout, and `why` promised an answer within seconds."""
    one = ask(1, A1)
    shown = sight(
        PLAN,
        (100, NodeNeeded(slot=A1, incarnation=1, jobs=(41,))),
        (100, LaunchRequested(request=one)),
        (
            99,
            LaunchDeferred(request="r1", retry_at=NOW - 50, words="RequestLimitExceeded", pace_all=throttled),
        ),
        nodes=[node(A1, WAKING)],
        jobs=[job(41, A1, starts=True)],
        halted=STOPPED,
    )
    actions = would_do(shown)
    given_up = [
        e.event
        for a in actions
        if isinstance(a, RecordEvents)
        for e in a.entries
        if isinstance(e.event, LaunchRefused)
    ]
    assert bool(given_up) is throttled, "one that may have launched keeps its token"
    assert bool([a for a in actions if isinstance(a, MarkDown | PowerDown)]) is throttled
    screen = why(shown, "41")
    assert screen.cause is Cause.HALTED
    assert STOPPED in screen.headline
    assert not [words for words in promised(shown, "41") if "within seconds" in words]


def unheard(ago: float, *, tries: int = 1) -> ClusterSnapshot:
    """A job whose only instance has been launched for the time `tries`, and whose agent has never reported."""
    earlier = [
        entry
        for n in range(1, tries)
        for entry in (
            (ago, LaunchRequested(request=ask(n, A1))),
            (ago, LaunchDone(request=f"r{n}", instances=(f"i-old{n}",))),
            (ago, BootFailed(slot=A1, instance=f"i-old{n}", words="no report")),
            (ago, InstanceGone(slot=A1, instance=f"i-old{n}")),
        )
    ]
    return sight(
        PLAN,
        (ago, NodeNeeded(slot=A1, incarnation=1, jobs=(41,))),
        (ago, JobPlaced(job=41, slots=(A1,), submitted_at=NOW - ago)),
        *earlier,
        (ago, LaunchRequested(request=ask(tries, A1))),
        (ago, LaunchDone(request=f"r{tries}", instances=("i-0",))),
        (ago - 10, InstanceRunning(slot=A1, instance="i-0")),
        nodes=[node(A1, WAKING)],
        jobs=[job(41, A1, starts=True)],
        instances=[instance(0, ago)],
    )


def due(shown: ClusterSnapshot, subject: str) -> list[tuple[float | None, str]]:
    return [(line.at, line.words) for line in why(shown, subject).lines if line.part is Part.NEXT]


def test_machine_whose_agent_never_reports_is_promised_the_end_that_it_gets() -> None:
    """It is replaced after a third of the boot's time. `why` named the end of the whole time, and that the node is set DOWN."""
    shown = unheard(60.0)
    ends = NOW - 60.0 + POOL.report_s
    words = "if its agent has not reported by then, its boot has failed, and its instance is replaced"
    assert (ends, words) in due(shown, A1)
    assert (ends, f"the instance of {A1} is replaced if its agent has not reported by then") in due(
        shown, "41"
    )
    late = replace(shown, now=ends)
    assert [a.instances for a in would_do(late) if isinstance(a, Terminate)] == [("i-0",)]
    assert not [a for a in would_do(replace(shown, now=ends - 1)) if isinstance(a, Terminate)]


def test_last_machine_of_a_power_up_whose_agent_never_reports_sets_the_node_down() -> None:
    shown = unheard(60.0, tries=3)
    ends = NOW - 60.0 + POOL.report_s
    words = "if its agent has not reported by then, its boot has failed, and the daemon sets it DOWN"
    assert (ends, words) in due(shown, A1)
    then = f"{A1} is set DOWN if its agent has not reported by then, and the job is queued again"
    assert (ends, then) in due(shown, "41")


def test_kept_machine_whose_agent_never_reports_is_not_promised_to_be_replaced() -> None:
    keep = Entry(at=NOW - 50, event=OrderGiven(verb=Verb.NODE_KEEP, target=A1, by="ann", until=NOW + 9000))
    shown = unheard(60.0)
    shown = replace(shown, memory=fold(shown.memory, (keep,)))
    assert any("the daemon sets it DOWN" in words for _, words in due(shown, A1))
    late = replace(shown, now=NOW - 60.0 + POOL.report_s)
    actions = would_do(late)
    assert [a.slots for a in actions if isinstance(a, MarkDown)] == [(A1,)]
    assert not [a for a in actions if isinstance(a, Terminate)]


def test_machine_of_a_paused_pool_whose_agent_never_reports_gets_no_successor() -> None:
    pause = Entry(at=NOW - 50, event=OrderGiven(verb=Verb.POOL_PAUSE, target="h200", by="ann"))
    shown = unheard(60.0)
    shown = replace(shown, memory=fold(shown.memory, (pause,)))
    assert any(words.endswith("its instance is terminated") for _, words in due(shown, A1))
