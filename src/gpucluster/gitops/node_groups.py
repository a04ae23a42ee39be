"""What `pulumi up` does to the always-on nodes of EKS, by the two plans. Pure.

A group is deleted before a new one replaces it (`aws.eks.node_groups`). EKS evicts the pods of each node that it ends: of a
deleted group, of one with fewer nodes, and in the rolling update of a new launch template, release or version (EKS user
guide, "Update a managed node group for your cluster"). A group of a capacity block is replaced (`aws.eks.node_groups.NO_UPDATE`),
and one whose GPUs get other slices (`SLICES` there). Other labels, and taints, change in place.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpucluster.plan import names
from gpucluster.plan.model import AwsPlan, ClusterPlan, eks_of
from gpucluster.plan.model.eks import NodeGroup
from gpucluster.plan.model.values import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedNodes:
    """The pools whose always-on nodes end, each once, in the order of the old plan."""

    deleted: tuple[str, ...] = ()  # with their group
    updated: tuple[str, ...] = ()  # one after another
    fewer: tuple[str, ...] = ()  # some of them


def ended_nodes(old: ClusterPlan, new: ClusterPlan) -> EndedNodes:
    """Return what ends while the control plane stays."""
    if old.aws is None or new.aws is None:
        return EndedNodes()
    was, now = eks_of(old), eks_of(new)
    if was is None or now is None:
        return EndedNodes()
    after = {group.key: group for group in now.groups}
    pairs = [(group, after.get(group.key)) for group in was.groups]
    every = _of_every_node(old) != _of_every_node(new)
    deleted = _pools(
        one
        for one, later in pairs
        if later is None
        or _fixed(one) != _fixed(later)
        or (one.market is Market.CAPACITY_BLOCK and (every or _template(one) != _template(later)))
    )
    kept = [(one, later) for one, later in pairs if later is not None and one.pool not in deleted]
    return EndedNodes(
        deleted=deleted,
        updated=_pools(one for one, later in kept if every or _template(one) != _template(later)),
        fewer=_pools(one for one, later in kept if later.nodes < one.nodes),
    )


def moved_reservations(old: ClusterPlan, new: ClusterPlan) -> tuple[tuple[str, str], ...]:
    """Return each reservation whose node group gets another name, and the pool of its new group.

    The engine makes a new resource before it deletes one that left, so the new group finds the reservation full and fails.
    """
    if old.aws is None or new.aws is None or old.name != new.name:
        return ()
    was, now = eks_of(old), eks_of(new)
    if was is None or now is None:
        return ()
    before, after = {group.key for group in was.groups}, {group.key for group in now.groups}
    leave = {group.reservation for group in was.groups if group.reservation and group.key not in after}
    return tuple(
        (group.reservation, group.pool)
        for group in now.groups
        if group.reservation in leave and group.key not in before
    )


def zones_held(old: ClusterPlan, new: ClusterPlan) -> tuple[str, ...]:
    """Return zones whose subnets `pulumi up` cannot delete: a control plane keeps those of its creation (`aws.eks.cluster.SUBNETS`)."""
    if old.aws is None or new.aws is None or eks_of(old) is None or eks_of(new) is None:
        return ()
    if old.aws.region != new.aws.region:
        return ()
    left = _zones_of_plane(new)
    return tuple(zone for zone in _zones_of_plane(old) if zone not in left)


def _zones_of_plane(plan: AwsPlan) -> list[str]:
    plane = eks_of(plan)
    spare = [plane.spare.zone] if plane is not None and plane.spare is not None else []
    return [*(one.zone for one in plan.aws.network.subnets), *spare]


def _fixed(group: NodeGroup) -> object:
    """Return what AWS fixes at creation (Terraform AWS provider, internal/service/eks/node_group.go, ForceNew), and the slices."""
    return (group.market, group.machines, _zones(group), group.ami, group.labels.get(names.LABEL_MIG))


def _template(group: NodeGroup) -> NodeGroup:
    """Return what changes each node of a group."""
    return replace(group, nodes=0, labels={}, taints=(), zones=_zones(group))


def _zones(group: NodeGroup) -> tuple[str, ...]:
    """Return the zones. Those of the system are no change (`aws.eks.node_groups.SYSTEM_SUBNETS`)."""
    return () if group.pool == names.SYSTEM_NODES else group.zones


def _of_every_node(plan: AwsPlan) -> object:
    """Return what every launch template has, and the version of the nodes."""
    return (plan.aws.tags, plan.aws.kms_key, plan.kubernetes and plan.kubernetes.version)


def _pools(groups: Iterator[NodeGroup]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(group.pool for group in groups))
