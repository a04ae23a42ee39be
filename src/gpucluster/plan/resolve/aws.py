"""The parts of a plan on AWS: region, heads, login machines, pools with their slots and templates, leaves. Pure."""

from collections.abc import Callable, Iterator, Sequence, Set

from gpucluster.catalog import Catalog, Machine, environment
from gpucluster.plan import defaults, names
from gpucluster.plan.aws import head_address, hourly, standby_address
from gpucluster.plan.model import (
    Aws,
    AwsHead,
    AwsPool,
    Image,
    ImageById,
    ImageByName,
    Interface,
    InterfaceKind,
    LaunchTemplate,
    Leaf,
    Login,
    Network,
    Pool,
    Sessions,
    SiteSubnet,
    SlotRange,
    Source,
    Standby,
    Subnet,
)
from gpucluster.plan.model.values import Market
from gpucluster.plan.resolve import operations
from gpucluster.plan.resolve.network import network
from gpucluster.plan.resolve.places import s3_access
from gpucluster.plan.resolve.sharing import shared
from gpucluster.plan.resolve.storage import volumes
from gpucluster.slurm import hardware
from gpucluster.spec import ClusterSpec
from gpucluster.spec.aws import Image as ImageSpec
from gpucluster.spec.head import Sessions as SessionsSpec
from gpucluster.spec.head import Standby as StandbySpec
from gpucluster.spec.health import Health
from gpucluster.spec.model import Pool as PoolSpec
from gpucluster.spec.part import require
from gpucluster.spec.pools import sources_of


def site(spec: ClusterSpec) -> Aws:
    """Region and network, with the tags and limits of all resources."""
    aws = require(spec.aws)
    return Aws(
        region=aws.region,
        network=network(spec, aws),
        tags=tuple(sorted(aws.tags.items())),
        boundary=aws.boundary,
        kms_key=aws.kms_key,
        jobs=None if aws.jobs is None else s3_access(aws.jobs),
    )


def image(spec: ClusterSpec, slurm_version: str) -> Image:
    """The image of Slurm's machines; a pool may have its own."""
    return image_of(require(spec.aws).image or ImageSpec(), slurm_version)


def head(spec: ClusterSpec, network: Network) -> AwsHead:
    """The controller's machine, in the first zone of the network."""
    head = require(spec.head)
    return AwsHead(
        name=f"{spec.name}-head",
        machine=head.machine,
        zone=network.subnets[0].zone,
        address=_address(head.address, network.subnets[0], head_address),
        controller_port=names.CONTROLLER_PORT,
        registration_port=names.REGISTRATION_PORT,
        volumes=volumes(head, spec.storage),
        standby=None if head.standby is None else _standby(head.standby, network),
    )


def login(spec: ClusterSpec, network: Network, catalog: Catalog) -> Login | None:
    """The login machines, named by number, in the head's zone unless the spec names another."""
    login = spec.login
    if login is None:
        return None
    numbers = range(1, login.count + 1)
    return Login(
        machine=login.machine,
        zone=login.zone or network.subnets[0].zone,
        names=tuple(names.login_name(spec.name, number) for number in numbers),
        sessions=_sessions(login.sessions or SessionsSpec(), catalog.machines[login.machine]),
    )


def _sessions(requested: SessionsSpec, machine: Machine) -> Sessions:
    share, cpus = defaults.SESSION_SHARE.value, defaults.SESSION_CPUS.value
    return Sessions(
        memory_mib=requested.memory or int(machine.memory_mib * share),
        tasks=requested.tasks or int(defaults.SESSION_TASKS.value),
        cpus=requested.cpus or max(1, int(machine.vcpus * cpus)),
    )


def pool(
    pool: PoolSpec, site: Aws, slurm_version: str, catalog: Catalog, health: Health | None = None
) -> AwsPool:
    """Slots in each zone of a source, and a launch template for each (source, machine)."""
    zones, nodes = tuple(subnet.zone for subnet in site.network.subnets), require(pool.nodes)
    sources = sources_of(pool, zones)
    templates = tuple(_templates(pool.name, sources, site.region, catalog))
    used = {zone for source in sources for zone in source.zones}
    return AwsPool(
        name=pool.name,
        min=nodes.min,
        max=nodes.max,
        idle_s=int(defaults.IDLE_S.value) if pool.idle is None else pool.idle,
        boot_timeout_s=int(defaults.BOOT_TIMEOUT_S.value) if pool.boot_timeout is None else pool.boot_timeout,
        shape=hardware.without_reserved(
            shared(
                hardware.of_aws([catalog.machines[name] for source in sources for name in source.machines]),
                pool.sharing,
            ),
            pool.extra,
        ),
        sources=sources,
        slots=tuple(_slots(pool.name, nodes.max, site.region, zone) for zone in zones if zone in used),
        features=tuple(sorted({*features_of(pool.name, sources, catalog), *pool.features})),
        templates=templates,
        health_limit=operations.health_limit(health, nodes.max),
        replacements_per_hour=operations.replacements_per_hour(health, nodes.max),
        spares=pool.spares,
        termination=operations.termination(pool.termination),
        job_heartbeat=operations.job_heartbeat(pool.job_heartbeat),
        breaker=operations.breaker(pool.breaker),
        on_boot=operations.boot_scripts(pool.on_boot),
        image=None if pool.image is None else image_of(pool.image, slurm_version),
        placement=placed(pool.placement, nodes.max, templates),
        environment=environment.of_pool(
            fabric_of(templates), [template.machine for template in templates], nodes=nodes.max
        ),
    )


