"""Spec and catalog to plan. Pure; a spec that `spec.load` passed always resolves."""

from collections.abc import Sequence

from gpucluster.catalog import Catalog, Machine
from gpucluster.plan import defaults, names
from gpucluster.plan.addresses import head_address, subnet_of
from gpucluster.plan.model import (
    ClusterPlan,
    Head,
    LaunchTemplate,
    Network,
    NodeShape,
    Partition,
    Pool,
    SlotRange,
    Slurm,
    Source,
    Subnet,
)
from gpucluster.plan.topology import leaves
from gpucluster.spec import ClusterSpec
from gpucluster.spec.model import Partition as PartitionSpec
from gpucluster.spec.model import Pool as PoolSpec

PLAN_SCHEMA = 1


def resolve(spec: ClusterSpec, catalog: Catalog) -> ClusterPlan:
    """Take every default and decide every name, address and fact."""
    network = _network(spec)
    pools = tuple(_pool(pool, spec, catalog) for pool in spec.pools)
    return ClusterPlan(
        schema=PLAN_SCHEMA,
        name=spec.name,
        region=spec.aws.region,
        image=f"gpucluster-slurm-{spec.slurm.version}",
        network=network,
        head=_head(spec, network),
        slurm=Slurm(version=spec.slurm.version),
        pools=pools,
        partitions=tuple(_partition(partition) for partition in spec.partitions),
        leaves=leaves(spec.aws.network.zones, pools),
        times=defaults.times(max(pool.boot_timeout_s for pool in pools)),
    )


def _network(spec: ClusterSpec) -> Network:
    cidr = spec.aws.network.cidr
    zones = spec.aws.network.zones
    return Network(cidr=cidr, subnets=tuple(Subnet(zone=zone, cidr=subnet_of(cidr, zone)) for zone in zones))


def _head(spec: ClusterSpec, network: Network) -> Head:
    subnet = network.subnets[0]
    return Head(
        name=f"{spec.name}-head",
        machine=spec.head.machine,
        zone=subnet.zone,
        address=head_address(subnet.cidr),
        controller_port=names.CONTROLLER_PORT,
        registration_port=names.REGISTRATION_PORT,
    )


def _pool(pool: PoolSpec, spec: ClusterSpec, catalog: Catalog) -> Pool:
    zones = spec.aws.network.zones
    sources = _sources(pool, zones)
    used = {zone for source in sources for zone in source.zones}
    return Pool(
        name=pool.name,
        min=pool.nodes.min,
        max=pool.nodes.max,
        idle_s=int(defaults.IDLE_S.value) if pool.idle is None else pool.idle,
        boot_timeout_s=int(defaults.BOOT_TIMEOUT_S.value) if pool.boot_timeout is None else pool.boot_timeout,
        shape=shape_of([catalog.machines[name] for source in sources for name in source.machines]),
        sources=sources,
        slots=tuple(_slots(pool, spec.aws.region, zone) for zone in zones if zone in used),
        templates=tuple(_template(pool.name, s, machine) for s in sources for machine in s.machines),
    )


def _sources(pool: PoolSpec, zones: tuple[str, ...]) -> tuple[Source, ...]:
    return tuple(
        Source(
            position=position,
            market=wish.source,
            machines=wish.machines,
            zones=wish.zones or zones,
            max=wish.max,
        )
        for position, wish in enumerate(pool.capacity)
    )


def shape_of(machines: Sequence[Machine]) -> NodeShape:
    """What Slurm is told of nodes that may be any of `machines`: the least cores, the least memory."""
    small = min(machines, key=lambda m: (m.sockets * m.cores_per_socket * m.threads_per_core, m.name))
    gpu = small.gpu
    return NodeShape(
        sockets=small.sockets,
        cores_per_socket=small.cores_per_socket,
        threads_per_core=small.threads_per_core,
        real_memory_mib=min(m.memory_mib for m in machines) * int(defaults.MEMORY_PERCENT.value) // 100,
        gpu_model=None if gpu is None else gpu.model,
        gpu_count=0 if gpu is None else gpu.count,
    )


def _slots(pool: PoolSpec, region: str, zone: str) -> SlotRange:
    return SlotRange(
        zone=zone, prefix=names.slot_prefix(pool.name, region, zone), first=1, last=pool.nodes.max
    )


def _template(pool: str, source: Source, machine: str) -> LaunchTemplate:
    key = names.template_key(pool, source.position, machine)
    return LaunchTemplate(key=key, source=source.position, machine=machine, market=source.market)


def _partition(wish: PartitionSpec) -> Partition:
    return Partition(name=wish.name, pools=wish.pools, default=wish.default, max_time_s=wish.max_time)
