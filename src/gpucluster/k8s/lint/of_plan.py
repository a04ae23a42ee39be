"""Facts of a plan, against which its manifests are checked."""

from collections.abc import Iterator

from gpucluster.k8s.lint.facts import ANY, Distribution, Facts, PoolFacts, Present, Taint
from gpucluster.k8s.render import pod_rules
from gpucluster.plan import kubernetes as kube
from gpucluster.plan import names
from gpucluster.plan.model import ClusterPlan, Lustre, values
from gpucluster.plan.model import kubernetes as planned

_DISTRIBUTIONS = {
    values.Distribution.EKS: Distribution.EKS,
    values.Distribution.EXISTING: Distribution.UPSTREAM,  # the enabled API versions are unknown
}
_ELASTIC = ("karpenter.sh/capacity-type", "karpenter.sh/nodepool")  # on nodes that Karpenter makes
_ARCH, _ZONE = "kubernetes.io/arch", "topology.kubernetes.io/zone"
_DEFAULT_LIMIT = values.quantity(
    values.MEMORY, int(kube.REQUEST_MEMORY_MIB.value)
)  # templates/k8s/limits.yaml.j2
_BY_CHARTS = (
    Present(kind="ClusterRole", name="kueue-batch-user-role"),
    Present(
        kind="APIService", name="v1beta1.custom.metrics.k8s.io"
    ),  # the adapter that `k8s/guide.py` asks for
)


def facts(plan: ClusterPlan) -> Facts:
    """ValueError for a plan without Kubernetes."""
    part = plan.kubernetes
    if part is None:
        raise ValueError(f"{plan.name}: found no kubernetes in the plan, expected one")
    return Facts(
        kubernetes=part.version,
        distribution=_DISTRIBUTIONS[part.distribution],
        pools=tuple(_pool(pool) for pool in part.pools),
        present=(*_BY_CHARTS, *_by_bindings(plan, part)),
        limits={team.namespace: {values.MEMORY: _DEFAULT_LIMIT} for team in part.teams},
        by_hand=frozenset({"Secret"}),  # workloads name Secrets; their values are in no file
        pod_rules=pod_rules(plan),
    )


def _by_bindings(plan: ClusterPlan, part: planned.Kubernetes) -> Iterator[Present]:
    """Return the volumes of file systems whose ids only the cloud knows. `unchecked` lists those that are not rendered."""
    for mount in plan.storage:
        for team in part.teams if isinstance(mount.source, Lustre) else ():
            yield Present(
                kind="PersistentVolume", name=names.persistent_volume(plan.name, team.name, mount.path)
            )


def _pool(pool: planned.NodePool) -> PoolFacts:
    return PoolFacts(
        name=pool.name,
        max_nodes=pool.max,
        allocatable={name: values.quantity(name, amount) for name, amount in pool.allocatable.items()},
        labels={
            **{level.label: ANY for level in pool.levels},
            **(dict.fromkeys(_ELASTIC, ANY) if pool.elastic else {}),
            **{key: frozenset({value}) for key, value in pool.labels.items()},
            _ARCH: frozenset({pool.arch}),
            _ZONE: frozenset(pool.zones),
        },
        taints=tuple(
            Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in pool.elastic_taints
        ),
    )
