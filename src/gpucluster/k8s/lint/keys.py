"""The keys of a ConfigMap or Secret that pods read. Without its key a container does not start."""

from collections.abc import Iterator
from typing import Any

from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, parts_of
from gpucluster.k8s.lint.references import CONFIG_MAP, SECRET
from gpucluster.k8s.lint.tree import Path, along, at, entries, mapping, text
from gpucluster.text import quoted

_PARTS = ("data", "stringData", "binaryData")
# path in the pod's spec to a part that has the name and the keys; the kind; its name
_VARIABLES = (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET))
_VOLUMES = (
    ("volumes.*.configMap", CONFIG_MAP, "name"),
    ("volumes.*.secret", SECRET, "secretName"),
    ("volumes.*.projected.sources.*.configMap", CONFIG_MAP, "name"),
    ("volumes.*.projected.sources.*.secret", SECRET, "name"),
)


def check(manifests: ManifestSet) -> Iterator[Finding]:
    """An overlay can add keys to a part of a cluster, so that a missing key is an error only in a whole one."""
    level = Severity.ERROR if manifests.facts.whole else Severity.WARNING
    for thing in manifests.objects:
        for pods in parts_of(thing):
            for kind, name, key, where in _read(pods):
                source = manifests.get(kind, name, thing.namespace)
                given = _keys(source) if source else frozenset[str]()
                if given and key and key not in given:
                    words = f"{kind} {quoted(name)} has no key {quoted(key)}: the container does not start"
                    yield thing.found("key", words, where, level)


def _keys(source: Obj) -> frozenset[str]:
    """Return the keys of an object. One without keys is filled by somebody else."""
    return frozenset(key for part in _PARTS for key in mapping(source.body.get(part)))


def _read(pods: Pods) -> Iterator[tuple[str, str, str, Path]]:
    """Yield kind and name of an object, a key of it that the pods need, and the place."""
    for path, container in pods.containers():
        for inner, variable in entries(container, "env"):
            for way, kind in _VARIABLES:
                ref = mapping(at(variable, "valueFrom", way))
                if ref.get("optional") is not True:
                    where = (*path, *inner, "valueFrom", way, "key")
                    yield kind, text(ref.get("name")), text(ref.get("key")), where
    for way, kind, named in _VOLUMES:
        for path, source in along(pods.spec, way.split(".")):
            yield from _items(pods, kind, text(at(source, named)), source, path)


def _items(pods: Pods, kind: str, name: str, source: Any, path: Path) -> Iterator[tuple[str, str, str, Path]]:
    for inner, one in entries(source, "items") if at(source, "optional") is not True else ():
        yield kind, name, text(at(one, "key")), pods.where("spec", *path, *inner, "key")
