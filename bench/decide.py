"""`decide` over 10,000 slots and 1,000 jobs that ask for nodes at once, and the same world when all is quiet."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.figure import Figure, figure, median_ms
from gpucluster import catalog
from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.world import slots_of
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import (
    CloudView,
    LaunchGang,
    Observation,
    Remember,
    SlurmJob,
    SlurmNode,
    SlurmView,
)
from gpucluster.plan.model import Bindings, ClusterPlan, TemplateBinding
from gpucluster.plan.resolve import resolve
from gpucluster.spec import load

STACK = Path(__file__).parent.parent / "stacks" / "burst.yaml"
LIMIT_MS = 100.0
TIMES = 11
NODES, JOBS, ZONES = 10_000, 1_000, ("us-east-1a", "us-east-1b")
AT_ONCE = 500  # of the gangs of two: the API's bucket holds a thousand instances
NOW = 1_000_000.0
OFF = frozenset({"IDLE", "CLOUD", "POWERED_DOWN"})
BUSY = frozenset({"ALLOCATED", "CLOUD", "POWERING_UP", "NOT_RESPONDING"})


def run() -> Iterator[Figure]:
    """1,000 gangs of two on powering-up nodes; then none."""
    plan = wide_plan(NODES)
    bindings = some_bindings(plan)
    burst, quiet = _observation(plan, JOBS), _observation(plan, 0)
    actions = decide(plan, bindings, burst, Memory(epoch="e"), NOW)
    served = [len(a.ask.gangs) for a in actions if isinstance(a, LaunchGang)]
    assert sum(served) == AT_ONCE, served
    value = median_ms(lambda: decide(plan, bindings, burst, Memory(epoch="e"), NOW), TIMES)
    yield figure("decide.10000_nodes.1000_requests", value, "ms", LIMIT_MS)
    known = fold(Memory(epoch="e"), [e for a in actions if isinstance(a, Remember) for e in a.entries])
    value = median_ms(lambda: decide(plan, bindings, quiet, known, NOW), TIMES)
    yield figure("decide.10000_nodes.after_the_burst", value, "ms", LIMIT_MS)


def _observation(plan: ClusterPlan, jobs: int) -> Observation:
    names = list(slots_of(plan))
    nodes = {n: SlurmNode(name=n, states=OFF, address=n) for n in names}
    queue: list[SlurmJob] = []
    for number in range(jobs):
        mine = tuple(names[2 * number : 2 * number + 2])
        nodes |= {n: SlurmNode(name=n, states=BUSY, address=n) for n in mine}
        queue.append(_job(number + 1, mine))
    slurm = SlurmView(at=NOW, nodes=nodes, jobs=tuple(queue))
    return Observation(slurm=slurm, cloud=CloudView(at=NOW, instances={}))


def _job(number: int, nodes: tuple[str, ...]) -> SlurmJob:
    return SlurmJob(
        id=number,
        states=frozenset({"RUNNING", "CONFIGURING"}),
        nodes=nodes,
        node_count=len(nodes),
        partitions=("gpu",),
        requeueable=True,
        batch=True,
        priority=1000 - number,
    )


def wide_plan(nodes: int) -> ClusterPlan:
    """The first stack as it resolves, its one pool widened to so many slots."""
    plan = resolve(load(STACK), catalog.load())
    (pool,) = plan.pools
    slots = tuple(replace(span, last=nodes // len(pool.slots)) for span in pool.slots)
    spot, on_demand = pool.sources
    return replace(
        plan, pools=(replace(pool, max=nodes, slots=slots, sources=(spot, replace(on_demand, max=1000))),)
    )


def some_bindings(plan: ClusterPlan) -> Bindings:
    """Made-up ids for what the plan needs."""
    keys = [t.key for t in plan.pools[0].templates]
    return Bindings(
        schema=1,
        region="us-east-1",
        bucket="bucket",
        secret="arn",  # noqa: S106 -- a name
        subnets={zone: f"subnet-{zone}" for zone in ZONES},
        templates={key: TemplateBinding(id=f"lt-{key}", version=1) for key in keys},
    )
