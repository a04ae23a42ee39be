"""Machines that are to be left: one moment in, actions out, for each kind of trouble."""

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from support.scenes import (
    A1,
    A2,
    A3,
    ALL,
    BINDINGS,
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

from gpucluster.cloud.port import InstanceState, Reservation
from gpucluster.elastic.decide import next_look
from gpucluster.elastic.decide.evacuation import EVACUATION_TABLE, EvacuationContext, interruption_notice
from gpucluster.elastic.decide.jobs import MAX_RESTARTS
from gpucluster.elastic.decide.terminations import last_word
from gpucluster.elastic.events import (
    BootFailed,
    GpuFaulted,
    Interrupted,
    InterruptionKind,
    InterruptionOver,
    JobForgotten,
    NodeNeeded,
    OfferRefused,
    OrderGiven,
    Verb,
)
from gpucluster.elastic.memory import Interruption
from gpucluster.elastic.memory.interruptions import FAULTS
from gpucluster.elastic.model import (
    Comment,
    Drain,
    JobRun,
    MarkDown,
    PowerDown,
    PowerUp,
    Requeue,
    Signal,
    Undrain,
)
from gpucluster.plan.messages import GpuFault, NodePhase, NodeReport, Notice, NoticeKind, Step
from gpucluster.plan.model import Market, Termination
from gpucluster.shell import CommandError
from gpucluster.slurm.client import Scontrol
from gpucluster.slurm.values import SlurmReservation


def test_spot_notice_drains_signals_and_replaces_at_once_and_requeues_before_the_end() -> None:
    s = Scene(A1, A2)
    s.job(7, A1, A2)
    s.report(A1, spot())
    first = s.step()
    assert kinds(first, Drain, Signal, Requeue, PowerUp, MarkDown) == [
        Drain(slots=(A1,), reason=OURS),
        Signal(jobs=(7,), signal=TERMINATION.signal, instance=of(A1), reason=OURS),
        PowerUp(slots=(A3,), reason="replacement for an interrupted instance"),
    ]
    s.node(A1, DRAINED, OURS)
    s.node(A3, "IDLE CLOUD POWERING_UP NOT_RESPONDING")
    s.now = NOW + 120 - TERMINATION.lead_s - 1
    assert not kinds(s.step(), Drain, Signal, Requeue, PowerUp, MarkDown, PowerDown)
    s.now += 1
    assert kinds(s.step(), Drain, Signal, Requeue, MarkDown) == [
        Requeue(runs=(JobRun.of(s.jobs[0]),), instance=of(A1), reason=OURS)
    ]


@pytest.mark.parametrize(
    ("says", "reservation", "changes", "slots"),
    [
        ("no constraint", (), {}, (A3,)),
        ("the next slots are reserved", ALL[2:4], {}, (ALL[4],)),
        ("the job excludes the next slots", (), {"excluded_nodes": tuple(ALL[2:4])}, (ALL[4],)),
        ("a short job ends before the reservation", ALL[2:4], {"time_limit_s": 700.0}, (A3,)),
    ],
)
def test_replacement_is_a_slot_that_the_requeued_job_may_use(
    says: str, reservation: tuple[str, ...], changes: dict[str, object], slots: tuple[str, ...]
) -> None:
    """A slot was powered up for a job that a reservation, or --exclude, keeps off it."""
    s = Scene(A1, A2)
    s.job(7, A1, A2)
    s.jobs = [replace(job, **changes) for job in s.jobs]  # type: ignore[arg-type]
    if reservation:
        s.reserved = (SlurmReservation(name="course", starts_at=NOW + 900, ends_at=NOW + 9000, nodes=tuple(reservation)),)  # fmt: skip
    s.report(A1, spot())
    assert kinds(s.step(), PowerUp) == [
        PowerUp(slots=slots, reason="replacement for an interrupted instance")
    ], says


def test_replacement_is_not_powered_down_in_the_same_pass() -> None:
    """After a drain was lifted Slurm's mark stays on it, which a power-down clears: both at once strand the node."""
    s = Scene(A1, A2)
    s.job(7, A1, A2)
    s.node(A3, "IDLE CLOUD POWERED_DOWN NOT_RESPONDING")
    assert [a.slots for a in kinds(s.acts(), PowerDown)] == [(A3,)]  # type: ignore[union-attr]
    s.report(A1, spot())
    actions = s.step()
    assert [a.slots for a in kinds(actions, PowerUp)] == [(A3,)]  # type: ignore[union-attr]
    assert not kinds(actions, PowerDown)


def test_idle_interrupted_node_is_powered_down_after_slurm_lists_its_drain() -> None:
    s = Scene(A1)
    s.node(A1, IDLE)
    s.report(A1, spot())
    assert not kinds(s.step(), MarkDown, PowerDown)
    s.node(A1, EMPTY, OURS)
    assert kinds(s.step(), MarkDown, PowerDown) == [
        MarkDown(slots=(A1,), reason=OURS),
        PowerDown(slots=(A1,), reason=OURS),
    ]


def test_completing_node_is_not_idle() -> None:
    s = Scene(A1)
    s.report(A1, spot())
    s.step()
    s.node(A1, "IDLE CLOUD DRAIN COMPLETING", OURS)
    assert not kinds(s.step(), MarkDown, PowerDown)


def test_spot_node_is_powered_down_at_its_end_with_running_jobs() -> None:
    s = Scene(A1)
    s.job(7, A1, requeueable=False)
    s.report(A1, spot())
    s.step()
    s.node(A1, DRAINED, OURS)
    s.now = NOW + 119
    assert not kinds(s.step(), MarkDown, Requeue)
    s.now = NOW + 120
    assert kinds(s.step(), MarkDown) == [MarkDown(slots=(A1,), reason=OURS)]


def test_same_notice_from_node_and_queue_is_recorded_once() -> None:
    s = Scene(A1)
    s.report(A1, spot())
    s.queue(A1, spot())
    s.queue(A1, spot(120.4))
    assert len(events(s.step(), Interrupted)) == 1
    assert not events(s.step(), Interrupted)


def test_nearer_end_is_recorded_and_later_end_is_not() -> None:
    s = Scene(A1)
    s.queue(A1, spot(120))
    s.step()
    s.queue(A1, spot(300))
    assert not events(s.step(), Interrupted)
    s.queue(A1, spot(60))
    assert [e.ends_at for e in events(s.step(), Interrupted)] == [NOW + 60]  # type: ignore[attr-defined]


def test_our_reason_is_updated_with_the_end_and_a_persons_reason_stays() -> None:
    for reason, by, follows in (("gpucluster: [evacuation] x", "slurm", True), ("bad disk", "root", False)):
        s = Scene(A1)
        s.job(7, A1)
        s.node(A1, DRAINED, reason, by)
        s.report(A1, spot())
        assert bool(kinds(s.step(), Drain)) is follows
        s.node(A1, DRAINED, OURS)
        assert not kinds(s.step(), Drain)


def test_short_notice_leaves_half_of_its_time_to_the_script() -> None:
    s = Scene(A1)
    s.job(7, A1)
    s.report(A1, spot(20))
    assert not kinds(s.step(), Requeue)
    s.now = NOW + 10
    assert kinds(s.step(), Requeue)


def test_job_on_two_interrupted_instances_is_signalled_and_requeued_once() -> None:
    s = Scene(A1, A2)
    s.job(7, A1, A2)
    s.report(A1, spot(120))
    s.report(A2, spot(60))
    assert len(kinds(s.step(), Signal)) == 1
    assert not kinds(s.step(), Signal)
    s.now = NOW + 60 - TERMINATION.lead_s
    assert [a.instance for a in kinds(s.step(), Requeue)] == [of(A2)]  # type: ignore[union-attr]
    s.now += 60
    assert not kinds(s.step(), Requeue, Signal)


def test_requeued_job_is_signalled_again_on_its_next_instance() -> None:
    s = Scene(A1, A2)
    s.job(7, A1)
    s.report(A1, spot())
    s.step()
    s.jobs.clear()
    s.job(7, A2, restarts=1)
    s.report(A2, spot())
    assert [a.instance for a in kinds(s.step(), Signal)] == [of(A2)]  # type: ignore[union-attr]


def test_job_without_requeue_is_signalled_and_not_replaced() -> None:
    s = Scene(A1)
    s.job(7, A1, requeueable=False)
    s.report(A1, spot())
    actions = s.step()
    assert kinds(actions, Signal)
    assert not kinds(actions, PowerUp)
    assert [a.reason for a in actions if isinstance(a, Comment) and not a.again] == [OURS]


def test_suspended_job_keeps_its_instance_until_its_requeue() -> None:
    s = Scene(A1)
    s.job(7, A1, states=frozenset({"SUSPENDED"}))
    s.node(A1, EMPTY, OURS)
    s.report(A1, spot())
    assert not kinds(s.step(), Signal, Requeue, MarkDown, PowerDown)
    s.now = NOW + 120 - TERMINATION.lead_s
    assert kinds(s.step(), Requeue, MarkDown) == [
        Requeue(runs=(JobRun.of(s.jobs[0]),), instance=of(A1), reason=OURS)
    ]


def test_starting_job_on_an_interrupted_instance_is_requeued_at_once() -> None:
    s = Scene(A1)
    s.job(7, A1, states=frozenset({"RUNNING", "CONFIGURING"}))
    s.report(A1, spot())
    actions = s.step()
    assert kinds(actions, Requeue)
    assert not kinds(actions, Signal)


def test_boot_on_an_interrupted_instance_fails_and_the_breaker_ignores_it() -> None:
    s = Scene(A1)
    s.node(A1, "ALLOCATED CLOUD POWERING_UP NOT_RESPONDING")
    s.note(NodeNeeded(slot=A1, incarnation=2, jobs=(7,)))
    s.job(7, A1, states=frozenset({"RUNNING", "CONFIGURING"}))
    s.queue(A1, spot())
    actions = s.step()
    assert [(e.slot, e.pool) for e in events(actions, BootFailed)] == [(A1, "")]  # type: ignore[attr-defined]
    assert not kinds(actions, Drain, MarkDown)


def test_interrupted_boot_with_slurmd_up_does_not_fail() -> None:
    """An event is decided on a look of up to five seconds before: a job may run there by now."""
    s = Scene(A1)
    s.node(A1, "ALLOCATED CLOUD POWERING_UP NOT_RESPONDING")
    s.note(NodeNeeded(slot=A1, incarnation=1, jobs=(7,)))
    s.job(7, A1, states=frozenset({"RUNNING", "CONFIGURING"}))
    s.report(A1)
    s.note(OrderGiven(verb=Verb.NODE_REPLACE, target=A1, by="root"))
    actions = s.step()
    assert events(actions, Interrupted)
    assert not events(actions, BootFailed)
    assert not [a for a in actions if type(a).__name__ == "Terminate"]
    s.reports.clear()
    assert events(s.step(), BootFailed)


def test_rebalance_hint_replaces_only_idle_nodes() -> None:
    s = Scene(A1, A2)
    s.job(7, A1)
    s.node(A2, IDLE)
    hint = Notice(kind=NoticeKind.REBALANCE, at=NOW)
    s.report(A1, hint)
    s.report(A2, hint)
    actions = s.step()
    assert [a.slots for a in kinds(actions, PowerDown)] == [(A2,)]  # type: ignore[union-attr]
    assert not kinds(actions, Drain, Signal, Requeue, MarkDown, PowerUp)


def test_jobs_may_end_by_themselves_until_the_termination_lead_of_maintenance() -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    s.job(7, A1)
    starts = 7200.0
    s.report(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + starts, words="system-reboot"))
    first = s.step()
    assert kinds(first, Drain)
    assert not kinds(first, Signal, Requeue, PowerUp)
    s.node(A1, DRAINED, "gpucluster: [evacuation] x")
    s.now = NOW + starts - TERMINATION.lead_s - TERMINATION.grace_s
    s.report(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + starts, words="system-reboot"))
    assert kinds(s.step(), Signal)
    s.now = NOW + starts - TERMINATION.lead_s
    assert kinds(s.step(), Requeue)


