"""All objects of a run with an index over them, and how a rule speaks about one."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from gpucluster.catalog import crd_schemas, kubernetes_facts
from gpucluster.k8s.lint.document import Document
from gpucluster.k8s.lint.facts import Facts
from gpucluster.k8s.lint.finding import Finding, Level
from gpucluster.k8s.lint.tree import Path, at, depth_of, entries, mapping, shown, text

MAX_DEPTH = 64  # far deeper than any resource; what is deeper could exhaust a recursive reader
CLIENT_GROUPS = frozenset({"kustomize.config.k8s.io"})  # read by a client, never sent to the API server


@dataclass(frozen=True, slots=True)
class Obj:
    """One object. `key` is kubectl's `Kind.group`; `namespace` is where it lands, "" for cluster-scoped ones."""

    document: Document
    at: Path  # inside the document: the items of a List have one
    body: Mapping[str, Any]
    api_version: str
    kind: str
    name: str
    namespace: str

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def key(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def labels(self) -> Mapping[str, Any]:
        return mapping(at(self.body, "metadata", "labels"))

    def found(self, rule: str, message: str, path: Path = (), level: Level = Level.ERROR) -> Finding:
        return Finding(
            level=level,
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

    def warned(self, rule: str, message: str, path: Path = ()) -> Finding:
        return self.found(rule, message, path, Level.WARNING)


@dataclass(frozen=True, slots=True)
class World:
    """What the checkers look at."""

    objects: tuple[Obj, ...]
    facts: Facts
    index: Mapping[tuple[str, str, str], Obj] = field(repr=False)  # key, namespace, name

    def get(self, key: str, name: str, namespace: str = "") -> Obj | None:
        return self.index.get((key, namespace, name))

    def all(self, *keys: str) -> Iterator[Obj]:
        return (thing for thing in self.objects if thing.key in keys)

    def has(self, key: str, name: str, namespace: str = "") -> bool:
        """Made by a manifest, or there before."""
        return self.get(key, name, namespace) is not None or any(
            (there.kind, there.namespace, there.name) == (key.partition(".")[0], namespace, name)
            for there in self.facts.present
        )


def build(sources: Iterable[Document], facts: Facts) -> tuple[World, list[Finding]]:
    """The objects of all documents, and what was wrong with those that are none."""
    objects: list[Obj] = []
    findings: list[Finding] = []
    for document in sources:
        for path, value in _unrolled(document.value):
            thing = _object(document, path, value)
            complaint = _shape(thing, value)
            if complaint is None:
                objects.append(thing)
            else:
                findings.append(thing.found("shape", complaint))
    index = {(thing.key, thing.namespace, thing.name): thing for thing in reversed(objects)}
    return World(tuple(objects), facts, index), findings


def is_namespaced(api_version: str, kind: str) -> bool:
    """By what we know of the kind, in whatever version; an unknown one counts as namespaced."""
    if is_built_in(api_version):
        return kind not in kubernetes_facts().cluster_scoped
    return (api_version.rpartition("/")[0], kind) not in _cluster_scoped()


def is_built_in(api_version: str) -> bool:
    """By the full group: `scheduling.volcano.sh` is no relative of `scheduling.k8s.io`."""
    group = api_version.rpartition("/")[0]
    return (
        group in _built_in_groups() or "." not in group
    )  # a group of others is a domain; `extensions` was ours


@cache
def _cluster_scoped() -> frozenset[tuple[str, str]]:
    """Group and kind of the custom resources in no namespace."""
    return frozenset(
        (api.rpartition("/")[0], kind) for (api, kind), crd in crd_schemas().items() if crd.cluster_scoped
    )


@cache
def _built_in_groups() -> frozenset[str]:
    return frozenset(api_version.rpartition("/")[0] for api_version, _ in kubernetes_facts().served)


def _unrolled(value: Any) -> Iterator[tuple[Path, Any]]:
    if at(value, "kind") == "List" and at(value, "apiVersion") == "v1":
        yield from entries(value, "items")
    else:
        yield (), value


def _object(document: Document, path: Path, value: Any) -> Obj:
    api_version, kind = text(at(value, "apiVersion")), text(at(value, "kind"))
    namespace = ""
    if is_namespaced(api_version, kind):
        namespace = text(at(value, "metadata", "namespace")) or "default"
    name = text(at(value, "metadata", "name"))
    return Obj(document, path, mapping(value), api_version, kind, name, namespace)


def _shape(thing: Obj, value: Any) -> str | None:
    """What hinders reading it as an object at all."""
    if depth_of(value, MAX_DEPTH) >= MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} levels"
    if not isinstance(value, dict):
        return f"a manifest is a mapping with apiVersion and kind, found {type(value).__name__}"
    if not thing.api_version or not thing.kind:
        lacking = "apiVersion" if not thing.api_version else "kind"
        return f"a manifest has apiVersion and kind as text; `{lacking}` is missing"
    return None
