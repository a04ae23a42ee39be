"""The control plane of EKS: who reaches it, who may use it, and the second zone that it needs. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpucluster.catalog import Catalog, eks_addon_versions, kubernetes_node_image, kubernetes_node_release
from gpucluster.plan import kubernetes as kube
from gpucluster.plan import names
from gpucluster.plan.aws import subnet_of
from gpucluster.plan.eks import (
    ADDONS,
    LEAST_ZONES,
    SYSTEM_COUNT,
    SYSTEM_MACHINE,
    ami_type,
    is_private,
    other_zone,
)
from gpucluster.plan.model import Source, Subnet
from gpucluster.plan.model.eks import AccessEntry, Addon, EksControlPlane, NodeGroup
from gpucluster.plan.model.kubernetes import NodePool
from gpucluster.plan.model.values import EFA, Market
from gpucluster.plan.node_pools import filled
from gpucluster.plan.resolve.aws import interfaces_of
from gpucluster.spec.addons import addons_of
from gpucluster.spec.kubernetes import Kubernetes as KubernetesSpec
from gpucluster.spec.kubernetes import System
from gpucluster.spec.model import Aws as AwsSpec
from gpucluster.spec.model import Storage as StorageSpec
from gpucluster.spec.part import require


def control_plane(
    requested: KubernetesSpec,
    site: AwsSpec,
    catalog: Catalog,
    *,
    pools: Sequence[NodePool],
    storage: Sequence[StorageSpec],
) -> EksControlPlane:
    """The cluster of EKS."""
    return EksControlPlane(
        private_from=tuple(one for one in requested.api_from if is_private(one))
        or (require(site.network.cidr),),
        public_from=tuple(one for one in requested.api_from if not is_private(one)),
        entries=_entries(requested),
        groups=(
            _system(requested, site, catalog),
            *(group for pool in pools for group in _groups(requested, pool, site.region, catalog)),
        ),
        addons=_addons(requested.version, storage),
        spare=_spare(site, catalog),
    )


def _addons(version: str, storage: Sequence[StorageSpec]) -> tuple[Addon, ...]:
    """Those that every cluster has, and a driver for each kind of file system of the spec."""
    pins = eks_addon_versions(version)
    return tuple(
        Addon(name=name, version=pins.get(name), on_nodes=ADDONS[name]) for name in addons_of(storage)
    )


def _system(requested: KubernetesSpec, site: AwsSpec, catalog: Catalog) -> NodeGroup:
    """The nodes of add-ons and controllers, in every zone of the network."""
    part = requested.system or System()
    machine = part.machine or SYSTEM_MACHINE
    arch = names.KUBERNETES_ARCH[catalog.machines[machine].arch]
    return NodeGroup(
        key=f"{names.SYSTEM_NODES}-{machine}".replace(".", "-"),
        pool=names.SYSTEM_NODES,
        market=Market.ON_DEMAND,
        machines=(machine,),
        nodes=part.nodes or int(SYSTEM_COUNT.value),
        zones=tuple(site.network.places),
        ami=ami_type(arch, 0),
        release=_release(requested),
        root_gib=int(kube.ROOT_DISK_GIB.value),
        labels={names.LABEL_SYSTEM: names.SYSTEM_NODES},
    )


def _groups(requested: KubernetesSpec, pool: NodePool, region: str, catalog: Catalog) -> Iterator[NodeGroup]:
    """The node groups of a pool: one for each source with always-on nodes."""
    for source, nodes, zone in filled(pool.min, pool.sources):
        kind = source.reservation or source.market.value
        key = names.node_group(pool.of, kind, source.machines[0], region, zone)
        made = _group(pool, source, catalog, key=key, nodes=nodes, zone=zone)
        yield replace(made, release=_release(requested))


def _group(pool: NodePool, source: Source, catalog: Catalog, *, key: str, nodes: int, zone: str) -> NodeGroup:
    machines = _alike(source, catalog)
    interfaces = interfaces_of(catalog.machines[machines[0]]) if EFA in pool.allocatable else ()
    return NodeGroup(
        key=key,
        pool=pool.of,
        market=source.market,
        machines=machines,
        nodes=nodes,
        zones=(zone,),
        ami=ami_type(pool.arch, pool.gpu_count),
        release=None,
        reservation=source.reservation,
        interfaces=interfaces,
        placement=bool(interfaces) and nodes > 1 and source.market in (Market.SPOT, Market.ON_DEMAND),
        local_disks=pool.local_disks,
        root_gib=int(kube.ROOT_DISK_GIB.value),
        labels=pool.labels,
        taints=pool.taints,
    )


def _alike(source: Source, catalog: Catalog) -> tuple[str, ...]:
    """The machines of a source with the interfaces of its first one: a node group has one launch template."""
    first = interfaces_of(catalog.machines[source.machines[0]])
    if source.market is Market.CAPACITY_BLOCK:  # the template names its only machine
        return source.machines[:1]
    return tuple(one for one in source.machines if interfaces_of(catalog.machines[one]) == first)


def _release(requested: KubernetesSpec) -> str | None:
    image = requested.node_image or kubernetes_node_image(requested.version)
    if image is None or not image.startswith("v"):
        return image
    return kubernetes_node_release(requested.version, image)


def _entries(requested: KubernetesSpec) -> tuple[AccessEntry, ...]:
    """One entry for each principal, because EKS admits no second one."""
    groups = defaultdict[str, set[str]](set)
    for team in requested.teams:
        for principal in team.members:
            groups[principal].add(names.team_group(team.name))
    return tuple(
        AccessEntry(
            principal=principal,
            groups=tuple(sorted(groups.get(principal, ()))),
            admin=principal in requested.admins,
        )
        for principal in sorted({*groups, *requested.admins})
    )


def _spare(site: AwsSpec, catalog: Catalog) -> Subnet | None:
    """The part of the network in the first other zone of the region. Its addresses are the zone's own: the zone may join later."""
    used = site.network.places
    if len(used) >= LEAST_ZONES or site.network.vpc is not None:
        return None
    zone = other_zone(used, catalog.regions.get(site.region, ()))
    return None if zone is None else Subnet(zone=zone, cidr=subnet_of(require(site.network.cidr), zone))
