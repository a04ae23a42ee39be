"""The checkers, one a row, over one set of objects."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpucluster.catalog import crd_schema, crd_schemas, kubernetes_facts
from gpucluster.k8s.lint import (
    builtin,
    cel,
    containers,
    kustomize,
    names,
    pairs,
    placement,
    policies,
    quotas,
    references,
    resources,
    schemas,
    security,
    values,
    versions,
)
from gpucluster.k8s.lint.document import Document, documents
from gpucluster.k8s.lint.facts import Facts
from gpucluster.k8s.lint.finding import Finding, Level
from gpucluster.k8s.lint.world import CLIENT_GROUPS, World, build

CHECKERS: dict[str, Callable[[World], Iterator[Finding]]] = {
    "versions": versions.check,
    "builtin": builtin.check,
    "schemas": schemas.check,
    "names": names.check,
    "references": references.check,
    "quotas": quotas.check,
    "placement": placement.check,
    "resources": resources.check,
    "pairs": pairs.check,
    "values": values.check,
    "containers": containers.check,
    "security": security.check,
    "policies": policies.check,
    "kustomize": kustomize.check,
}


def check(manifests: Iterable[Any], facts: Facts) -> tuple[Finding, ...]:
    """All findings, in the order of the documents; ValueError for a Kubernetes version that we have no facts of."""
    if facts.kubernetes not in kubernetes_facts().versions:
        raise ValueError(f"Kubernetes {facts.kubernetes} is none of {', '.join(kubernetes_facts().versions)}")
    world, findings = build(_documents(manifests), facts)
    for checker in CHECKERS.values():
        findings.extend(checker(world))
    return tuple(sorted(dict.fromkeys(findings), key=_order))


def unchecked(manifests: Iterable[Any], facts: Facts) -> tuple[str, ...]:
    """What nobody looked at, in sentences, so that silence is not taken for a pass."""
    world, _ = build(_documents(manifests), facts)
    found: list[str] = []
    if facts.pools is None:
        found.append("quotas, labels, taints and sizes against the pools: no spec was given")
    for api_version, kind in sorted({(thing.api_version, thing.kind) for thing in world.objects}):
        if (api_version, kind) in crd_schemas():
            count = len(cel.transitions(crd_schema(api_version, kind)))
            if count:
                found.append(f"{kind}: what may not change later ({count} of its rules)")
        if api_version.rpartition("/")[0] in CLIENT_GROUPS:
            found.append(f"{kind}: it is a client's, the API server never sees it")
    return (*found, *_left_out(world))


def _left_out(world: World) -> Iterator[str]:
    """Volumes that our renderer makes once the bindings name their file systems."""
    for there in world.facts.present:
        if there.kind == "PersistentVolume" and world.get(there.kind, there.name) is None:
            yield f"PersistentVolume {there.name}: left out until the bindings name its file system"


def _documents(manifests: Iterable[Any]) -> list[Document]:
    made = list(manifests)
    if all(isinstance(one, Document) for one in made):
        return made
    return list(documents(made))


def _order(finding: Finding) -> tuple[Any, ...]:
    """Errors of a document before its warnings, then by place."""
    return (finding.file, finding.document, finding.level is Level.WARNING, finding.path, finding.rule, finding.message)  # fmt: skip
