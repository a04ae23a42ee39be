"""Whether a pod fits a node: requests, node selector, required affinity, taints. The part of the scheduler that Karpenter repeats. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpucluster.k8s_apply.objects import condition, rows, section
from gpucluster.plan.model import values
from gpucluster.spec.resources import parse_quantity

Object = Mapping[str, Any]
Amounts = Mapping[str, int]  # resource -> thousandths
_PODS = 250_000  # thousandths of a pod: EKS's limit for machines of this size


def waits(pod: Object) -> bool:
    """Say whether the scheduler has found no node for the pod. A pod of a DaemonSet waits for its own node, and needs no other."""
    unscheduled = condition(dict(pod), "PodScheduled").get("reason") == "Unschedulable"
    leaves = pod["metadata"].get("deletionTimestamp")
    return unscheduled and not pod["spec"].get("nodeName") and not leaves and not _of_daemon_set(pod)


def holds_a_node(pod: Object) -> bool:
    """Say whether a node with the pod is not empty: a pod of a DaemonSet, or one that has ended, holds none."""
    ended = section(pod, "status").get("phase") in ("Succeeded", "Failed")
    return not ended and not _of_daemon_set(pod)


def _of_daemon_set(pod: Object) -> bool:
    return any(one["kind"] == "DaemonSet" for one in rows(pod["metadata"], "ownerReferences"))


def requests(pod: Object) -> Amounts:
    """What the containers of a pod request together, or its greediest init container."""
    spec: Object = pod["spec"]
    together: dict[str, int] = {"pods": 1000}
    for container in spec["containers"]:
        for name, amount in _requested(container).items():
            together[name] = together.get(name, 0) + amount
    for container in rows(spec, "initContainers"):
        for name, amount in _requested(container).items():
            together[name] = max(together.get(name, 0), amount)
    return together


def amounts(shown: Mapping[str, Any]) -> Amounts:
    """Parse a map of quantities."""
    return {name: parse_quantity(str(amount)) for name, amount in shown.items()}


def whole_node(capacity: Mapping[str, Any]) -> Amounts:
    """What an empty node of this capacity takes: also a number of pods."""
    return {**amounts(capacity), "pods": _PODS}


def of_plan(offer: Mapping[str, int]) -> Amounts:
    """What a node of the plan offers."""
    return whole_node(shown(offer))


def shown(offer: Mapping[str, int]) -> dict[str, str]:
    """The offer of the plan as quantities."""
    return {name: values.quantity(name, amount) for name, amount in offer.items()}


def minus(left: Amounts, gone: Amounts) -> Amounts:
    """What is left of a node."""
    return {name: amount - gone.get(name, 0) for name, amount in left.items()}


def within(limits: Amounts, nodes: Sequence[Amounts]) -> bool:
    """Say whether nodes together keep the limits of a NodePool. Each of them is one of `nodes`."""
    counted = [{**one, "nodes": 1000} for one in nodes]
    return all(sum(one.get(name, 0) for one in counted) <= most for name, most in limits.items())


def fits(pod: Object, labels: Mapping[str, str], taints: Iterable[Object], left: Amounts) -> bool:
    """Say whether the pod could run on a node with these labels, taints and amounts."""
    spec: Object = pod["spec"]
    selector = section(spec, "nodeSelector")
    return (
        all(labels.get(key) == value for key, value in selector.items())
        and _meets(spec, labels)
        and all(_tolerated(taint, rows(spec, "tolerations")) for taint in taints)
        and all(left.get(name, 0) >= amount for name, amount in requests(pod).items())
    )


def _requested(container: Object) -> Amounts:
    resources = section(container, "resources")
    return amounts({**section(resources, "limits"), **section(resources, "requests")})


def _meets(spec: Object, labels: Mapping[str, str]) -> bool:
    """Required node affinity: one of the terms holds."""
    affinity = section(section(spec, "affinity"), "nodeAffinity")
    terms = rows(section(affinity, "requiredDuringSchedulingIgnoredDuringExecution"), "nodeSelectorTerms")
    return not terms or any(all(_holds(one, labels) for one in rows(t, "matchExpressions")) for t in terms)


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    value, wanted = labels.get(expression["key"]), expression.get("values") or ()
    return {
        "In": value in wanted,
        "NotIn": value not in wanted,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }.get(expression["operator"], False)


def _tolerated(taint: Object, tolerations: Iterable[Object]) -> bool:
    if taint["effect"] == "PreferNoSchedule":
        return True
    return any(
        one.get("effect") in (None, "", taint["effect"])
        and one.get("key") in (None, "", taint["key"])
        and (one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", ""))
        for one in tolerations
    )
