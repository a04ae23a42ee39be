"""Autoscalers, limits and quotas that cannot work: metrics that nobody serves, and node pools below one node."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.catalog import Machine
from gpucluster.k8s.lint import hosts, kueue
from gpucluster.k8s.lint.disruption import has_gpus
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.gangs import GPU, devices
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, amounts, asked, pods_of
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text
from gpucluster.text import quoted

_HPA, _NODE_POOL = "HorizontalPodAutoscaler.autoscaling", "NodePool.karpenter.sh"
_SCALED_OBJECT = "ScaledObject.keda.sh"
_TAKES_OVER = "scaledobject.keda.sh/transfer-hpa-ownership"
_UNSCALABLE = frozenset({"Job", "CronJob", "DaemonSet", "Pod"})  # kinds without the subresource `scale`
_OF_APPS = frozenset({"Deployment", "ReplicaSet", "StatefulSet"})
_BOUNDS = (("minReplicas", "maxReplicas"), ("minReplicaCount", "maxReplicaCount"))
_DEEPEST = 8  # keys above the bounds of a worker group
_SERVED = ("cpu", "memory")  # the resources that the metrics server measures
_ADAPTERS = {
    "Pods": "custom.metrics.k8s.io",
    "Object": "custom.metrics.k8s.io",
    "External": "external.metrics.k8s.io",
}


_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
# labels that Karpenter derives from a machine, and where their value is known from
_FACTS: dict[str, Callable[[Machine], str]] = {
    "kubernetes.io/arch": lambda machine: _ARCHITECTURES.get(machine.arch, machine.arch),
    "karpenter.k8s.aws/instance-category": lambda machine: machine.name[: -len(machine.name.lstrip("abcdefghijklmnopqrstuvwxyz"))],
    "karpenter.k8s.aws/instance-family": lambda machine: machine.name.partition(".")[0],
    "karpenter.k8s.aws/instance-size": lambda machine: machine.name.partition(".")[2],
    "karpenter.k8s.aws/instance-cpu": lambda machine: str(machine.vcpus),
    "karpenter.k8s.aws/instance-gpu-count": lambda machine: str(machine.gpu.count) if machine.gpu else "",
}  # fmt: skip


def check(manifests: ManifestSet) -> Iterator[Finding]:
    all_pods = [pods for thing in manifests.objects for pods in pods_of(thing)]
    for scaler in manifests.all(_HPA):
        yield from _target(scaler)
        yield from _metrics(manifests, scaler, all_pods)
    yield from _twice(manifests)
    for thing in manifests.objects:
        if thing.key != _HPA:
            yield from _bounds(thing, thing.body, ())
    for maker in manifests.all(_NODE_POOL):
        yield from _limits(maker)
        yield from _machines(maker)
        yield from _own_taints(manifests, maker, all_pods)
    for quota in manifests.all("ResourceQuota"):
        yield from _quota(manifests, quota)


def _target(scaler: Obj) -> Iterator[Finding]:
    kind, where = text(at(scaler.body, "spec", "scaleTargetRef", "kind")), ("spec", "scaleTargetRef", "kind")
    if kind in _UNSCALABLE and not _is_of_others(scaler):
        yield scaler.found("scaler-target", f"a {kind} has no scale that an autoscaler can set", where)
    written = at(scaler.body, "spec", "scaleTargetRef", "apiVersion")
    if kind in _OF_APPS and isinstance(written, str) and written.rpartition("/")[0] in ("", "extensions"):
        words = f"{quoted(written)} has no {kind}: it is in apps/v1, and the autoscaler finds no target"
        yield scaler.found("scaler-target", words, ("spec", "scaleTargetRef", "apiVersion"))


def _twice(manifests: ManifestSet) -> Iterator[Finding]:
    """Two autoscalers set one number in turn. A ScaledObject makes an autoscaler."""
    seen: dict[tuple[str, str, str], Obj] = {}
    for scaler in manifests.all(_HPA, _SCALED_OBJECT):
        ref = at(scaler.body, "spec", "scaleTargetRef")
        kind, name = text(at(ref, "kind")) or "Deployment", text(at(ref, "name"))
        taken = mapping(at(scaler.body, "metadata", "annotations")).get(_TAKES_OVER) == "true"
        if not name or taken or manifests.get(scaler.key, scaler.name, scaler.namespace) is not scaler:
            continue
        first = seen.setdefault((kind, name, scaler.namespace), scaler)
        if first is not scaler and (manifests.facts.whole or first.document.file == scaler.document.file):
            words = f"{first.kind} {first.name!r} scales {kind} {name!r}, too: both set its number of replicas in turn"
            yield scaler.warned("scaler-target", words, ("spec", "scaleTargetRef", "name"))


def _is_of_others(scaler: Obj) -> bool:
    """Return whether the target is of another project: Volcano has a Job, too."""
    return "." in text(at(scaler.body, "spec", "scaleTargetRef", "apiVersion")).partition("/")[0]


def _bounds(thing: Obj, value: Any, path: Path) -> Iterator[Finding]:
    """The bounds of a RayCluster, an InferenceService or a ScaledObject. KServe takes a most of 0 as no bound."""
    for low, high in _BOUNDS:
        least, most = at(value, low), at(value, high)
        if type(least) is type(most) is int and least > most > 0:
            yield thing.warned("replicas", f"{low} {least} is above {high} {most}", (*path, low))
    if len(path) < _DEEPEST:
        for key, inner in (*mapping(value).items(), *enumerate(items(value))):
            yield from _bounds(thing, inner, (*path, key))


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
    names = [name for _, name in hosts.wanted(maker, hosts.TYPE)]
    known = [hosts.machines().get(name) for name in names]
    for resource, limit in amounts(at(maker.body, "spec", "limits")).items():
        least = (
            min((hosts.of(one, resource) for one in known if one), default=Decimal(0))
            if all(known)
            else Decimal(0)
        )
        if limit < least:
            words = f"the limit {quantity.shown(limit)} is below one node, which has {quantity.shown(least)}: Karpenter makes none"
            yield maker.found("node-pool-limit", words, ("spec", "limits", resource))
        elif resource == GPU and limit > 0 and names and all(map(hosts.has_no_gpu, names)):
            yield maker.found(
                "node-pool-limit", "none of its machines has a GPU", ("spec", "limits", resource)
            )


def _machines(maker: Obj) -> Iterator[Finding]:
    """Requirements are joined by "and". Machines that the catalog does not know are left out."""
    names = {name for _, name in hosts.wanted(maker, hosts.TYPE)}
    machines = [one for name in names if (one := hosts.machines().get(name)) is not None]
    if not names or len(machines) < len(names):
        return
    for path, one in entries(maker.body, "spec", "template", "spec", "requirements"):
        key, operator = text(at(one, "key")), text(at(one, "operator"))
        values = [text(value) for value in items(at(one, "values"))]
        found = _FACTS.get(key)
        if found and values and not any(_holds(found(machine), operator, values) for machine in machines):
            shown = ", ".join(sorted(names))
            words = f"no machine of {hosts.TYPE} ({shown}) fits {key} {operator} {', '.join(values)}: Karpenter makes none"
            yield maker.found("node-pool-limit", words, path)


def _holds(fact: str, operator: str, values: list[str]) -> bool:
    match operator:
        case "In":
            return fact in values
        case "NotIn":
            return fact not in values
        case "Gt" | "Gte" | "Lt" | "Lte" if values[0].isdecimal():
            number, bound = int(fact or 0), int(values[0])
            return {"Gt": number > bound, "Gte": number >= bound, "Lt": number < bound, "Lte": number <= bound}[operator]  # fmt: skip
        case _:
            return True


def _own_taints(manifests: ManifestSet, maker: Obj, all_pods: list[Pods]) -> Iterator[Finding]:
    """Report a GPU pool whose nodes refuse all pods that choose its label."""
    choosing = [pods for pods in all_pods if maker in hosts.makers_of(manifests, pods) and devices(pods)]
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
