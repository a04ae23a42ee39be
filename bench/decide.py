"""`decide` over 10,000 slots and 1,000 jobs that ask for nodes at once, and the same world when all is quiet."""

from collections.abc import Iterator

from bench.figure import Figure, figure, median_ms
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
from gpucluster.plan.model import (
    Bindings,
    ClusterPlan,
    Head,
    LaunchTemplate,
    Market,
    Network,
    NodeShape,
    Partition,
    Pool,
    SlotRange,
    Slurm,
    Source,
    TemplateBinding,
    Times,
)

LIMIT_MS = 100.0
TIMES = 11
NODES, JOBS, ZONES = 10_000, 1_000, ("us-east-1a", "us-east-1b")
NOW = 1_000_000.0
OFF = frozenset({"IDLE", "CLOUD", "POWERED_DOWN"})
BUSY = frozenset({"ALLOCATED", "CLOUD", "POWERING_UP", "NOT_RESPONDING"})


def run() -> Iterator[Figure]:
    """1,000 gangs of two on powering-up nodes; then none."""
    plan, bindings = _plan(), _bindings()
    burst, quiet = _observation(plan, JOBS), _observation(plan, 0)
    actions = decide(plan, bindings, burst, Memory(epoch="e"), NOW)
    assert sum(isinstance(a, LaunchGang) for a in actions) == JOBS
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


def _plan() -> ClusterPlan:
    machines = ("p5en.48xlarge", "p5e.48xlarge")
    sources = (
        Source(position=0, market=Market.SPOT, machines=machines, zones=ZONES, max=None),
        Source(position=1, market=Market.ON_DEMAND, machines=machines[:1], zones=ZONES, max=1000),
    )
    shape = NodeShape(
        sockets=2,
        cores_per_socket=48,
        threads_per_core=2,
        real_memory_mib=2_000_000,
        gpu_model="h200",
        gpu_count=8,
    )
    each = NODES // len(ZONES)
    pool = Pool(
        name="h200",
        min=0,
        max=NODES,
        idle_s=300,
        boot_timeout_s=1200,
        shape=shape,
        sources=sources,
        slots=tuple(SlotRange(zone=z, prefix=f"h200-{z[-2:]}-", first=1, last=each) for z in ZONES),
        templates=tuple(
            LaunchTemplate(key=f"h200-{s.position}-{m}", source=s.position, machine=m, market=s.market)
            for s in sources
            for m in s.machines
        ),
    )
    times = Times(
        suspend_timeout_s=120,
        cred_expire_s=60,
        poll_s=2.0,
        reconcile_s=60.0,
        heartbeat_s=10.0,
        orphan_grace_s=300.0,
        refusal_s=120.0,
        refusal_max_s=1800.0,
        self_end_s=1800.0,
    )
    return ClusterPlan(
        schema=1,
        name="bench",
        region="us-east-1",
        image="image",
        network=Network(cidr="10.0.0.0/8", subnets=()),
        head=Head(
            name="head",
            machine="m7i.2xlarge",
            zone=ZONES[0],
            address="10.0.0.4",
            controller_port=6817,
            registration_port=6890,
        ),
        slurm=Slurm(version="24.11"),
        pools=(pool,),
        partitions=(Partition(name="gpu", pools=("h200",), default=True, max_time_s=None),),
        leaves=(),
        times=times,
    )


def _bindings() -> Bindings:
    keys = [t.key for t in _plan().pools[0].templates]
    return Bindings(
        schema=1,
        region="us-east-1",
        bucket="bucket",
        secret="arn",  # noqa: S106 -- a name
        subnets={zone: f"subnet-{zone}" for zone in ZONES},
        templates={key: TemplateBinding(id=f"lt-{key}", version=1) for key in keys},
    )