def test_cancelled_maintenance_removes_our_drain_and_a_silent_service_does_not() -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    s.report(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 7200))
    s.step()
    s.node(A1, DRAINED, "gpucluster: [evacuation] the cloud has planned maintenance")
    s.now += 60
    s.report(A1, watched=False)
    assert not events(s.step(), InterruptionOver)
    s.report(A1)
    actions = s.step()
    assert events(actions, InterruptionOver)
    assert [a.slots for a in kinds(actions, Undrain)] == [(A1,)]  # type: ignore[union-attr]


def test_moved_maintenance_is_recorded_in_both_directions() -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    for hours in (2, 5, 3):
        s.report(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + hours * 3600))
        assert [e.ends_at for e in events(s.step(), Interrupted)] == [NOW + hours * 3600]  # type: ignore[attr-defined]


def test_maintenance_from_the_queue_follows_the_later_notice_of_the_node() -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    s.queue(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 7200))
    s.step()
    s.queue_notices = ()
    s.report(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 90_000))
    assert not events(s.step(), Interrupted)  # the machine may not know yet
    s.now += 700
    s.report(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 90_000))
    assert [e.ends_at for e in events(s.step(), Interrupted)] == [NOW + 90_000]  # type: ignore[attr-defined]
    assert not events(s.step(), Interrupted)


