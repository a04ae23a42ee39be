"""What `up`, `status` and `down` work with, and the check that it is the cluster of the plan."""

from dataclasses import dataclass

from gpucluster.errors import StateError
from gpucluster.k8s_apply.clock import Clock, Report, patiently
from gpucluster.k8s_apply.helm import Helm
from gpucluster.k8s_apply.kubectl import Kubectl


@dataclass(frozen=True, slots=True)
class Access:
    """One cluster. `helm` is None with --no-charts: somebody else installs the charts."""

    kubectl: Kubectl
    helm: Helm | None
    clock: Clock
    report: Report
    account: str = ""  # of AWS, by the bindings; empty: not known


def require_version(access: Access, wanted: str) -> None:
    """StateError if the server has another minor version than the plan: its kinds and defaults differ."""
    major, minor = patiently(access.kubectl.version, access.clock, access.report)
    found = f"{major}.{minor}"
    if found != wanted:
        raise StateError(
            f"the context {access.kubectl.context} leads to Kubernetes {found}, the spec says {wanted}",
            next_step=f'set kubernetes.version to "{found}", upgrade the cluster one minor version at a time, or name another --context',
        )
