"""What the act step still checks when its turn comes: the journal may have moved on since the decision."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
from support.builders import a_plan
from support.cluster_states import NOW, ask
from support.launches import alternative
from support.slurm_model import SlurmModel

from gpucluster.cloud.port import CloudError, Fault, NoticePort, QueueNotice, Scaling
from gpucluster.elastic.act import Actor, Clients, Failpoint, grouped
from gpucluster.elastic.events import Entry, Event, JobPlaced, LaunchDone, LaunchRequested, NodeNeeded
from gpucluster.elastic.executors import InlineExecutor
from gpucluster.elastic.journal import Journal, read_only
from gpucluster.elastic.lease import AlwaysHeld, LeaseCheck
from gpucluster.elastic.log_lines import describe
from gpucluster.elastic.model import (
    Action,
    Block,
    Comment,
    DeleteMessages,
    DeleteReservation,
    Drain,
    JobRun,
    LaunchGang,
    MarkDown,
    PowerDown,
    PowerUp,
    RecordEvents,
    Requeue,
    ResetDown,
    SetReservation,
    Signal,
    Terminate,
    Undrain,
)
from gpucluster.errors import GpuclusterError
from gpucluster.sandbox.aws.ec2.state.client import ModelCloud, ModelControl
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.slurm.values import SlurmReservation

T = TypeVar("T")
SLOT = "h200-2a-1"
WANTED = NodeNeeded(slot=SLOT, incarnation=1, jobs=(41,))
REQUEST = ask(2, SLOT)
OTHER = ask(1, SLOT)


def launches(folder: Path, *events: Event, repeat: bool = False) -> int:
    """How many calls the cloud gets for REQUEST over a journal of these events."""
    plan = a_plan()
    cloud = ModelCloud(CloudModel(Random(1), region="us-east-2"), lambda: NOW, {"subnet-0": "us-east-2a"})  # noqa: S311 -- the same each time
    journal = Journal.open(folder / "j", NOW)
    journal.append(tuple(Entry(at=NOW, event=event) for event in events))
    executor = InlineExecutor()
    clients = Clients(
        cluster=plan.name,
        times=plan.times,
        cloud=cloud,
        slurm=SlurmModel(plan, lambda kind, hosts: None),
        control=ModelControl(),
        journal=journal,
        cloud_executor=executor,
        slurm_executor=executor,
        clock=lambda: NOW,
        start_pass=lambda: None,
        hit=lambda _: None,
    )
    Actor(clients).act([LaunchGang(request=REQUEST, repeat=repeat, reason="a job waits")])
    journal.close()
    return len(cloud.launches)


@pytest.mark.parametrize(
    ("why", "events", "repeat", "calls"),
    [
        ("nothing happened since", (WANTED,), False, 1),
        ("another request for the slot is under way", (WANTED, LaunchRequested(request=OTHER)), False, 0),
        ("the slot has an instance of another request", (WANTED, LaunchRequested(request=OTHER), LaunchDone(request="r1", instances=("i-1",))), False, 0),
        ("the request itself is under way", (WANTED, LaunchRequested(request=REQUEST)), False, 0),
        ("it is repeated", (WANTED, LaunchRequested(request=REQUEST)), True, 1),
        ("its repeat has an outcome by now", (WANTED, LaunchRequested(request=REQUEST), LaunchDone(request="r2", instances=("i-1",))), True, 0),
    ],
)  # fmt: skip
def test_launch_is_not_called_after_its_request_was_given_up(
    tmp_path: Path, why: str, events: tuple[Event, ...], repeat: bool, calls: int
) -> None:
    assert launches(tmp_path, *events, repeat=repeat) == calls, why


# --- one action against a client of each kind ------------------------------------------------------------------
class Waiting:
    """An executor that calls at once and delivers the results only in `deliver`."""

    def __init__(self) -> None:
        self._results: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        result = work()
        self._results.append(lambda: done(result))

    def deliver(self) -> None:
        results, self._results = self._results, []
        for one in results:
            one()


class Lost(AlwaysHeld):
    """A lease that ran out."""

    def held(self) -> bool:
        return False


class Refusing(ModelCloud):
    """A cloud that refuses each termination with one fault."""

    fault = Fault.THROTTLED

    def terminate(self, ids: Sequence[str]) -> tuple[str, ...]:
        raise CloudError(self.fault, "Refused", "refused by the test")


@dataclass
class Bench:
    """An actor over models, and what it did."""

    actor: Actor
    cloud: ModelCloud
    slurm: SlurmModel
    control: ModelControl
    journal: Journal
    executor: Waiting
    rings: list[None] = field(default_factory=list[None])

    def act(self, *actions: Action) -> None:
        self.actor.act(actions, seen_at=NOW - 1)

    @property
    def ended(self) -> list[object]:
        return [ids for name, ids in self.cloud.calls if name == "terminate"]

    @property
    def recorded(self) -> list[str]:
        """The instances of recorded terminations."""
        return sorted(self.journal.memory.endings)


def bench(
    folder: Path,
    lease: LeaseCheck | None = None,
    cloud: type[ModelCloud] = ModelCloud,
    *,
    slurm: SlurmModel | None = None,
    hit: Callable[[Failpoint], None] = lambda _: None,
    notices: NoticePort | None = None,
) -> Bench:
    plan, executor, rings = a_plan(), Waiting(), list[None]()
    one = cloud(CloudModel(Random(1), region="us-east-2"), lambda: NOW, {"subnet-0": "us-east-2a"})  # noqa: S311 -- the same each time
    slurm = slurm or SlurmModel(plan, lambda kind, hosts: None)
    control, journal = ModelControl(), Journal.open(folder / "j", NOW)
    clients = Clients(
        cluster=plan.name,
        times=plan.times,
        cloud=one,
        slurm=slurm,
        control=control,
        journal=journal,
        cloud_executor=executor,
        slurm_executor=executor,
        clock=lambda: NOW,
        start_pass=lambda: rings.append(None),
        hit=hit,
        notices=notices,
        lease=lease or AlwaysHeld(),
    )  # fmt: skip
    return Bench(Actor(clients), one, slurm, control, journal, executor, rings)


DRAIN = Drain(slots=(SLOT,), reason="gpucluster: a test drains it")
END = Terminate(instances=("i-1",), reason="it is idle")
LAUNCH = LaunchGang(request=REQUEST, repeat=False, reason="a job waits")


def test_action_without_a_lease_is_not_carried_out(tmp_path: Path) -> None:
    one = bench(tmp_path, Lost())
    one.act(DRAIN, END)
    assert (one.slurm.nodes[SLOT].reason, one.ended) == ("", [])


def test_update_that_is_in_progress_is_not_sent_again(tmp_path: Path) -> None:
    one = bench(tmp_path)
    one.act(DRAIN)
    one.slurm.nodes[SLOT].reason = "before the second pass"
    one.act(DRAIN)
    assert one.slurm.nodes[SLOT].reason == "before the second pass"


def test_instance_that_is_being_terminated_is_not_terminated_again(tmp_path: Path) -> None:
    one = bench(tmp_path)
    one.act(END)
    one.act(END, replace(END, instances=("i-1", "i-2")))
    assert one.ended == [("i-1",), ("i-2",)]
    one.executor.deliver()
    assert not one.actor.busy


@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.LOST])
def test_refused_termination_is_not_recorded_as_requested(tmp_path: Path, fault: Fault) -> None:
    one = bench(tmp_path, cloud=type("One", (Refusing,), {"fault": fault}))
    one.act(END)
    one.executor.deliver()
    assert one.recorded == []


def test_termination_of_an_unknown_instance_is_recorded(tmp_path: Path) -> None:
    one = bench(tmp_path)
    assert one.cloud.terminate(END.instances) == END.instances
    one.act(END)
    one.executor.deliver()
    assert one.recorded == ["i-1"]


def test_spare_whose_termination_is_refused_counts_and_the_refusal_is_recorded(tmp_path: Path) -> None:
    """Three came for gangs of two and three. Without the record the third would live until it is old enough for a stray."""
    one = bench(tmp_path, cloud=type("One", (Refusing,), {"fault": Fault.CONFIGURATION}))
    one.cloud.model.set_capacity("p5en.48xlarge", "us-east-2a", "spot", 3)
    slots = tuple(f"h200-2a-{n}" for n in range(1, 6))
    one.journal.append(tuple(Entry(at=NOW, event=replace(WANTED, slot=slot)) for slot in slots))
    request = replace(REQUEST, slots=slots, gangs=(2, 3))
    one.act(replace(LAUNCH, request=request))
    one.executor.deliver()
    one.executor.deliver()
    memory = one.journal.memory
    assert len(memory.spares) == 1
    assert memory.refused_ends.keys() == memory.spares.keys()


@pytest.mark.parametrize(("free", "rings"), [(1, 0), (0, 1)])
def test_refused_launch_starts_the_next_pass_and_a_successful_one_does_not(
    tmp_path: Path, free: int, rings: int
) -> None:
    one = bench(tmp_path)
    one.cloud.model.set_capacity("p5en.48xlarge", "us-east-2a", "spot", free)
    one.journal.append((Entry(at=NOW, event=WANTED),))
    one.act(LAUNCH)
    one.executor.deliver()
    one.executor.deliver()
    assert (len(one.cloud.launches), len(one.rings)) == (1, rings)


def test_partial_launch_starts_the_next_pass_and_each_outcome_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One of two single nodes got an instance. The refusal of the other is a second event."""
    caplog.set_level("INFO", "gpucluster.elastic")
    one = bench(tmp_path)
    one.cloud.model.set_capacity("p5en.48xlarge", "us-east-2a", "spot", 1)
    other = replace(WANTED, slot="h200-2a-2", jobs=(42,))
    one.journal.append(tuple(Entry(at=NOW, event=event) for event in (WANTED, other)))
    request = replace(REQUEST, slots=(SLOT, "h200-2a-2"), gangs=(1, 1))
    one.act(replace(LAUNCH, request=request))
    one.executor.deliver()
    assert one.rings == []
    one.executor.deliver()
    assert len(one.rings) == 1
    intent, *outcomes = caplog.messages
    assert intent == describe(replace(LAUNCH, request=request))
    refusals = one.journal.memory.refusals
    done = LaunchDone(request="r2", instances=(one.journal.memory.incarnations[SLOT].instance or "",))
    assert outcomes[0] == describe(done)
    assert len(outcomes) == 2
    assert all(refusal.words in outcomes[1] for refusal in refusals.values())
    assert len(refusals) == 1


