"""A plan to the facts that its manifests are checked against."""

from collections.abc import Iterator

from gpucluster.k8s.lint.facts import ANY, Distribution, Facts, PoolFacts, Present, Taint
from gpucluster.plan import kubernetes as planned
from gpucluster.plan import names
from gpucluster.plan.model import ClusterPlan, there

_DISTRIBUTIONS = {
    planned.Distribution.EKS: Distribution.EKS,
    planned.Distribution.EXISTING: Distribution.UPSTREAM,  # nobody said what is on there
}
_ELASTIC = ("karpenter.sh/capacity-type", "karpenter.sh/nodepool")  # on nodes that Karpenter makes
_ARCH, _ZONE = "kubernetes.io/arch", "topology.kubernetes.io/zone"
_BY_CHARTS = (Present(kind="ClusterRole", name="kueue-batch-user-role"),)


def facts(plan: ClusterPlan) -> Facts:
    """ValueError for a plan without Kubernetes."""
    part = there(plan.kubernetes)
    return Facts(
        kubernetes=part.version,
        distribution=_DISTRIBUTIONS[part.distribution],
        pools=tuple(_pool(pool) for pool in part.pools),
        present=(*_BY_CHARTS, *_by_bindings(plan, part)),
    )


def _by_bindings(plan: ClusterPlan, part: planned.Kubernetes) -> Iterator[Present]:
    """Volumes of file systems that only the cloud can name: `unchecked` says which of them are not rendered."""
    for mount in plan.storage:
        for team in part.teams if mount.lustre is not None else ():
            yield Present(
                kind="PersistentVolume", name=names.persistent_volume(plan.name, team.name, mount.path)
            )


def _pool(pool: planned.NodePool) -> PoolFacts:
    return PoolFacts(
        name=pool.name,
        max_nodes=pool.max,
        allocatable={name: planned.quantity(name, amount) for name, amount in pool.allocatable.items()},
        labels={
            **{level.label: ANY for level in pool.levels},
            **(dict.fromkeys(_ELASTIC, ANY) if pool.elastic else {}),
            **{key: frozenset({value}) for key, value in pool.labels.items()},
            _ARCH: frozenset({pool.arch}),
            _ZONE: frozenset(pool.zones),
        },
        taints=tuple(Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in pool.taints),
    )
