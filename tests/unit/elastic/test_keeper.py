"""What makes the loop decide, and on what: an event on the last look, the reservations seldom, the queue's news once."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from builders import a_plan
from fleet import some_bindings
from slurm_model import SlurmModel

from gpucluster.cloud.model import CloudModel, ModelCloud, ModelControl
from gpucluster.cloud.port import CloudError, Fault, Reservation, Told
from gpucluster.elastic.act import Hands
from gpucluster.elastic.journal import Journal
from gpucluster.elastic.keeper import RESERVATIONS_S, YOUNG_S, Keeper, News
from gpucluster.elastic.model import SlurmView
from gpucluster.plan.messages import GpuFault, NodePhase, NodeReport, Notice, NoticeKind
from gpucluster.plan.model import ClusterPlan, there

NOTICE = Notice(kind=NoticeKind.SPOT, at=1120.0)
TOLD = Told(instance="i-1", notice=NOTICE, handle="h1")


class Held:
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

    def look(self, at: float, *, windows: bool = False) -> SlurmView:
        self.looks += 1
        return super().look(at, windows=windows)


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
    """One Keeper on lanes that the test runs."""

    root: Path
    plan: ClusterPlan = field(default_factory=a_plan)
    now: float = 1000.0
    may: bool = True
    forgotten: list[str] = field(default_factory=list[str])
    words: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.clouds, self.slurms = Held(), Held()
        self.slurm = Slow(self.plan, lambda kind, hosts: None)
        model = CloudModel(Random(1), region=there(self.plan.aws).region)  # noqa: S311 -- the same each time
        bindings = some_bindings(self.plan)
        self.cloud = Cloud(model, lambda: self.now, {v: k for k, v in bindings.subnets.items()})
        self.journal = Journal.open(self.root / "j", self.now)
        self.hands = Hands(
            cluster=self.plan.name, times=self.plan.times, cloud=self.cloud, slurm=self.slurm, control=ModelControl(),
            journal=self.journal, clouds=self.clouds, slurms=self.slurms, clock=lambda: self.now, ring=lambda: None,
            trip=lambda _: None, notices=self, lease=self,
        )  # fmt: skip
        self.keeper = Keeper(
            self.plan,
            bindings,
            self.hands,
            self.root / "spool",
            published=lambda _: None,
            complain=self.words.append,
        )

    # a lease, and a queue
    def held(self) -> bool:
        return self.may

    def mine(self, control: object) -> bool:
        return self.may

    def receive(self, wait_s: float) -> tuple[Told, ...]:
        return ()

    def forget(self, handles: Sequence[str]) -> None:
        self.forgotten += handles

    def look(self, *, urgent: bool = False) -> None:
        self.keeper.look(urgent=urgent)
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


def test_a_message_is_forgotten_once_it_was_decided_on_and_not_before(world: World) -> None:
    world.keeper.tell([TOLD, TOLD, replace(TOLD, handle="h2")])
    assert not world.keeper.react(), "nothing was seen yet"
    world.slurm.away = True
    world.look()
    assert not world.forgotten
    world.slurm.away = False
    world.look()
    assert sorted(world.forgotten) == ["h1", "h2"]
    world.look()
    assert len(world.forgotten) == 2


def test_one_message_that_tells_of_several_machines_tells_of_all(world: World) -> None:
    """Of an event of AWS Health with many machines only the last was drained, and the message was deleted."""
    world.wants(2)
    world.look()
    ids = sorted(i.id for i in world.cloud.instances(world.plan.name))
    assert len(ids) == 2
    gone = Notice(kind=NoticeKind.MAINTENANCE, at=5000.0)
    world.now += 60.0
    world.keeper.tell([Told(instance=i, notice=gone, handle="h1") for i in ids])
    world.look()
    lives = world.journal.memory.lives.values()
    assert sorted(x.instance for x in lives if x.trouble and x.instance) == ids
    assert set(world.forgotten) == {"h1"}


def test_an_event_is_decided_on_the_last_look_while_that_is_young(world: World) -> None:
    world.look()
    looks = world.slurm.looks
    world.keeper.tell([TOLD])
    world.now += YOUNG_S
    assert world.keeper.react()
    world.clouds.run()
    assert world.forgotten == ["h1"]
    assert world.slurm.looks == looks
    world.now += 0.1
    assert not world.keeper.react()


def test_no_event_is_decided_after_a_look_that_failed(world: World) -> None:
    world.look()
    world.slurm.away = True
    world.look()
    assert world.words == ["slurmctld: Unable to contact slurm controller"]
    assert not world.keeper.react()


def test_a_hooks_call_is_decided_when_slurm_has_answered_and_the_cloud_has_not(world: World) -> None:
    world.look()
    world.now += 1.0
    world.wants(2)
    world.keeper.look(urgent=True)
    world.slurms.run()
    assert len(world.clouds.waiting) == 2, "the look's own half, and what the launch reads first"
    world.clouds.run()
    assert len(world.cloud.launches) == 1, "and the whole look asks for nothing twice"


def test_an_ordinary_look_waits_for_both(world: World) -> None:
    world.look()
    world.wants(2)
    world.keeper.look()
    world.slurms.run()
    assert len(world.clouds.waiting) == 1
    world.clouds.run()
    assert len(world.cloud.launches) == 1


def test_whoever_may_not_act_decides_nothing_and_looks_on(world: World) -> None:
    world.may = False
    world.wants(2)
    world.keeper.tell([TOLD])
    world.look()
    assert not world.cloud.launches
    assert not world.forgotten
    world.may = True
    world.look()
    assert len(world.cloud.launches) == 1
    assert world.forgotten == ["h1"]


def report(**changes: Any) -> NodeReport:
    one = NodeReport(instance_id="i-1", nonce="n", boot_id="b", phase=NodePhase.UP, life=1, steps=())
    return replace(one, **changes)


FAULT = GpuFault(xid=79, device="0000:53:00", count=1, last_at=1.0, text="fell off the bus")


@pytest.mark.parametrize(
    ("then", "news"),
    [
        pytest.param(report(nonce="m"), News.NONE, id="a heartbeat"),
        pytest.param(report(life=2), News.BOOT, id="another life"),
        pytest.param(report(phase=NodePhase.FAILED), News.BOOT, id="a boot that failed"),
        pytest.param(report(notices=(NOTICE,)), News.TROUBLE, id="a notice"),
        pytest.param(report(faults=(FAULT,)), News.TROUBLE, id="a broken GPU"),
        pytest.param(report(faults=(FAULT,), life=2), News.TROUBLE, id="both"),
    ],
)
def test_what_is_news_in_a_report(world: World, then: NodeReport, news: News) -> None:
    assert world.keeper.hear(report()) is News.BOOT
    assert world.keeper.hear(then) is news
    assert world.keeper.hear(then) is News.NONE


def contained(count: int) -> NodeReport:
    return report(faults=(GpuFault(xid=94, device="0000:53:00", count=count, last_at=1.0, text="x"),))


def test_a_fault_that_comes_again_is_news_only_where_it_weighs_more_then(world: World) -> None:
    """A job that made XID 31 in a loop kept the daemon looking at all of Slurm and the cloud."""
    counts = (1, 2, 3, 4)
    news = [world.keeper.hear(contained(count)) for count in counts]
    assert news == [News.TROUBLE, News.NONE, News.TROUBLE, News.NONE]


def with_reservation(plan: ClusterPlan) -> ClusterPlan:
    (pool,) = plan.pools
    first, *rest = pool.sources
    return replace(plan, pools=(replace(pool, sources=(replace(first, reservation="cr-1"), *rest)),))


def test_reservations_are_asked_for_only_where_the_plan_has_some_and_not_at_each_look(
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
    assert other.keeper._cloud is not None
    assert set(other.keeper._cloud.reservations) == {"cr-1"}, "what was known stands"