def test_change_of_the_control_object_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = bench(tmp_path)
    caplog.set_level("INFO", "gpucluster.elastic")

    def launch() -> int:
        caplog.clear()
        one.act(LAUNCH)
        one.executor.deliver()
        return sum("control object" in line for line in caplog.messages)

    assert launch() == 0, "no stop yet"
    one.executor.deliver()
    one.control.scale(Scaling.STOP, "ada")
    assert [launch(), launch()] == [1, 0]


# --- updates of Slurm --------------------------------------------------------------------------------------------
Call = tuple[object, ...]


class RecordingSlurm(SlurmModel):
    """The model of slurmctld. It records each call, and refuses all of them if `broken` is set."""

    def __init__(self) -> None:
        super().__init__(a_plan(), lambda kind, hosts: None)
        self.calls: list[Call] = []
        self.broken = False

    def _note(self, *call: object) -> None:
        self.calls.append(call)
        if self.broken:
            raise GpuclusterError("Socket timed out")

    def update_nodes(self, nodes: Sequence[str], state: str, reason: str | None = None) -> None:
        self._note("update", tuple(nodes), state, reason)

    def set_admin_comment(self, jobs: Sequence[int], text: str) -> None:
        self._note("comment", tuple(jobs), text)

    def signal(self, jobs: Sequence[int], signal: str) -> None:
        self._note("signal", tuple(jobs), signal)

    def requeue(self, jobs: Sequence[int], reason: str, *, held: bool = False) -> None:
        self._note("requeue", tuple(jobs), reason, held)

    def set_reservation(self, reservation: SlurmReservation) -> None:
        self._note("set-reservation", reservation)

    def delete_reservation(self, name: str) -> None:
        self._note("delete-reservation", name)