@pytest.mark.parametrize("at", [1e300, -1e300, -62135646800.0, 1e12])
@pytest.mark.parametrize("kind", NoticeKind)
def test_invalid_time_is_a_notice_without_an_end(kind: NoticeKind, at: float) -> None:
    s = Scene(A1)
    s.job(7, A1)
    s.report(A1, Notice(kind=kind, at=at))
    (event,) = events(s.step(), Interrupted)
    assert event.ends_at is None  # type: ignore[attr-defined]
    s.step()
    next_look(PLAN, BINDINGS, s.seen(), s.memory, s.now)


def test_number_of_recorded_faults_of_an_instance_is_bounded() -> None:
    s = Scene(A1)
    for number in range(300):
        device = f"{number:04}:00:00"
        s.report(A1, faults=(GpuFault(xid=13, device=device, count=1, last_at=NOW, text=""),))
        s.step()
    assert len(s.memory.incarnations[A1].faults) == FAULTS
    s.report(A1, faults=(xid(79),))
    assert events(s.step(), Interrupted)


def test_notice_of_the_queue_stays_if_the_node_does_not_report_it() -> None:
    s = Scene(A1)
    s.queue(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 7200))
    s.step()
    s.queue_notices = ()
    s.now += 60
    s.report(A1)
    assert not events(s.step(), InterruptionOver)


