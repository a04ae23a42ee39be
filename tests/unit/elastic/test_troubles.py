"""Machines that are to be left: one moment in, actions out, for each kind of trouble."""

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from builders import a_plan
from fleet import some_bindings

from gpucluster.cloud.port import Instance, InstanceState, Reservation, Told
from gpucluster.elastic.decide import decide, next_look
from gpucluster.elastic.decide.boots import last_word
from gpucluster.elastic.decide.leaving import RULES, Moment, farewell_of
from gpucluster.elastic.decide.restarts import RESTARTS
from gpucluster.elastic.events import (
    Adopted,
    BootFailed,
    CameUp,
    Entry,
    Event,
    GpuFaulted,
    JobForgotten,
    Needed,
    Ordered,
    Refused,
    SentBack,
    Signalled,
    Troubled,
    TroubleKind,
    TroubleOver,
    Verb,
)
from gpucluster.elastic.memory import Memory, Trouble, fold
from gpucluster.elastic.memory.troubles import FAULTS
from gpucluster.elastic.model import (
    Action,
    CloudView,
    Drain,
    Heard,
    MarkDown,
    Observation,
    PowerDown,
    PowerUp,
    Remember,
    Requeue,
    Signal,
    SlurmJob,
    SlurmNode,
    SlurmView,
    Unblock,
)
from gpucluster.elastic.scontrol import Scontrol
from gpucluster.plan.messages import GpuFault, NodePhase, NodeReport, Notice, NoticeKind, Step
from gpucluster.plan.model import Farewell, Market
from gpucluster.shell import CommandError

PLAN = a_plan()
BINDINGS = some_bindings(PLAN)
NOW = 2_000_000.0
ZONE, MACHINE = "us-east-2a", "p5en.48xlarge"
A1, A2, A3, B1 = "h200-2a-1", "h200-2a-2", "h200-2a-3", "h200-2b-1"
OFF, BUSY, IDLE = "IDLE CLOUD POWERED_DOWN", "ALLOCATED CLOUD", "IDLE CLOUD"
DRAINED, EMPTY = "ALLOCATED CLOUD DRAIN", "IDLE CLOUD DRAIN"
FAREWELL = PLAN.pools[0].farewell
SPOT_WORDS = "the cloud takes this spot machine back at 1970-01-24T03:35:20Z"
OURS = f"gpucluster: [trouble] {SPOT_WORDS}"


