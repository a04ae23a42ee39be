# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
"""Check built-in resources against the strict schemas of kubernetes-validate, one set for each Kubernetes version.

Its own `validate` stops at the first error of an object and reads 2 MB again for each object. So this module uses only
its files and its validator class, and reports all errors. A test checks that both reach the same verdicts.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

from gpucluster.catalog import kubernetes_facts
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.names import LABELS
from gpucluster.k8s.lint.tree import Path, below
from gpucluster.k8s.lint.words import Validator, complaints

_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def check(manifests: ManifestSet) -> Iterator[Finding]:
    """Check the kinds of this version. `versions` reports the other kinds."""
    release, served = manifests.facts.kubernetes, kubernetes_facts().served
    for thing in manifests.objects:
        if release in served.get((thing.api_version, thing.kind), ()):
            yield from _check(thing, release)


def _check(thing: Obj, release: str) -> Iterator[Finding]:
    body = {key: value for key, value in thing.body.items() if key != "status"}
    for error in complaints(_validator(release, thing.api_version, thing.kind), body):
        if not _is_label(body, error.path):
            yield thing.found(error.rule, error.message, error.path)
    if "status" in thing.body:
        yield thing.warned("status", "the cluster writes the status; it is not checked", ("status",))


def _is_label(body: Any, path: Path) -> bool:
    """Return whether a path is that of a label with one value, which `names` checks."""
    return len(path) > 1 and path[-2] in LABELS and not isinstance(below(body, path), dict | list)


@cache
def _validator(release: str, api_version: str, kind: str) -> Validator:
    group, _, version = api_version.rpartition("/")
    short = f"{group.partition('.')[0]}-{version}" if group else version
    return Draft202012Validator(
        _contents(release, f"{kind.lower()}-{short}.json"), registry=_registry(release)
    )


@cache
def metadata(release: str) -> Validator:
    """Check the metadata of every object, also of custom ones, because their schemas leave it out."""
    (definitions,) = _registry(release)
    return Draft202012Validator({"$ref": f"{definitions}#/$defs/{_METADATA}"}, registry=_registry(release))


@cache
def _registry(release: str) -> Registry[Any]:
    definitions: Resource[Any] = Resource.from_contents(_contents(release, "_definitions.json"))
    return definitions @ Registry[Any]()


def _contents(release: str, name: str) -> Any:
    return schema_contents(f"kubernetes-json-schema/v{release}.0-local-strict/{name}", release)
