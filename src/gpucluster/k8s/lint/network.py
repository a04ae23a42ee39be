"""Policies that cut pods off from the cluster's DNS, and spread constraints that count other pods."""

from collections.abc import Iterator

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, pods_of
from gpucluster.k8s.lint.tree import at, entries, items, mapping

_POLICY = "NetworkPolicy.networking.k8s.io"
_DNS = (53, "dns", "dns-tcp")


def check(manifests: ManifestSet) -> Iterator[Finding]:
    policies = list(manifests.all(_POLICY)) if manifests.facts.whole else []
    for policy in policies:
        beside = [one for one in policies if one.namespace == policy.namespace]
        if _allows(policy) and not any(_reaches_dns(one) for one in beside):
            words = "its pods reach no DNS: no rule of the namespace allows port 53, so no name resolves"
            yield policy.warned("egress-dns", words, ("spec", "egress"))
    for thing in manifests.objects:
        for pods in pods_of(thing):
            yield from _spread(pods)


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
        selector = mapping(at(constraint, "labelSelector"))
        wanted = mapping(selector.get("matchLabels"))
        if wanted and any(pods.labels.get(key) != value for key, value in wanted.items()):
            words = "does not select its own pods, so that it spreads nothing"
            yield pods.owner.warned("spread", words, pods.where("spec", *path, "labelSelector"))
