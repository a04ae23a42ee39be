"""Check the form of names, labels, annotations and quantities, and that no object exists twice."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj, is_built_in
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text
from gpucluster.text import quoted

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}", re.ASCII)
_ONE_LABEL = frozenset({"Namespace", "Service"})  # kinds whose name must be one DNS label
_FREE = frozenset(
    {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
)  # kinds whose name is any path segment
_LONGEST = {
    "Job.batch": 63,
    "CronJob.batch": 52,
    "StatefulSet.apps": 52,
}  # characters; the names of their pods or jobs must fit a label
LABELS = frozenset({"labels", "matchLabels", "nodeSelector", "nodeLabels"})
_AMOUNTS = frozenset(
    {"requests", "limits", "hard", "capacity", "sizeLimit", "averageValue", "overhead", "podFixed"}
)
_OF_RANGES = ("default", "defaultRequest", "max", "maxLimitRequestRatio", "min")  # of a LimitRange
_ANNOTATION_BYTES = 256 * 1024
_POD_SUFFIX = len("-xxxxx")


def check(manifests: ManifestSet) -> Iterator[Finding]:
    seen: dict[tuple[str, str, str], Obj] = {}
    for thing in manifests.objects:
        if thing.is_client_file:
            continue
        yield from _name(manifests, thing)
        yield from _annotations(thing)
        yield from _forms(thing, thing.body if _is_read(manifests, thing) else _head(thing), ())
        if thing.key == "LimitRange":
            for path, limit in entries(thing.body, "spec", "limits"):
                for side in _OF_RANGES:
                    yield from _amounts(thing, at(limit, side), (*path, side))
        first = seen.setdefault((thing.key, thing.namespace, thing.name), thing)
        if first is not thing and thing.name:
            yield from _twice(manifests, first, thing)


def _twice(manifests: ManifestSet, first: Obj, thing: Obj) -> Iterator[Finding]:
    """Two files of a part can be of two clusters: staging and production. Two documents of a file are applied together."""
    if manifests.facts.whole or first.document.file == thing.document.file:
        place = f" in {first.document.file}" if first.document.file else ""
        yield thing.found("duplicate", f"the same object is already in document {first.document.number}{place}")  # fmt: skip


def is_label_value(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 63 and (not value or _WORD.fullmatch(value) is not None)


def is_label_name(name: str) -> bool:
    """Return whether a name is one part of a DNS name."""
    return len(name) <= 63 and _LABEL.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    return len(name) <= 253 and _SUBDOMAIN.fullmatch(name) is not None


def is_data_key(key: str) -> bool:
    """Return whether a ConfigMap or a Secret takes the key (IsConfigMapKey of apimachinery)."""
    return _DATA_KEY.fullmatch(key) is not None and key != "." and not key.startswith("..")


def is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    good = _WORD.fullmatch(name) is not None and len(name) <= 63
    return good and (not slash or (len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix) is not None))


def _name(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    where = ("metadata", "name")
    if not thing.name:
        if not text(at(thing.body, "metadata", "generateName")):
            known = is_built_in(thing.api_version) or manifests.resource(thing) is not None
            level = Severity.ERROR if known else Severity.WARNING  # only a client may read another kind
            yield thing.found("name", "`metadata.name` is missing", ("metadata",), level)
    elif complaint := _complaint(thing):
        yield thing.found("name", f"{quoted(thing.name)} {complaint}", where)
    namespace = at(thing.body, "metadata", "namespace")
    if namespace is not None and not manifests.is_namespaced(thing):
        yield thing.warned("scope", f"{thing.kind} is cluster-scoped; the API server drops the namespace", ("metadata", "namespace"))  # fmt: skip
    elif namespace is not None and not (_LABEL.fullmatch(str(namespace)) and len(str(namespace)) <= 63):
        yield thing.found("name", f"{quoted(namespace)} is not a namespace name", ("metadata", "namespace"))
    yield from _pod_names(thing)


def _complaint(thing: Obj) -> str:
    if thing.kind in _FREE:
        bad = "/" in thing.name or "%" in thing.name or thing.name in (".", "..")
        return "has a slash or a percent sign" if bad else ""
    form, longest = (_LABEL, 63) if thing.kind in _ONE_LABEL and not thing.group else (_SUBDOMAIN, 253)
    longest = _LONGEST.get(thing.key, longest)
    if form is _LABEL and "." in thing.name and _SUBDOMAIN.fullmatch(thing.name):
        return f"has a dot: the name of a {thing.kind} is one part"
    if form.fullmatch(thing.name) is None:
        return "is not a DNS name: use lower-case letters, digits, `-`, and `.` only between parts"
    return f"has {len(thing.name)} characters; the limit is {longest}" if len(thing.name) > longest else ""


def _pod_names(thing: Obj) -> Iterator[Finding]:
    """The pods of a JobSet are called SET-JOB-NUMBER-NUMBER-xxxxx. This name must be a valid host name."""
    if thing.key != "JobSet.jobset.x-k8s.io":
        return
    for path, job in entries(thing.body, "spec", "replicatedJobs"):
        replicas, width = at(job, "replicas"), at(job, "template", "spec", "parallelism")
        numbers = [str(max(count - 1, 0)) if type(count) is int else "0" for count in (replicas, width)]
        longest = len("-".join((thing.name, text(at(job, "name")), *numbers))) + _POD_SUFFIX
        if longest > 63:
            yield thing.found(
                "name", f"its pods' names have {longest} characters; the limit is 63", (*path, "name")
            )


def _annotations(thing: Obj) -> Iterator[Finding]:
    written = mapping(at(thing.body, "metadata", "annotations"))
    for key, value in written.items():
        where = ("metadata", "annotations", key)
        if not is_label_key(key.lower()):
            yield thing.found("annotation", f"{quoted(key)} is not an annotation name", where)
        if not isinstance(value, str):
            yield thing.found(
                "annotation", f"the value of an annotation must be text, found {quoted(value)}", where
            )
    size = sum(len(key) + len(text(value)) for key, value in written.items())
    if size > _ANNOTATION_BYTES:
        yield thing.found("annotation", f"annotations have {size} characters in all; the limit is {_ANNOTATION_BYTES}")  # fmt: skip


def _forms(thing: Obj, value: Any, path: Path) -> Iterator[Finding]:
    """Check labels and quantities at every path. The content of a string (a ConfigMap's file) is not checked."""
    for key, inner in mapping(value).items():
        here = (*path, key)
        if key in LABELS and not _of_prometheus(thing, path):
            yield from _labels(thing, mapping(inner), here)
        elif key in _AMOUNTS:
            yield from _amounts(thing, inner, here)
        if key not in ("data", "stringData", "binaryData"):
            yield from _forms(thing, inner, here)
    for number, inner in enumerate(items(value)):
        yield from _forms(thing, inner, (*path, number))


def _of_prometheus(thing: Obj, path: Path) -> bool:
    """Return whether labels are those of an alert: templates of Prometheus with any characters."""
    return thing.kind == "PrometheusRule" and bool(path) and path[0] == "spec"


def _head(thing: Obj) -> Mapping[str, Any]:
    return {"metadata": thing.body.get("metadata")}


def _is_read(manifests: ManifestSet, thing: Obj) -> bool:
    """Return whether we know the fields of the kind. In others `labels` and `limits` may mean anything; in a CRD they are schemas."""
    if is_built_in(thing.api_version):
        return thing.kind != "CustomResourceDefinition"
    return manifests.resource(thing) is not None


def _labels(thing: Obj, labels: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    for key, value in labels.items():
        if not is_label_key(key):
            yield thing.found("label", f"{quoted(key)} is not a label name", (*path, key))
        if isinstance(value, bool | int | float):
            words = f"{quoted(json.dumps(value))} is no text: quote it"
            yield thing.found("label", words, (*path, key))
        elif isinstance(value, str) and not is_label_value(value):
            yield thing.found("label", f"{quoted(value)} is not a label value", (*path, key))


def _amounts(thing: Obj, value: Any, path: Path) -> Iterator[Finding]:
    for key, amount in mapping(value).items() if isinstance(value, dict) else (("", value),):
        if isinstance(amount, str | int | float) and quantity.parse(amount) is None:
            where = (*path, key) if key else path
            yield thing.found(
                "quantity", f"{quoted(amount)} is not a quantity such as 500m, 8 or 16Gi", where
            )