def xid(number: int, count: int = 1, text: str = "") -> GpuFault:
    return GpuFault(xid=number, device="0000:3b:00", count=count, last_at=NOW, text=text)


@pytest.mark.parametrize("number", [48, 79, 95, 119, 151])
def test_gpu_fault_signals_requeues_after_the_grace_and_replaces_the_node(number: int) -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    s.job(7, A1)
    s.report(A1, faults=(xid(number),))
    first = s.step()
    assert [type(a) for a in kinds(first, Drain, Signal, Requeue, PowerUp)] == [Drain, Signal, PowerUp]
    s.node(A1, DRAINED, "gpucluster: [evacuation] x")
    s.now = NOW + TERMINATION.grace_s
    assert kinds(s.step(), Requeue)
    s.jobs.clear()
    s.node(A1, EMPTY, "gpucluster: [evacuation] x")
    assert kinds(s.step(), MarkDown)


def test_held_job_is_not_replaced_and_its_faults_are_dropped_with_it() -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    s.job(7, A1)
    s.memory = replace(s.memory, breaks={"7": MAX_RESTARTS, "8": 3})
    s.report(A1, faults=(xid(79),))
    actions = s.step()
    assert [e.job for e in events(actions, JobForgotten)] == [8]  # type: ignore[attr-defined]
    assert kinds(actions, Signal)
    assert not kinds(actions, PowerUp)
    assert s.memory.breaks == {"7": MAX_RESTARTS + 1}
    s.node(A1, DRAINED, "gpucluster: [evacuation] x")
    s.now = NOW + TERMINATION.grace_s
    (back,) = kinds(s.step(), Requeue)
    assert back.held  # type: ignore[union-attr]
    s.jobs.clear()
    s.step()
    assert not s.memory.breaks


