"""Pods that no flavor of their queue takes, by its labels and taints: Kueue never admits them.

Source: checkFlavorForPodSets and flavorSelector of pkg/scheduler/flavorassigner of Kueue 0.19."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.k8s.lint import kueue
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, needs, pods_of, selects
from gpucluster.k8s.lint.tree import at, entries, items, mapping, text, texts

_HARD = ("NoSchedule", "NoExecute")
_HARD_TERMS = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")  # fmt: skip
_COMPARED = ("DoesNotExist", "Exists", "In", "NotIn")


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        for pods in pods_of(thing):
            for queued in kueue.queued_with(manifests, thing):
                queue = kueue.queue_of(manifests, queued)
                if queue is not None and kueue.has_all_flavors(manifests, queue):
                    yield from _pods(manifests, pods, queue)


def _pods(manifests: ManifestSet, pods: Pods, queue: Obj) -> Iterator[Finding]:
    """Each group of resources gives one flavor for the resources that the pods ask for."""
    asked = needs(pods)
    for _, group in entries(queue.body, "spec", "resourceGroups"):
        names = [text(at(one, "name")) for _, one in entries(group, "flavors")]
        flavors = [one for name in names if (one := manifests.get(kueue.FLAVOR, name)) is not None]
        if not flavors or not any(name in asked for name in map(text, items(at(group, "coveredResources")))):
            continue
        keys = {key for flavor in flavors for key in _labels(flavor)}
        able = [flavor for flavor in flavors if _matches(pods, flavor, keys)]
        if not able:
            words = f"no flavor of queue {queue.name!r} ({', '.join(names)}) has the labels that it selects: it would wait forever"
            yield pods.owner.found("node-selector", words, pods.where("spec"))
            continue
        refused = [taint for flavor in able if (taint := _refused(pods, flavor)) is not None]
        if len(refused) == len(able):
            key, effect = text(refused[0].get("key")), text(refused[0].get("effect"))
            words = f"does not tolerate {key}:{effect} of flavor {able[0].name!r}, nor has queue {queue.name!r} another: it would wait forever"
            level = Severity.WARNING if key in asked else Severity.ERROR  # an admission plugin can add it
            yield pods.owner.found("untolerated", words, pods.where("spec", "tolerations"), level)


def _labels(flavor: Obj) -> dict[str, str]:
    return texts(at(flavor.body, "spec", "nodeLabels"))


def _matches(pods: Pods, flavor: Obj, keys: set[str]) -> bool:
    """Only keys of the flavors count: a node of a flavor can have any other label."""
    labels = _labels(flavor)
    wanted = texts(pods.spec.get("nodeSelector"))
    if any(labels.get(key) != value for key, value in wanted.items() if key in keys):
        return False
    terms = [list(_known(term, keys)) for _, term in entries(pods.spec, *_HARD_TERMS)]
    return not all(terms) or not terms or any(selects({"matchExpressions": term}, labels) for term in terms)


def _known(term: Any, keys: set[str]) -> Iterator[Mapping[str, Any]]:
    for _, one in entries(term, "matchExpressions"):
        if at(one, "key") in keys and at(one, "operator") in _COMPARED:
            yield mapping(one)


def _refused(pods: Pods, flavor: Obj) -> Mapping[str, Any] | None:
    """Return the first taint of a flavor that the pods do not tolerate, with the tolerations that the flavor gives."""
    own = [*items(pods.spec.get("tolerations")), *items(at(flavor.body, "spec", "tolerations"))]
    for _, taint in entries(flavor.body, "spec", "nodeTaints"):
        key, value, effect = (text(at(taint, part)) for part in ("key", "value", "effect"))
        if effect in _HARD and not kueue.tolerates(own, key, value, effect):
            return mapping(taint)
    return None