RESERVATION = SlurmReservation(name="gpucluster-cr-1", starts_at=NOW, ends_at=NOW + 60, nodes=(SLOT,))
SIGNAL = Signal(jobs=(41,), signal="USR1", instance="i-1", reason="spot")
REQUEUE = Requeue(runs=(JobRun(job=41, started_at=NOW - 60, nodes=(SLOT,)),), instance="i-1", reason="spot")
CALLS: tuple[tuple[Action, Call], ...] = (
    (Block(slots=(SLOT,), reason="full"), ("update", (SLOT,), "drain", "full")),
    (Drain(slots=(SLOT,), reason="spot"), ("update", (SLOT,), "drain", "spot")),
    (Undrain(slots=(SLOT,), reason="log"), ("update", (SLOT,), "undrain", None)),
    (MarkDown(slots=(SLOT,), reason="gone"), ("update", (SLOT,), "down", "gone")),
    (PowerDown(slots=(SLOT,), reason="log"), ("update", (SLOT,), "power_down", None)),
    (PowerUp(slots=(SLOT,), reason="log"), ("update", (SLOT,), "power_up", None)),
    (ResetDown(slots=(SLOT,), reason="log"), ("update", (SLOT,), "resume", None)),
    (Comment(jobs=(41, 42), reason="waits"), ("comment", (41, 42), "waits")),
    (SIGNAL, ("signal", (41,), "USR1")),
    (REQUEUE, ("requeue", (41,), "spot", False)),
    (replace(REQUEUE, held=True), ("requeue", (41,), "spot", True)),
    (SetReservation(reservation=RESERVATION, reason="log"), ("set-reservation", RESERVATION)),
    (DeleteReservation(name="gpucluster-cr-1", reason="log"), ("delete-reservation", "gpucluster-cr-1")),
)


