"""Where variables and files of the downward API get their values, as the API server checks it."""

import re
from collections.abc import Iterator
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet
from gpucluster.k8s.lint.names import is_data_key, is_label_key
from gpucluster.k8s.lint.pods import Pods, parts_of
from gpucluster.k8s.lint.tree import Path, along, at, entries, mapping
from gpucluster.text import quoted

_OF_VARIABLES = ("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")  # fmt: skip
_OF_FILES = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_OLD = "spec.host"  # an old name of spec.nodeName
_PART = re.compile(r"(?P<path>[^\[]+)\['(?P<key>.*)'\]", re.ASCII | re.DOTALL)
_RESOURCES = tuple(f"{part}.{name}" for part in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory"))  # fmt: skip
_PAGES = ("limits.hugepages-", "requests.hugepages-")
_DIVISORS = frozenset({"0", "1", *(f"1{suffix}" for suffix in ("k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))})  # fmt: skip
_CPU_DIVISORS = frozenset({"0", "1", "1m"})
_KEYS = ("configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef")
_WITH_KEY = ("configMapKeyRef", "secretKeyRef")
_FILES = ("volumes.*.downwardAPI.items.*", "volumes.*.projected.sources.*.downwardAPI.items.*")


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        for pods in parts_of(thing):
            for path, container in pods.containers():
                for inner, variable in entries(container, "env"):
                    where = (*path, *inner, "valueFrom")
                    yield from _variable(pods, where, mapping(variable).get("valueFrom"))
                for inner, source in entries(container, "envFrom"):
                    yield from _one(pods, (*path, *inner), source, ("configMapRef", "secretRef"))
            for way in _FILES:
                for path, file in along(pods.spec, way.split(".")):
                    yield from _file(pods, pods.where("spec", *path), file)


def _variable(pods: Pods, path: Path, source: Any) -> Iterator[Finding]:
    if not isinstance(source, dict):
        return
    yield from _one(pods, path, mapping(source), _KEYS)
    yield from _field(pods, path, at(source, "fieldRef"), _OF_VARIABLES)
    yield from _resource(pods, path, at(source, "resourceFieldRef"))
    for way in _WITH_KEY:
        key = at(source, way, "key")
        if isinstance(key, str) and not is_data_key(key):
            words = f"{quoted(key)} is no key: use letters, digits, `-`, `_` and `.`, and no `..` at the beginning"
            yield pods.owner.found("variable", words, (*path, way, "key"))


def _file(pods: Pods, path: Path, file: Any) -> Iterator[Finding]:
    yield from _one(pods, path, file, ("fieldRef", "resourceFieldRef"))
    yield from _field(pods, path, at(file, "fieldRef"), _OF_FILES)
    yield from _resource(pods, path, at(file, "resourceFieldRef"))
    if at(file, "resourceFieldRef") is not None and not at(file, "resourceFieldRef", "containerName"):
        words = "`containerName` is required: a file is of no container"
        yield pods.owner.found("variable", words, (*path, "resourceFieldRef"))


def _one(pods: Pods, path: Path, source: Any, keys: tuple[str, ...]) -> Iterator[Finding]:
    given = [key for key in keys if mapping(source).get(key) is not None]
    if len(given) != 1 and (given or pods.complete):
        words = f"expected one of {', '.join(keys)}, found {' and '.join(given) or 'none'}"
        yield pods.owner.found("one-of", words, path)


def _field(pods: Pods, path: Path, ref: Any, fields: tuple[str, ...]) -> Iterator[Finding]:
    written = at(ref, "fieldPath")
    if not isinstance(written, str):
        return
    where = (*path, "fieldRef", "fieldPath")
    part = _PART.fullmatch(written)
    if part and part["path"] in ("metadata.annotations", "metadata.labels"):
        key = part["key"].lower() if part["path"] == "metadata.annotations" else part["key"]
        if not is_label_key(key):
            words = f"{quoted(part['key'])} is not the name of a label or an annotation"
            yield pods.owner.found("variable", words, where)
    elif part or (written not in fields and not (written == _OLD and "spec.nodeName" in fields)):
        words = f"{quoted(written)} is none of {', '.join(fields)}, metadata.labels['NAME'], metadata.annotations['NAME']"
        yield pods.owner.found("variable", words, where)


def _resource(pods: Pods, path: Path, ref: Any) -> Iterator[Finding]:
    resource, where = at(ref, "resource"), (*path, "resourceFieldRef")
    if not isinstance(resource, str):
        return
    if resource not in _RESOURCES and not resource.startswith(_PAGES):
        words = f"{quoted(resource)} is none of {', '.join(_RESOURCES)}: a device has no value here"
        yield pods.owner.found("variable", words, (*where, "resource"))
        return
    allowed = _CPU_DIVISORS if resource.endswith(".cpu") else _DIVISORS
    divisor = mapping(ref).get("divisor")
    if isinstance(divisor, str | int) and not isinstance(divisor, bool) and str(divisor) not in allowed:
        words = f"{quoted(divisor)} is no divisor of {resource}: use {'1 or 1m' if allowed is _CPU_DIVISORS else '1, 1Mi or 1Gi'}"
        yield pods.owner.found("variable", words, (*where, "divisor"))
