"""The common input of all Views."""

from dataclasses import dataclass

from gpucluster.k8s.manifest import scalar
from gpucluster.plan import names
from gpucluster.plan.model import AwsPlan, Bindings, ClusterPlan, Lustre, Mount, Nfs
from gpucluster.plan.model.kubernetes import Kubernetes, Taint, Team
from gpucluster.plan.model.workloads import Workloads


@dataclass(frozen=True, slots=True)
class Site:
    """A plan with Kubernetes, its workloads, and the bindings if they are known."""

    plan: AwsPlan
    kubernetes: Kubernetes
    workloads: Workloads
    bindings: Bindings | None

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of every object that we make."""
        return {names.LABEL_CLUSTER: self.plan.name, "app.kubernetes.io/managed-by": "gpucluster"}

    def name(self, thing: str) -> str:
        """Return the name of a cluster-scoped object."""
        return names.kubernetes_name(self.plan.name, thing)

    def flavor(self, pool: str) -> str:
        """Return the name of a pool's ResourceFlavor."""
        levels = self.kubernetes.pool(pool).levels
        return names.flavor(self.plan.name, pool, [level.word for level in levels])

    def mounts(self) -> tuple[Mount, ...]:
        """Return the file systems that pods can mount."""
        return tuple(mount for mount in self.plan.storage if isinstance(mount.source, Nfs | Lustre))


def site(plan: ClusterPlan, workloads: Workloads | None, bindings: Bindings | None) -> Site:
    """Return the Kubernetes part. ValueError for a plan without Kubernetes."""
    if plan.aws is None or plan.kubernetes is None:
        raise ValueError(f"{plan.name}: found no kubernetes in the plan, expected one")
    return Site(plan, plan.kubernetes, workloads or Workloads(), bindings)


def team_labels(of: Site, team: Team) -> str:
    """Return the labels of an object of the team, as one line of JSON."""
    return scalar({**of.labels, names.LABEL_TEAM: team.name})


def tolerations(taints: tuple[Taint, ...]) -> list[dict[str, str]]:
    """Return one toleration for each taint, with any value."""
    pairs = dict.fromkeys((taint.key, taint.effect) for taint in taints)
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in pairs]
