"""The whole daemon but its edge, over a model of Slurm and of the cloud, on virtual time."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from slurm_model import SlurmModel

from gpucluster.cloud.model import CloudModel, Ec2Instance, ModelCloud, ModelControl, ModelNotices, Timing
from gpucluster.cloud.model.port import view
from gpucluster.cloud.port import Instance, InstanceState
from gpucluster.elastic.act import Failpoint, Hands
from gpucluster.elastic.journal import Journal
from gpucluster.elastic.keeper import Keeper
from gpucluster.elastic.lanes import Inline
from gpucluster.elastic.registration import Desk
from gpucluster.plan import codec
from gpucluster.plan.messages import (
    Beat,
    GpuFault,
    NodeAnswer,
    NodePhase,
    NodeReport,
    Notice,
    NoticeKind,
    Step,
)
from gpucluster.plan.model import Bindings, ClusterPlan, TemplateBinding, there

START = 1_000_000.0
STRIDE_S = 15.0  # no jump is longer: what has no event of its own, as a word of the cloud, is seen by then
NO_TRIP: Callable[[Failpoint], None] = lambda _: None  # noqa: E731


def some_bindings(plan: ClusterPlan) -> Bindings:
    """Made-up ids for everything that the plan needs."""
    zones = [s.zone for s in there(plan.aws).network.subnets]
    keys = [t.key for p in plan.pools for t in p.templates]
    return Bindings(
        schema=1,
        region=there(plan.aws).region,
        bucket="burst-bucket",
        secret="arn:aws:secretsmanager:us-east-2:1:secret:munge",
        subnets={z: f"subnet-{n}" for n, z in enumerate(zones)},
        templates={k: TemplateBinding(id=f"lt-{n}", version=1) for n, k in enumerate(keys)},
    )


@dataclass
class Agent:
    """What runs on one instance."""

    life: int = 0
    boot_time: float = 0.0
    slot: str = ""
    beat_at: float = 0.0
    up: bool = False  # its slurmd lives
    told: object = None  # of notices and faults, with the last beat
    leaving: str = ""  # what the daemon answered


class Fleet:
    """Run it with `run(seconds)`; `restart()` is a kill and a new start over the same journal."""

    def __init__(
        self, plan: ClusterPlan, folder: Path, *, boot_s: float = 30.0, version: str = "24.11"
    ) -> None:
        self.plan, self.folder, self.boot_s = plan, folder, boot_s
        self.now = START
        timing = Timing(pending_s=2.0, ending_s=20.0)
        self.model = CloudModel(Random(7), timing=timing, region=there(plan.aws).region)  # noqa: S311 -- the same each time
        self.bindings = some_bindings(plan)
        zones = {v: k for k, v in self.bindings.subnets.items()}
        self.cloud = ModelCloud(self.model, lambda: self.now, zones)
        self.control = ModelControl()
        self.queue = ModelNotices(self.model, lambda: self.now)
        self.faults: dict[str, tuple[GpuFault, ...]] = {}  # by instance, as its kernel says
        self.beats: dict[str, tuple[Beat, ...]] = {}
        self.slurm = SlurmModel(plan, self._hook, version)
        self.slurm.now = self.now
        self.agents: dict[str, Agent] = {}
        self.mute: Callable[[Instance], bool] = lambda _: False  # instances that never call
        self.broken: Callable[[Instance], str | None] = lambda _: None  # instances whose boot fails, and why
        self.complaints: list[str] = []
        self.trip = NO_TRIP
        self._look_at = 0.0
        self._agents_at = 0.0
        self._truth: dict[str, Ec2Instance] = {}
        self._calls = 0
        self.start()

    # --- the daemon -------------------------------------------------------------------------------
    def start(self) -> None:
        self.journal = Journal.open(self.folder / "journal.sqlite", self.now)
        self.desk = Desk(lambda body: (0, body), heard=self._said, nudge=self._ring)
        lane = Inline()
        hands = Hands(
            cluster=self.plan.name,
            times=self.plan.times,
            cloud=self.cloud,
            slurm=self.slurm,
            control=self.control,
            journal=self.journal,
            clouds=lane,
            slurms=lane,
            clock=lambda: self.now,
            ring=self._ring,
            trip=self._tripped,
            notices=self.queue,
        )
        self.keeper = Keeper(
            self.plan,
            self.bindings,
            hands,
            self.folder / "spool",
            published=lambda s: setattr(self.desk, "snapshot", s),
            complain=self.complaints.append,
        )
        self._look_at = 0.0

    def restart(self) -> None:
        self.journal.close()
        self.start()

    def look(self) -> None:
        self.keeper.take_hooks()
        self.keeper.look()
        self._look_at = self.now + self.keeper.next_look_s

    # --- time -------------------------------------------------------------------------------------
    def run(self, seconds: float) -> None:
        """Let `seconds` pass, from one event to the next."""
        end = self.now + seconds
        while self.now < end:
            self._pass(end)

    def _pass(self, end: float) -> None:
        self.now = min(end, max(self.now + 1.0, self._next()))
        self.slurm.tick(self.now)
        self._agents()
        if told := self.queue.receive(0.0):
            self.keeper.tell(told)
            self._ring()
        if self._calls or self.now >= self._look_at:
            self._calls = 0
            self.look()
        self.check()

    def _next(self) -> float:
        """When something can happen next: at the latest one stride from now."""
        if self._calls:
            return self.now
        return min(self.now + STRIDE_S, self._look_at, self.slurm.next_event(), self._agents_at)

    def until(self, reached: Callable[[], bool], limit: float = 4000.0) -> float:
        """Run until `reached`; return how long it took. Not within `limit` is a failure."""
        began = self.now
        while not reached():
            assert self.now - began < limit, self.story()
            self._pass(self.now + STRIDE_S)
        return self.now - began

    def check(self) -> None:
        """What must hold at every moment."""
        owners: dict[str, str] = {}
        for slot, life in self.journal.memory.lives.items():
            if life.instance:
                assert owners.setdefault(life.instance, slot) == slot, "one instance, two slots"
        many = len(self.model.wanted(self.now))
        most = sum(pool.max for pool in self.plan.pools)
        assert many <= most, f"{many} live, max {most}"

    def living(self) -> list[Instance]:
        """What is there in truth, whatever the cloud tells."""
        return [view(i) for i in self.model.wanted(self.now)]

    def story(self) -> str:
        states = {n.name: (n.base, sorted(n.flags), n.reason) for n in self.slurm.nodes.values()}
        odd = {k: v for k, v in states.items() if v != ("IDLE", ["CLOUD", "POWERED_DOWN"], "")}
        jobs = [(j.id, j.state, j.nodes, j.comment) for j in self.slurm.jobs.values()]
        return json.dumps([odd, jobs, codec.to_json(self.journal.memory)], indent=1)

    def interrupt(self, instance: str) -> None:
        """Spot takes it back without a word."""
        self.model.interrupt(instance, self.now, 0.0, silent=("metadata", "queue"))

    # --- the machines -----------------------------------------------------------------------------
    def _agents(self) -> None:
        running: set[str] = set()
        self._agents_at = self.now + STRIDE_S
        self._truth = {i.id: i for i in self.model.wanted(self.now)}
        for _, instance in sorted(self._truth.items()):
            seen = view(instance)
            boots_at = instance.launched_at + self.boot_s
            if boots_at > self.now or instance.state is not InstanceState.RUNNING:
                self._agents_at = min(self._agents_at, max(boots_at, self.now + 1.0))
            elif not self.mute(seen):
                running.add(instance.id)
                self._lives(seen)
        for gone in [a for i, a in self.agents.items() if a.up and i not in running]:
            gone.up = False
            if not self._others_on(gone):
                self.slurm.lost(gone.slot)

    def _lives(self, instance: Instance) -> None:
        agent = self.agents.setdefault(instance.id, Agent())
        if agent.beat_at <= self.now or agent.told != self._senses(instance.id):  # news does not wait
            self._beat(instance, agent)
        self._agents_at = min(self._agents_at, agent.beat_at)
        if agent.slot and not agent.up:
            agent.up = True
            self.slurm.registers(agent.slot, agent.boot_time, instance.address or "")

    def _others_on(self, agent: Agent) -> bool:
        return any(a.up and a.slot == agent.slot for a in self.agents.values() if a is not agent)

    def _beat(self, instance: Instance, agent: Agent) -> None:
        agent.beat_at = self.now + self.plan.times.heartbeat_s
        agent.told = notices, faults = self._senses(instance.id)
        words = self.broken(instance)
        phase = NodePhase.FAILED if words else NodePhase.UP if agent.life else NodePhase.BOOTING
        step = Step(name="key", ok=words is None, seconds=0.1, detail=words or "")
        report = NodeReport(
            instance_id=instance.id,
            nonce=str(self.now),
            boot_id="b",
            phase=phase,
            life=agent.life,
            steps=(step,),
            notices=notices,
            faults=faults,
            beats=self.beats.get(instance.id, ()),
            watched=True,
            clock=self.now,
        )
        reply = self.desk.node(instance.address or "", codec.dumps(report))
        if reply.status != 200 or words:
            agent.beat_at = self.now + 2.0
            return
        answer = codec.loads(NodeAnswer, reply.body)
        agent.slot, agent.leaving = answer.node, answer.leaving
        if answer.life > agent.life:
            agent.life, agent.boot_time, agent.up = answer.life, self.now, False
            self._beat(instance, agent)

    def _senses(self, instance: str) -> tuple[tuple[Notice, ...], tuple[GpuFault, ...]]:
        """What the machine's metadata service and kernel say."""
        found = self._truth[instance]
        notices: list[Notice] = []
        if found.notice_at is not None and not found.notice_hidden:
            notices.append(Notice(kind=NoticeKind.SPOT, at=found.notice_at, words="terminate"))
        if found.rebalance_at is not None:
            notices.append(Notice(kind=NoticeKind.REBALANCE, at=found.rebalance_at))
        planned = (e for e in found.events if not e.completed)
        notices.extend(Notice(kind=NoticeKind.MAINTENANCE, at=e.not_before, words=e.code) for e in planned)
        return tuple(notices), self.faults.get(instance, ())

    def _said(self, report: NodeReport) -> None:
        if self.keeper.hear(report):
            self._ring()

    def _tripped(self, point: Failpoint) -> None:
        self.trip(point)

    def _ring(self) -> None:
        self._calls += 1

    def _hook(self, kind: str, hostlist: str) -> None:
        new = self.folder / "spool" / "new"
        new.mkdir(parents=True, exist_ok=True)
        body = {"kind": kind, "hostlist": hostlist, "resume_file": None, "pid": 1, "time": self.now}
        (new / f"{int(self.now * 1000)}.{len(list(new.iterdir()))}.{kind}").write_text(json.dumps(body))
        self._ring()


def with_times(plan: ClusterPlan, **changes: float) -> ClusterPlan:
    return replace(plan, times=replace(plan.times, **changes))