class Scene:
    """Up nodes of the pool with their instances, and what is said of them."""

    def __init__(self, *slots: str, market: Market = Market.SPOT, plan: object = PLAN) -> None:
        self.plan, self.now = plan, NOW
        self.nodes = {name: SlurmNode(name=name, states=frozenset(OFF.split()), address=name) for name in ALL}
        self.jobs: list[SlurmJob] = []
        self.told: tuple[Told, ...] = ()
        self.reports: dict[str, Heard] = {}
        self.reservations: dict[str, Reservation] = {}
        self.instances: dict[str, Instance] = {}
        self.memory = Memory(epoch="e")
        for slot in slots:
            self.up(slot, market)

    def up(self, slot: str, market: Market = Market.SPOT, state: str = BUSY) -> None:
        self.node(slot, state)
        self.instances[of(slot)] = Instance(
            id=of(slot),
            state=InstanceState.RUNNING,
            zone=ZONE,
            machine=MACHINE,
            market=market,
            address=slot,
            launched_at=NOW - 1000,
            token=None,
        )
        self.note(
            Adopted(slot=slot, instance=of(slot), machine=MACHINE, market=market, zone=ZONE),
            CameUp(slot=slot),
            at=NOW - 900,
        )

    def node(self, slot: str, states: str, reason: str = "", by: str = "slurm") -> None:
        words = frozenset(states.split())
        self.nodes[slot] = replace(
            self.nodes[slot], states=words, reason=reason, reason_by=by, last_busy=self.now
        )

    def job(self, number: int, *slots: str, **changes: object) -> None:
        plain = SlurmJob(
            id=number,
            states=frozenset({"RUNNING"}),
            nodes=slots,
            node_count=len(slots),
            partitions=("gpu",),
            requeueable=True,
            batch=True,
            started_at=NOW - 500,
            user_id=1000,
        )
        self.jobs.append(replace(plain, **changes))  # type: ignore[arg-type]

    def note(self, *events: Event, at: float | None = None) -> None:
        at = self.now if at is None else at
        self.memory = fold(self.memory, tuple(Entry(at=at, event=event) for event in events))

    def says(
        self, slot: str, *notices: Notice, faults: tuple[GpuFault, ...] = (), watched: bool = True
    ) -> None:
        report = NodeReport(
            instance_id=of(slot),
            nonce="n",
            boot_id="b",
            phase=NodePhase.UP,
            life=1,
            steps=(),
            notices=notices,
            faults=faults,
            watched=watched,
            clock=self.now,
        )
        self.reports[of(slot)] = Heard(report=report, at=self.now, since=self.now)

    def queue(self, slot: str, notice: Notice) -> None:
        self.told = (*self.told, Told(instance=of(slot), notice=notice, handle=f"h{len(self.told)}"))

    def seen(self) -> Observation:
        return Observation(
            slurm=SlurmView(at=self.now, nodes=self.nodes, jobs=tuple(self.jobs)),
            cloud=CloudView(at=self.now, instances=self.instances, reservations=self.reservations),
            reports=self.reports,
            told=self.told,
        )

    def acts(self) -> tuple[Action, ...]:
        return decide(self.plan, BINDINGS, self.seen(), self.memory, self.now)  # type: ignore[arg-type]

    def step(self) -> tuple[Action, ...]:
        """Decide, and take what was remembered, signalled and sent back for done."""
        actions = self.acts()
        for action in actions:
            match action:
                case Remember(entries=entries):
                    self.memory = fold(self.memory, entries)
                case Signal(jobs=jobs, signal=signal, instance=instance):
                    self.note(Signalled(instance=instance, jobs=jobs, signal=signal))
                case Requeue(jobs=jobs, instance=instance):
                    self.note(SentBack(instance=instance, jobs=jobs))
                case _:
                    pass
        return actions


ALL = tuple(name for span in PLAN.pools[0].slots for name in span)


def of(slot: str) -> str:
    return f"i-{slot}"


def spot(after: float = 120.0) -> Notice:
    return Notice(kind=NoticeKind.SPOT, at=NOW + after)


def kinds(actions: Iterable[Action], *wanted: type[Action]) -> list[Action]:
    return [a for a in actions if isinstance(a, wanted)]


def events(actions: Iterable[Action], kind: type) -> list[Event]:
    return [
        e.event for a in actions if isinstance(a, Remember) for e in a.entries if isinstance(e.event, kind)
    ]


def test_a_notice_drains_signals_and_asks_for_another_at_once_and_sends_back_before_the_end() -> None:
    s = Scene(A1, A2)
    s.job(7, A1, A2)
    s.says(A1, spot())
    first = s.step()
    assert kinds(first, Drain, Signal, Requeue, PowerUp, MarkDown) == [
        Drain(slots=(A1,), reason=OURS),
        Signal(jobs=(7,), signal=FAREWELL.signal, instance=of(A1), reason=OURS),
        PowerUp(slots=(A3,), reason="for a job that is sent back from a machine that goes"),
    ]
    s.node(A1, DRAINED, OURS)
    s.node(A3, "IDLE CLOUD POWERING_UP NOT_RESPONDING")
    s.now = NOW + 120 - FAREWELL.lead_s - 1
    assert not kinds(s.step(), Drain, Signal, Requeue, PowerUp, MarkDown, PowerDown)
    s.now += 1
    assert kinds(s.step(), Drain, Signal, Requeue, MarkDown) == [
        Requeue(jobs=(7,), instance=of(A1), reason=OURS)
    ]