def fabric_of(templates: Sequence[LaunchTemplate]) -> str:
    """EFA only if every machine of the pool has it: the nodes of a job share one environment."""
    return environment.EFA if all(template.interfaces for template in templates) else environment.ETHERNET


def placed(requested: str | None, most: int, templates: Sequence[LaunchTemplate]) -> bool:
    """Whether a placement group is useful and possible: reserved and prepaid capacity already has its place (T27)."""
    free = [template for template in templates if template.market in (Market.SPOT, Market.ON_DEMAND)]
    if requested is not None:
        return requested == "cluster" and bool(free)
    return most > 1 and any(template.interfaces for template in free)


def features_of(pool: str, sources: Sequence[Source], catalog: Catalog) -> tuple[str, ...]:
    """What is known of a node before its launch: GPU model, pool, and market and machine type if the pool has only one.

    The name of a pool is left out if it is the name of a market or of a GPU model: another pool has what it says.
    """
    machines = {name for source in sources for name in source.machines}
    markets = {source.market.value for source in sources}
    models = {machine.gpu.model for machine in catalog.machines.values() if machine.gpu is not None}
    gpus = {gpu.model for name in machines if (gpu := catalog.machines[name].gpu) is not None}
    named: set[str] = set() if pool in models or pool in set(Market) else {pool}
    return tuple(sorted({*gpus, *named, *_only(markets), *_only(machines)}))


def _only(values: Set[str]) -> Set[str]:
    """The value if there is only one."""
    return values if len(values) == 1 else set()


def _slots(pool: str, most: int, region: str, zone: str) -> SlotRange:
    return SlotRange(zone=zone, prefix=names.slot_prefix(pool, region, zone), first=1, last=most)


def image_of(image: ImageSpec, slurm_version: str) -> Image:
    os = image.os or defaults.IMAGE_OS
    if image.ami is not None:
        return ImageById(os=os, id=image.ami)
    return ImageByName(os=os, name=names.image_name(os, slurm_version))


def _standby(standby: StandbySpec, network: Network) -> Standby:
    subnet = next(subnet for subnet in network.subnets if subnet.zone == standby.zone)
    address = _address(standby.address, subnet, standby_address)
    return Standby(machine=standby.machine, zone=standby.zone, address=address, state=standby.state)


def _address(named: str | None, subnet: Subnet | SiteSubnet, fixed: Callable[[str], str]) -> str:
    """The address in the spec, or the fixed one of our own subnet. In a subnet of the site the spec must have it (a rule checks it)."""
    return fixed(subnet.cidr) if named is None and isinstance(subnet, Subnet) else require(named)


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


_PRIMARY = Interface(card=0, device=0, kind=InterfaceKind.ENA)


def interfaces_of(machine: Machine) -> tuple[Interface, ...]:
    """Return the interfaces of a machine with EFA; empty without EFA. Only the interface of card 0 has an IP address, so a node uses one address."""
    if not machine.efa_cards:
        return ()
    fabric = [_efa(card) for card in machine.efa_cards if card or machine.card_interfaces > 1]
    return (_PRIMARY, *fabric[: machine.efa])


def _efa(card: int) -> Interface:
    """On card 0 it is beside the primary interface."""
    return Interface(card=card, device=0 if card else 1, kind=InterfaceKind.EFA_ONLY)


def leaves(zones: Sequence[str], pools: Sequence[Pool]) -> tuple[Leaf, ...]:
    """One leaf for each pool in each zone, in the order of `zones`: no job has nodes of two pools.

    The machines of two pools differ in GPU model or placement group, so a gang over both would run at the slower speed (S17).
    """
    spans = ((pool, span) for zone in zones for pool in pools for span in pool.slots if span.zone == zone)
    return tuple(Leaf(name=span.prefix.rstrip("-"), slots=(span,)) for _, span in spans)
