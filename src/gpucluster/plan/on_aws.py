"""The parts of a plan that stand on AWS: network, head, and pools whose slots are filled on demand. Pure."""

from collections.abc import Iterator, Sequence

from gpucluster.catalog import Catalog, Machine, Prices
from gpucluster.plan import care, defaults, names
from gpucluster.plan.addresses import head_address, subnet_of
from gpucluster.plan.model import (
    Aws,
    Head,
    Image,
    LaunchTemplate,
    Network,
    NodeShape,
    Pool,
    SlotRange,
    Source,
    Subnet,
    there,
)
from gpucluster.plan.prices import hourly
from gpucluster.spec.model import Aws as AwsSpec
from gpucluster.spec.model import Pool as PoolSpec


def site(wish: AwsSpec, slurm_version: str | None) -> Aws:
    """Region, network, and the image of Slurm's machines if there are any."""
    os = defaults.IMAGE_OS
    image = None if slurm_version is None else Image(os=os, name=names.image_name(os, slurm_version))
    return Aws(region=wish.region, image=image, network=_network(wish))


def _network(wish: AwsSpec) -> Network:
    cidr, zones = wish.network.cidr, wish.network.zones
    return Network(cidr=cidr, subnets=tuple(Subnet(zone=zone, cidr=subnet_of(cidr, zone)) for zone in zones))


def head(cluster: str, machine: str, network: Network) -> Head:
    """The controller stands in the first of the network's zones."""
    subnet = network.subnets[0]
    return Head(
        name=f"{cluster}-head",
        machine=machine,
        zone=subnet.zone,
        address=head_address(subnet.cidr),
        controller_port=names.CONTROLLER_PORT,
        registration_port=names.REGISTRATION_PORT,
    )


def pool(pool: PoolSpec, site: AwsSpec, catalog: Catalog) -> Pool:
    """Slots in each zone that a source uses, and a launch template for each (source, machine)."""
    zones, nodes = site.network.zones, there(pool.nodes)
    sources = sources_of(pool, zones)
    used = {zone for source in sources for zone in source.zones}
    return Pool(
        name=pool.name,
        min=nodes.min,
        max=nodes.max,
        idle_s=int(defaults.IDLE_S.value) if pool.idle is None else pool.idle,
        boot_timeout_s=int(defaults.BOOT_TIMEOUT_S.value) if pool.boot_timeout is None else pool.boot_timeout,
        shape=shape_of([catalog.machines[name] for source in sources for name in source.machines]),
        sources=sources,
        slots=tuple(_slots(pool.name, nodes.max, site.region, zone) for zone in zones if zone in used),
        templates=tuple(_templates(pool.name, sources, site.region, catalog.prices)),
        spares=pool.spares,
        farewell=care.farewell(pool.farewell),
        hung=care.hung(pool.hung),
        breaker=care.breaker(pool.breaker),
    )


def sources_of(pool: PoolSpec, zones: tuple[str, ...]) -> tuple[Source, ...]:
    return tuple(
        Source(
            position=position,
            market=wish.source,
            machines=wish.machines,
            zones=wish.zones or zones,
            max=wish.max,
            reservation=wish.id,
            max_price=wish.max_price,
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


def _slots(pool: str, most: int, region: str, zone: str) -> SlotRange:
    return SlotRange(zone=zone, prefix=names.slot_prefix(pool, region, zone), first=1, last=most)


def _templates(pool: str, sources: Sequence[Source], region: str, prices: Prices) -> Iterator[LaunchTemplate]:
    for source in sources:
        for machine in source.machines:
            yield LaunchTemplate(
                key=names.template_key(pool, source.position, machine),
                source=source.position,
                machine=machine,
                market=source.market,
                price=hourly(prices, region, machine, source.market, source.max_price),
            )
