"""The context of the kubeconfig that leads to the cluster of a plan."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.errors import StateError
from gpucluster.k8s_apply.objects import rows, section
from gpucluster.plan.model import AwsPlan
from gpucluster.plan.model.kubernetes import ExistingControlPlane, Kubernetes


def context_of(plan: AwsPlan, kubernetes: Kubernetes, config: Mapping[str, Any], given: str | None) -> str:
    """Return its name. StateError says what to type if there is none or more than one.

    `given` decides if it is set. An existing cluster has its context in the spec. For EKS it is the one context that names the
    cluster's ARN, as `aws eks update-kubeconfig` writes it, also with an alias.
    """
    known = sorted(row["name"] for row in rows(config, "contexts"))
    plane = kubernetes.control_plane
    wanted = given or (plane.context if isinstance(plane, ExistingControlPlane) else None)
    if wanted is not None:
        return _named(wanted, known, plan, given)
    found = sorted(_of_eks(plan, config))
    if len(found) == 1:
        return found[0]
    if not found:
        raise StateError(
            f"no context of the kubeconfig leads to the EKS cluster {plan.name} in {plan.aws.region}; there are: {', '.join(known) or 'none'}",
            next_step=_update(plan),
        )
    raise StateError(
        f"{len(found)} contexts of the kubeconfig lead to the EKS cluster {plan.name}: {', '.join(found)}",
        next_step=f"name one: --context {found[0]}",
    )


def _named(wanted: str, known: list[str], plan: AwsPlan, given: str | None) -> str:
    if wanted in known:
        return wanted
    said = "--context says" if given else "the spec's kubernetes.existing.context is"
    raise StateError(
        f"{said} {wanted}, and the kubeconfig has no such context; there are: {', '.join(known) or 'none'}",
        next_step="kubectl config get-contexts" if known else _update(plan),
    )


def _of_eks(plan: AwsPlan, config: Mapping[str, Any]) -> Iterator[str]:
    for row in rows(config, "contexts"):
        arns = (row["name"], section(row, "context").get("cluster", ""))
        if any(_leads(str(arn), plan) for arn in arns):
            yield row["name"]


def _leads(arn: str, plan: AwsPlan) -> bool:
    """Return whether it is `arn:aws:eks:REGION:ACCOUNT:cluster/NAME`."""
    parts = arn.split(":", 5)
    return len(parts) == 6 and parts[2:4] == ["eks", plan.aws.region] and parts[5] == f"cluster/{plan.name}"


def _update(plan: AwsPlan) -> str:
    return f"aws eks update-kubeconfig --region {plan.aws.region} --name {plan.name}"
