"""All objects of a run with an index, and the functions with which a rule reports an object."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

from gpucluster.catalog import kubernetes_facts
from gpucluster.k8s.lint.client_files import is_client_file
from gpucluster.k8s.lint.custom_resources import CustomResource, Known, definitions, known
from gpucluster.k8s.lint.document import Document
from gpucluster.k8s.lint.facts import Facts
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.tree import Path, at, below, depth_of, entries, is_there, items, mapping, shown, text
from gpucluster.k8s.lint.webhook_defaults import completed

_OF_A_NODE = ("spec", "trainer", "resources")  # of the container that `pods.parts_of` makes
_ENCRYPTED = "ENC["  # as SOPS writes each value
_FILLED = re.compile(  # each opening looks as far as the next one, so that many of them cost no square
    r"\$\{\w(?:(?!\$\{\w)[^}])*\}|\$\([\w-]+\)|\$[A-Z_][A-Z0-9_]*|\{\{(?:(?!\{\{).)*\}\}", re.ASCII
)
_NO_FIELD = (" is required", "an image is required, without spaces around it")  # ends of messages
MAX_DEPTH = 64  # far deeper than any resource; a deeper value could exhaust a recursive reader


@dataclass(frozen=True, slots=True)
class Obj:
    """One object. `key` is kubectl's `Kind.group`; `namespace` is its namespace, "" for cluster-scoped objects."""

    document: Document
    at: Path  # path inside the document: the items of a List have one
    body: Mapping[str, Any]
    api_version: str
    kind: str
    name: str
    namespace: str
    made: dict[str, tuple[Any, ...]] = field(  # what functions of this package have made of the object
        default_factory=dict[str, tuple[Any, ...]], init=False, repr=False, compare=False
    )

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def key(self) -> str:
        return _key(self.api_version, self.kind)

    @property
    def is_client_file(self) -> bool:
        return is_client_file(self.api_version, self.kind)

    @property
    def labels(self) -> Mapping[str, Any]:
        return mapping(at(self.body, "metadata", "labels"))

    def found(self, rule: str, message: str, path: Path = (), level: Severity = Severity.ERROR) -> Finding:
        if path[:3] == _OF_A_NODE and self.kind == "TrainJob":
            path = (*path[:2], "resourcesPerNode", *path[3:])
        return Finding(
            level=Severity.WARNING if self._is_filled_later(rule, message, path) else level,
            rule=rule,
            message=message,
            path=shown(path),
            api_version=self.api_version,
            kind=self.kind,
            namespace=self.namespace,
            name=self.name,
            file=self.document.file,
            document=self.document.number,
            line=self.document.line_of((*self.at, *path)),
        )

    def _is_filled_later(self, rule: str, message: str, path: Path) -> bool:
        """Return whether a tool completes the value before the API server gets it: envsubst, Flux or Terraform a value
        `${NAME}`, templates of Go and of Jinja `{{ name }}`, Kustomize `$(NAME)`, and by patches the fields, labels and namespace of an object that it lists."""
        written = below(self.body, path) if is_there(self.body, path) else None
        if isinstance(written, str) and _FILLED.search(written):
            return True
        by_kustomize = (
            message.endswith(_NO_FIELD) or rule == "selector" or (rule == "name" and self.kind == "Namespace")
        )
        return self.document.is_base and by_kustomize

    def warned(self, rule: str, message: str, path: Path = ()) -> Finding:
        return self.found(rule, message, path, Severity.WARNING)


@dataclass(frozen=True, slots=True)
class ManifestSet:
    """All objects of a run, and the facts about the cluster: the input of the checkers."""

    objects: tuple[Obj, ...]
    facts: Facts
    index: Mapping[tuple[str, str, str], Obj] = field(repr=False)  # key, namespace, name
    resources: Known = field(repr=False)  # the custom resources that are defined

    def resource(self, thing: Obj) -> CustomResource | None:
        return self.resource_of(thing.api_version, thing.kind)

    def resource_of(self, api_version: str, kind: str) -> CustomResource | None:
        """Return a custom resource if it has a schema."""
        found = self.resources.get((api_version, kind))
        return found if found and found.schema else None

    def is_namespaced(self, thing: Obj) -> bool:
        return is_namespaced(thing.api_version, thing.kind, self.resources)

    def get(self, key: str, name: str, namespace: str = "") -> Obj | None:
        return self.index.get((key, namespace, name))

    def all(self, *keys: str) -> Iterator[Obj]:
        return (thing for thing in self.objects if thing.key in keys)

    def has(self, key: str, name: str, namespace: str = "") -> bool:
        """Return whether a manifest makes the object, it exists before, or a person makes it."""
        if key in self.facts.by_hand:
            return True
        return self.get(key, name, namespace) is not None or any(
            (there.kind, there.namespace, there.name) == (key.partition(".")[0], namespace, name)
            for there in self.facts.present
        )


