"""What makes the loop decide, and on what: an event on the last look, the reservations seldom, the queue's news once."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.builders import a_plan
from support.fleet import some_bindings
from support.slurm_model import SlurmModel

from gpucluster.cloud.port import CloudError, Fault, QueueNotice, Reservation
from gpucluster.elastic.abilities import Dependency, Loss
from gpucluster.elastic.act import Clients
from gpucluster.elastic.journal import Journal
from gpucluster.elastic.reconciler import RESERVATIONS_S, YOUNG_S, Reaction, Reconciler
from gpucluster.plan.messages import GpuFault, NodePhase, NodeReport, Notice, NoticeKind
from gpucluster.plan.model import SlurmOnAws
from gpucluster.plan.model.values import Market
from gpucluster.sandbox.aws.ec2.state.client import ModelCloud, ModelControl
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.slurm.values import SlurmView

ENDS_AT = 1120.0
NOTICE = Notice(kind=NoticeKind.SPOT, at=ENDS_AT)
TOLD = QueueNotice(instance="i-1", notice=NOTICE, handle="h1")


class ReservedCapacity:
    """A lane whose work is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, Any]] = []

    def submit(self, work: Any, done: Any) -> None:
        self.waiting.append((work, done))

    def run(self) -> None:
        while self.waiting:
            work, done = self.waiting.pop(0)
            done(work())


class Slow(SlurmModel):
    """Counts the looks."""

    looks = 0

    def read(self, at: float) -> SlurmView:
        self.looks += 1
        return super().read(at)


class Cloud(ModelCloud):
    """Counts what is asked of reservations, and can refuse it."""

    asked = 0
    mute = False

    def reservations(self, ids: Sequence[str]) -> tuple[Reservation, ...]:
        self.asked += 1
        if self.mute:
            raise CloudError(Fault.THROTTLED, "RequestLimitExceeded", "later")
        return tuple(
            Reservation(id=i, state="active", machine="p5en.48xlarge", zone="us-east-2a", total=4, free=4)
            for i in ids
        )


@dataclass
class World:
    """One Reconciler on lanes that the test runs."""

    root: Path
    plan: SlurmOnAws = field(default_factory=a_plan)
    now: float = 1000.0
    may: bool = True
    forgotten: list[str] = field(default_factory=list[str])
    words: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.clouds, self.slurms = ReservedCapacity(), ReservedCapacity()
        self.slurm = Slow(self.plan, lambda kind, hosts: None)
        model = CloudModel(Random(1), region=self.plan.aws.region)  # noqa: S311 -- the same each time
        bindings = some_bindings(self.plan)
        self.cloud = Cloud(model, lambda: self.now, {v: k for k, v in bindings.subnets.items()})
        self.journal = Journal.open(self.root / "j", self.now)
        self.clients = Clients(
            cluster=self.plan.name, times=self.plan.times, cloud=self.cloud, slurm=self.slurm, control=ModelControl(),
            journal=self.journal, cloud_executor=self.clouds, slurm_executor=self.slurms, clock=lambda: self.now, start_pass=lambda: None,
            hit=lambda _: None, notices=self, lease=self,
        )  # fmt: skip
        self.reconciler = Reconciler(
            self.plan,
            bindings,
            self.clients,
            self.root / "spool",
            publish_nodes=lambda _: None,
            warn=self.words.append,
        )

    # a lease, and a queue
    def held(self) -> bool:
        return self.may

    def cut_off(self) -> bool:
        return False

    def mine(self, control: object) -> bool:
        return self.may

    def receive(self, wait_s: float) -> tuple[QueueNotice, ...]:
        return ()

    def forget(self, handles: Sequence[str]) -> None:
        self.forgotten += handles

    def look(self, *, urgent: bool = False) -> None:
        self.reconciler.observe(urgent=urgent)
        self.slurms.run()
        self.clouds.run()
        self.slurms.run()

    def wants(self, nodes: int) -> None:
        """A job that waits for nodes."""
        for _ in range(3):
            self.slurm.tick(self.now)
        self.slurm.submit(nodes)
        for _ in range(3):
            self.slurm.tick(self.now)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_message_is_dropped_after_the_pass_that_used_it(world: World) -> None:
    world.reconciler.receive_events([TOLD, TOLD, replace(TOLD, handle="h2")])
    assert not world.reconciler.decide_now(), "nothing was seen yet"
    world.slurm.away = True
    world.look()
    assert not world.forgotten
    world.slurm.away = False
    world.look()
    assert sorted(world.forgotten) == ["h1", "h2"]
    world.look()
    assert len(world.forgotten) == 2


