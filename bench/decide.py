"""`decide` over 10,000 slots with 1,000 new jobs, and over the same world without a change."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.figure import Figure, figure, own_cpu_ms, unit_ms
from gpucluster import catalog
from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.world import slots_of
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import CloudView, LaunchGang, Observation, RecordEvents
from gpucluster.plan.model import Bindings, SlurmOnAws, TemplateBinding
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.values import SlurmJob, SlurmNode, SlurmView
from gpucluster.spec import load

STACK = Path(__file__).parent.parent / "stacks" / "burst.yaml"
LIMIT = 42.0  # units of this machine's speed; measured 29 and 14
TIMES = 11
NODES, JOBS, ZONES = 10_000, 1_000, ("us-east-1a", "us-east-1b")
AT_ONCE = 500  # gangs of two: EC2's token bucket holds a thousand instances
NOW = 1_000_000.0
OFF = frozenset({"IDLE", "CLOUD", "POWERED_DOWN"})
BUSY = frozenset({"ALLOCATED", "CLOUD", "POWERING_UP", "NOT_RESPONDING"})


def run() -> Iterator[Figure]:
    """1,000 gangs of two on nodes that power up; then none."""
    plan = wide_plan(NODES)
    bindings = some_bindings(plan)
    burst, quiet = _observation(plan, JOBS), _observation(plan, 0)
    actions = decide(plan, bindings, burst, Memory(epoch="e"), NOW)
    served = [len(a.request.gangs) for a in actions if isinstance(a, LaunchGang)]
    assert sum(served) == AT_ONCE, served
    value = own_cpu_ms(lambda: decide(plan, bindings, burst, Memory(epoch="e"), NOW), TIMES)
    yield figure("decide.10000_nodes.1000_requests", value, "ms", LIMIT * unit_ms())
    known = fold(Memory(epoch="e"), [e for a in actions if isinstance(a, RecordEvents) for e in a.entries])
    value = own_cpu_ms(lambda: decide(plan, bindings, quiet, known, NOW), TIMES)
    yield figure("decide.10000_nodes.after_the_burst", value, "ms", LIMIT * unit_ms())


def _observation(plan: SlurmOnAws, jobs: int) -> Observation:
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


def wide_plan(nodes: int) -> SlurmOnAws:
    """Return the plan of the first stack with this number of slots in its pool."""
    plan = resolve(load(STACK), catalog.load())
    assert isinstance(plan, SlurmOnAws)
    (pool,) = plan.pools
    slots = tuple(replace(span, last=nodes // len(pool.slots)) for span in pool.slots)
    spot, on_demand = pool.sources
    return replace(
        plan, pools=(replace(pool, max=nodes, slots=slots, sources=(spot, replace(on_demand, max=1000))),)
    )


def some_bindings(plan: SlurmOnAws) -> Bindings:
    """Return invented ids for the plan."""
    keys = [t.key for t in plan.pools[0].templates]
    return Bindings(
        schema=1,
        region="us-east-1",
        bucket="bucket",
        secret="arn",  # noqa: S106 -- a name
        subnets={zone: f"subnet-{zone}" for zone in ZONES},
        templates={key: TemplateBinding(id=f"lt-{key}", version=1) for key in keys},
    )
