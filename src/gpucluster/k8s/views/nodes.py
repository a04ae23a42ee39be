"""Karpenter's side of elastic pools. Nodes that stand always are none of its business."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.k8s.scalar import scalar
from gpucluster.k8s.site import Site
from gpucluster.plan import defaults_kubernetes as kube
from gpucluster.plan import names
from gpucluster.plan.kubernetes import MIG_PREFIX, NodePool
from gpucluster.plan.market import Source

_FIRST_WEIGHT, _STEP, _LEAST = 100, 10, 1  # Karpenter tries the heaviest first


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClass:
    """templates/k8s/nodeclass.yaml.j2"""

    name: str
    labels: str
    role: str
    subnet_tags: str
    group_tags: str
    interfaces: str
    disks: str
    root_disk: str
    tags: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KarpenterPool:
    """templates/k8s/nodepool.yaml.j2"""

    name: str
    labels: str
    weight: str
    cpus: str
    idle: str
    node_labels: str
    class_name: str
    taints: str
    machines: str
    markets: str
    zones: str
    arch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """templates/k8s/overlay.yaml.j2"""

    name: str
    labels: str
    pools: str
    slices: str


def classes(site: Site) -> Iterator[tuple[str, NodeClass]]:
    cluster = {names.TAG_CLUSTER: site.plan.name}
    for pool in _elastic(site):
        yield (
            f"class-{pool.name}",
            NodeClass(
                name=scalar(site.name(pool.name)),
                labels=scalar(site.labels),
                role=scalar(names.kubernetes_node_role(site.plan.name)),
                subnet_tags=scalar(cluster),
                group_tags=scalar({**cluster, names.TAG_ROLE: names.ROLE_KUBERNETES}),
                interfaces=scalar(_interfaces(pool) or None),
                disks=scalar("RAID0" if pool.local_disks else None),
                root_disk=scalar(f"{kube.ROOT_DISK_GIB.value:g}Gi"),
                tags=scalar({**cluster, names.TAG_POOL: pool.name, names.TAG_ROLE: names.ROLE_KUBERNETES}),
            ),
        )


def pools(site: Site) -> Iterator[tuple[str, KarpenterPool]]:
    """One a source, for only so they are tried in order."""
    for pool in _elastic(site):
        for source in pool.sources:
            yield f"pool-{pool.name}-{source.position}", _pool(site, pool, source)


def overlays(site: Site) -> Iterator[tuple[str, Overlay]]:
    for pool in _elastic(site):
        slices = {r: str(n) for r, n in pool.allocatable.items() if r.startswith(MIG_PREFIX)}
        if slices:
            yield (
                f"slices-{pool.name}",
                Overlay(
                    name=scalar(site.name(pool.name)),
                    labels=scalar(site.labels),
                    pools=scalar([_name(site, pool, source) for source in pool.sources]),
                    slices=scalar(slices),
                ),
            )


def _elastic(site: Site) -> Iterator[NodePool]:
    return (pool for pool in site.kubernetes.pools if pool.elastic)


def _pool(site: Site, pool: NodePool, source: Source) -> KarpenterPool:
    most = pool.elastic if source.max is None else min(pool.elastic, source.max)
    return KarpenterPool(
        name=scalar(_name(site, pool, source)),
        labels=scalar(site.labels),
        weight=scalar(max(_LEAST, _FIRST_WEIGHT - _STEP * source.position)),
        cpus=scalar(str(most * pool.vcpus)),
        idle=scalar(f"{pool.idle_s}s"),
        node_labels=scalar(pool.labels),
        class_name=scalar(site.name(pool.name)),
        taints=scalar([{"key": t.key, "value": t.value, "effect": t.effect} for t in pool.taints] or None),
        machines=scalar(list(source.machines)),
        markets=scalar([source.market.value]),
        zones=scalar(list(source.zones)),
        arch=scalar([pool.arch]),
    )


def _name(site: Site, pool: NodePool, source: Source) -> str:
    return site.name(f"{pool.name}-{source.position}")


def _interfaces(pool: NodePool) -> list[dict[str, object]]:
    return [
        {"networkCardIndex": one.card, "deviceIndex": one.device, "interfaceType": one.kind}
        for one in pool.interfaces
    ]