def test_message_that_waits_and_is_delivered_again_is_kept_once(world: World) -> None:
    """Each delivery has a new handle: while EC2 is away, every half minute would add one."""
    world.cloud.unlisted = CloudError(Fault.LOST, "ConnectTimeout", "no answer")
    for number in range(5):
        world.reconciler.receive_events([replace(TOLD, handle=f"h{number}")])
        world.look()
    assert [event.handle for event in world.reconciler.status.events] == ["h4"]
    assert not world.forgotten
    world.cloud.unlisted = None
    world.look()
    assert world.forgotten == ["h4"]
    assert not world.reconciler.status.events


def test_message_about_several_instances_counts_for_each(world: World) -> None:
    """Of an event of AWS Health with many machines only the last was drained, and the message was deleted."""
    world.wants(2)
    world.look()
    ids = sorted(i.id for i in world.cloud.instances(world.plan.name))
    assert len(ids) == 2
    gone = Notice(kind=NoticeKind.MAINTENANCE, at=5000.0)
    world.now += 60.0
    world.reconciler.receive_events([QueueNotice(instance=i, notice=gone, handle="h1") for i in ids])
    world.look()
    lives = world.journal.memory.incarnations.values()
    assert sorted(x.instance for x in lives if x.interruption and x.instance) == ids
    assert set(world.forgotten) == {"h1"}


def test_event_is_decided_on_young_views(world: World) -> None:
    world.look()
    looks = world.slurm.looks
    world.reconciler.receive_events([TOLD])
    world.now += YOUNG_S
    assert world.reconciler.decide_now()
    world.clouds.run()
    assert world.forgotten == ["h1"]
    assert world.slurm.looks == looks
    world.now += 0.1
    assert not world.reconciler.decide_now()


def test_no_event_is_decided_after_a_failed_query(world: World) -> None:
    world.look()
    world.slurm.away = True
    world.look()
    assert world.words == ["slurmctld: Unable to contact slurm controller"]
    assert not world.reconciler.decide_now()


def test_notice_is_served_while_ec2_hangs(world: World) -> None:
    """EC2 gave no answer for a minute, and the daemon read Slurm not again: the job was signalled after the minute."""
    world.wants(1)
    world.look()
    (instance,) = world.cloud.instances(world.plan.name)
    (slot,) = (s for s, one in world.journal.memory.incarnations.items() if one.instance == instance.id)
    world.now += 60.0
    world.slurm.registers(slot, world.now, "")
    world.slurm.tick(world.now)
    world.look()
    world.reconciler.observe()  # EC2 does not answer this one
    world.slurms.run()
    for _ in range(3):
        world.now += YOUNG_S + 1.0
        world.slurm.tick(world.now)
        world.reconciler.look_at_slurm(urgent=False)
        assert not world.slurms.waiting, "no instance ends"
    world.reconciler.receive_events([QueueNotice(instance=instance.id, notice=NOTICE, handle="h1")])
    assert not world.reconciler.decide_now(), "the view of Slurm is old"
    world.reconciler.look_at_slurm(urgent=True)
    world.slurms.run()
    ((_, job, _),) = world.slurm.signals
    assert world.slurm.jobs[job].state == "RUNNING"
    world.now = ENDS_AT - world.plan.pools[0].termination.lead_s
    world.slurm.tick(world.now)
    world.reconciler.look_at_slurm(urgent=False)
    world.slurms.run()
    assert world.slurm.jobs[job].restarts == 1
    latest = world.slurm.looks
    world.clouds.run()
    assert world.slurm.looks == latest
    assert not world.reconciler.observing
    assert world.reconciler.observation.slurm is not None
    assert world.reconciler.observation.slurm.at == world.now, "the newest view of Slurm stays"


def test_hook_request_is_decided_on_the_answer_of_slurm_alone(world: World) -> None:
    world.look()
    world.now += 1.0
    world.wants(2)
    world.reconciler.observe(urgent=True)
    world.slurms.run()
    assert len(world.clouds.waiting) == 2, "the look's own half, and what the launch reads first"
    world.clouds.run()
    assert len(world.cloud.launches) == 1, "and the whole look asks for nothing twice"


def test_pass_on_the_clouds_answer_waits_for_a_launch_that_is_prepared(world: World) -> None:
    """With 1,000 jobs that pass took longer than the read of the control object, and the launch waited for it."""
    world.look()
    world.now += 1.0
    world.wants(2)
    world.reconciler.observe(urgent=True)
    world.slurms.run()
    observed, prepared = world.clouds.waiting
    world.clouds.waiting = [observed]
    world.clouds.run()
    assert world.reconciler.observing
    assert not world.journal.memory.launches
    world.clouds.waiting = [prepared]
    work, done = world.clouds.waiting.pop()
    done(work())
    assert list(world.journal.memory.launches)
    assert len(world.clouds.waiting) == 1, "the call is given to the executor first"
    assert not world.reconciler.observing
    world.clouds.run()
    assert len(world.cloud.launches) == 1


