"""A scene of up nodes with their instances, and what is said of them: one moment in, actions out, pass after pass."""

from collections.abc import Iterable
from dataclasses import replace

from gpucluster.cloud.port import Instance, InstanceState, QueueNotice, Reservation
from gpucluster.elastic.decide import decide
from gpucluster.elastic.events import (
    Entry,
    Event,
    InstanceAdopted,
    JobsRequeued,
    JobsSignalled,
    NodeUp,
)
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why import Screen, why
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import (
    Action,
    CloudView,
    Observation,
    ReceivedReport,
    RecordEvents,
    Requeue,
    Signal,
)
from gpucluster.plan.messages import GpuFault, NodePhase, NodeReport, Notice, NoticeKind
from gpucluster.plan.model import Market
from gpucluster.slurm.values import SlurmJob, SlurmNode, SlurmReservation, SlurmView
from support.builders import a_plan
from support.fleet import some_bindings

PLAN = a_plan()
BINDINGS = some_bindings(PLAN)
NOW = 2_000_000.0
ZONE, MACHINE = "us-east-2a", "p5en.48xlarge"
A1, A2, A3, B1 = "h200-2a-1", "h200-2a-2", "h200-2a-3", "h200-2b-1"
OFF, BUSY, IDLE = "IDLE CLOUD POWERED_DOWN", "ALLOCATED CLOUD", "IDLE CLOUD"
DRAINED, EMPTY = "ALLOCATED CLOUD DRAIN", "IDLE CLOUD DRAIN"
TERMINATION = PLAN.pools[0].termination
SPOT_WORDS = "the cloud reclaims this spot instance at 1970-01-24T03:35:20Z"
OURS = f"gpucluster: [evacuation] {SPOT_WORDS}"


class Scene:
    """Up nodes of the pool with their instances, and what is said of them."""

    def __init__(self, *slots: str, market: Market = Market.SPOT, plan: object = PLAN) -> None:
        self.plan, self.now = plan, NOW
        self.nodes = {name: SlurmNode(name=name, states=frozenset(OFF.split()), address=name) for name in ALL}
        self.jobs: list[SlurmJob] = []
        self.queue_notices: tuple[QueueNotice, ...] = ()
        self.reports: dict[str, ReceivedReport] = {}
        self.reservations: dict[str, Reservation] = {}
        self.reserved: tuple[SlurmReservation, ...] = ()
        self.blind = False  # EC2 does not answer
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
            InstanceAdopted(slot=slot, instance=of(slot), machine=MACHINE, market=market, zone=ZONE),
            NodeUp(slot=slot),
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

    def report(
        self, slot: str, *notices: Notice, faults: tuple[GpuFault, ...] = (), watched: bool = True
    ) -> None:
        report = NodeReport(
            instance_id=of(slot),
            nonce="n",
            boot_id="b",
            phase=NodePhase.UP,
            incarnation=1,
            steps=(),
            notices=notices,
            faults=faults,
            watched=watched,
            clock=self.now,
        )
        self.reports[of(slot)] = ReceivedReport(report=report, at=self.now, since=self.now)

    def queue(self, slot: str, notice: Notice) -> None:
        self.queue_notices = (
            *self.queue_notices,
            QueueNotice(instance=of(slot), notice=notice, handle=f"h{len(self.queue_notices)}"),
        )

    def seen(self) -> Observation:
        return Observation(
            slurm=SlurmView(at=self.now, nodes=self.nodes, jobs=tuple(self.jobs), reservations=self.reserved),
            cloud=None if self.blind else CloudView(at=self.now, instances=self.instances),
            reservations=self.reservations,
            reports=self.reports,
            queue_notices=self.queue_notices,
        )

    def shown(self, subject: str) -> Screen:
        """Return the screen of `why` at this moment."""
        return why(
            ClusterSnapshot(
                plan=self.plan,  # type: ignore[arg-type]
                bindings=BINDINGS,
                observation=self.seen(),
                memory=self.memory,
                now=self.now,
            ),
            subject,
        )

    def acts(self) -> tuple[Action, ...]:
        return decide(self.plan, BINDINGS, self.seen(), self.memory, self.now)  # type: ignore[arg-type]

    def step(self) -> tuple[Action, ...]:
        """Decide, and take what was remembered, signalled and sent back for done."""
        actions = self.acts()
        for action in actions:
            match action:
                case RecordEvents(entries=entries):
                    self.memory = fold(self.memory, entries)
                case Signal(jobs=jobs, signal=signal, instance=instance):
                    self.note(JobsSignalled(instance=instance, jobs=jobs, signal=signal))
                case Requeue(jobs=jobs, instance=instance):
                    self.note(JobsRequeued(instance=instance, jobs=jobs))
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
        e.event
        for a in actions
        if isinstance(a, RecordEvents)
        for e in a.entries
        if isinstance(e.event, kind)
    ]