@lru_cache(maxsize=1000)
def _key(api_version: str, kind: str) -> str:
    """Each checker asks each object for it."""
    group = api_version.rpartition("/")[0]
    return f"{kind}.{group}" if group else kind


def build(sources: Iterable[Document], facts: Facts) -> tuple[ManifestSet, list[Finding]]:
    """Return the objects of all documents, and findings for documents that are no object."""
    objects: list[Obj] = []
    findings: list[Finding] = []
    unrolled = [
        (document, path, _readable(value))
        for document in sources
        for path, value in _unrolled(document.value)
        if not is_encrypted(value) or at(value, "kind") == "Secret"
    ]
    resources = known((*facts.resources, *definitions(value for _, _, value in unrolled)))
    for document, path, value in unrolled:
        thing = _object(document, path, value, resources)
        complaint = _shape(thing, value)
        if complaint is None:
            objects.append(thing)
        else:
            findings.append(thing.found("shape", complaint))
    return ManifestSet(tuple(objects), facts, _index(objects, whole=facts.whole), resources), findings


def _index(objects: list[Obj], *, whole: bool) -> dict[tuple[str, str, str], Obj]:
    """Of a part of a cluster, leave out an object that several files have: they are of several clusters."""
    index: dict[tuple[str, str, str], Obj] = {}
    several: set[tuple[str, str, str]] = set()
    for thing in objects:
        place = (thing.key, thing.namespace, thing.name)
        first = index.setdefault(place, thing) if thing.name else thing
        if first.document.file != thing.document.file and not whole:
            several.add(place)
    return {place: thing for place, thing in index.items() if place not in several}


def is_namespaced(api_version: str, kind: str, resources: Known) -> bool:
    """Return whether the kind is namespaced, in any version. An unknown kind counts as namespaced."""
    if is_built_in(api_version):
        return kind not in kubernetes_facts().cluster_scoped
    group = api_version.rpartition("/")[0]
    return not any(one.cluster_scoped for one in resources.values() if (one.group, one.kind) == (group, kind))


def is_built_in(api_version: str) -> bool:
    """Compare the full group: `scheduling.volcano.sh` is unrelated to `scheduling.k8s.io`."""
    group = api_version.rpartition("/")[0]
    return (
        group in _built_in_groups() or "." not in group
    )  # a group of another project is a domain; `extensions` was Kubernetes' own


@cache
def _built_in_groups() -> frozenset[str]:
    return frozenset(api_version.rpartition("/")[0] for api_version, _ in kubernetes_facts().served)


def _unrolled(value: Any) -> Iterator[tuple[Path, Any]]:
    """kubectl takes the items of every list: `List`, `ConfigMapList`, `RoleList`."""
    kind = text(at(value, "kind"))
    if kind == "List" or (kind.endswith("List") and isinstance(at(value, "items"), list)):
        yield from entries(value, "items")
    else:
        yield (), value


def _readable(value: Any) -> Any:
    """Return an object without the texts that SOPS encrypts. Flux or Argo CD decrypts them, and drops the key `sops`."""
    if not is_encrypted(value):
        return value
    return {key: _without(inner) for key, inner in mapping(value).items() if key != "sops"}


def is_encrypted(value: Any) -> bool:
    return bool(mapping(at(value, "sops"))) and isinstance(at(value, "kind"), str)


def _without(value: Any) -> Any:
    if isinstance(value, list):
        return [_without(one) for one in items(value)]
    if isinstance(value, dict):
        return {key: _without(one) for key, one in mapping(value).items()}
    return "" if text(value).startswith(_ENCRYPTED) else value


def _object(document: Document, path: Path, value: Any, resources: Known) -> Obj:
    api_version, kind = text(at(value, "apiVersion")), text(at(value, "kind"))
    namespace = ""
    if is_namespaced(api_version, kind, resources):
        namespace = text(at(value, "metadata", "namespace")) or "default"
    name = text(at(value, "metadata", "name"))
    thing = Obj(document, path, mapping(value), api_version, kind, name, namespace)
    return replace(thing, body=completed(thing.key, thing.body))


def _shape(thing: Obj, value: Any) -> str | None:
    """Return the errors that make a document unreadable as an object."""
    if depth_of(value, MAX_DEPTH) >= MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} levels"
    if not isinstance(value, dict):
        return f"a manifest is a mapping with apiVersion and kind, found {type(value).__name__}"
    if not thing.api_version or not thing.kind:
        lacking = "apiVersion" if not thing.api_version else "kind"
        return f"a manifest has apiVersion and kind as text; `{lacking}` is missing"
    return None
