"""Autoscalers, limits and quotas that cannot work: metrics that nobody serves, and node pools below one node."""

from collections.abc import Iterator
from decimal import Decimal

from gpucluster.catalog import Machine
from gpucluster.k8s.lint import kueue, quantity
from gpucluster.k8s.lint.disruption import has_gpus
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.gangs import GPU, devices, machines
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, amounts, asked, pods_of
from gpucluster.k8s.lint.tree import at, entries, items, mapping, text, texts
from gpucluster.text import quoted

_HPA, _NODE_POOL = "HorizontalPodAutoscaler.autoscaling", "NodePool.karpenter.sh"
_SERVED = ("cpu", "memory")  # the resources that the metrics server measures
_ADAPTERS = {
    "Pods": "custom.metrics.k8s.io",
    "Object": "custom.metrics.k8s.io",
    "External": "external.metrics.k8s.io",
}
_TYPE = "node.kubernetes.io/instance-type"


def check(manifests: ManifestSet) -> Iterator[Finding]:
    all_pods = [pods for thing in manifests.objects for pods in pods_of(thing)]
    for scaler in manifests.all(_HPA):
        yield from _metrics(manifests, scaler, all_pods)
    for maker in manifests.all(_NODE_POOL):
        yield from _limits(maker)
        yield from _own_taints(manifests, maker, all_pods)
    for quota in manifests.all("ResourceQuota"):
        yield from _quota(manifests, quota)


def _metrics(manifests: ManifestSet, scaler: Obj, all_pods: list[Pods]) -> Iterator[Finding]:
    ref = at(scaler.body, "spec", "scaleTargetRef")
    target = (text(at(ref, "kind")), text(at(ref, "name")), scaler.namespace)
    scaled = [pods for pods in all_pods if (pods.owner.kind, pods.owner.name, pods.owner.namespace) == target]
    for path, metric in entries(scaler.body, "spec", "metrics"):
        kind = text(at(metric, "type"))
        part = "containerResource" if kind == "ContainerResource" else "resource"
        name = text(at(metric, part, "name"))
        if name and name not in _SERVED:
            yield scaler.found(
                "scaler-metric",
                f"nobody serves {quoted(name)}: a resource metric is cpu or memory",
                (*path, part, "name"),
            )
        elif name and at(metric, part, "target", "type") == "Utilization":
            only = text(at(metric, part, "container"))
            for pods in scaled:
                yield from _requests(manifests, scaler, pods, name, only)
        if kind in _ADAPTERS and manifests.facts.whole and not _is_served(manifests, _ADAPTERS[kind]):
            words = f"no APIService of {_ADAPTERS[kind]} serves the metric: install an adapter"
            yield scaler.warned("scaler-metric", words, path)


def _is_served(manifests: ManifestSet, group: str) -> bool:
    made = manifests.all("APIService.apiregistration.k8s.io")
    there = (one.name for one in manifests.facts.present if one.kind == "APIService")
    return any(at(one.body, "spec", "group") == group for one in made) or any(
        name.endswith(group) for name in there
    )


def _requests(manifests: ManifestSet, scaler: Obj, pods: Pods, resource: str, only: str) -> Iterator[Finding]:
    """Utilization is a share of the request. Without a request on one container the autoscaler computes nothing."""
    if any(limits.namespace == scaler.namespace for limits in manifests.all("LimitRange")):
        return
    for path, container in pods.containers():
        lacks = resource not in asked(container) and "initContainers" not in path
        if lacks and pods.complete and only in ("", text(container.get("name"))):
            words = f"autoscaler {scaler.name!r} compares with a request of {resource}, which is missing: it does nothing"
            yield pods.owner.warned("scaler-request", words, (*path, "resources"))


def _limits(maker: Obj) -> Iterator[Finding]:
    named = _machines(maker)
    for resource, limit in amounts(at(maker.body, "spec", "limits")).items():
        least = min((_of(machine, resource) for machine in named), default=Decimal(0))
        if limit < least:
            words = f"the limit {quantity.shown(limit)} is below one node, which has {quantity.shown(least)}: Karpenter makes none"
            yield maker.found("node-pool-limit", words, ("spec", "limits", resource))
        elif resource == GPU and named and all(machine.gpu is None for machine in named):
            yield maker.found(
                "node-pool-limit", "none of its machines has a GPU", ("spec", "limits", resource)
            )


def _of(machine: Machine, resource: str) -> Decimal:
    gpus = machine.gpu.count if machine.gpu else 0
    have = {"cpu": machine.vcpus, "memory": machine.memory_mib * 2**20, GPU: gpus}
    return Decimal(have.get(resource, 0))


def _machines(maker: Obj) -> list[Machine]:
    """Return the machines that a NodePool names; none unless the catalog knows all of them."""
    known = machines()
    for _, one in entries(maker.body, "spec", "template", "spec", "requirements"):
        if at(one, "key") == _TYPE and at(one, "operator") == "In":
            found = [known.get(text(value)) for value in items(at(one, "values"))]
            return [machine for machine in found if machine] if all(found) else []
    return []


def _own_taints(manifests: ManifestSet, maker: Obj, all_pods: list[Pods]) -> Iterator[Finding]:
    """Report a GPU pool whose nodes refuse all pods that choose its label."""
    labels = texts(at(maker.body, "spec", "template", "metadata", "labels"))
    choosing = [
        pods
        for pods in all_pods
        if labels.items() & texts(pods.spec.get("nodeSelector")).items() and devices(pods)
    ]
    for path, taint in entries(maker.body, "spec", "template", "spec", "taints") if has_gpus(maker) else ():
        key, value, effect = (text(at(taint, part)) for part in ("key", "value", "effect"))
        refused = [
            pods for pods in choosing if not kueue.tolerates(pods.spec.get("tolerations"), key, value, effect)
        ]
        hard = effect in ("NoSchedule", "NoExecute") and not manifests.facts.pools
        if hard and choosing and len(refused) == len(choosing):
            words = f"no pod that chooses these nodes tolerates {key}:{effect}"
            yield maker.warned("node-pool-taint", words, path)


def _quota(manifests: ManifestSet, quota: Obj) -> Iterator[Finding]:
    """Kueue admits a gang by its own quota; the namespace's quota then refuses some of its pods."""
    queued = any(queue.namespace == quota.namespace for queue in manifests.all(kueue.LOCAL_QUEUE))
    for name in mapping(at(quota.body, "spec", "hard")) if queued else ():
        if kueue.is_device(name.removeprefix("requests.").removeprefix("limits.")):
            words = "Kueue limits these devices by its own quota: a gang that it admits can lose pods here"
            yield quota.warned("two-quotas", words, ("spec", "hard", name))
