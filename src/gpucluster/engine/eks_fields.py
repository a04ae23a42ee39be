"""The spec fields behind the resources of an EKS cluster. Pure."""

from gpucluster.plan.model import ClusterPlan
from gpucluster.plan.model.eks import EksControlPlane, NodeGroup
from gpucluster.plan.model.kubernetes import Kubernetes
from gpucluster.plan.names import SYSTEM_NODES, pods_role, principal_word


def cluster(_plan: ClusterPlan, _name: str) -> str:
    """The part of the spec that makes a cluster of EKS."""
    return "kubernetes"


def node_group(plan: ClusterPlan, name: str) -> str:
    """The source of a node group, by the group's key."""
    part, plane = _eks(plan)
    group = next((one for one in plane.groups if one.key == name), None) if plane else None
    if part is None or group is None:
        return ""
    if group.pool == SYSTEM_NODES:
        return "kubernetes.system"
    sources = [source for pool in part.pools if pool.of == group.pool for source in pool.sources]
    places = [one.position for one in sources if _fits(group, one.reservation, one.market, one.machines)]
    return (
        f"pools[{group.pool}].capacity[{places[0]}].machines" if places else f"pools[{group.pool}].capacity"
    )


def access_entry(plan: ClusterPlan, name: str) -> str:
    """Who names the principal of an access entry."""
    _, plane = _eks(plan)
    entry = (
        next((one for one in plane.entries if principal_word(one.principal) == name), None) if plane else None
    )
    if entry is None:
        return "kubernetes"
    return "kubernetes.admins" if entry.admin else "kubernetes.teams[].members"


def pod_identity(plan: ClusterPlan, name: str) -> str:
    """The service account of a team, by the word of its role."""
    part, _ = _eks(plan)
    rows = part.pod_identities if part else ()
    found = next((one for one in rows if pods_role(one.namespace, one.service_account) == name), None)
    return (
        f"kubernetes.teams[{found.team}].service_accounts[{found.service_account}]" if found else "kubernetes"
    )


def _fits(group: NodeGroup, reservation: str | None, market: object, machines: tuple[str, ...]) -> bool:
    return (group.reservation, group.market) == (reservation, market) and group.machines[0] in machines


def _eks(plan: ClusterPlan) -> tuple[Kubernetes | None, EksControlPlane | None]:
    part = plan.kubernetes
    plane = None if part is None else part.control_plane
    return part, plane if isinstance(plane, EksControlPlane) else None