def test_the_slot_that_is_powered_up_in_its_place_is_not_powered_down_in_the_same_breath() -> None:
    """After a drain was lifted Slurm's mark stays on it, which a power-down clears: both at once strand the node."""
    s = Scene(A1, A2)
    s.job(7, A1, A2)
    s.node(A3, "IDLE CLOUD POWERED_DOWN NOT_RESPONDING")
    assert [a.slots for a in kinds(s.acts(), PowerDown)] == [(A3,)]  # type: ignore[union-attr]
    s.says(A1, spot())
    actions = s.step()
    assert [a.slots for a in kinds(actions, PowerUp)] == [(A3,)]  # type: ignore[union-attr]
    assert not kinds(actions, PowerDown)


def test_an_empty_node_that_is_to_be_left_goes_down_and_off_and_not_before_it_is_seen_drained() -> None:
    s = Scene(A1)
    s.node(A1, IDLE)
    s.says(A1, spot())
    assert not kinds(s.step(), MarkDown, PowerDown)
    s.node(A1, EMPTY, OURS)
    assert kinds(s.step(), MarkDown, PowerDown) == [
        MarkDown(slots=(A1,), reason=OURS),
        PowerDown(slots=(A1,), reason=OURS),
    ]


def test_a_node_that_still_completes_is_not_empty() -> None:
    s = Scene(A1)
    s.says(A1, spot())
    s.step()
    s.node(A1, "IDLE CLOUD DRAIN COMPLETING", OURS)
    assert not kinds(s.step(), MarkDown, PowerDown)


def test_at_its_end_a_spot_node_goes_with_whatever_still_runs() -> None:
    s = Scene(A1)
    s.job(7, A1, requeueable=False)
    s.says(A1, spot())
    s.step()
    s.node(A1, DRAINED, OURS)
    s.now = NOW + 119
    assert not kinds(s.step(), MarkDown, Requeue)
    s.now = NOW + 120
    assert kinds(s.step(), MarkDown) == [MarkDown(slots=(A1,), reason=OURS)]


def test_the_same_notice_from_node_and_queue_is_one_and_the_message_is_deleted() -> None:
    s = Scene(A1)
    s.says(A1, spot())
    s.queue(A1, spot())
    s.queue(A1, spot(120.4))
    assert len(events(s.step(), Troubled)) == 1
    assert not events(s.step(), Troubled)


def test_a_nearer_end_is_news_and_a_later_one_is_not() -> None:
    s = Scene(A1)
    s.queue(A1, spot(120))
    s.step()
    s.queue(A1, spot(300))
    assert not events(s.step(), Troubled)
    s.queue(A1, spot(60))
    assert [e.ends_at for e in events(s.step(), Troubled)] == [NOW + 60]  # type: ignore[attr-defined]


def test_a_reason_of_ours_follows_the_end_and_a_persons_stays() -> None:
    for reason, by, follows in (("gpucluster: [trouble] x", "slurm", True), ("bad disk", "root", False)):
        s = Scene(A1)
        s.job(7, A1)
        s.node(A1, DRAINED, reason, by)
        s.says(A1, spot())
        assert bool(kinds(s.step(), Drain)) is follows
        s.node(A1, DRAINED, OURS)
        assert not kinds(s.step(), Drain)


def test_of_a_short_notice_half_is_left_to_the_script() -> None:
    s = Scene(A1)
    s.job(7, A1)
    s.says(A1, spot(20))
    assert not kinds(s.step(), Requeue)
    s.now = NOW + 10
    assert kinds(s.step(), Requeue)


def test_a_job_on_two_machines_that_go_is_signalled_once_and_sent_back_once_by_the_nearer_end() -> None:
    s = Scene(A1, A2)
    s.job(7, A1, A2)
    s.says(A1, spot(120))
    s.says(A2, spot(60))
    assert len(kinds(s.step(), Signal)) == 1
    assert not kinds(s.step(), Signal)
    s.now = NOW + 60 - FAREWELL.lead_s
    assert [a.instance for a in kinds(s.step(), Requeue)] == [of(A2)]  # type: ignore[union-attr]
    s.now += 60
    assert not kinds(s.step(), Requeue, Signal)