@pytest.mark.parametrize("number", [13, 31, 43, 45, 94, 9999])
def test_fault_of_a_user_program_is_only_recorded_once(number: int) -> None:
    s = Scene(A1)
    s.job(7, A1)
    s.report(A1, faults=(xid(number),))
    actions = s.step()
    assert [e.severity for e in events(actions, GpuFaulted)] == ["monitor"]  # type: ignore[attr-defined]
    assert not events(actions, Interrupted)
    s.report(A1, faults=(xid(number, count=2),))
    assert not events(s.step(), GpuFaulted)


def test_repeated_contained_memory_errors_are_a_fault_and_user_errors_are_not() -> None:
    s = Scene(A1)
    s.report(A1, faults=(xid(94, count=3), xid(31, count=500)))
    assert [e.words for e in events(s.step(), Interrupted)] == [  # type: ignore[attr-defined]
        "one of its GPUs failed: XID 94 on 0000:3b:00 (reset)"
    ]


def test_remapped_row_replaces_the_node_when_it_is_idle() -> None:
    s = Scene(A1)
    s.job(7, A1)
    s.report(A1, faults=(xid(63),))
    actions = s.step()
    assert kinds(actions, Drain)
    assert not kinds(actions, Signal, PowerUp)


def test_job_without_requeue_keeps_its_node_after_a_gpu_fault() -> None:
    s = Scene(A1)
    s.job(7, A1, batch=False)
    s.report(A1, faults=(xid(79),))
    s.step()
    s.node(A1, DRAINED, "gpucluster: [evacuation] x")
    s.now = NOW + 100_000
    s.report(A1, faults=(xid(79),))
    assert not kinds(s.step(), Requeue, MarkDown, PowerDown)


def test_text_of_a_node_is_printable_and_short() -> None:
    s = Scene(A1)
    s.report(A1, faults=(replace(xid(79), device="\x1b[2Jx\n" * 90),))
    (said,) = events(s.step(), Interrupted)
    assert said.words.isprintable()  # type: ignore[attr-defined]
    assert len(said.words) < 250  # type: ignore[attr-defined]


def test_replace_order_waits_for_the_job_unless_now() -> None:
    for now in (False, True):
        s = Scene(A1)
        s.job(7, A1)
        s.note(OrderGiven(verb=Verb.NODE_REPLACE, target=A1, by="root", now=now))
        first = s.step()
        assert kinds(first, Drain)
        assert bool(kinds(first, Signal)) is now
        s.now = NOW + TERMINATION.grace_s
        assert bool(kinds(s.step(), Requeue)) is now


def test_replace_now_does_not_wait_for_a_far_maintenance() -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    s.job(7, A1)
    s.report(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 90_000))
    assert not kinds(s.step(), Signal)
    s.now += 3600
    s.note(OrderGiven(verb=Verb.NODE_REPLACE, target=A1, by="root", now=True))
    assert kinds(s.step(), Signal)
    assert not kinds(s.step(), Requeue)
    s.now += TERMINATION.grace_s
    assert kinds(s.step(), Requeue)


def test_replace_order_applies_to_a_node_that_a_person_drained() -> None:
    remapped, planned = xid(63), Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 90_000)
    for faults, ordered, taken in (((remapped,), False, []), ((), True, [(A1,)])):
        s = Scene(A1, market=Market.ON_DEMAND)
        s.report(A1, *((planned,) if ordered else ()), faults=faults)
        s.node(A1, EMPTY, "bad disk", by="root")
        if ordered:
            s.note(OrderGiven(verb=Verb.NODE_REPLACE, target=A1, by="root"))
        assert events(s.step(), Interrupted)
        assert [a.slots for a in kinds(s.step(), MarkDown)] == taken  # type: ignore[union-attr]


