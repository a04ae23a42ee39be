"""The parts of a plan that stand on AWS: network, head, and pools whose slots are filled on demand. Pure."""

from collections.abc import Iterator, Sequence

from gpucluster.catalog import Catalog, Machine
from gpucluster.plan import care, defaults, names
from gpucluster.plan.addresses import head_address, standby_address
from gpucluster.plan.interfaces import interfaces_of
from gpucluster.plan.market import Market
from gpucluster.plan.model import (
    Aws,
    Head,
    Image,
    Jobs,
    LaunchTemplate,
    Login,
    Network,
    NodeShape,
    Pool,
    SlotRange,
    Source,
    Standby,
    there,
)
from gpucluster.plan.on_network import network
from gpucluster.plan.prices import hourly
from gpucluster.plan.storage import volumes
from gpucluster.spec import ClusterSpec
from gpucluster.spec.aws import Image as ImageSpec
from gpucluster.spec.aws import Jobs as JobsSpec
from gpucluster.spec.head import Standby as StandbySpec
from gpucluster.spec.model import Pool as PoolSpec


def site(spec: ClusterSpec) -> Aws:
    """Region, network, the image of Slurm's machines if there are any, and what marks and bounds it all."""
    wish = there(spec.aws)
    return Aws(
        region=wish.region,
        image=None if spec.slurm is None else _image(wish.image or ImageSpec(), spec.slurm.version),
        network=network(spec),
        tags=tuple(sorted(wish.tags.items())),
        boundary=wish.boundary,
        jobs=None if wish.jobs is None else _jobs(wish.jobs),
    )


def head(spec: ClusterSpec, network: Network) -> Head | None:
    """The controller stands in the first of the network's zones."""
    wish = spec.head
    if wish is None:
        return None
    subnet = network.subnets[0]
    return Head(
        name=f"{spec.name}-head",
        machine=wish.machine,
        zone=subnet.zone,
        address=wish.address or head_address(subnet.cidr),
        controller_port=names.CONTROLLER_PORT,
        registration_port=names.REGISTRATION_PORT,
        volumes=volumes(wish, spec.storage),
        standby=None if wish.standby is None else _standby(wish.standby, network),
    )


def login(spec: ClusterSpec, network: Network) -> Login | None:
    """Named by number; beside the head if no zone was wished."""
    wish = spec.login
    if wish is None:
        return None
    numbers = range(1, wish.count + 1)
    return Login(
        machine=wish.machine,
        zone=wish.zone or network.subnets[0].zone,
        names=tuple(names.login_name(spec.name, number) for number in numbers),
    )


def pool(pool: PoolSpec, site: Aws, slurm_version: str, catalog: Catalog) -> Pool:
    """Slots in each zone that a source uses, and a launch template for each (source, machine)."""
    zones, nodes = tuple(subnet.zone for subnet in site.network.subnets), there(pool.nodes)
    sources = sources_of(pool, zones)
    templates = tuple(_templates(pool.name, sources, site.region, catalog))
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
        templates=templates,
        spares=pool.spares,
        farewell=care.farewell(pool.farewell),
        hung=care.hung(pool.hung),
        breaker=care.breaker(pool.breaker),
        image=None if pool.image is None else _image(pool.image, slurm_version),
        placement=placed(pool.placement, nodes.max, templates),
    )


def placed(wish: str | None, most: int, templates: Sequence[LaunchTemplate]) -> bool:
    """Near each other where that helps and is not decided already: what was bought ahead stands where it stands (T27)."""
    free = [template for template in templates if template.market in (Market.SPOT, Market.ON_DEMAND)]
    if wish is not None:
        return wish == "cluster" and bool(free)
    return most > 1 and any(template.interfaces for template in free)


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


def _image(wish: ImageSpec, slurm_version: str) -> Image:
    os = wish.os or defaults.IMAGE_OS
    if wish.ami is not None:
        return Image(os=os, id=wish.ami)
    return Image(os=os, name=names.image_name(os, slurm_version))


def _jobs(wish: JobsSpec) -> Jobs:
    """By name: the order of a list of rights says nothing."""
    read, write = ({place.rstrip("/") for place in places} for places in (wish.read, wish.write))
    return Jobs(read=tuple(sorted(read)), write=tuple(sorted(write)))


def _standby(wish: StandbySpec, network: Network) -> Standby:
    subnet = next(subnet for subnet in network.subnets if subnet.zone == wish.zone)
    address = wish.address or standby_address(subnet.cidr)
    return Standby(machine=wish.machine, zone=wish.zone, address=address, state=wish.state)


def _templates(
    pool: str, sources: Sequence[Source], region: str, catalog: Catalog
) -> Iterator[LaunchTemplate]:
    for source in sources:
        for machine in source.machines:
            yield LaunchTemplate(
                key=names.template_key(pool, source.reservation or source.market, machine),
                source=source.position,
                machine=machine,
                market=source.market,
                price=hourly(catalog.prices, region, machine, source.market, source.max_price),
                interfaces=interfaces_of(catalog.machines[machine]),
                root_gib=int(defaults.ROOT_GIB.value),
            )
