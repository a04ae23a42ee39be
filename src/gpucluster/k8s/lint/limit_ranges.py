"""What the LimitRange of a namespace makes of its pods and claims. The API server gives its defaults to a container, then refuses a
pod whose request is above a limit (plugin/pkg/admission/limitranger of Kubernetes). A Deployment or a Job is taken, and its
pods are refused later."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import LWS, Pods, amounts, asked, pods_of
from gpucluster.k8s.lint.references import CLAIM
from gpucluster.k8s.lint.tree import Path, along, at, entries, mapping, text

_RANGE = "LimitRange"
_CONTAINER, _POD, _OF_CLAIMS = "Container", "Pod", "PersistentVolumeClaim"
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
    ratio: Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class _Amounts:
    """What a container or a pod has after the API server has completed it."""

    limits: Mapping[str, Decimal]
    requests: Mapping[str, Decimal]


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        limits = _limits(manifests, thing)
        for pods in pods_of(thing) if limits else ():
            if pods.complete or thing.key == LWS:
                yield from _pods(manifests, pods, limits)
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
    ratio = amounts(at(limit, "maxLimitRequestRatio"))
    return _Limit(name, text(at(limit, "type")), default, request, least, most, ratio)


def _pods(manifests: ManifestSet, pods: Pods, limits: list[_Limit]) -> Iterator[Finding]:
    of_container = [one for one in limits if one.kind == _CONTAINER]
    defaults, requests = _largest(one.default for one in of_container), _largest(one.request for one in of_container)  # fmt: skip
    completed: list[tuple[bool, _Amounts]] = []  # with whether it only runs before the others
    for path, container in pods.containers():
        written, asks = amounts(at(container, "resources", "limits")), asked(container)
        for name, request in asks.items():
            if name not in written and name in defaults and request > defaults[name]:
                words = f"{name}: the request {quantity.shown(request)} is above {quantity.shown(defaults[name])}, the limit that a LimitRange of namespace {pods.owner.namespace!r} gives: write a limit"
                yield pods.owner.found("resources", words, (*path, "resources", "requests", name))
        has = _Amounts({**defaults, **written}, {**requests, **asks})
        first = "initContainers" in path and text(container.get("restartPolicy")) != "Always"
        completed.append((first, has))
        for one in of_container:
            for name, words, sure in _wrong(one, has):
                part = "limits" if name in written else "requests"
                where = (*path, "resources", part, name)
                yield pods.owner.found("resources", words, where, _level(manifests, sure=sure))
    has = _together(pods, completed)
    for one in limits:
        for _, words, sure in _wrong(one, has) if one.kind == _POD else ():
            where = pods.where("spec", "containers")
            yield pods.owner.found("resources", words, where, _level(manifests, sure=sure))


def _level(manifests: ManifestSet, *, sure: bool) -> Severity:
    """In a part of a cluster another LimitRange can give the amount that is missing."""
    return Severity.ERROR if sure or manifests.facts.whole else Severity.WARNING


def _largest(found: Iterable[Mapping[str, Decimal]]) -> dict[str, Decimal]:
    """The server reads several LimitRanges in any order."""
    largest: dict[str, Decimal] = {}
    for one in found:
        for name, amount in one.items():
            largest[name] = max(amount, largest.get(name, amount))
    return largest


def _together(pods: Pods, completed: list[tuple[bool, _Amounts]]) -> _Amounts:
    """As podRequests and podLimits: the containers together, or the largest that runs before them. What the pod itself asks
    for counts instead."""
    limits: dict[str, Decimal] = {}
    requests: dict[str, Decimal] = {}
    for before, has in sorted(completed, key=lambda one: one[0]):
        for total, own in ((limits, has.limits), (requests, has.requests)):
            for name, amount in own.items():
                so_far = total.get(name, Decimal(0))
                total[name] = max(so_far, amount) if before else so_far + amount
    whole = mapping(pods.spec.get("resources"))
    limits |= amounts(whole.get("limits"))
    requests |= asked({"resources": whole})
    return _Amounts(limits, requests)


def _wrong(one: _Limit, has: _Amounts) -> Iterator[tuple[str, str, bool]]:
    """Yield resource, sentence, and whether it is certain: an amount that is missing can come from another LimitRange."""
    of = f"of LimitRange {one.name!r} for each {one.kind.lower()}"
    for name, least in one.least.items():
        if name not in has.requests:
            yield name, f"{name}: no request, and the minimum {of} is {quantity.shown(least)}", False
        elif has.requests[name] < least:
            yield name, f"{name}: {quantity.shown(has.requests[name])} is below {quantity.shown(least)}, the minimum {of}", True  # fmt: skip
    for name, most in one.most.items():
        if name not in has.limits:
            yield (
                name,
                f"{name}: no limit, and the maximum {of} is {quantity.shown(most)}: write a limit",
                False,
            )
        elif has.limits[name] > most:
            yield name, f"{name}: {quantity.shown(has.limits[name])} is above {quantity.shown(most)}, the maximum {of}", True  # fmt: skip
    for name, ratio in one.ratio.items():
        request, limit = has.requests.get(name), has.limits.get(name)
        if not request or not limit:
            lacks = "limit" if request else "request"
            yield name, f"{name}: no {lacks}, and the limit may be {quantity.shown(ratio)} times the request by LimitRange {one.name!r}", False  # fmt: skip
        elif limit > request * ratio:
            yield name, f"{name}: the limit {quantity.shown(limit)} is more than {quantity.shown(ratio)} times the request {quantity.shown(request)}, the maxLimitRequestRatio {of}", True  # fmt: skip


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
