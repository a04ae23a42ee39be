"""Whole GPUs, equal in request and limit, and shared memory inside the memory limit."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint import kueue
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet
from gpucluster.k8s.lint.pods import Pods, amounts, parts_of
from gpucluster.k8s.lint.tree import Path, at, entries, mapping, text
from gpucluster.text import quoted

_BYTES = frozenset({"memory", "ephemeral-storage"})
_LEAST_BYTES = Decimal(2**16)  # no container runs in less
_MOST_CPUS = Decimal(1000)  # no machine has so many


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        for pods in parts_of(thing):
            for path, container in pods.containers():
                yield from _container(pods, path, mapping(container.get("resources")))
            yield from _shared_memory(pods)
            yield from _disks(pods)


def _container(pods: Pods, path: Path, resources: Mapping[str, Any]) -> Iterator[Finding]:
    requests, limits = amounts(resources.get("requests")), amounts(resources.get("limits"))
    yield from _units(pods, path, resources)
    pages = [name for name in {*requests, *limits} if name.startswith("hugepages-")]
    if pages and not {*requests, *limits} & {"cpu", "memory"} and pods.complete:
        words = "huge pages need a request of cpu or memory beside them"
        yield pods.owner.found("resources", words, (*path, "resources"))
    for resource in sorted({*requests, *limits}):
        asked, limit = requests.get(resource), limits.get(resource)
        complaint = _device(asked, limit) if _exact(resource) else _ordinary(asked, limit)
        if complaint:
            where = (*path, "resources", "limits" if resource in limits else "requests", resource)
            yield pods.owner.found("resources", f"{resource}: {complaint}", where)


def _units(pods: Pods, path: Path, resources: Mapping[str, Any]) -> Iterator[Finding]:
    """The API server takes thousandths of a byte and thousands of CPUs. Nobody means them."""
    for part in ("requests", "limits"):
        for resource, amount in amounts(resources.get(part)).items():
            where = (*path, "resources", part, resource)
            if resource in _BYTES and 0 < amount < _LEAST_BYTES:
                yield pods.owner.warned("unit", f"{quantity.shown(amount)} bytes: a unit such as Mi or Gi is missing, or m is one too small", where)  # fmt: skip
            elif resource == "cpu" and amount >= _MOST_CPUS:
                yield pods.owner.warned("unit", f"{quantity.shown(amount)} CPUs: thousandths are written as {quantity.shown(amount)}m", where)  # fmt: skip


def _exact(resource: str) -> bool:
    return kueue.is_device(resource) or resource.startswith("hugepages-")


def _device(asked: Decimal | None, limit: Decimal | None) -> str:
    if limit is None:
        return "a limit is required: devices cannot be overcommitted"
    if asked is not None and asked != limit:
        return f"request {quantity.shown(asked)} and limit {quantity.shown(limit)} must be equal"
    return "" if limit == limit.to_integral_value() else f"{quantity.shown(limit)} is not a whole number"


def _ordinary(asked: Decimal | None, limit: Decimal | None) -> str:
    if asked is None or limit is None or asked <= limit:
        return ""
    return f"request {quantity.shown(asked)} is above the limit {quantity.shown(limit)}"


def _shared_memory(pods: Pods) -> Iterator[Finding]:
    """A memory volume counts against the memory of the container that writes to it. Without a size it may use half the node.
    A size above the limit starts, and ends when the volume fills."""
    volumes = {text(at(volume, "name")): (path, mapping(at(volume, "emptyDir"))) for path, volume in entries(pods.spec, "volumes")}  # fmt: skip
    for name, (path, volume) in volumes.items():
        if volume.get("medium") == "Memory":
            where = pods.where("spec", *path, "emptyDir")
            size = quantity.parse(volume.get("sizeLimit"))
            if size is None:
                yield pods.owner.warned("shm", f"memory volume {quoted(name)} has no sizeLimit", where)
                continue
            for _, container in pods.containers():
                limit = amounts(at(container, "resources", "limits")).get("memory")
                if _mounts(container, name) and limit is not None and size > limit:
                    yield pods.owner.warned("shm", f"sizeLimit {quantity.shown(size)} is above the memory limit {quantity.shown(limit)} of {quoted(container.get('name'))}", (*where, "sizeLimit"))  # fmt: skip


def _disks(pods: Pods) -> Iterator[Finding]:
    """The kubelet evicts a pod whose files take more than the limits of its containers together. A volume of the pod counts."""
    limits = [amounts(at(one, "resources", "limits")).get("ephemeral-storage") for path, one in pods.containers() if "initContainers" not in path]  # fmt: skip
    known = [limit for limit in limits if limit is not None]
    for path, volume in entries(pods.spec, "volumes") if known and len(known) == len(limits) else ():
        size = quantity.parse(at(volume, "emptyDir", "sizeLimit"))
        if size is not None and at(volume, "emptyDir", "medium") in (None, "") and size > sum(known):
            words = f"sizeLimit {quantity.shown(size)} is above {quantity.shown(sum(known, start=Decimal(0)))}, the limits of ephemeral-storage of its containers: the pod is evicted before"
            yield pods.owner.warned("shm", words, pods.where("spec", *path, "emptyDir", "sizeLimit"))


def _mounts(container: Mapping[str, Any], name: str) -> bool:
    return any(at(mount, "name") == name for _, mount in entries(container, "volumeMounts"))
