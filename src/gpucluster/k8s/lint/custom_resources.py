"""The custom resources that a run knows: those of the catalog, and CustomResourceDefinitions that are given or in the input."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from jsonschema import Draft202012Validator, SchemaError

from gpucluster.catalog import crd_schema, crd_schemas
from gpucluster.k8s.lint.tree import at, entries, mapping, text

DEFINITION = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


@dataclass(frozen=True, slots=True, eq=False)
class CustomResource:
    """One kind in one version, with its openAPIV3Schema."""

    api_version: str
    kind: str
    cluster_scoped: bool
    read: Callable[[], Mapping[str, Any]]  # the catalog has 1 MB of schemas, so each is read on first use

    @property
    def schema(self) -> Mapping[str, Any]:
        return self.read()

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]


Known = Mapping[tuple[str, str], CustomResource]


def known(given: Iterable[CustomResource]) -> Known:
    """Return the catalog's resources and the given ones by apiVersion and kind. A given one replaces the catalog's."""
    return {**_of_catalog(), **{(one.api_version, one.kind): one for one in given}}


def definitions(values: Iterable[Any]) -> Iterator[CustomResource]:
    """Return the resources of all CustomResourceDefinitions among some manifests. One without a usable schema is left out."""
    for value in values:
        if (at(value, "apiVersion"), at(value, "kind")) == DEFINITION:
            yield from _of_definition(mapping(at(value, "spec")))


def _of_definition(spec: Mapping[str, Any]) -> Iterator[CustomResource]:
    kind, group = text(at(spec, "names", "kind")), text(spec.get("group"))
    for _, version in entries(spec, "versions"):
        schema, name = mapping(at(version, "schema", "openAPIV3Schema")), text(at(version, "name"))
        served = at(version, "served") is not False
        if kind and group and name and served and _is_usable(schema):
            yield CustomResource(
                f"{group}/{name}", kind, spec.get("scope") == "Cluster", partial(_same, schema)
            )


def _same(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return schema


def _is_usable(schema: Mapping[str, Any]) -> bool:
    try:
        Draft202012Validator.check_schema(dict(schema))
    except (SchemaError, RecursionError):
        return False
    return isinstance(schema.get("properties"), dict)


@cache
def _of_catalog() -> Known:
    return {
        (api, kind): CustomResource(api, kind, crd.cluster_scoped, partial(crd_schema, api, kind))
        for (api, kind), crd in crd_schemas().items()
    }