def test_a_job_that_came_back_is_signalled_anew_on_its_next_machine() -> None:
    s = Scene(A1, A2)
    s.job(7, A1)
    s.says(A1, spot())
    s.step()
    s.jobs.clear()
    s.job(7, A2, restarts=1)
    s.says(A2, spot())
    assert [a.instance for a in kinds(s.step(), Signal)] == [of(A2)]  # type: ignore[union-attr]


def test_a_job_that_cannot_be_queued_again_is_signalled_and_told_and_no_machine_is_asked_for() -> None:
    s = Scene(A1)
    s.job(7, A1, requeueable=False)
    s.says(A1, spot())
    actions = s.step()
    assert kinds(actions, Signal)
    assert not kinds(actions, PowerUp)
    assert [a.reason for a in actions if type(a).__name__ == "Comment"] == [OURS]  # type: ignore[union-attr]


def test_a_suspended_job_keeps_its_machine_until_it_is_sent_back_in_time() -> None:
    s = Scene(A1)
    s.job(7, A1, states=frozenset({"SUSPENDED"}))
    s.node(A1, EMPTY, OURS)
    s.says(A1, spot())
    assert not kinds(s.step(), Signal, Requeue, MarkDown, PowerDown)
    s.now = NOW + 120 - FAREWELL.lead_s
    assert kinds(s.step(), Requeue, MarkDown) == [Requeue(jobs=(7,), instance=of(A1), reason=OURS)]


def test_a_starting_job_on_a_machine_that_goes_is_sent_back_at_once() -> None:
    s = Scene(A1)
    s.job(7, A1, states=frozenset({"RUNNING", "CONFIGURING"}))
    s.says(A1, spot())
    actions = s.step()
    assert kinds(actions, Requeue)
    assert not kinds(actions, Signal)


def test_a_boot_on_a_machine_that_goes_is_a_failed_one_and_not_the_breakers() -> None:
    s = Scene(A1)
    s.node(A1, "ALLOCATED CLOUD POWERING_UP NOT_RESPONDING")
    s.note(Needed(slot=A1, life=2, jobs=(7,)))
    s.job(7, A1, states=frozenset({"RUNNING", "CONFIGURING"}))
    s.queue(A1, spot())
    actions = s.step()
    assert [(e.slot, e.pool) for e in events(actions, BootFailed)] == [(A1, "")]  # type: ignore[attr-defined]
    assert not kinds(actions, Drain, MarkDown)


def test_a_node_whose_slurmd_is_up_is_no_failed_boot_though_slurm_was_looked_at_before_that() -> None:
    """An event is decided on a look of up to five seconds before: a job may run there by now."""
    s = Scene(A1)
    s.node(A1, "ALLOCATED CLOUD POWERING_UP NOT_RESPONDING")
    s.note(Needed(slot=A1, life=1, jobs=(7,)))
    s.job(7, A1, states=frozenset({"RUNNING", "CONFIGURING"}))
    s.says(A1)
    s.note(Ordered(verb=Verb.NODE_REPLACE, target=A1, by="root"))
    actions = s.step()
    assert events(actions, Troubled)
    assert not events(actions, BootFailed)
    assert not [a for a in actions if type(a).__name__ == "Terminate"]
    s.reports.clear()
    assert events(s.step(), BootFailed)


def test_a_hint_moves_only_idle_nodes() -> None:
    s = Scene(A1, A2)
    s.job(7, A1)
    s.node(A2, IDLE)
    hint = Notice(kind=NoticeKind.REBALANCE, at=NOW)
    s.says(A1, hint)
    s.says(A2, hint)
    actions = s.step()
    assert [a.slots for a in kinds(actions, PowerDown)] == [(A2,)]  # type: ignore[union-attr]
    assert not kinds(actions, Drain, Signal, Requeue, MarkDown, PowerUp)


def test_maintenance_lets_jobs_end_by_themselves_until_there_is_just_time_for_a_farewell() -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    s.job(7, A1)
    starts = 7200.0
    s.says(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + starts, words="system-reboot"))
    first = s.step()
    assert kinds(first, Drain)
    assert not kinds(first, Signal, Requeue, PowerUp)
    s.node(A1, DRAINED, "gpucluster: [trouble] x")
    s.now = NOW + starts - FAREWELL.lead_s - FAREWELL.grace_s
    s.says(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + starts, words="system-reboot"))
    assert kinds(s.step(), Signal)
    s.now = NOW + starts - FAREWELL.lead_s
    assert kinds(s.step(), Requeue)