def test_released_order_removes_the_drain_and_does_not_apply_to_the_next_instance() -> None:
    s = Scene(A1)
    s.note(OrderGiven(verb=Verb.NODE_REPLACE, target=A1, by="root"))
    s.step()
    s.note(OrderGiven(verb=Verb.NODE_RELEASE, target=A1, by="root"))
    assert events(s.step(), InterruptionOver)
    s.note(OrderGiven(verb=Verb.NODE_REPLACE, target=A2, by="root"), at=NOW - 950)
    s.up(A2)
    assert not events(s.step(), Interrupted)


def test_node_that_a_person_drained_is_powered_down_only_by_an_order() -> None:
    s = Scene(A1, A2)
    s.report(A1, faults=(xid(79),))
    s.note(OrderGiven(verb=Verb.NODE_REPLACE, target=A2, by="root"))
    for slot in (A1, A2):
        s.node(slot, EMPTY, "bad disk", by="root")
    s.step()
    assert [a.slots for a in kinds(s.step(), MarkDown)] == [(A2,)]  # type: ignore[union-attr]


@pytest.mark.parametrize("blind", [False, True], ids=["EC2 answers", "EC2 is lost"])
def test_block_end_requeues_in_time_without_a_replacement(blind: bool) -> None:
    """With EC2 lost before the block's end was near, its jobs were not signalled."""
    pool = PLAN.pools[0]
    source = replace(pool.sources[0], market=Market.CAPACITY_BLOCK, reservation="cr-1")
    plan = replace(PLAN, pools=(replace(pool, sources=(source, *pool.sources[1:])),))
    s = Scene(A1, market=Market.CAPACITY_BLOCK, plan=plan)
    s.blind = blind
    s.job(7, A1)
    s.reservations["cr-1"] = Reservation(
        id="cr-1", state="active", machine=MACHINE, zone=ZONE, total=4, free=0, ends_at=NOW + 2400
    )
    s.now = NOW - 1
    assert not kinds(s.step(), Drain)
    s.now = NOW
    first = s.step()
    assert kinds(first, Signal)
    assert not kinds(first, PowerUp, Requeue)
    s.now = NOW + 600 - TERMINATION.lead_s
    assert kinds(s.step(), Requeue)


def test_storm_of_notices_refuses_the_offer_and_one_notice_does_not() -> None:
    slots = tuple(ALL[:6])
    s = Scene(*slots)
    s.queue(slots[0], spot())
    s.queue(slots[1], spot())
    assert not events(s.step(), OfferRefused)
    s.queue(slots[2], spot())
    assert [e.key for e in events(s.step(), OfferRefused)] == [f"spot/{MACHINE}/{ZONE}"]  # type: ignore[attr-defined]
    assert not events(s.step(), OfferRefused)


def test_half_of_a_small_offer_is_a_storm() -> None:
    s = Scene(A1, A2)
    s.queue(A1, spot())
    assert not events(s.step(), OfferRefused)
    s.queue(A2, spot())
    assert events(s.step(), OfferRefused)


def test_replacement_in_a_storm_uses_the_next_source() -> None:
    slots = tuple(ALL[:4])
    s = Scene(*slots)
    s.job(7, *slots)
    for slot in slots:
        s.queue(slot, spot())
    actions = s.step()
    (asked,) = kinds(actions, PowerUp)
    assert len(asked.slots) == 4  # type: ignore[union-attr]


def test_no_replacement_above_the_pools_maximum() -> None:
    slots = tuple(ALL[:16])
    s = Scene(*slots)
    s.job(7, *slots)
    s.report(slots[0], spot())
    assert not kinds(s.step(), PowerUp)


