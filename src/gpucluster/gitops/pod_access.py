"""What an edit takes from people, what Kueue may end by it, and what Karpenter no longer sees. Pure.

Karpenter v1.14.1: `List` in pkg/providers/instance/instance.go has the machines whose tag names the cluster; core's
pkg/controllers/nodeclaim/garbagecollection deletes a NodeClaim that is not in that list, and whose node is not ready.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.gitops import queue_preemption
from gpucluster.plan.model import ClusterPlan
from gpucluster.plan.model.eks import AccessEntry, EksControlPlane
from gpucluster.plan.model.kubernetes import ExistingControlPlane, Kubernetes
from gpucluster.text import listed


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessChange:
    """What is no longer as it was."""

    people: tuple[str, ...] = ()  # ARNs that lose a right in the cluster
    ranges: tuple[str, ...] = ()  # of addresses that no longer reach the API server
    eks_name: str = ""  # of a cluster of the site with elastic pools: its new name; empty: the old one
    preempts: bool = False  # Kueue may end what it did not


def access_change(old: ClusterPlan, new: ClusterPlan) -> AccessChange:
    """Return it for two plans of one control plane."""
    if old.kubernetes is None or new.kubernetes is None or old.name != new.name:
        return AccessChange()
    was, now = old.kubernetes.control_plane, new.kubernetes.control_plane
    preempts = queue_preemption.preempts(old.kubernetes, new.kubernetes)
    if isinstance(was, EksControlPlane) and isinstance(now, EksControlPlane):
        return AccessChange(
            people=tuple(_people(was, now)), ranges=tuple(_ranges(was, now)), preempts=preempts
        )
    name = ""
    if isinstance(was, ExistingControlPlane) and isinstance(now, ExistingControlPlane):
        elastic = _elastic(old.kubernetes) and _elastic(new.kubernetes)
        name = now.eks_name or "" if elastic and was.eks_name != now.eks_name else ""
    return AccessChange(eks_name=name, preempts=preempts)


def running(found: AccessChange) -> Iterator[str]:
    """Yield what happens to pods that run."""
    if found.preempts:
        yield "those that a waiting workload may preempt by the new rules are ended, and queued again, when it waits"
    if found.eks_name:
        yield (
            "those on Karpenter's nodes: it lists the machines whose tag has the name of the cluster in EKS,"
            " and deletes a node of another name when it is not ready"
        )


def queued(found: AccessChange) -> Iterator[str]:
    """Yield what happens to pods that wait."""
    if found.eks_name:
        yield f"no machine starts for them unless {found.eks_name} is the name of this cluster in EKS"


def sessions(found: AccessChange) -> Iterator[str]:
    """Yield what happens to `kubectl`."""
    if found.people:
        yield f"`kubectl` of {listed(found.people)} loses rights at `pulumi up`"
    if found.ranges:
        yield f"`kubectl` from {listed(found.ranges)} does not reach the API server"


def _people(was: EksControlPlane, now: EksControlPlane) -> Iterator[str]:
    after = {one.principal: one for one in now.entries}
    for one in was.entries:
        if _loses(one, after.get(one.principal)):
            yield one.principal


def _loses(was: AccessEntry, now: AccessEntry | None) -> bool:
    if now is None:
        return True
    return not now.admin and (was.admin or not set(was.groups) <= set(now.groups))


def _ranges(was: EksControlPlane, now: EksControlPlane) -> Iterator[str]:
    yield from (one for one in was.private_from if one not in now.private_from)
    yield from (one for one in was.public_from if one not in now.public_from)


def _elastic(kubernetes: Kubernetes) -> bool:
    return any(pool.elastic for pool in kubernetes.pools)
