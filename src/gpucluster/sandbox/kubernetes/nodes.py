"""Nodes of a plan's pools, as they appear in the API when their machines have started. kwok plays their kubelets."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.plan.model import values
from gpucluster.plan.model.kubernetes import NodePool
from gpucluster.plan.node_pools import filled
from gpucluster.sandbox.kubernetes.client import Client

_PODS = "250"  # EKS's limit for machines of this size


def of_pool(
    cluster: str, pool: NodePool, count: int, *, zone: str = "", domains: Mapping[str, int] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the first `count` nodes: always-on ones in the zones of their node groups, then elastic ones.

    `zone`: the zone of all. `domains`: nodes in each domain of a topology's label; without it all are in one.
    """
    amounts = {name: values.quantity(name, amount) for name, amount in pool.allocatable.items()}
    levels = [level.label for level in pool.levels if level.label not in _OWN]
    fixed = [place for _, nodes, place in filled(pool.min, pool.sources) for _ in range(nodes)]
    for number in range(count):
        place = zone or (fixed[number] if number < len(fixed) else pool.zone)
        name = f"{cluster}-{pool.name}-{number}"
        places = {label: f"{label.rpartition('/')[2]}-{number // (domains or {}).get(label, count)}" for label in levels}  # fmt: skip
        own = {_HOST: name, _ZONE: place, "kubernetes.io/os": "linux", _ARCH: pool.arch}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**places, **own, **pool.labels}},
            "spec": {"taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in pool.taints]},
            "status": {"allocatable": {**amounts, "pods": _PODS}, "capacity": {**amounts, "pods": _PODS}},
        }


def start(client: Client, machine: Mapping[str, Any]) -> None:
    """Make a node as its kubelet does: the object, then its status. kwok keeps it alive."""
    metadata = {**machine["metadata"], "annotations": {"kwok.x-k8s.io/node": "fake"}}
    client.apply({**machine, "metadata": metadata})
    own = {key: machine[key] for key in ("apiVersion", "kind", "status")}
    client.patch_status({**own, "metadata": {"name": metadata["name"]}})


_HOST, _ZONE, _ARCH = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "kubernetes.io/arch"
_OWN = (_HOST, _ZONE)