def recording(
    folder: Path, points: list[Failpoint], lease: LeaseCheck | None = None
) -> tuple[Bench, RecordingSlurm]:
    slurm = RecordingSlurm()
    return bench(folder, lease, slurm=slurm, hit=points.append), slurm


@pytest.mark.parametrize(("action", "call"), CALLS, ids=[str(call[:3]) for _, call in CALLS])
def test_update_of_slurm_is_one_call(tmp_path: Path, action: Action, call: Call) -> None:
    points: list[Failpoint] = []
    one, slurm = recording(tmp_path, points)
    one.act(action)
    one.executor.deliver()
    assert slurm.calls == [call]
    assert len(points) == (3 if isinstance(action, Signal | Requeue) else 2)


@pytest.mark.parametrize(
    ("action", "points"),
    [
        (DRAIN, ["before-update", "after-update"]),
        (SIGNAL, ["before-signal", "after-signal", "after-signal-written"]),
        (REQUEUE, ["before-requeue", "after-requeue", "after-requeue-written"]),
        (DeleteMessages(handles=("h",)), []),
    ],
)
def test_failpoints_of_an_update(tmp_path: Path, action: Action, points: list[str]) -> None:
    found: list[Failpoint] = []
    one, _ = recording(tmp_path, found)
    one.act(action)
    one.executor.deliver()
    assert [point.value for point in found] == points