def test_maintenance_that_was_called_off_lifts_our_drain_and_a_silent_service_does_not() -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    s.says(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 7200))
    s.step()
    s.node(A1, DRAINED, "gpucluster: [trouble] the cloud has planned maintenance")
    s.now += 60
    s.says(A1, watched=False)
    assert not events(s.step(), TroubleOver)
    s.says(A1)
    actions = s.step()
    assert events(actions, TroubleOver)
    assert [a.slots for a in kinds(actions, Unblock)] == [(A1,)]  # type: ignore[union-attr]


def test_maintenance_that_was_moved_is_news_in_both_directions() -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    for hours in (2, 5, 3):
        s.says(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + hours * 3600))
        assert [e.ends_at for e in events(s.step(), Troubled)] == [NOW + hours * 3600]  # type: ignore[attr-defined]


def test_maintenance_that_the_queue_told_first_follows_what_the_machine_hears_later() -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    s.queue(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 7200))
    s.step()
    s.told = ()
    s.says(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 90_000))
    assert not events(s.step(), Troubled)  # the machine may not know yet
    s.now += 700
    s.says(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 90_000))
    assert [e.ends_at for e in events(s.step(), Troubled)] == [NOW + 90_000]  # type: ignore[attr-defined]
    assert not events(s.step(), Troubled)


@pytest.mark.parametrize("at", [1e300, -1e300, -62135646800.0, 1e12])
@pytest.mark.parametrize("kind", NoticeKind)
def test_a_time_that_no_calendar_has_is_a_notice_without_one(kind: NoticeKind, at: float) -> None:
    s = Scene(A1)
    s.job(7, A1)
    s.says(A1, Notice(kind=kind, at=at))
    (event,) = events(s.step(), Troubled)
    assert event.ends_at is None  # type: ignore[attr-defined]
    s.step()
    next_look(PLAN, BINDINGS, s.seen(), s.memory, s.now)


def test_a_machine_that_tells_of_ever_new_faults_does_not_fill_the_journal() -> None:
    s = Scene(A1)
    for number in range(300):
        device = f"{number:04}:00:00"
        s.says(A1, faults=(GpuFault(xid=13, device=device, count=1, last_at=NOW, text=""),))
        s.step()
    assert len(s.memory.lives[A1].faults) == FAULTS
    s.says(A1, faults=(xid(79),))
    assert events(s.step(), Troubled)


def test_what_the_queue_told_is_not_called_off_by_a_node_that_does_not_know_it() -> None:
    s = Scene(A1)
    s.queue(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 7200))
    s.step()
    s.told = ()
    s.now += 60
    s.says(A1)
    assert not events(s.step(), TroubleOver)


def xid(number: int, count: int = 1, text: str = "") -> GpuFault:
    return GpuFault(xid=number, device="0000:3b:00", count=count, last_at=NOW, text=text)


@pytest.mark.parametrize("number", [48, 79, 95, 119, 151])
def test_a_gpu_that_dies_signals_sends_back_after_the_grace_and_replaces_the_node(number: int) -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    s.job(7, A1)
    s.says(A1, faults=(xid(number),))
    first = s.step()
    assert [type(a) for a in kinds(first, Drain, Signal, Requeue, PowerUp)] == [Drain, Signal, PowerUp]
    s.node(A1, DRAINED, "gpucluster: [trouble] x")
    s.now = NOW + FAREWELL.grace_s
    assert kinds(s.step(), Requeue)
    s.jobs.clear()
    s.node(A1, EMPTY, "gpucluster: [trouble] x")
    assert kinds(s.step(), MarkDown)


