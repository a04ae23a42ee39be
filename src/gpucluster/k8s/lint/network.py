"""Policies that cut pods off from the cluster's DNS, policies and monitors of no pod, and spread constraints that count
other pods."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj, is_built_in
from gpucluster.k8s.lint.pods import Pods, pods_of, selects
from gpucluster.k8s.lint.tree import at, entries, items, mapping, text

_POLICY = "NetworkPolicy.networking.k8s.io"
_MONITOR = "PodMonitor.monitoring.coreos.com"
_DNS = (53, "dns", "dns-tcp")
# groups of other projects whose objects make no pods
_WITHOUT_PODS = (
    "cert-manager.io", "external-secrets.io", "gateway.networking.k8s.io", "karpenter.k8s.aws", "karpenter.sh", "kueue.x-k8s.io",
    "networking.istio.io", "security.istio.io",
)  # fmt: skip
_RULES_OF_PROMETHEUS = frozenset({"PodMonitor", "PrometheusRule", "Probe", "ScrapeConfig", "ServiceMonitor"})


def check(manifests: ManifestSet) -> Iterator[Finding]:
    policies = list(manifests.all(_POLICY)) if manifests.facts.whole else []
    for policy in policies:
        beside = [one for one in policies if one.namespace == policy.namespace]
        if _allows(policy) and not any(_reaches_dns(one) for one in beside):
            words = "its pods reach no DNS: no rule of the namespace allows port 53, so no name resolves"
            yield policy.warned("egress-dns", words, ("spec", "egress"))
    for policy in policies:
        yield from _nobody(manifests, policy, at(policy.body, "spec", "podSelector"), [policy.namespace])
    for monitor in manifests.all(_MONITOR) if manifests.facts.whole else ():
        spaces = mapping(at(monitor.body, "spec", "namespaceSelector"))
        named = [text(name) for name in items(spaces.get("matchNames"))] or [monitor.namespace]
        everywhere = sorted({one.namespace for one in manifests.objects}) if spaces.get("any") is True else named  # fmt: skip
        yield from _nobody(manifests, monitor, at(monitor.body, "spec", "selector"), everywhere)
    for thing in manifests.objects:
        for pods in pods_of(thing):
            yield from _spread(pods)


def _nobody(manifests: ManifestSet, thing: Obj, selector: Any, spaces: list[str]) -> Iterator[Finding]:
    """Report a selector of no pod whose keys pods have, or nearly have. Without such a key it is for pods that others make.
    An operator makes pods that no manifest has, so nothing is said of its namespace."""
    here = [one for one in manifests.objects if one.namespace in spaces]
    found = [pods.labels for one in here for pods in pods_of(one)]
    if (
        not found
        or any(_makes_pods(one) for one in here)
        or any(selects(selector, labels) for labels in found)
    ):
        return
    known = sorted({key for labels in found for key in labels})
    wanted = [*mapping(at(selector, "matchLabels"))]
    wanted += [text(at(term, "key")) for _, term in entries(selector, "matchExpressions") if at(term, "operator") == "In"]  # fmt: skip
    if wanted and all(get_close_matches(key, known, n=1, cutoff=0.8) for key in wanted):
        where = ("spec", "podSelector" if thing.key == _POLICY else "selector")
        yield thing.warned("selector", "selects no pod of these manifests", where)


def _makes_pods(one: Obj) -> bool:
    """Return whether a controller of another project may make pods of the object that lint does not see."""
    other = not is_built_in(one.api_version) and not one.group.endswith(_WITHOUT_PODS)
    return other and one.kind not in _RULES_OF_PROMETHEUS and not any(True for _ in pods_of(one))


def _allows(policy: Obj) -> bool:
    """Return whether a policy lets something out. One that lets nothing out is meant so."""
    return bool(items(at(policy.body, "spec", "egress")))


def _reaches_dns(policy: Obj) -> bool:
    """A rule without ports counts if it can reach another namespace."""
    for _, rule in entries(policy.body, "spec", "egress"):
        ports, peers = items(at(rule, "ports")), items(at(rule, "to"))
        wide = not peers or any(mapping(peer).keys() & {"namespaceSelector", "ipBlock"} for peer in peers)
        if any(at(port, "port") in _DNS or at(port, "port") is None for port in ports) or (
            not ports and wide
        ):
            return True
    return False


def _spread(pods: Pods) -> Iterator[Finding]:
    for path, constraint in entries(pods.spec, "topologySpreadConstraints") if pods.complete else ():
        if at(constraint, "labelSelector") is None:
            words = "has no labelSelector, so that it counts no pod and spreads nothing"
            yield pods.owner.warned("spread", words, pods.where("spec", *path))
        selector = mapping(at(constraint, "labelSelector"))
        wanted = mapping(selector.get("matchLabels"))
        if wanted and any(pods.labels.get(key) != value for key, value in wanted.items()):
            words = "does not select its own pods, so that it spreads nothing"
            yield pods.owner.warned("spread", words, pods.where("spec", *path, "labelSelector"))
