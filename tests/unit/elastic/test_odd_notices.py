"""Notices at odd moments: later than an earlier one, beside a time limit, for a part of a job, for a node that a person holds."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.scenes import (
    A1,
    A2,
    A3,
    B1,
    BUSY,
    DRAINED,
    EMPTY,
    IDLE,
    MACHINE,
    NOW,
    OURS,
    PLAN,
    TERMINATION,
    ZONE,
    Scene,
    events,
    kinds,
    of,
    spot,
)

from gpucluster.cloud.port import Reservation
from gpucluster.elastic.events import Interrupted, InterruptionOver, OrderGiven, Verb
from gpucluster.elastic.inspect.why import Cause, Part
from gpucluster.elastic.model import LaunchGang, MarkDown, PowerDown, PowerUp, Requeue, Signal, Undrain
from gpucluster.plan.messages import GpuFault, Notice, NoticeKind
from gpucluster.plan.model import Market, SlurmOnAws

HOUR, DAY = 3600.0, 86_400.0
SIGNALLED = "its batch script was signalled"


def maintenance(after: float) -> Notice:
    return Notice(kind=NoticeKind.MAINTENANCE, at=NOW + after, words="instance-reboot")


def broken_gpu() -> GpuFault:
    return GpuFault(xid=79, device="0000:53:00", count=1, last_at=NOW, text="NVRM: Xid 79")


def told(scene: Scene, subject: str, part: Part) -> Iterator[str]:
    """Return the sentences of this part of the screen."""
    return (line.words for line in scene.shown(subject).lines if line.part is part)


# --- a later notice in the same run -------------------------------------------------------------------
def test_run_that_outlived_its_first_signal_is_signalled_for_a_later_notice() -> None:
    """A job without requeue runs on after a GPU failed. It was not told of the spot notice of an hour later."""
    s = Scene(A1)
    s.job(7, A1, requeueable=False)
    s.report(A1, faults=(broken_gpu(),))
    assert kinds(s.step(), Signal)
    s.node(A1, DRAINED, OURS)
    s.now = NOW + HOUR
    assert not kinds(s.step(), Signal)
    s.report(A1, spot(HOUR + 120), faults=(broken_gpu(),))
    assert [a.instance for a in kinds(s.step(), Signal)] == [of(A1)]  # type: ignore[union-attr]
    assert not kinds(s.step(), Signal)


def test_maintenance_that_moves_after_the_signal_is_signalled_again_before_its_new_time() -> None:
    """The job lost a day: it was told once, before the old time, and requeued without a signal at the new one."""
    s = Scene(A1, market=Market.ON_DEMAND)
    s.job(7, A1)
    s.report(A1, maintenance(HOUR))
    s.step()
    s.now = NOW + HOUR - TERMINATION.lead_s - TERMINATION.grace_s
    assert kinds(s.step(), Signal)
    s.now += 10
    s.report(A1, maintenance(DAY))
    assert not kinds(s.step(), Signal)
    due = NOW + DAY - TERMINATION.lead_s - TERMINATION.grace_s
    assert [
        (line.at, line.words)
        for line in s.shown("7").lines
        if line.part is Part.NEXT and "signalled" in line.words
    ] == [(due, f"its batch script is signalled with {TERMINATION.signal}")]
    s.now = due
    assert kinds(s.step(), Signal)
    assert not kinds(s.step(), Signal)


@pytest.mark.parametrize("after", [1.0, TERMINATION.grace_s - 1.0])
def test_second_notice_of_the_same_minute_does_not_signal_again(after: float) -> None:
    """The script still writes its checkpoint."""
    s = Scene(A1)
    s.job(7, A1, requeueable=False)
    s.report(A1, faults=(broken_gpu(),))
    assert kinds(s.step(), Signal)
    s.now = NOW + after
    s.report(A1, spot(after + 120), faults=(broken_gpu(),))
    assert not kinds(s.step(), Signal)
    assert any(words.startswith(SIGNALLED) for words in told(s, "7", Part.DONE))


# --- a time limit before the requeue --------------------------------------------------------------------
REQUEUE_AT = NOW + 120 - TERMINATION.lead_s


@pytest.mark.parametrize(
    ("limit_s", "comes_back"), [(540.0, False), (600.0, False), (601.0, True), (None, True)]
)
def test_job_that_reaches_its_time_limit_before_its_requeue_is_not_replaced(
    limit_s: float | None, comes_back: bool
) -> None:
    """It began 500 s ago and is to be requeued in 100 s. An instance was launched for a job that never comes back."""
    s = Scene(A1)
    s.job(7, A1, time_limit_s=limit_s)
    s.report(A1, spot())
    actions = s.step()
    assert kinds(actions, Signal), "it may write its last checkpoint"
    assert bool(kinds(actions, PowerUp)) is comes_back
    said = [line for line in s.shown("7").lines if line.part is Part.NEXT]
    assert ("it is requeued, and starts again on other nodes" in [line.words for line in said]) is comes_back
    assert (limit_s is None) or any("time limit" in line.words for line in said)
    s.now = REQUEUE_AT
    assert kinds(s.step(), Requeue), "Slurm lets a job run on after its limit (OverTimeLimit): it is requeued"


def test_idle_node_is_not_kept_for_a_job_that_reaches_its_time_limit() -> None:
    s = Scene(A1, A2)
    s.job(7, A1, time_limit_s=540.0, admin_comment=OURS)
    s.node(A1, DRAINED, OURS)
    s.node(A2, IDLE)
    s.nodes[A2] = replace(s.nodes[A2], last_busy=NOW - HOUR)
    s.report(A1, spot())
    s.step()
    assert [a.slots for a in kinds(s.step(), PowerDown)] == [(A2,)]  # type: ignore[union-attr]


# --- a het job -------------------------------------------------------------------------------------------
def test_each_component_of_a_het_job_tells_of_the_notice_and_of_the_signal() -> None:
    """The component said without end that its script is signalled now, and the leader, which is requeued with it, `runs`."""
    s = Scene(A1, A2)
    s.job(7, A1, het_id=7)
    s.job(8, A2, het_id=7)
    s.report(A2, spot())
    assert [a.jobs for a in kinds(s.step(), Signal)] == [(7,)]  # type: ignore[union-attr]
    s.node(A2, DRAINED, OURS)
    for one in ("7", "8"):
        shown = s.shown(one)
        assert shown.cause is Cause.EVACUATING, one
        assert A2 in shown.headline
        assert any(words.startswith(SIGNALLED) for words in told(s, one, Part.DONE)), one
        assert not any("is signalled" in words for words in told(s, one, Part.NEXT)), one
        assert "it is requeued, and starts again on other nodes" in list(told(s, one, Part.NEXT)), one
    s.now = REQUEUE_AT
    assert [a.jobs for a in kinds(s.step(), Requeue)] == [(7,)]  # type: ignore[union-attr]
    for one in ("7", "8"):
        assert not any("requeued, and" in words for words in told(s, one, Part.NEXT)), one


# --- a node that a person holds -----------------------------------------------------------------------------
@pytest.mark.parametrize("held", ["kept", "drained"])
@pytest.mark.parametrize("kind", ["spot", "fault", "maintenance", "rebalance"])
def test_node_that_a_person_holds_is_not_promised_to_be_powered_down(held: str, kind: str) -> None:
    s = Scene(A1)
    s.job(7, A1)
    if held == "kept":
        s.note(OrderGiven(verb=Verb.NODE_KEEP, target=A1, by="ann", until=NOW + DAY))
    else:
        s.node(A1, DRAINED, "bad fan", "root")
    rebalance = Notice(kind=NoticeKind.REBALANCE, at=NOW)
    notice = {"spot": spot(), "maintenance": maintenance(HOUR), "rebalance": rebalance}.get(kind)
    s.report(A1, *((notice,) if notice else ()), faults=(broken_gpu(),) if kind == "fault" else ())
    s.step()
    promises = [*told(s, "7", Part.NEXT), *told(s, A1, Part.NEXT)]
    assert not [words for words in promises if "powered down" in words]
    s.jobs.clear()
    s.node(A1, EMPTY if held == "drained" else IDLE, "bad fan" if held == "drained" else "", "root")
    for s.now in (NOW + 200, NOW + HOUR + 200):
        assert not kinds(s.step(), PowerDown, MarkDown)


def test_rebalance_hint_promises_no_replacement() -> None:
    """The next instance is launched when a job needs it, and not before."""
    s = Scene(A1)
    s.job(7, A1)
    s.report(A1, Notice(kind=NoticeKind.REBALANCE, at=NOW))
    assert not kinds(s.step(), PowerUp)
    assert "its jobs continue; when it is idle it is powered down" in list(told(s, A1, Part.NEXT))


# --- a notice that is called off ------------------------------------------------------------------------------
def test_maintenance_that_is_called_off_does_not_open_a_node_that_an_order_replaces() -> None:
    """The drain was lifted for one pass, in which Slurm could start a job there, and set again in the next."""
    s = Scene(A1, market=Market.ON_DEMAND)
    s.job(7, A1)
    s.report(A1, maintenance(HOUR))
    s.step()
    s.node(A1, DRAINED, OURS)
    s.note(OrderGiven(verb=Verb.NODE_REPLACE, target=A1, by="ann"))
    s.step()
    s.now += 10
    s.report(A1)
    actions = s.step()
    assert not kinds(actions, Undrain)
    assert len(events(actions, InterruptionOver)) == len(events(actions, Interrupted)) == 1
    assert not events(s.step(), Interrupted)


# --- an idle node that waits for the job --------------------------------------------------------------------------
def test_node_that_waits_for_a_requeued_job_has_no_power_down_in_the_past() -> None:
    """Its idle time was over, and for two minutes `why` named that time for the next power-down."""
    s = Scene(A1)
    s.node(A1, IDLE)
    s.nodes[A1] = replace(s.nodes[A1], last_busy=NOW - HOUR)
    s.job(7, states=frozenset({"PENDING"}), nodes=(), node_count=1, restarts=1, begins_at=NOW + 60, admin_comment=OURS, reason="BeginTime", priority=5)  # fmt: skip
    assert not kinds(s.step(), PowerDown)
    due = [line for line in s.shown(A1).lines if line.part is Part.NEXT]
    assert [line.at for line in due] == [None]
    s.now = NOW + 60 + 91
    assert kinds(s.step(), PowerDown), "the job no longer waits, and the node is idle"


# --- the capacity of a replacement ----------------------------------------------------------------------------------
def with_most(most: int) -> SlurmOnAws:
    return replace(PLAN, pools=(replace(PLAN.pools[0], max=most),))


def powered_up(scene: Scene) -> list[str]:
    return [slot for a in scene.step() if isinstance(a, PowerUp) for slot in a.slots]


@pytest.mark.parametrize(("most", "expected"), [(2, 0), (3, 1), (4, 2)])
def test_replacements_in_two_zones_share_the_headroom_of_their_pool(most: int, expected: int) -> None:
    """Each zone took all of it: the second slot was powered up, found no room, and was set DOWN."""
    s = Scene(A1, B1, plan=with_most(most))
    s.job(7, A1)
    s.job(8, B1)
    s.report(A1, spot())
    s.report(B1, spot())
    assert len(powered_up(s)) == expected


@pytest.mark.parametrize(("most", "expected"), [(3, 0), (4, 1)])
def test_replacement_leaves_the_headroom_that_a_launch_of_this_pass_takes(most: int, expected: int) -> None:
    s = Scene(A1, A2, plan=with_most(most))
    s.job(7, A1)
    s.job(8, A2)
    s.job(9, A3, states=frozenset({"RUNNING", "CONFIGURING"}))
    s.node(A3, "ALLOCATED CLOUD POWERING_UP")
    s.report(A1, spot())
    actions = s.step()
    assert [a.request.slots for a in kinds(actions, LaunchGang)] == [(A3,)]  # type: ignore[union-attr]
    assert sum(len(a.slots) for a in kinds(actions, PowerUp)) == expected  # type: ignore[union-attr]


# --- a stop of launches ---------------------------------------------------------------------------------------------
def test_job_of_a_stopped_pool_is_not_promised_other_nodes() -> None:
    """Nothing is launched for it: it waits until the pool is resumed."""
    s = Scene(A1)
    s.job(7, A1)
    s.note(OrderGiven(verb=Verb.POOL_PAUSE, target="h200", by="ann"))
    s.report(A1, spot())
    assert not kinds(s.step(), PowerUp)
    said = list(told(s, "7", Part.NEXT))
    assert "it is requeued, and nothing is launched for it: paused by ann" in said
    assert not any("other nodes" in words for words in said)


# --- a capacity block that gets more time ---------------------------------------------------------------------------
BLOCK_ENDS = NOW + 2400.0


def on_a_block() -> Scene:
    """A job on an instance of a block whose end was announced."""
    pool = PLAN.pools[0]
    source = replace(pool.sources[0], market=Market.CAPACITY_BLOCK, reservation="cr-1", zones=("us-east-2a",))
    s = Scene(
        A1,
        market=Market.CAPACITY_BLOCK,
        plan=replace(PLAN, pools=(replace(pool, sources=(source, *pool.sources[1:])),)),
    )
    s.job(7, A1)
    ends(s, BLOCK_ENDS)
    assert kinds(s.step(), Signal)
    reason = s.memory.incarnations[A1].interruption
    assert reason is not None
    s.node(A1, DRAINED, f"gpucluster: [evacuation] {reason.words}")
    return s


def ends(s: Scene, at: float) -> None:
    s.reservations["cr-1"] = Reservation(
        id="cr-1",
        state="active",
        machine=MACHINE,
        zone=ZONE,
        total=4,
        free=3,
        starts_at=NOW - DAY,
        ends_at=at,
    )


def test_block_that_is_extended_keeps_its_jobs() -> None:
    """The daemon ended the instance, and requeued its job, at the old end of the block."""
    s = on_a_block()
    s.now += 60
    ends(s, BLOCK_ENDS + DAY)
    s.report(A1)
    actions = s.step()
    assert events(actions, InterruptionOver)
    assert [a.slots for a in kinds(s.step(), Undrain)] == [(A1,)]  # type: ignore[union-attr]
    s.node(A1, BUSY)
    for s.now in (NOW + 600, BLOCK_ENDS, BLOCK_ENDS + HOUR):
        s.report(A1)
        assert not kinds(s.step(), Requeue, MarkDown, PowerDown)
    s.now = BLOCK_ENDS + DAY - 2400
    assert events(s.step(), Interrupted)


def test_block_that_gets_some_minutes_more_ends_by_its_new_end() -> None:
    s = on_a_block()
    s.now += 300
    ends(s, BLOCK_ENDS + 240)
    assert events(s.step(), Interrupted)
    interruption = s.memory.incarnations[A1].interruption
    assert interruption is not None
    assert interruption.ends_at == BLOCK_ENDS + 240 - 1800
    s.now = NOW + 600
    assert not kinds(s.step(), Requeue, MarkDown)
    s.now = NOW + 840 - TERMINATION.lead_s
    assert kinds(s.step(), Requeue)


def test_block_that_ec2_does_not_list_for_a_moment_still_ends() -> None:
    s = on_a_block()
    s.reservations.clear()
    assert not events(s.step(), InterruptionOver)
