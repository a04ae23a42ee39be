"""The context of the kubeconfig that leads to the cluster of a plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.errors import StateError
from gpucluster.k8s_apply.objects import rows, section
from gpucluster.plan.model import AwsPlan
from gpucluster.plan.model.kubernetes import ExistingControlPlane, Kubernetes
from gpucluster.text import printable


@dataclass(frozen=True, slots=True)
class EksName:
    """What the ARN of an EKS cluster says. An empty account is not known: it is like each."""

    region: str
    account: str
    cluster: str

    def __str__(self) -> str:
        account = f" of the account {self.account}" if self.account else ""
        return f"the EKS cluster {self.cluster} in {self.region}{account}"

    def is_same(self, other: "EksName") -> bool:
        """Return whether both can be one cluster."""
        same = (self.region, self.cluster) == (other.region, other.cluster)
        return same and (self.account == other.account or not self.account or not other.account)


def context_of(
    plan: AwsPlan, kubernetes: Kubernetes, config: Mapping[str, Any], given: str | None, account: str = ""
) -> str:
    """Return its name. StateError says what to type if there is none or more than one, or if it leads to another EKS cluster.

    `given` decides if it is set. An existing cluster has its context in the spec. For EKS it is the one context that names the
    cluster's ARN, as `aws eks update-kubeconfig` writes it, also with an alias. `account`: of AWS, empty if it is not known.
    """
    found = {str(row["name"]): _eks_of(row) for row in rows(config, "contexts")}
    plane = kubernetes.control_plane
    if isinstance(plane, ExistingControlPlane):
        return _named(given or plane.context, found, plan, given)
    wanted = EksName(plan.aws.region, account, plan.name)
    if given is not None:
        return _compared(_named(given, found, plan, given), found, wanted, plan)
    same = sorted(name for name, eks in found.items() if eks is not None and eks.is_same(wanted))
    if len(same) == 1:
        return same[0]
    if not same:
        raise _none(found, wanted, plan)
    raise StateError(
        f"{len(same)} contexts of the kubeconfig lead to the EKS cluster {plan.name}: {', '.join(same)}",
        next_step=f"name one: --context {same[0]}",
    )


def _none(found: Mapping[str, EksName | None], wanted: EksName, plan: AwsPlan) -> StateError:
    return StateError(
        f"no context of the kubeconfig leads to {wanted}; there are: {_known(found)}", next_step=_update(plan)
    )


def _compared(name: str, found: Mapping[str, EksName | None], wanted: EksName, plan: AwsPlan) -> str:
    """Return the name. StateError: it leads to another EKS cluster. Of a cluster without an ARN nothing is known."""
    eks = found[name]
    if eks is not None and not eks.is_same(wanted):
        raise StateError(
            f"the context {name} leads to {printable(str(eks))}, the spec and its bindings are of {wanted}: nothing was read or changed",
            next_step=f"name a context of that cluster: {_update(plan)}",
        )
    return name


def _named(wanted: str, found: Mapping[str, EksName | None], plan: AwsPlan, given: str | None) -> str:
    if wanted in found:
        return wanted
    said = "--context says" if given else "the spec's kubernetes.existing.context is"
    raise StateError(
        f"{said} {wanted}, and the kubeconfig has no such context; there are: {_known(found)}",
        next_step="kubectl config get-contexts" if found else _update(plan),
    )


def _known(found: Mapping[str, EksName | None]) -> str:
    return ", ".join(sorted(found)) or "none"


def _eks_of(row: Mapping[str, Any]) -> EksName | None:
    """Return the EKS cluster of a context: of the ARN that its cluster has, else of the one that is its name."""
    words = (section(row, "context").get("cluster", ""), row["name"])
    return next((eks for word in words if (eks := _read(str(word))) is not None), None)


def _read(arn: str) -> EksName | None:
    """Read `arn:aws:eks:REGION:ACCOUNT:cluster/NAME`; None for other words."""
    parts = arn.split(":", 5)
    if len(parts) != 6 or parts[2] != "eks" or not parts[5].startswith("cluster/"):
        return None
    return EksName(parts[3], parts[4], parts[5].removeprefix("cluster/"))


def _update(plan: AwsPlan) -> str:
    return f"aws eks update-kubeconfig --region {plan.aws.region} --name {plan.name}"
