# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
"""Built-in resources against the strict schemas that kubernetes-validate ships, one set a Kubernetes version.

Its own `validate` stops at an object's first error and reads 2 MB anew for each object; we use its files and its
validator, and take all errors. A test holds both to the same verdicts.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

from gpucluster.catalog import kubernetes_facts
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.words import Validator, complaints
from gpucluster.k8s.lint.world import Obj, World

_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def check(world: World) -> Iterator[Finding]:
    """What the version has; a kind that it has not is `versions`' to say."""
    release, served = world.facts.kubernetes, kubernetes_facts().served
    for thing in world.objects:
        if release in served.get((thing.api_version, thing.kind), ()):
            yield from _check(thing, release)


def _check(thing: Obj, release: str) -> Iterator[Finding]:
    body = {key: value for key, value in thing.body.items() if key != "status"}
    for said in complaints(_validator(release, thing.api_version, thing.kind), body):
        yield thing.found(said.rule, said.message, said.path)
    if "status" in thing.body:
        yield thing.warned("status", "the status is the cluster's to write; it is not checked", ("status",))


@cache
def _validator(release: str, api_version: str, kind: str) -> Validator:
    group, _, version = api_version.rpartition("/")
    short = f"{group.partition('.')[0]}-{version}" if group else version
    return Draft202012Validator(
        _contents(release, f"{kind.lower()}-{short}.json"), registry=_registry(release)
    )


@cache
def metadata(release: str) -> Validator:
    """Every object's, custom ones' too: their schemas leave it out."""
    (definitions,) = _registry(release)
    return Draft202012Validator({"$ref": f"{definitions}#/$defs/{_METADATA}"}, registry=_registry(release))


@cache
def _registry(release: str) -> Registry[Any]:
    definitions: Resource[Any] = Resource.from_contents(_contents(release, "_definitions.json"))
    return definitions @ Registry[Any]()


def _contents(release: str, name: str) -> Any:
    return schema_contents(f"kubernetes-json-schema/v{release}.0-local-strict/{name}", release)