def test_what_a_job_broke_is_forgotten_with_it_and_no_machine_is_asked_for_one_that_is_held() -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    s.job(7, A1)
    s.memory = replace(s.memory, breaks={"7": RESTARTS, "8": 3})
    s.says(A1, faults=(xid(79),))
    actions = s.step()
    assert [e.job for e in events(actions, JobForgotten)] == [8]  # type: ignore[attr-defined]
    assert kinds(actions, Signal)
    assert not kinds(actions, PowerUp)
    assert s.memory.breaks == {"7": RESTARTS + 1}
    s.node(A1, DRAINED, "gpucluster: [trouble] x")
    s.now = NOW + FAREWELL.grace_s
    (back,) = kinds(s.step(), Requeue)
    assert back.held  # type: ignore[union-attr]
    s.jobs.clear()
    s.step()
    assert not s.memory.breaks


@pytest.mark.parametrize("number", [13, 31, 43, 45, 94, 9999])
def test_a_fault_of_the_jobs_own_is_recorded_once_and_nothing_else(number: int) -> None:
    s = Scene(A1)
    s.job(7, A1)
    s.says(A1, faults=(xid(number),))
    actions = s.step()
    assert [e.severity for e in events(actions, GpuFaulted)] == ["monitor"]  # type: ignore[attr-defined]
    assert not events(actions, Troubled)
    s.says(A1, faults=(xid(number, count=2),))
    assert not events(s.step(), GpuFaulted)


def test_contained_memory_errors_that_come_again_are_a_fault_and_a_users_own_bugs_never() -> None:
    s = Scene(A1)
    s.says(A1, faults=(xid(94, count=3), xid(31, count=500)))
    assert [e.words for e in events(s.step(), Troubled)] == [  # type: ignore[attr-defined]
        "a GPU of it failed: XID 94 on 0000:3b:00 (reset)"
    ]


def test_a_remapped_row_replaces_the_node_when_it_is_idle() -> None:
    s = Scene(A1)
    s.job(7, A1)
    s.says(A1, faults=(xid(63),))
    actions = s.step()
    assert kinds(actions, Drain)
    assert not kinds(actions, Signal, PowerUp)


def test_a_job_that_cannot_be_queued_again_keeps_the_node_whose_gpu_failed() -> None:
    s = Scene(A1)
    s.job(7, A1, batch=False)
    s.says(A1, faults=(xid(79),))
    s.step()
    s.node(A1, DRAINED, "gpucluster: [trouble] x")
    s.now = NOW + 100_000
    s.says(A1, faults=(xid(79),))
    assert not kinds(s.step(), Requeue, MarkDown, PowerDown)


def test_hostile_words_of_a_node_come_out_printable_and_short() -> None:
    s = Scene(A1)
    s.says(A1, faults=(replace(xid(79), device="\x1b[2Jx\n" * 90),))
    (said,) = events(s.step(), Troubled)
    assert said.words.isprintable()  # type: ignore[attr-defined]
    assert len(said.words) < 250  # type: ignore[attr-defined]


def test_an_operators_replace_waits_for_the_job_and_with_now_it_does_not() -> None:
    for now in (False, True):
        s = Scene(A1)
        s.job(7, A1)
        s.note(Ordered(verb=Verb.NODE_REPLACE, target=A1, by="root", now=now))
        first = s.step()
        assert kinds(first, Drain)
        assert bool(kinds(first, Signal)) is now
        s.now = NOW + FAREWELL.grace_s
        assert bool(kinds(s.step(), Requeue)) is now


def test_an_operator_in_a_hurry_does_not_wait_for_a_maintenance_that_is_far() -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    s.job(7, A1)
    s.says(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 90_000))
    assert not kinds(s.step(), Signal)
    s.now += 3600
    s.note(Ordered(verb=Verb.NODE_REPLACE, target=A1, by="root", now=True))
    assert kinds(s.step(), Signal)
    assert not kinds(s.step(), Requeue)
    s.now += FAREWELL.grace_s
    assert kinds(s.step(), Requeue)