def test_instance_that_ends_without_a_notice_counts_as_reclaimed() -> None:
    s = Scene(A1)
    s.instances[of(A1)] = replace(s.instances[of(A1)], state=InstanceState.TERMINATED)
    actions = s.step()
    assert [e.source for e in events(actions, Interrupted)] == ["cloud"]  # type: ignore[attr-defined]
    assert s.memory.taken


@pytest.mark.parametrize(
    ("reason", "taken"),
    [
        ("Client.UserInitiatedShutdown: User initiated shutdown", False),
        ("User initiated (2026-11-21 20:00:00 GMT)", False),
        ("Client.InstanceInitiatedShutdown: Instance initiated shutdown", False),
        ("Server.SpotInstanceTermination: Spot instance termination", True),
        (None, True),
    ],
)
def test_instance_ended_by_a_person_or_itself_is_not_reclaimed(reason: str | None, taken: bool) -> None:
    """Two nodes that were terminated by hand made a storm: their whole zone was left alone for minutes."""
    s = Scene(A1)
    ended = replace(s.instances[of(A1)], state=InstanceState.TERMINATED, reason=reason)
    s.instances[of(A1)] = ended
    assert bool(events(s.step(), Interrupted)) is taken
    assert bool(s.memory.taken) is taken


def test_components_of_a_het_job_are_one_job() -> None:
    s = Scene(A1, A2)
    s.job(7, A1, het_id=7)
    s.job(8, A2, het_id=7)
    s.report(A1, spot())
    s.report(A2, spot())
    assert [a.jobs for a in kinds(s.step(), Signal)] == [(7,)]  # type: ignore[union-attr]


def test_het_job_with_a_component_that_starts_is_requeued_without_a_signal() -> None:
    """Slurm begins the batch script when all components are ready: a signal before is lost, and would count as given."""
    s = Scene(A1, A2)
    s.job(7, A1, het_id=7)
    s.job(8, A2, het_id=7, states=frozenset({"RUNNING", "CONFIGURING"}))
    s.report(A1, spot())
    done = s.step()
    assert kinds(done, Signal) == []
    assert [a.jobs for a in kinds(done, Requeue)] == [(7,)]  # type: ignore[union-attr]


def test_het_job_with_a_cancelled_component_is_signalled() -> None:
    """slurmctld lists a component that was cancelled for minutes, and the script of the leader runs on."""
    s = Scene(A1, A2)
    s.job(7, A1, het_id=7)
    s.job(8, het_id=7, states=frozenset({"CANCELLED"}))
    s.report(A1, spot())
    assert [a.jobs for a in kinds(s.step(), Signal)] == [(7,)]  # type: ignore[union-attr]


def test_next_pass_is_soon_after_a_notice_and_at_the_lead_of_a_far_maintenance() -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    s.job(7, A1)
    s.report(A1, spot())
    s.step()
    assert next_look(PLAN, BINDINGS, s.seen(), s.memory, s.now) == PLAN.times.poll_s
    s = Scene(A1, market=Market.ON_DEMAND)
    s.job(7, A1)
    s.report(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 90_000))
    s.step()
    s.now += 700
    assert next_look(PLAN, BINDINGS, s.seen(), s.memory, s.now) == PLAN.times.reconcile_s


def test_every_kind_has_a_rule_that_signals_before_it_requeues() -> None:
    for kind in InterruptionKind:
        for ends in (None, NOW + 5, NOW + 120, NOW + 90_000):
            m = EvacuationContext(
                Interruption(kind=kind, since=NOW, words="", ends_at=ends), Termination(), NOW
            )
            signal, requeue, take = (
                f(m)
                for f in (
                    EVACUATION_TABLE[kind].signal_at,
                    EVACUATION_TABLE[kind].requeue_at,
                    EVACUATION_TABLE[kind].power_down_at,
                )
            )
            assert requeue is None or (signal is not None and signal <= requeue)
            assert take is None or (requeue is not None and requeue <= take)


def test_answer_to_the_node_has_its_end_and_no_hint() -> None:
    said = [
        interruption_notice(Interruption(kind=kind, since=1, words="", ends_at=9.6))
        for kind in InterruptionKind
    ]
    assert said == ["spot 10", "", "maintenance 10", "block-end 10", "fault 10", "replace 10"]


