"""What the LimitRange of a namespace makes of its pods and claims. The API server gives its defaults to a container, then refuses a
pod whose request is above a limit (plugin/pkg/admission/limitranger of Kubernetes). A Deployment or a Job is taken, and its
pods are refused later."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import LWS, Pods, amounts, asked, pods_of
from gpucluster.k8s.lint.references import CLAIM
from gpucluster.k8s.lint.tree import Path, along, at, entries, mapping, text

_RANGE = "LimitRange"
_CONTAINER, _OF_CLAIMS = "Container", "PersistentVolumeClaim"
_TEMPLATES = ["spec", "volumeClaimTemplates", "*"]  # of a StatefulSet


@dataclass(frozen=True, slots=True)
class _Limit:
    """One entry of a LimitRange, as the API server completes it: the default limit is the maximum, and so on."""

    name: str  # of the LimitRange
    kind: str
    default: Mapping[str, Decimal]
    request: Mapping[str, Decimal]
    least: Mapping[str, Decimal]
    most: Mapping[str, Decimal]


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        limits = _limits(manifests, thing)
        for pods in pods_of(thing) if limits else ():
            if pods.complete or thing.key == LWS:
                yield from _pods(pods, [one for one in limits if one.kind == _CONTAINER])
        for path, claim in _claims(thing) if limits else ():
            yield from _claim(thing, path, claim, [one for one in limits if one.kind == _OF_CLAIMS])


def _limits(manifests: ManifestSet, thing: Obj) -> list[_Limit]:
    """Return the limits of the object's namespace: of the plan, and of the manifests. In a part of a cluster two files
    without a namespace are of two clusters, or Kustomize gives each another one."""
    found = [
        _of_plan(written) for space, written in manifests.facts.limits.items() if space == thing.namespace
    ]
    for one in manifests.all(_RANGE):
        same_file = one.document.file == thing.document.file
        placed = at(one.body, "metadata", "namespace") and at(thing.body, "metadata", "namespace")
        unique = manifests.get(_RANGE, one.name, one.namespace) is one
        if one.namespace == thing.namespace and unique and (manifests.facts.whole or same_file or placed):
            found.extend(_written(one.name, limit) for _, limit in entries(one.body, "spec", "limits"))
    return found


def _of_plan(default: Mapping[str, str]) -> _Limit:
    return _written("team", {"type": _CONTAINER, "default": dict(default)})


def _written(name: str, limit: Any) -> _Limit:
    """As SetDefaults_LimitRangeItem of Kubernetes."""
    least, most = amounts(at(limit, "min")), amounts(at(limit, "max"))
    default = {**most, **amounts(at(limit, "default"))}
    request = {**least, **default, **amounts(at(limit, "defaultRequest"))}
    return _Limit(name, text(at(limit, "type")), default, request, least, most)


def _pods(pods: Pods, limits: list[_Limit]) -> Iterator[Finding]:
    defaults: dict[str, Decimal] = {}
    for one in limits:  # the server reads several LimitRanges in any order
        for name, amount in one.default.items():
            defaults[name] = max(amount, defaults.get(name, amount))
    for path, container in pods.containers():
        written, requests = amounts(at(container, "resources", "limits")), asked(container)
        for name, request in requests.items():
            if name not in written and name in defaults and request > defaults[name]:
                words = f"{name}: the request {quantity.shown(request)} is above {quantity.shown(defaults[name])}, the limit that a LimitRange of namespace {pods.owner.namespace!r} gives: write a limit"
                yield pods.owner.found("resources", words, (*path, "resources", "requests", name))
        for one in limits:
            yield from _bounds(pods, path, container, one)


def _bounds(pods: Pods, path: Path, container: Mapping[str, Any], one: _Limit) -> Iterator[Finding]:
    limits, requests = amounts(at(container, "resources", "limits")), asked(container)
    for name, most in one.most.items():
        if limits.get(name, 0) > most:
            yield pods.owner.found("resources", _above(name, limits[name], most, one, pods), (*path, "resources", "limits", name))  # fmt: skip
    for name, least in one.least.items():
        if requests.get(name, least) < least:
            words = f"{name}: {quantity.shown(requests[name])} is below {quantity.shown(least)}, the minimum of LimitRange {one.name!r} in namespace {pods.owner.namespace!r}"
            part = "requests" if name in mapping(at(container, "resources", "requests")) else "limits"
            yield pods.owner.found("resources", words, (*path, "resources", part, name))


def _above(name: str, amount: Decimal, most: Decimal, one: _Limit, pods: Pods) -> str:
    return f"{name}: {quantity.shown(amount)} is above {quantity.shown(most)}, the maximum of LimitRange {one.name!r} in namespace {pods.owner.namespace!r}"


def _claims(thing: Obj) -> Iterator[tuple[Path, Any]]:
    if thing.key == CLAIM:
        yield (), thing.body
    elif thing.key == "StatefulSet.apps":
        yield from along(thing.body, _TEMPLATES)


def _claim(thing: Obj, path: Path, claim: Any, limits: list[_Limit]) -> Iterator[Finding]:
    where = ("spec", "resources", "requests", "storage")
    size = quantity.parse(at(claim, *where))
    if size is None:
        return
    for one in limits:
        least, most = one.least.get("storage", size), one.most.get("storage", size)
        if not least <= size <= most:
            words = f"{quantity.shown(size)} is not between {quantity.shown(least)} and {quantity.shown(most)}, the sizes of LimitRange {one.name!r} in namespace {thing.namespace!r}"
            yield thing.found("resources", words, (*path, *where))