def test_what_a_person_drained_is_taken_by_a_persons_order_whatever_else_is_wrong_with_it() -> None:
    remapped, planned = xid(63), Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 90_000)
    for faults, ordered, taken in (((remapped,), False, []), ((), True, [(A1,)])):
        s = Scene(A1, market=Market.ON_DEMAND)
        s.says(A1, *((planned,) if ordered else ()), faults=faults)
        s.node(A1, EMPTY, "bad disk", by="root")
        if ordered:
            s.note(Ordered(verb=Verb.NODE_REPLACE, target=A1, by="root"))
        assert events(s.step(), Troubled)
        assert [a.slots for a in kinds(s.step(), MarkDown)] == taken  # type: ignore[union-attr]


def test_an_order_that_was_taken_back_lifts_the_drain_and_an_older_machines_order_is_not_the_next_ones() -> (
    None
):
    s = Scene(A1)
    s.note(Ordered(verb=Verb.NODE_REPLACE, target=A1, by="root"))
    s.step()
    s.note(Ordered(verb=Verb.NODE_RELEASE, target=A1, by="root"))
    assert events(s.step(), TroubleOver)
    s.note(Ordered(verb=Verb.NODE_REPLACE, target=A2, by="root"), at=NOW - 950)
    s.up(A2)
    assert not events(s.step(), Troubled)


def test_what_a_person_drained_is_not_taken_but_by_a_persons_order() -> None:
    s = Scene(A1, A2)
    s.says(A1, faults=(xid(79),))
    s.note(Ordered(verb=Verb.NODE_REPLACE, target=A2, by="root"))
    for slot in (A1, A2):
        s.node(slot, EMPTY, "bad disk", by="root")
    s.step()
    assert [a.slots for a in kinds(s.step(), MarkDown)] == [(A2,)]  # type: ignore[union-attr]


def test_a_blocks_end_sends_back_in_time_and_asks_for_no_other_machine() -> None:
    pool = PLAN.pools[0]
    source = replace(pool.sources[0], market=Market.CAPACITY_BLOCK, reservation="cr-1")
    plan = replace(PLAN, pools=(replace(pool, sources=(source, *pool.sources[1:])),))
    s = Scene(A1, market=Market.CAPACITY_BLOCK, plan=plan)
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
    s.now = NOW + 600 - FAREWELL.lead_s
    assert kinds(s.step(), Requeue)


def test_a_storm_makes_its_offer_unwanted_for_a_while_and_one_notice_does_not() -> None:
    slots = tuple(ALL[:6])
    s = Scene(*slots)
    s.queue(slots[0], spot())
    s.queue(slots[1], spot())
    assert not events(s.step(), Refused)
    s.queue(slots[2], spot())
    assert [e.key for e in events(s.step(), Refused)] == [f"spot/{MACHINE}/{ZONE}"]  # type: ignore[attr-defined]
    assert not events(s.step(), Refused)


def test_half_of_a_small_pool_is_a_storm_too() -> None:
    s = Scene(A1, A2)
    s.queue(A1, spot())
    assert not events(s.step(), Refused)
    s.queue(A2, spot())
    assert events(s.step(), Refused)


def test_a_replacement_in_a_storm_is_asked_of_the_next_source() -> None:
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
    s.says(slots[0], spot())
    assert not kinds(s.step(), PowerUp)


def test_a_machine_that_vanishes_without_a_notice_counts_as_taken_back() -> None:
    s = Scene(A1)
    s.instances[of(A1)] = replace(s.instances[of(A1)], state=InstanceState.TERMINATED)
    actions = s.step()
    assert [e.source for e in events(actions, Troubled)] == ["cloud"]  # type: ignore[attr-defined]
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
def test_what_a_person_or_the_machine_itself_ended_was_not_taken_back(
    reason: str | None, taken: bool
) -> None:
    """Two nodes that were terminated by hand made a storm: their whole zone was left alone for minutes."""
    s = Scene(A1)
    ended = replace(s.instances[of(A1)], state=InstanceState.TERMINATED, reason=reason)
    s.instances[of(A1)] = ended
    assert bool(events(s.step(), Troubled)) is taken
    assert bool(s.memory.taken) is taken


def test_a_het_jobs_components_are_one_job() -> None:
    s = Scene(A1, A2)
    s.job(7, A1, het_id=7)
    s.job(8, A2, het_id=7)
    s.says(A1, spot())
    s.says(A2, spot())
    assert [a.jobs for a in kinds(s.step(), Signal)] == [(7,)]  # type: ignore[union-attr]


