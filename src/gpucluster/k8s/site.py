"""What every View is made from."""

from dataclasses import dataclass

from gpucluster.plan import names
from gpucluster.plan.kubernetes import Kubernetes, Taint
from gpucluster.plan.model import Bindings, ClusterPlan, Mount, there
from gpucluster.plan.workloads import Workloads


@dataclass(frozen=True, slots=True)
class Site:
    """A plan with Kubernetes, what runs on it, and what the cloud has said if it was asked."""

    plan: ClusterPlan
    kubernetes: Kubernetes
    workloads: Workloads
    bindings: Bindings | None

    @property
    def labels(self) -> dict[str, str]:
        """On everything that we make."""
        return {names.LABEL_CLUSTER: self.plan.name, "app.kubernetes.io/managed-by": "gpucluster"}

    def name(self, thing: str) -> str:
        """Of a cluster-scoped object."""
        return names.kubernetes_name(self.plan.name, thing)

    def mounts(self) -> tuple[Mount, ...]:
        """File systems that pods can mount."""
        return tuple(
            mount for mount in self.plan.storage if mount.nfs is not None or mount.lustre is not None
        )


def site(plan: ClusterPlan, workloads: Workloads | None, bindings: Bindings | None) -> Site:
    """ValueError for a plan without Kubernetes."""
    return Site(plan, there(plan.kubernetes), workloads or Workloads(), bindings)


def tolerations(taints: tuple[Taint, ...]) -> list[dict[str, str]]:
    """Of each taint once, whatever its value."""
    pairs = dict.fromkeys((taint.key, taint.effect) for taint in taints)
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in pairs]