def test_refused_preparation_does_not_keep_the_clouds_answer(world: World) -> None:
    world.look()
    world.now += 1.0
    world.wants(2)
    world.reconciler.observe(urgent=True)
    world.slurms.run()
    observed, prepared = world.clouds.waiting
    world.clouds.waiting = [observed]
    world.clouds.run()
    _, done = prepared
    done(None)  # the control object cannot be read
    assert not world.reconciler.observing
    assert not world.cloud.launches


def test_journal_stores_memory_after_a_pass_without_a_launch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpucluster.elastic.journal.SNAPSHOT_EVERY", 1)
    stored: list[bool] = []
    monkeypatch.setattr(world.journal, "snapshot", lambda: stored.append(world.reconciler._actor.busy))
    world.look()
    world.wants(2)
    world.look()
    world.look()
    assert stored
    assert not any(stored)


def test_ordinary_observation_waits_for_both_answers(world: World) -> None:
    world.look()
    world.wants(2)
    world.reconciler.observe()
    world.slurms.run()
    assert len(world.clouds.waiting) == 1
    world.clouds.run()
    assert len(world.cloud.launches) == 1


def test_daemon_without_the_lease_observes_and_decides_nothing(world: World) -> None:
    world.may = False
    world.wants(2)
    world.reconciler.receive_events([TOLD])
    world.look()
    assert not world.cloud.launches
    assert not world.forgotten
    world.may = True
    world.look()
    assert len(world.cloud.launches) == 1
    assert world.forgotten == ["h1"]


def report(**changes: Any) -> NodeReport:
    one = NodeReport(instance_id="i-1", nonce="n", boot_id="b", phase=NodePhase.UP, incarnation=1, steps=())
    return replace(one, **changes)


FAULT = GpuFault(xid=79, device="0000:53:00", count=1, last_at=1.0, text="fell off the bus")


@pytest.mark.parametrize(
    ("then", "news"),
    [
        pytest.param(report(nonce="m"), Reaction.NONE, id="a heartbeat"),
        pytest.param(report(incarnation=2), Reaction.OBSERVE, id="another incarnation"),
        pytest.param(report(phase=NodePhase.FAILED), Reaction.OBSERVE, id="a boot that failed"),
        pytest.param(report(notices=(NOTICE,)), Reaction.DECIDE, id="a notice"),
        pytest.param(report(faults=(FAULT,)), Reaction.DECIDE, id="a broken GPU"),
        pytest.param(report(faults=(FAULT,), incarnation=2), Reaction.DECIDE, id="both"),
    ],
)
def test_reaction_to_a_report(world: World, then: NodeReport, news: Reaction) -> None:
    assert world.reconciler.receive_report(report()) is Reaction.OBSERVE
    assert world.reconciler.receive_report(then) is news
    assert world.reconciler.receive_report(then) is Reaction.NONE


def contained(count: int) -> NodeReport:
    return report(faults=(GpuFault(xid=94, device="0000:53:00", count=count, last_at=1.0, text="x"),))


def test_repeated_fault_causes_a_pass_only_if_its_severity_rises(world: World) -> None:
    """A job that made XID 31 in a loop kept the daemon looking at all of Slurm and the cloud."""
    counts = (1, 2, 3, 4)
    news = [world.reconciler.receive_report(contained(count)) for count in counts]
    assert news == [Reaction.DECIDE, Reaction.NONE, Reaction.DECIDE, Reaction.NONE]


def with_reservation(plan: SlurmOnAws) -> SlurmOnAws:
    (pool,) = plan.pools
    first, *rest = pool.sources
    held = replace(first, market=Market.RESERVATION, reservation="cr-1")
    return replace(plan, pools=(replace(pool, sources=(held, *rest)),))


def test_reservations_are_queried_only_for_plans_with_reservations_and_not_each_time(
    world: World, tmp_path: Path
) -> None:
    world.look()
    assert world.cloud.asked == 0
    other = World(tmp_path / "other", plan=with_reservation(a_plan()))
    for _ in range(3):
        other.look()
    assert other.cloud.asked == 1
    other.now += RESERVATIONS_S
    other.cloud.mute = True
    other.look()
    assert other.cloud.asked == 2
    assert any(words.startswith("the reservations: ") for words in other.words)
    assert other.reconciler._cloud is not None
    assert set(other.reconciler.observation.reservations) == {"cr-1"}, "what was known stands"


def test_queue_that_gives_no_answer_is_published_until_it_answers(world: World) -> None:
    """The daemon logged one line of a deleted queue; readers of its status did not see it."""
    world.reconciler.note_queue("QueueDoesNotExist: no")
    world.now += 60
    world.reconciler.note_queue("ConnectTimeoutError")
    assert world.reconciler.observation.lost == {
        Dependency.QUEUE: Loss(since=1000.0, words="ConnectTimeoutError")
    }
    world.reconciler.note_queue("")
    assert world.reconciler.observation.lost == {}
