"""What an edit does to pods, and the commands of Kubernetes, alone or beside Slurm. Pure.

`pulumi up` changes EKS, its node groups and its access entries. Queues, quotas, namespaces, NodePools and workloads are
manifests: `gpucluster k8s up` applies them, and deletes what left the spec only with `--prune` (`k8s_apply.up`).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from gpucluster.cost import pools_of
from gpucluster.gitops import pod_access, pod_rights, pod_storage, quotas, sentences
from gpucluster.gitops.field_effects import BY_CLASS_OF_PODS, GONE, RECREATED, ROLLED, Note
from gpucluster.gitops.manifests import TreeChange, tree_change
from gpucluster.gitops.model import Effects, Kind, ResourceChange, Revision, SpecChange, worst
from gpucluster.gitops.node_groups import EndedNodes, ended_nodes, moved_reservations, zones_held
from gpucluster.gitops.pod_access import AccessChange
from gpucluster.gitops.pod_storage import PodStorage
from gpucluster.gitops.quotas import QuotaChange
from gpucluster.gitops.refine import release
from gpucluster.gitops.steps import CLUSTER, copies, restores, unprotect
from gpucluster.plan import names
from gpucluster.plan.model import AwsPlan, ClusterPlan, FsxLustre, OwnNetwork, Pool, eks_of
from gpucluster.plan.model.kubernetes import ExistingControlPlane
from gpucluster.spec import UpdateClass
from gpucluster.text import listed

PULUMI = f"pulumi up --stack {CLUSTER}"
_MANIFESTS = "k8s/"
_CLUSTER = "aws:eks/cluster:Cluster"
_POOL = re.compile(r"pools\[([^\]]*)\](.*)")
_TEAM = re.compile(r"kubernetes\.teams\[([^\]]*)\]")
_APPLY = f"gpucluster k8s up {CLUSTER}"
_BINDINGS = f"pulumi stack output bindings --stack {CLUSTER} > bindings.json"
_NODEPOOLS = f"kubectl delete nodepools --selector {names.LABEL_CLUSTER}={CLUSTER}    # and wait: Karpenter ends the machines while it has its rights"
_DOWN = f"gpucluster k8s down {CLUSTER}    # with the old spec, before its edit: it reads the control plane from it"
_CLAIMS = "kubectl get pvc --all-namespaces    # disks in EBS of claims beside the spec stay and cost money; `kubectl delete pvc` deletes one with its data"
_EKS_GOES = "EKS is deleted with all its objects; without `gpucluster k8s down NAME` before, Karpenter's machines run on"


class Plane(Enum):
    """What happens to the control plane."""

    STAYS = 0
    LEFT = 1  # one of the site leaves the spec: it goes on
    DELETED = 2
    REPLACED = 3
    # EKS takes no older version, no other VPC and no other key of its secrets (docs/facts/eks.md), so the stack must be without a
    # control plane in between.
    FIXED = 4


_USUAL = BY_CLASS_OF_PODS[UpdateClass.NONE]
_ANEW = {Plane.REPLACED, Plane.FIXED}
_LEAVES = {
    Plane.LEFT: "the cluster of the site goes on; `gpucluster k8s down NAME` deletes what the spec made in it",
    Plane.DELETED: _EKS_GOES,
    Plane.REPLACED: _EKS_GOES,
    Plane.FIXED: _EKS_GOES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvents:
    """All that happens to pods. `teams` and `pools` leave the spec."""

    plane: Plane = Plane.STAYS
    teams: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    storage: PodStorage = field(default_factory=PodStorage)
    ended: EndedNodes = field(default_factory=EndedNodes)  # always-on nodes of EKS
    elastic: tuple[str, ...] = ()  # of `pools`: with NodePools of Karpenter
    karpenter_leaves: bool = False  # no elastic pool is left: `pulumi up` deletes the rights of Karpenter
    cluster: UpdateClass = UpdateClass.NONE  # the worst class of all other changes
    tree: TreeChange = field(default_factory=TreeChange)
    quotas: QuotaChange = field(default_factory=QuotaChange)
    lost_rights: tuple[tuple[str, str], ...] = ()  # service account and places in S3
    access: AccessChange = field(default_factory=AccessChange)
    applied: bool = False  # manifests differ, or the ids in them


def is_of_pods(path: str, pools: frozenset[str]) -> bool:
    """Return whether a change is about Kubernetes alone. `pools` has the names of its pools on both sides."""
    pool = _POOL.match(path)
    return path.partition(".")[0] == "kubernetes" or (pool is not None and pool[1] in pools)


def pod_pools(*plans: ClusterPlan) -> frozenset[str]:
    """Return the names that the pools of Kubernetes have in the specs."""
    return frozenset(pool.of for plan in plans for pool in pools_of(plan) if not isinstance(pool, Pool))


def pod_events(
    old: Revision,
    new: Revision,
    changes: Iterable[SpecChange],
    workloads: Iterable[SpecChange],
    resources: Iterable[ResourceChange],
    *,
    tree: TreeChange,
) -> PodEvents:
    """Return what happens to the pods of the old revision. `changes` has those of the spec that are about pods."""
    found, mine = tuple(changes), tuple(workloads)
    gone = tuple(one for one in found if one.kind is Kind.REMOVED)
    pools = tuple(match[1] for one in gone if (match := _POOL.fullmatch(one.path)) and not match[2])
    teams = tuple(match[1] for one in gone if (match := _TEAM.fullmatch(one.path)))
    told = {*(f"pools[{name}]" for name in pools), *(f"kubernetes.teams[{name}]" for name in teams)}
    given = tuple(resources)
    what = plane(old.plan, new.plan, given)
    storage = PodStorage()
    if what in {Plane.STAYS, *_ANEW}:
        storage = pod_storage.pod_storage(old.plan, new.plan, given)
    if what in _ANEW:  # a new control plane has no volumes yet
        storage = replace(storage, swapped=(), undriven=())
    if storage.lost:
        told |= {one.path for one in found if one.path.startswith("storage[")}
    return PodEvents(
        plane=what,
        storage=storage,
        teams=teams,
        pools=pools,
        ended=ended_nodes(old.plan, new.plan),
        elastic=tuple(name for name in pools if name in _elastic(old.plan)),
        karpenter_leaves=bool(_elastic(old.plan)) and not _elastic(new.plan),
        cluster=worst(one.update for one in found if one.path not in told) or UpdateClass.NONE,
        tree=tree,
        quotas=quotas.quota_change(old.plan, new.plan) if what is Plane.STAYS else QuotaChange(),
        lost_rights=pod_rights.lost(old.plan, new.plan) if what is Plane.STAYS else (),
        access=pod_access.access_change(old.plan, new.plan) if what is Plane.STAYS else AccessChange(),
        applied=bool(mine) or _manifests(old) != _manifests(new) or _file_systems(old) != _file_systems(new),
    )


def changed_tree(old: Revision, new: Revision, resources: Iterable[ResourceChange]) -> TreeChange:
    """Return how the manifests differ, while the control plane stays."""
    if old.plan.name != new.plan.name or plane(old.plan, new.plan, resources) is not Plane.STAYS:
        return TreeChange()
    return tree_change(old.artifacts, new.artifacts)


def plane(old: ClusterPlan, new: ClusterPlan, resources: Iterable[ResourceChange] = ()) -> Plane:
    """Return what happens to the control plane of the old plan."""
    if old.aws is None or old.kubernetes is None:
        return Plane.STAYS
    if new.aws is None or new.kubernetes is None or eks_of(old) is None or eks_of(new) is None:
        return _without_eks(old, new)
    if old.aws.region != new.aws.region:
        return Plane.REPLACED
    older = release(new.kubernetes.version) < release(old.kubernetes.version)
    if older or old.aws.kms_key != new.aws.kms_key or _network(old) != _network(new):
        return Plane.FIXED
    gone = any(one.type == _CLUSTER and one.kind in {Kind.REMOVED, Kind.REPLACED} for one in resources)
    return Plane.REPLACED if gone else Plane.STAYS


def _network(plan: AwsPlan) -> str:
    network = plan.aws.network
    return network.cidr if isinstance(network, OwnNetwork) else network.vpc


def reworded(change: SpecChange, what: Plane) -> SpecChange:
    """Return a change with its reason, where the control plane leaves with it."""
    if what is Plane.STAYS or change.kind is not Kind.REMOVED:
        return change
    if change.path == "kubernetes":
        return replace(change, why=_LEAVES[what])
    if (match := _POOL.fullmatch(change.path)) and not match[2]:
        return replace(
            change, why="its nodes end with Kubernetes: `gpucluster k8s down NAME` ends those of Karpenter"
        )
    return change


def alone(found: PodEvents) -> Effects:
    """Return the effects on a cluster without Slurm, with the commands around the apply in `steps`."""
    if found.plane is not Plane.STAYS:
        return _of_plane(found)
    refused = sentences.is_protected(found.storage.refused) if found.storage.refused else ""
    base = _with_workloads(BY_CLASS_OF_PODS[found.cluster], tuple(_of_workloads(found)))
    return replace(
        base,
        running="; ".join((base.running, *_running(found))),
        queued="; ".join((base.queued, *_queued(found))),
        sessions="; ".join((base.sessions, *pod_access.sessions(found.access))),
        data="; ".join((*(tuple(pod_storage.data(found.storage)) or (base.data,)), *_data(found))),
        refused=refused,
    )


def beside(jobs: Effects, pods: Effects) -> Effects:
    """Return the effects on jobs, followed by those on pods where they say more than that all goes on."""
    return replace(
        jobs,
        running=_joined(jobs.running, pods.running, _USUAL.running, "pods"),
        queued=_joined(jobs.queued, pods.queued, _USUAL.queued, "waiting pods"),
        sessions=_joined(jobs.sessions, pods.sessions, _USUAL.sessions, "sessions"),
        data=_joined(jobs.data, pods.data, _USUAL.data, "of pods:"),
    )


def _of_workloads(found: PodEvents) -> Iterator[Note]:
    """Yield what happens to workloads. Those of a team that leaves are told with the team."""
    if found.tree.recreated:
        yield RECREATED
    if found.tree.rolled:
        yield ROLLED
    if any(one.team not in found.teams for one in found.tree.gone):
        yield GONE


def _with_workloads(base: Effects, notes: tuple[Note, ...]) -> Effects:
    """Return what happens to workloads, and to all others."""
    return replace(
        base,
        running=_then([one.running for one in notes], f"others {base.running}", base.running),
        queued=_then([one.queued for one in notes], f"others {base.queued}", base.queued),
        sessions=_then(
            [one.sessions for one in notes], base.sessions.replace(_USUAL.sessions, ""), base.sessions
        ),
    )


def _then(own: Iterable[str], rest: str, alone: str) -> str:
    """Return the clauses with `rest`; `alone` if there is none."""
    said = [one for one in own if one]
    return "; ".join(one for one in (*said, rest) if one) if said else alone


def commands(old: ClusterPlan, new: ClusterPlan, found: PodEvents) -> tuple[str, ...]:
    """Return the commands that apply a plan on AWS, in their order."""
    nothing = old == new and found.applied  # only manifests of workloads differ
    return (*_before(old, new, found), *(() if nothing else _deploy(old, new)), *_after(new, found))


def _before(old: ClusterPlan, new: ClusterPlan, found: PodEvents) -> Iterator[str]:
    if (held := zones_held(old, new)) and found.plane is Plane.STAYS:
        yield f"# keep {listed(held)} in `aws.network.zones`: the control plane stays there, so `pulumi up` cannot delete the subnet"
    yield from BY_CLASS_OF_PODS[found.cluster].steps if found.plane is Plane.STAYS else ()
    yield from copies(found.storage.lost, pods=True)
    yield from pod_storage.before_pulumi(found.storage)
    yield from _room_for(old, new, found)
    if found.storage.refused and found.plane is Plane.STAYS:
        yield unprotect(found.storage.refused)
    if found.plane not in {Plane.STAYS, Plane.LEFT}:
        yield _CLAIMS
    if found.plane is not Plane.STAYS:
        yield _DOWN
    elif found.karpenter_leaves:
        yield _NODEPOOLS
    if found.plane is Plane.FIXED and new.slurm is not None:
        yield f"{PULUMI}    # with the old spec without kubernetes: only a new EKS cluster can have the change"
    elif found.plane is Plane.FIXED or (old.name == new.name and _deploys(old) and not _deploys(new)):
        yield f"gpucluster down {CLUSTER}    # deletes what `pulumi up` made; file systems stay"
    if found.storage.refused and found.plane is not Plane.STAYS:  # `down` keeps what is protected
        yield unprotect(found.storage.refused)


def _room_for(old: ClusterPlan, new: ClusterPlan, found: PodEvents) -> Iterator[str]:
    """Yield the deployment that ends node groups before others need their reservations."""
    moved = moved_reservations(old, new) if found.plane is Plane.STAYS else ()
    if moved:
        reservations, pools = (listed(list(dict.fromkeys(words))) for words in zip(*moved, strict=True))
        yield f"{PULUMI}    # with the new spec without the pool {pools}: the old node group has {reservations} until it is deleted"


def _deploy(old: ClusterPlan, new: ClusterPlan) -> Iterator[str]:
    if _deploys(new):
        yield PULUMI
    if old.aws is not None and new.aws is not None and _is_another(old, new):
        yield f"aws eks update-kubeconfig --name {CLUSTER} --region {new.aws.region}"


def _after(new: ClusterPlan, found: PodEvents) -> Iterator[str]:
    if new.aws is None or new.kubernetes is None:
        return
    anew = found.plane is not Plane.STAYS
    if not (found.applied or anew):
        return
    yield from pod_storage.before_manifests(found.storage)
    for note in _of_workloads(found):
        yield from note.before
    bound = _deploys(new) or any(isinstance(one.source, FsxLustre) for one in new.storage)
    apply = f"{_APPLY} --bindings bindings.json" if bound else _APPLY
    if _deploys(new):
        yield _BINDINGS
    yield apply if _deploys(new) or not bound else f"{apply}    # with the ids of the file systems"
    if found.tree.prunable:
        yield f"{apply} --prune    # deletes what left the spec, also its pods, when they may end"
    yield from restores(found.storage.lost, pods=True)


def _of_plane(found: PodEvents) -> Effects:
    again = (
        f"; `gpucluster k8s up {CLUSTER}` creates those of workloads/{CLUSTER}.yaml again"
        if found.plane in _ANEW
        else ""
    )
    left = found.plane is Plane.LEFT
    stays = () if found.storage.told else ("file systems stay",)
    files = tuple(pod_storage.data(found.storage)) or stays
    objects = "Secrets and all other objects are lost with the control plane"
    return Effects(
        running=f"end: `gpucluster k8s down {CLUSTER}` deletes gangs, services and the machines of Karpenter{again}",
        queued=f"are deleted with their queues{again}",
        sessions="in pods end" if left else "in pods end; `kubectl` loses its API server",
        data="claims, their volumes and their namespaces stay in the cluster of the site"
        if left
        else "; ".join((*files, objects)),
        refused=sentences.is_protected(found.storage.refused) if found.storage.refused else "",
    )


def _running(found: PodEvents) -> Iterator[str]:
    if found.teams:
        yield f"those of the team {listed(found.teams)} go on until `gpucluster k8s up {CLUSTER} --prune` deletes their workloads"
    yield from _of_always_on(found.ended)
    yield from pod_storage.running(found.storage)
    yield from quotas.running(found.quotas)
    yield from pod_rights.running(found.lost_rights)
    yield from pod_access.running(found.access)
    if mine := [name for pool, name in found.tree.node_pools if pool.partition(".")[0] not in found.pools]:
        yield f"those on Karpenter's nodes of the NodePool {listed(mine)} are evicted when the NodePool is deleted"
    if found.elastic:
        yield f"those on Karpenter's nodes of {listed(found.elastic)} are evicted when the NodePools are deleted"


def _of_always_on(ended: EndedNodes) -> Iterator[str]:
    if ended.deleted:
        yield f"those on always-on nodes of {_nodes_of(ended.deleted)} are evicted when `pulumi up` deletes the node group"
    if ended.updated:
        yield f"those on always-on nodes of {_nodes_of(ended.updated)} are evicted, node after node, when `pulumi up` updates the node group"
    if ended.fewer:
        yield f"of {_nodes_of(ended.fewer)}, those on the always-on nodes that EKS ends are evicted: it chooses which"


def _nodes_of(pools: tuple[str, ...]) -> str:
    return listed(["the add-ons" if name == names.SYSTEM_NODES else name for name in pools])


def _queued(found: PodEvents) -> Iterator[str]:
    yield from pod_storage.queued(found.storage)
    yield from quotas.queued(found.quotas)
    yield from pod_access.queued(found.access)
    if found.teams:
        yield f"those of the team {listed(found.teams)} stay in its queue until `gpucluster k8s up {CLUSTER} --prune` deletes it"


def _data(found: PodEvents) -> Iterator[str]:
    if found.teams:
        yield f"namespaces and claims of the team {listed(found.teams)} stay, also with --prune"


def _joined(jobs: str, pods: str, usual: str, what: str) -> str:
    """Return both texts. A clause that follows `usual` begins with `those`, or names its part."""
    if pods == usual:
        return jobs
    first, _, rest = pods.partition("; ")
    own = rest if first == usual and not rest.startswith("on ") else pods
    return f"{jobs}; {what} {own.removeprefix('those ')}"


def _without_eks(old: AwsPlan, new: ClusterPlan) -> Plane:
    if eks_of(old) is not None:
        return Plane.DELETED
    was = old.kubernetes and old.kubernetes.control_plane
    now = new.kubernetes and new.kubernetes.control_plane
    if not isinstance(was, ExistingControlPlane) or not isinstance(now, ExistingControlPlane):
        return Plane.LEFT
    return Plane.STAYS if was.context == now.context else Plane.LEFT


def _is_another(old: AwsPlan, new: AwsPlan) -> bool:
    """Whether the new plan has an EKS cluster that the old one has not."""
    is_new = eks_of(old) is None or old.name != new.name
    return eks_of(new) is not None and (is_new or plane(old, new) in _ANEW)


def _deploys(plan: ClusterPlan) -> bool:
    """Whether the program has resources for the plan (`aws.program`)."""
    return plan.aws is not None and (plan.slurm is not None or eks_of(plan) is not None)


def _elastic(plan: ClusterPlan) -> frozenset[str]:
    """Return the names of the pools with NodePools of Karpenter."""
    pools = () if plan.kubernetes is None else plan.kubernetes.pools
    return frozenset(pool.of for pool in pools if pool.elastic)


def _manifests(side: Revision) -> dict[str, bytes]:
    return {one.path: one.content for one in side.artifacts if one.path.startswith(_MANIFESTS)}


def _file_systems(side: Revision) -> tuple[object, ...]:
    """Return what gives the volumes their ids."""
    return (side.plan.storage, side.plan.aws and (side.plan.aws.region, side.plan.aws.kms_key))
