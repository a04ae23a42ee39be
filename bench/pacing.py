"""4,000 nodes with EC2's default token buckets, on a simulated clock: one job of 4,000, and 1,000 jobs of 4.

The limit is 1.05 times the limit of the bucket: a thousand instances at once, then two a second. Each row also has the
number of calls, of throttled calls, and of offers that were wrongly remembered as without capacity.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from bench.decide import some_bindings, wide_plan
from bench.figure import Figure, figure
from gpucluster.cloud.limits import INSTANCES
from gpucluster.elastic.act import Clients
from gpucluster.elastic.decide.world import slots_of
from gpucluster.elastic.executors import InlineExecutor
from gpucluster.elastic.journal import Journal
from gpucluster.elastic.reconciler import Reconciler
from gpucluster.plan.model import SlurmOnAws
from gpucluster.sandbox.aws.ec2.state.client import ModelCloud, ModelControl
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Timing
from gpucluster.slurm.values import SlurmJob, SlurmNode, SlurmReservation, SlurmView

NODES = 4000
OF_THE_BUCKET = 1.05
START = 1_000_000.0
POLL_S = 20.0  # longer than in a cluster, to save time: the daemon knows when the bucket has enough tokens
OFF = frozenset({"IDLE", "CLOUD", "POWERED_DOWN"})
WAKING = frozenset({"ALLOCATED", "CLOUD", "POWERING_UP", "NOT_RESPONDING"})
UP = frozenset({"ALLOCATED", "CLOUD"})


def run() -> Iterator[Figure]:
    """Simulated seconds until the last instance is launched."""
    size, refill = INSTANCES["RunInstances"]
    limit = (NODES - size) / refill
    for name, sizes in (("burst4000.one_job", (NODES,)), ("burst4000.1000_jobs", (4,) * (NODES // 4))):
        plan = wide_plan(2 * NODES)
        burst = Burst(replace(plan, times=replace(plan.times, poll_s=POLL_S)), sizes)
        took = burst.run(4 * limit)
        throttled = sum(call.code == "RequestLimitExceeded" for call in burst.model.trail)
        assert not burst.journal.memory.refusals, burst.journal.memory.refusals
        yield figure(name, took, "s simulated", limit * OF_THE_BUCKET)
        yield figure(f"{name}.calls", len(burst.cloud.launches), "calls", len(sizes) + limit / 2)
        yield figure(f"{name}.throttled", throttled, "calls", 1.0)
    yield from _machines_that_run_out()


def _machines_that_run_out() -> Iterator[Figure]:
    """250 nodes, of which the first machine type can give 100: single nodes by CreateFleet, jobs of two by RunInstances."""
    calls: list[int] = []
    for sizes in ((1,) * 250, (2,) * 125):
        burst = Burst(wide_plan(1000), sizes)
        burst.model.set_capacity("p5en.48xlarge", market="spot", free=100)
        burst.run(600.0)
        calls.append(sum(name in ("launch", "fleet") for name, _ in burst.cloud.calls))
    yield figure("burst250.single_nodes.calls_with_a_fleet_over_run_instances", calls[0], "calls", calls[1])


@dataclass
class Burst:
    """The daemon's reconciler, with a Slurm in which these jobs wait. A node is up as soon as it has an instance."""

    plan: SlurmOnAws
    sizes: Sequence[int]
    now: float = START
    folder: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="gpucluster-pacing-"))

    def __post_init__(self) -> None:
        self.bindings = some_bindings(self.plan)
        timing = Timing(pending_s=1.0, ending_s=20.0)
        self.model = CloudModel(Random(7), timing=timing)  # noqa: S311 -- the same each time
        zones = {subnet: zone for zone, subnet in self.bindings.subnets.items()}
        self.cloud = ModelCloud(self.model, lambda: self.now, zones)
        self.journal = Journal.open(Path(self.folder) / "journal.sqlite", self.now)
        self.slurm = WaitingSlurm(self.plan, self.sizes, self.journal)
        self.rung = False

    def run(self, patience_s: float) -> float:
        """Return the seconds until every node has an instance."""
        reconciler = self._reconciler()
        while self.slurm.lacking:
            assert self.now < START + patience_s, f"{self.slurm.lacking} nodes still wait"
            self.rung = False
            reconciler.observe()
            self.now += 0.1 if self.rung else reconciler.next_pass_s
        living = self.model.describe((), self.now)
        return max(i.launched_at for i in living) - START

    def _reconciler(self) -> Reconciler:
        executor = InlineExecutor()
        clients = Clients(
            cluster=self.plan.name,
            times=self.plan.times,
            cloud=self.cloud,
            slurm=self.slurm,
            control=ModelControl(),
            journal=self.journal,
            cloud_executor=executor,
            slurm_executor=executor,
            clock=lambda: self.now,
            start_pass=self._ring,
            hit=lambda _: None,
        )
        spool = Path(self.folder) / "spool"
        return Reconciler(
            self.plan, self.bindings, clients, spool, publish_nodes=lambda _: None, warn=lambda _: None
        )

    def _ring(self) -> None:
        self.rung = True


class WaitingSlurm:
    """A SlurmPort: jobs that are placed at the start and wait for their nodes."""

    def __init__(self, plan: SlurmOnAws, sizes: Sequence[int], journal: Journal) -> None:
        names = list(slots_of(plan))
        self._journal = journal
        self._nodes = {n: SlurmNode(name=n, states=OFF, address=n) for n in names}
        self._waiting: set[str] = set()
        self._jobs: list[SlurmJob] = []
        for number, size in enumerate(sizes, start=1):
            mine = tuple(names[len(self._waiting) : len(self._waiting) + size])
            self._waiting.update(mine)
            self._jobs.append(_job(number, mine))
        self._nodes |= {n: SlurmNode(name=n, states=WAKING, address=n) for n in self._waiting}

    @property
    def lacking(self) -> int:
        return len(self._waiting)

    def read(self, at: float) -> SlurmView:
        """Every node with an instance is up."""
        lives = self._journal.memory.incarnations
        for name in [n for n in self._waiting if n in lives and lives[n].instance]:
            self._waiting.discard(name)
            self._nodes[name] = replace(self._nodes[name], states=UP)
        return SlurmView(at=at, nodes=dict(self._nodes), jobs=tuple(self._jobs))

    def update_nodes(self, nodes: Sequence[str], state: str, reason: str | None = None) -> None:
        """Changes of nodes have no effect in this benchmark."""
        raise AssertionError(f"{state} of {len(nodes)} nodes: {reason}")

    def set_admin_comment(self, jobs: Sequence[int], text: str) -> None:
        raise AssertionError(f"jobs are told: {text}")

    def signal(self, jobs: Sequence[int], signal: str) -> None:
        raise AssertionError("no job is to be signalled")

    def requeue(self, jobs: Sequence[int], reason: str, *, held: bool = False) -> None:
        raise AssertionError(f"no job is to be requeued: {reason}")

    def set_reservation(self, reservation: SlurmReservation) -> None:
        raise AssertionError("there is no block")

    def delete_reservation(self, name: str) -> None:
        raise AssertionError("there is no block")


def _job(number: int, nodes: tuple[str, ...]) -> SlurmJob:
    return SlurmJob(
        id=number,
        states=frozenset({"RUNNING", "CONFIGURING"}),
        nodes=nodes,
        node_count=len(nodes),
        partitions=("gpu",),
        requeueable=True,
        batch=True,
        priority=10_000 - number,
    )
