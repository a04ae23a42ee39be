"""The whole daemon except its edge, over models of Slurm and of the cloud, in virtual time."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from gpucluster.cloud.port import Instance, InstanceState
from gpucluster.elastic.act import Clients, Failpoint
from gpucluster.elastic.executors import InlineExecutor
from gpucluster.elastic.intent_copy import IntentCopy
from gpucluster.elastic.journal import Journal, fence_of
from gpucluster.elastic.reconciler import Reconciler
from gpucluster.elastic.registration import RegistrationService
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
from gpucluster.plan.model import Bindings, SlurmOnAws, TemplateBinding
from gpucluster.sandbox.aws.ec2.state.client import ModelCloud, ModelControl, ModelNotices, ModelObject, view
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance, Timing
from support.slurm_model import SlurmModel

START = 1_000_000.0
STRIDE_S = (
    15.0  # no step is longer, so that changes without an event, such as a message of the cloud, are seen
)
NO_TRIP: Callable[[Failpoint], None] = lambda _: None  # noqa: E731


def some_bindings(plan: SlurmOnAws) -> Bindings:
    """Return placeholder ids for all bindings of the plan."""
    zones = [s.zone for s in plan.aws.network.subnets]
    keys = [t.key for p in plan.pools for t in p.templates]
    return Bindings(
        schema=1,
        region=plan.aws.region,
        bucket="burst-bucket",
        secret="arn:aws:secretsmanager:us-east-2:1:secret:munge",
        subnets={z: f"subnet-{n}" for n, z in enumerate(zones)},
        templates={k: TemplateBinding(id=f"lt-{n}", version=1) for n, k in enumerate(keys)},
    )


@dataclass
class Agent:
    """The software on one instance."""

    incarnation: int = 0
    boot_time: float = 0.0
    slot: str = ""
    beat_at: float = 0.0
    up: bool = False  # its slurmd runs
    began_at: float | None = None  # its first report
    reported: object = None  # notices and faults of the last heartbeat
    interruption: str = ""  # the daemon's last answer


class Fleet:
    """Run it with `run(seconds)`; `restart()` is a kill and a new start over the same journal."""

    reconciler_class: type[Reconciler] = Reconciler

    def __init__(
        self, plan: SlurmOnAws, folder: Path, *, boot_s: float = 30.0, version: str = "24.11"
    ) -> None:
        self.plan, self.folder, self.boot_s = plan, folder, boot_s
        self.now = START
        timing = Timing(pending_s=2.0, ending_s=20.0)
        self.model = CloudModel(Random(7), timing=timing, region=plan.aws.region)  # noqa: S311 -- the same each time
        self.bindings = some_bindings(plan)
        zones = {v: k for k, v in self.bindings.subnets.items()}
        self.cloud = ModelCloud(self.model, lambda: self.now, zones)
        self.control, self.orders = ModelControl(), ModelObject()
        self.lives = 0  # starts of the daemon
        self.queue = ModelNotices(self.model, lambda: self.now)
        self.faults: dict[str, tuple[GpuFault, ...]] = {}  # by instance, as its kernel says
        self.heartbeats: dict[str, tuple[Beat, ...]] = {}
        self.slurm = SlurmModel(plan, self._hook, version)
        self.slurm.now = self.now
        self.agents: dict[str, Agent] = {}
        self.mute: Callable[[Instance], bool] = lambda _: False  # instances that never report
        self.broken: Callable[[Instance], str | None] = lambda _: (
            None
        )  # instances whose boot fails, with the reason
        self.steps_s = 0.0  # what the boot steps of an agent take after its first report
        self.complaints: list[str] = []
        self.hit = NO_TRIP
        self.stopped = False  # no daemon runs: agents get no answer, hooks only fill the spool
        self._look_at = 0.0
        self._agents_at = 0.0
        self._truth: dict[str, Ec2Instance] = {}
        self._calls = 0
        self.start()

    # --- the daemon -------------------------------------------------------------------------------
    def start(self) -> None:
        path, last = self.folder / "journal.sqlite", self.control.control
        epoch = max(last.epoch, fence_of(path)) + 1  # as Lease.watch
        self.control.control = replace(last, epoch=epoch)
        self.journal = Journal.open(path, self.now, epoch, first=False, last_epoch=last.epoch)
        self.registration = RegistrationService(
            lambda body: (0, body), receive=self._said, observe=self._ring
        )
        executor = InlineExecutor()
        clients = Clients(
            cluster=self.plan.name,
            times=self.plan.times,
            cloud=self.cloud,
            slurm=self.slurm,
            control=self.control,
            journal=self.journal,
            cloud_executor=executor,
            slurm_executor=executor,
            clock=lambda: self.now,
            start_pass=self._ring,
            hit=self._tripped,
            notices=self.queue,
        )
        self.reconciler = self.reconciler_class(
            self.plan,
            self.bindings,
            clients,
            self.folder / "spool",
            publish_nodes=lambda s: setattr(self.registration, "snapshot", s),
            warn=self.complaints.append,
        )
        self.copy = IntentCopy(
            self.orders,
            executor,
            self.journal,
            clients.lease,
            clock=lambda: self.now,
            publish=self.reconciler.show_copy,
            first=not self.lives,
        )
        self.lives += 1
        self.copy.start()
        self._look_at = 0.0

    def restart(self) -> None:
        self.journal.close()
        self.start()

    def look(self) -> None:
        self.reconciler.read_spool()
        self.copy.step()
        self.reconciler.observe()
        self.copy.step()
        self._look_at = self.now + self.reconciler.next_pass_s

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
        if self.stopped:
            return
        self._hear()
        if self._calls or self.now >= self._look_at:
            self._calls = 0
            self.look()
        self.check()

    def _hear(self) -> None:
        if events := self.queue.receive(0.0):
            self.reconciler.receive_events(events)
            self._ring()

    def _next(self) -> float:
        """Return the time of the next possible event, at most one stride from now."""
        if self.stopped:
            return min(self.now + STRIDE_S, self.slurm.next_event(), self._agents_at)
        if self._calls:
            return self.now
        return min(self.now + STRIDE_S, self._look_at, self.slurm.next_event(), self._agents_at)

    def until(self, reached: Callable[[], bool], limit: float = 4000.0) -> float:
        """Run until `reached`; return the time that it took. Fail after `limit`."""
        began = self.now
        while not reached():
            assert self.now - began < limit, self.report()
            self._pass(self.now + STRIDE_S)
        return self.now - began

    def check(self) -> None:
        """Assert the invariants of every moment."""
        owners: dict[str, str] = {}
        for slot, incarnation in self.journal.memory.incarnations.items():
            if incarnation.instance:
                assert owners.setdefault(incarnation.instance, slot) == slot, "one instance, two slots"
        many = len(self.model.wanted(self.now))
        most = sum(pool.max for pool in self.plan.pools)
        assert many <= most, f"{many} live, max {most}"

    def living(self) -> list[Instance]:
        """Return the real instances, whatever the cloud's API reports."""
        return [view(i) for i in self.model.wanted(self.now)]

    def report(self) -> str:
        states = {n.name: (n.base, sorted(n.flags), n.reason) for n in self.slurm.nodes.values()}
        odd = {k: v for k, v in states.items() if v != ("IDLE", ["CLOUD", "POWERED_DOWN"], "")}
        jobs = [(j.id, j.state, j.nodes, j.comment) for j in self.slurm.jobs.values()]
        return json.dumps([odd, jobs, codec.to_json(self.journal.memory)], indent=1)

    def machine_ended(self, instance: str, agent: Agent) -> None:
        """Called when a machine whose slurmd ran has ended, before Slurm knows."""

    def interrupt(self, instance: str) -> None:
        """End a spot instance without a notice, as the cloud does when it reclaims it."""
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
        for instance_id, gone in self.agents.items():
            if not gone.up or instance_id in running:
                continue
            self.machine_ended(instance_id, gone)
            gone.up = False
            if not self._others_on(gone):
                self.slurm.lost(gone.slot)

    def _lives(self, instance: Instance) -> None:
        agent = self.agents.setdefault(instance.id, Agent())
        if agent.beat_at <= self.now or agent.reported != self._senses(
            instance.id
        ):  # a new notice is reported at once
            self._beat(instance, agent)
        self._agents_at = min(self._agents_at, agent.beat_at)
        if agent.slot and not agent.up:
            agent.up = True
            self.slurm.registers(agent.slot, agent.boot_time, instance.address or "")

    def _others_on(self, agent: Agent) -> bool:
        return any(a.up and a.slot == agent.slot for a in self.agents.values() if a is not agent)

    def _beat(self, instance: Instance, agent: Agent) -> None:
        agent.beat_at = self.now + self.plan.times.heartbeat_s
        agent.reported = notices, faults = self._senses(instance.id)
        agent.began_at = self.now if agent.began_at is None else agent.began_at
        boots = self.now < agent.began_at + self.steps_s
        words = self.broken(instance)
        phase = NodePhase.FAILED if words else NodePhase.UP if agent.incarnation else NodePhase.BOOTING
        step = Step(name="key", ok=words is None, seconds=0.1, detail=words or "")
        report = NodeReport(
            instance_id=instance.id,
            nonce=str(self.now),
            boot_id="b",
            phase=phase,
            incarnation=agent.incarnation,
            steps=(step,),
            notices=notices,
            faults=faults,
            heartbeats=self.heartbeats.get(instance.id, ()),
            watched=True,
            clock=self.now,
        )
        if self.stopped:
            agent.beat_at = self.now + 2.0
            return
        reply = self.registration.node(instance.address or "", codec.message(report))
        if reply.status != 200 or words or boots:
            agent.beat_at = self.now + 2.0
            return
        answer = codec.loads(NodeAnswer, reply.body)
        is_new = (answer.node, answer.incarnation) != (
            agent.slot,
            agent.incarnation,
        )  # as agent/boot/slurmd.py
        agent.slot, agent.interruption = answer.node, answer.interruption
        if answer.ends and {"POWERING_DOWN", "POWERED_DOWN"} & self.slurm.nodes[answer.node].flags:
            self.model.mark_ended(instance.id, self.now)
            return
        if is_new:
            agent.incarnation, agent.boot_time, agent.up = answer.incarnation, self.now, False
            self._beat(instance, agent)

    def _senses(self, instance: str) -> tuple[tuple[Notice, ...], tuple[GpuFault, ...]]:
        """Return the output of the machine's metadata service and kernel."""
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
        if self.reconciler.receive_report(report):
            self._ring()

    def _tripped(self, point: Failpoint) -> None:
        self.hit(point)

    def _ring(self) -> None:
        self._calls += 1

    def _hook(self, kind: str, hostlist: str) -> None:
        new = self.folder / "spool" / "new"
        new.mkdir(parents=True, exist_ok=True)
        body = {"kind": kind, "hostlist": hostlist, "resume_file": None, "pid": 1, "time": self.now}
        (new / f"{int(self.now * 1000)}.{len(list(new.iterdir()))}.{kind}").write_text(json.dumps(body))
        self._ring()


def with_times(plan: SlurmOnAws, **changes: float) -> SlurmOnAws:
    return replace(plan, times=replace(plan.times, **changes))
