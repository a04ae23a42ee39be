"""Karpenter's objects for elastic pools. Karpenter does not manage always-on nodes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpucluster.k8s.manifest import scalar
from gpucluster.k8s.site import Site
from gpucluster.plan import kubernetes as kube
from gpucluster.plan import names
from gpucluster.plan.model.capacity import Launch
from gpucluster.plan.model.kubernetes import NodePool
from gpucluster.plan.model.values import CPU, Distribution, Market, quantity

_CAPACITY_TYPES = {  # https://karpenter.sh/docs/tasks/odcrs: capacity blocks are reserved capacity, too
    Market.RESERVATION: "reserved",
    Market.CAPACITY_BLOCK: "reserved",
    Market.SPOT: "spot",
    Market.ON_DEMAND: "on-demand",
}
_OURS = {names.TAG_ROLE: names.ROLE_KUBERNETES}
_STEP = 10  # between weights, where it leaves room for all sources


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClass:
    """templates/k8s/nodeclass.yaml.j2"""

    name: str
    labels: str
    role: str
    profile: str
    image: str
    subnet_tags: str
    group_tags: str
    interfaces: str
    reservations: str
    disks: str
    root_disk: str
    key: str
    tags: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementLine:
    """The allowed values of one label of a node."""

    key: str
    allowed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KarpenterPool:
    """templates/k8s/nodepool.yaml.j2"""

    name: str
    labels: str
    weight: str
    limits: str
    idle: str
    node_labels: str
    class_name: str
    taints: str
    requirements: tuple[RequirementLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """templates/k8s/overlay.yaml.j2"""

    name: str
    labels: str
    pools: str
    capacity: str


def classes(site: Site) -> Iterator[tuple[str, NodeClass]]:
    cluster = {names.TAG_CLUSTER: site.plan.name}
    ours = site.kubernetes.distribution is Distribution.EKS
    for pool in _elastic(site):
        yield (
            f"class-{pool.name}",
            NodeClass(
                name=scalar(site.name(pool.name)),
                labels=scalar(site.labels),
                image=scalar(f"al2023@{site.kubernetes.node_image or 'latest'}"),
                role=scalar(None if ours else names.kubernetes_node_role(site.plan.name)),
                profile=scalar(names.kubernetes_node_role(site.plan.name) if ours else None),
                # Public subnets have the tag of the cluster, too, and no way out for a node without a public address.
                subnet_tags=scalar({**cluster, **(_OURS if ours else {})}),
                group_tags=scalar({**cluster, **_OURS}),
                interfaces=scalar(_interfaces(pool) or None),
                reservations=scalar([{"id": one} for one in _reservations(pool)] or None),
                disks=scalar("RAID0" if pool.local_disks else None),
                root_disk=scalar(f"{kube.ROOT_DISK_GIB.value:g}Gi"),
                key=scalar(site.plan.aws.kms_key),
                tags=scalar({**dict(site.plan.aws.tags), **cluster, names.TAG_POOL: pool.name, **_OURS}),
            ),
        )


def pools(site: Site) -> Iterator[tuple[str, KarpenterPool]]:
    """Return one NodePool for each launch, because only NodePools are tried in order."""
    for pool in _elastic(site):
        for launch in pool.launches:
            yield f"pool-{pool.name}-{launch.positions[0]}", _pool(site, pool, launch)


def overlays(site: Site) -> Iterator[tuple[str, Overlay]]:
    for pool in _elastic(site):
        unknown = {name: quantity(name, amount) for name, amount in pool.unknown_to_karpenter.items()}
        if unknown:
            yield (
                f"overlay-{pool.name}",
                Overlay(
                    name=scalar(site.name(pool.name)),
                    labels=scalar(site.labels),
                    pools=scalar([_name(site, pool, launch) for launch in pool.launches]),
                    capacity=scalar(unknown),
                ),
            )


def _elastic(site: Site) -> Iterator[NodePool]:
    return (pool for pool in site.kubernetes.pools if pool.launches)


def _pool(site: Site, pool: NodePool, launch: Launch) -> KarpenterPool:
    return KarpenterPool(
        name=scalar(_name(site, pool, launch)),
        labels=scalar(site.labels),
        weight=scalar(_weight(pool, launch)),
        limits=scalar(_limits(pool, launch)),
        idle=scalar(f"{pool.idle_s}s"),
        node_labels=scalar(pool.labels),
        class_name=scalar(site.name(pool.name)),
        taints=scalar(
            [{"key": t.key, "value": t.value, "effect": t.effect} for t in pool.elastic_taints] or None
        ),
        requirements=tuple(
            RequirementLine(key=scalar(key), allowed=scalar(list(allowed)))
            for key, allowed in _requirements(pool, launch).items()
        ),
    )


def _weight(pool: NodePool, launch: Launch) -> int:
    """Return the weight. Karpenter tries the highest first, and of equal ones the last name first."""
    step = _STEP if len(pool.sources) * _STEP <= kube.MAX_WEIGHT else 1
    return kube.MAX_WEIGHT - step * launch.positions[0]


def _requirements(pool: NodePool, launch: Launch) -> dict[str, Iterable[str]]:
    types = dict.fromkeys(_CAPACITY_TYPES[market] for market in launch.markets)
    reservations = {"karpenter.k8s.aws/capacity-reservation-id": launch.reservations}
    return {
        "node.kubernetes.io/instance-type": launch.machines,
        "karpenter.sh/capacity-type": types,
        **(reservations if _reserved(launch) else {}),
        names.LABEL_ZONE: launch.zones,
        "kubernetes.io/arch": [pool.arch],
        "kubernetes.io/os": ["linux"],
    }


def _limits(pool: NodePool, launch: Launch) -> dict[str, str]:
    """Return the limits by nodes, by the CPUs of the largest machine, and by GPUs or slices.

    Karpenter counts nodes only of earlier rounds: in one round it starts as many as its pods need, because `nodes` is no resource of a
    machine type (v1.14.1, pkg/controllers/provisioning/scheduling/scheduler.go, subtractMax). It counts GPUs, slices and CPUs in a round, too.
    Nodes that still have the slices of an earlier spec count by nodes and CPUs alone.
    """
    largest = max(pool.vcpus_of[machine] for machine in launch.machines)
    per_node = {**{r: pool.allocatable[r] for r in pool.shared_by if r != CPU}, CPU: largest, "nodes": 1}
    return {r: str(amount * launch.nodes) for r, amount in sorted(per_node.items())}


def _name(site: Site, pool: NodePool, launch: Launch) -> str:
    return site.name(f"{pool.name}-{launch.positions[0]}")


def _reservations(pool: NodePool) -> list[str]:
    return list(dict.fromkeys(one for launch in pool.launches for one in launch.reservations))


def _reserved(launch: Launch) -> bool:
    """Return whether all nodes are of reservations. Only such nodes have the label with the id."""
    return len(launch.reservations) == len(launch.markets)


def _interfaces(pool: NodePool) -> list[dict[str, object]]:
    return [
        {"networkCardIndex": one.card, "deviceIndex": one.device, "interfaceType": one.kind}
        for one in pool.interfaces
    ]