def test_the_next_look_is_soon_after_a_notice_and_at_the_farewell_of_a_far_maintenance() -> None:
    s = Scene(A1, market=Market.ON_DEMAND)
    s.job(7, A1)
    s.says(A1, spot())
    s.step()
    assert next_look(PLAN, BINDINGS, s.seen(), s.memory, s.now) == PLAN.times.poll_s
    s = Scene(A1, market=Market.ON_DEMAND)
    s.job(7, A1)
    s.says(A1, Notice(kind=NoticeKind.MAINTENANCE, at=NOW + 90_000))
    s.step()
    s.now += 700
    assert next_look(PLAN, BINDINGS, s.seen(), s.memory, s.now) == PLAN.times.reconcile_s


def test_every_kind_has_a_rule_and_what_is_requeued_was_signalled_first() -> None:
    for kind in TroubleKind:
        for ends in (None, NOW + 5, NOW + 120, NOW + 90_000):
            m = Moment(Trouble(kind=kind, since=NOW, words="", ends_at=ends), Farewell(), NOW)
            signal, requeue, take = (
                f(m) for f in (RULES[kind].signals, RULES[kind].requeues, RULES[kind].takes)
            )
            assert requeue is None or (signal is not None and signal <= requeue)
            assert take is None or (requeue is not None and requeue <= take)


def test_a_node_hears_of_its_end_and_of_a_mere_hint_nothing() -> None:
    said = [farewell_of(Trouble(kind=kind, since=1, words="", ends_at=9.6)) for kind in TroubleKind]
    assert said == ["spot 10", "", "maintenance 10", "block-end 10", "fault 10", "replace 10"]


def test_nodes_that_a_job_comes_back_to_outlive_a_short_idle_time_and_no_more_of_them() -> None:
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


def test_a_failed_boots_reason_ends_with_the_nodes_own_last_line() -> None:
    report = NodeReport(
        instance_id="i-1",
        nonce="n",
        boot_id="b",
        phase=NodePhase.FAILED,
        life=0,
        steps=(Step(name="slurmd", ok=False, seconds=1.0, detail="slurmd does not start"),),
        tail="one\nfatal: no\x1b[2J gres\n\n",
    )
    assert last_word(report) == "step slurmd: slurmd does not start; it said last: fatal: no[2J gres"
    assert last_word(replace(report, tail="")) == "step slurmd: slurmd does not start"
    assert len(last_word(replace(report, tail="x" * 9999))) < 400


@pytest.mark.parametrize(
    ("says", "heard"),
    [
        ("Invalid job id specified for job 9999", True),
        ("Requested operation is presently disabled for job 2", True),
        ("Job is pending execution for job 3", True),
        ("slurm_requeue error: Unable to contact slurm controller (connect failure)", False),
        ("Socket timed out on send/recv operation", False),
    ],
)
def test_what_slurm_refuses_for_a_job_is_no_fault_and_what_nobody_heard_is(
    tmp_path: Path, says: str, heard: bool
) -> None:
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 1\n")
    program.chmod(0o755)
    slurm = Scontrol(str(program), str(program))
    for ask in (lambda: slurm.requeue((7,), "x"), lambda: slurm.signal((7,), "USR1")):
        with contextlib.nullcontext() if heard else pytest.raises(CommandError):
            ask()


def test_one_task_of_an_array_is_asked_by_its_own_number(tmp_path: Path) -> None:
    """Its last task has the number of the whole array (4 of 4_3, recorded), which scancel and scontrol take for all."""
    jobs = Path(__file__).parents[2] / "recorded" / "scontrol" / "24.11" / "jobs-pending-and-arrays.json"
    program, said = tmp_path / "scontrol", tmp_path / "said"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *nodes*) echo \'{{"nodes": []}}\';; *"show jobs"*) cat {jobs};; '
        f'*) echo "$*" >> {said};; esac\n'
    )
    program.chmod(0o755)
    slurm = Scontrol(str(program), str(program))
    slurm.look(NOW)
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