def test_idle_nodes_for_a_requeued_job_stay_up() -> None:
    s = Scene(A1, A2, A3)
    for slot in (A1, A2, A3):
        s.node(slot, IDLE)
        s.nodes[slot] = replace(s.nodes[slot], last_busy=NOW - 10_000)
    pending = {"states": frozenset({"PENDING"}), "node_count": 2, "admin_comment": OURS}
    s.job(7, **pending, begins_at=NOW + 30)
    assert [a.slots for a in kinds(s.step(), PowerDown)] == [(A3,)]  # type: ignore[union-attr]
    s.jobs.clear()
    s.job(7, **pending, begins_at=NOW + 3000)
    assert [a.slots for a in kinds(s.step(), PowerDown)] == [(A1, A2, A3)]  # type: ignore[union-attr]
    s.jobs.clear()
    s.job(7, **{**pending, "admin_comment": "gpucluster: no h200"}, begins_at=NOW + 30)
    assert [a.slots for a in kinds(s.step(), PowerDown)] == [(A1, A2, A3)]  # type: ignore[union-attr]


def test_reason_of_a_failed_boot_ends_with_the_last_line_of_the_node() -> None:
    report = NodeReport(
        instance_id="i-1",
        nonce="n",
        boot_id="b",
        phase=NodePhase.FAILED,
        incarnation=0,
        steps=(Step(name="slurmd", ok=False, seconds=1.0, detail="slurmd does not start"),),
        tail="one\nfatal: no\x1b[2J gres\n\n",
    )
    assert last_word(report) == "step slurmd: slurmd does not start; its last log line: fatal: no gres"
    assert last_word(replace(report, tail="")) == "step slurmd: slurmd does not start"
    assert len(last_word(replace(report, tail="x" * 9999))) < 400


@pytest.mark.parametrize(
    ("says", "accepted"),
    [
        ("Invalid job id specified for job 9999", True),
        ("Requested operation is presently disabled for job 2", True),
        ("Job is pending execution for job 3", True),
        ("slurm_requeue error: Unable to contact slurm controller (connect failure)", False),
        ("Socket timed out on send/recv operation", False),
    ],
)
def test_refusal_by_slurm_is_no_error_and_a_missing_answer_is(
    tmp_path: Path, says: str, accepted: bool
) -> None:
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 1\n")
    program.chmod(0o755)
    slurm = Scontrol(str(program), str(program))
    for ask in (lambda: slurm.requeue((7,), "x"), lambda: slurm.signal((7,), "USR1")):
        with contextlib.nullcontext() if accepted else pytest.raises(CommandError):
            ask()


def test_array_task_is_signalled_by_its_own_id(tmp_path: Path) -> None:
    """Its last task has the number of the whole array (4 of 4_3, recorded), which scancel and scontrol take for all."""
    jobs = Path(__file__).parents[2] / "recorded" / "scontrol" / "24.11" / "jobs-pending-and-arrays.json"
    program, said = tmp_path / "scontrol", tmp_path / "said"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *nodes*) echo \'{{"nodes": []}}\';; *"show jobs"*) cat {jobs};; '
        f"*reservations*) echo '{{\"reservations\": []}}';; "
        f'*) echo "$*" >> {said};; esac\n'
    )
    program.chmod(0o755)
    slurm = Scontrol(
        str(program), str(program), "/bin/echo"
    )  # no rows of squeue: all jobs are read as scontrol's JSON
    slurm.read(NOW)
    slurm.signal((2, 4, 6), "USR1")
    slurm.requeue((2, 4), "x")
    slurm.requeue((4,), "x", held=True)
    assert said.read_text().splitlines() == [
        "--signal=USR1 --batch 2 4_3 4_1",
        "update jobid=2,4_3 admincomment=x",
        "requeue 2,4_3",
        "update jobid=4_3 admincomment=x",
        "requeuehold 4_3",
    ]