@pytest.mark.parametrize("broken", [False, True])
def test_refused_update_is_logged_and_sent_again(
    tmp_path: Path, broken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    one, slurm = recording(tmp_path, [])
    slurm.broken = broken
    for _ in range(2):
        one.act(SIGNAL)
        one.executor.deliver()
    assert len(slurm.calls) == (2 if broken else 1)
    assert bool([r for r in caplog.records if r.levelname == "WARNING"]) is broken


@pytest.mark.parametrize(("broken", "signalled"), [(False, True), (True, False)])
def test_signal_is_recorded_if_slurm_accepts_it(tmp_path: Path, broken: bool, signalled: bool) -> None:
    one, slurm = recording(tmp_path, [])
    slurm.broken = broken
    one.journal.append((Entry(at=NOW, event=JobPlaced(job=41, slots=(SLOT,), submitted_at=NOW)),))
    one.act(SIGNAL)
    one.executor.deliver()
    assert one.journal.memory.jobs["41"].signalled is signalled


class Ending(AlwaysHeld):
    """A lease that runs out after so many checks."""

    def __init__(self, checks: int) -> None:
        super().__init__()
        self.left = checks

    def held(self) -> bool:
        self.left -= 1
        return self.left >= 0


@pytest.mark.parametrize(("checks", "calls"), [(0, 0), (1, 0), (2, 1)])
def test_lease_is_checked_again_in_the_thread_of_the_call(tmp_path: Path, checks: int, calls: int) -> None:
    one, slurm = recording(tmp_path, [], Ending(checks))
    one.act(DRAIN)
    one.executor.deliver()
    assert len(slurm.calls) == calls
    other = bench(tmp_path / "other", Ending(checks))
    other.act(END)
    other.executor.deliver()
    assert (len(other.ended), other.recorded) == (calls, ["i-1"] * calls)


class Queue:
    """A queue of notices that records deleted messages, and refuses if `fault` is set."""

    def __init__(self, fault: Fault | None) -> None:
        self.fault, self.forgotten = fault, list[str]()

    def receive(self, wait_s: float) -> tuple[QueueNotice, ...]:
        return ()

    def forget(self, handles: Sequence[str]) -> None:
        self.forgotten += handles
        if self.fault is not None:
            raise CloudError(self.fault, "Refused", "refused by the test")


@pytest.mark.parametrize("fault", [None, Fault.THROTTLED])
def test_messages_are_deleted_and_a_refusal_is_ignored(tmp_path: Path, fault: Fault | None) -> None:
    points, queue = list[Failpoint](), Queue(fault)
    one = bench(tmp_path, hit=points.append, notices=queue)
    one.act(DeleteMessages(handles=("h1", "h2")))
    one.executor.deliver()
    assert queue.forgotten == ["h1", "h2"]
    assert points == [Failpoint.BEFORE_FORGET, Failpoint.AFTER_FORGET]


def test_events_are_stored_between_two_failpoints(tmp_path: Path) -> None:
    points: list[Failpoint] = []
    one = bench(tmp_path, hit=points.append)
    one.act(RecordEvents(entries=(Entry(at=NOW, event=WANTED),)))
    assert SLOT in one.journal.memory.incarnations
    assert points == [Failpoint.BEFORE_REMEMBER, Failpoint.AFTER_REMEMBER]


@pytest.mark.parametrize(
    ("what", "actions", "found"),
    [
        ("two slots of one reason", (DRAIN, replace(DRAIN, slots=("b",))), [(SLOT, "b")]),
        ("a slot twice", (DRAIN, DRAIN), [(SLOT,)]),
        ("two reasons", (DRAIN, replace(DRAIN, slots=("b",), reason="r")), [(SLOT,), ("b",)]),
        ("two kinds", (DRAIN, Block(slots=("b",), reason=DRAIN.reason)), [(SLOT,), ("b",)]),
        ("another action between them", (DRAIN, END, replace(DRAIN, slots=("b",))), [(SLOT, "b"), None]),
        ("two terminations", (END, END), [None, None]),
    ],
)
def test_updates_of_one_kind_and_reason_are_joined(
    what: str, actions: tuple[Action, ...], found: list[tuple[str, ...] | None]
) -> None:
    assert [getattr(one, "slots", None) for one in grouped(actions)] == found, what


# --- launches ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("machines", "recorded"), [((), ()), (("p5e.48xlarge",), ("p5en.48xlarge",))], ids=["alone", "fleet"]
)
def test_machine_types_are_recorded_for_a_fleet(
    tmp_path: Path, machines: tuple[str, ...], recorded: tuple[str, ...]
) -> None:
    one = bench(tmp_path)
    one.cloud.model.set_capacity("p5en.48xlarge", "us-east-2a", "spot", 4)
    request = replace(
        REQUEST, alternatives=tuple(alternative(REQUEST, name, template_id="lt-0") for name in machines)
    )
    one.journal.append((Entry(at=NOW, event=WANTED),))
    one.act(replace(LAUNCH, request=request))
    for _ in range(3):
        one.executor.deliver()
    (done,) = [e.event for e in read_only(tmp_path / "j") if isinstance(e.event, LaunchDone)]
    assert done.machines == recorded
    assert not one.actor.busy


@pytest.mark.parametrize(("stopped", "calls", "busy"), [(False, 1, True), (True, 0, False)])
def test_request_is_in_progress_until_its_answer(
    tmp_path: Path, stopped: bool, calls: int, busy: bool
) -> None:
    one = bench(tmp_path)
    if stopped:
        one.control.scale(Scaling.STOP, "ada")
    one.journal.append((Entry(at=NOW, event=WANTED),))
    one.act(LAUNCH, LAUNCH)
    one.executor.deliver()
    assert one.actor.busy is busy
    one.act(LAUNCH)
    one.executor.deliver()
    one.executor.deliver()
    assert len(one.cloud.launches) == calls
    assert not one.actor.busy
