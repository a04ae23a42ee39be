"""The nodes that the instances of EKS's node groups become, with the names, labels and taints that EKS gives them. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gpucluster.plan.model import values
from gpucluster.sandbox.aws.ec2.state.placement import layers_of, network_nodes
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance
from gpucluster.sandbox.aws.eks.state import NodeGroup

# machine and pool -> what its kubelet offers to pods; the pool is empty for nodes of the add-ons
Offers = Callable[[str, str], Mapping[str, int]]
_EFFECTS: Mapping[str, str] = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}
_PODS = "250"  # EKS's limit for machines of this size


def network(instance: Ec2Instance) -> dict[str, str]:
    """The labels of the network topology, as AWS's cloud controller sets them from DescribeInstanceTopology."""
    if not layers_of(instance.spec.machine):
        return {}
    found = enumerate(network_nodes(instance), start=1)
    return {f"topology.k8s.aws/network-node-layer-{number}": name for number, name in found}


def nodes(
    group: NodeGroup, instances: Iterable[Ec2Instance], region: str, *, pool: str, arch: str, offers: Offers
) -> Iterator[dict[str, Any]]:
    """Yield the node of each instance of a group."""
    for instance in instances:
        name = f"ip-{(instance.address or '').replace('.', '-')}.{region}.compute.internal"
        amounts = {k: values.quantity(k, v) for k, v in offers(instance.spec.machine, pool).items()}
        labels = {
            "eks.amazonaws.com/capacityType": str(group.options["capacityType"]),
            "eks.amazonaws.com/nodegroup": group.name,
            "eks.amazonaws.com/nodegroup-image": instance.spec.image,
            "kubernetes.io/arch": arch,
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": instance.spec.machine,
            "topology.kubernetes.io/region": region,
            "topology.kubernetes.io/zone": instance.zone,
            **network(instance),
        }
        taints = [
            {"key": one["key"], "value": one.get("value", ""), "effect": _EFFECTS[one["effect"]]}
            for one in group.options.get("taints") or ()
        ]
        own = {**amounts, "pods": _PODS}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**labels, **(group.options.get("labels") or {})}},
            "spec": {"providerID": f"aws:///{instance.zone}/{instance.id}", "taints": taints},
            "status": {"allocatable": own, "capacity": own},
        }
