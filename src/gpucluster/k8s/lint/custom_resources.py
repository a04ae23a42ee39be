"""The custom resources that a run knows: those of the catalog, and CustomResourceDefinitions that are given or in the input."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from jsonschema import Draft202012Validator, SchemaError

from gpucluster.catalog import crd_schema, crd_schemas
from gpucluster.k8s.lint.tree import at, entries, items, mapping, text

_DEEPEST = 64  # levels of a schema
DEFINITION = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


@dataclass(frozen=True, slots=True, eq=False)
class CustomResource:
    """One kind in one version, with its openAPIV3Schema; the schema is empty if nothing can be checked with it."""

    api_version: str
    kind: str
    cluster_scoped: bool
    read: Callable[[], Mapping[str, Any]]  # on first use: to check a large schema takes up to a second

    @property
    def schema(self) -> Mapping[str, Any]:
        return self.read()

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]


Known = Mapping[tuple[str, str], CustomResource]


def known(given: Iterable[CustomResource]) -> Known:
    """Return the catalog's resources and the given ones by apiVersion and kind. A given one replaces the catalog's. Of one
    that is given twice and differs, nobody knows which the cluster has: it has no schema here."""
    found: dict[tuple[str, str], CustomResource] = {}
    differs: set[tuple[str, str]] = set()
    for one in given:
        first = found.setdefault((one.api_version, one.kind), one)
        if first is not one and first.schema != one.schema:
            differs.add((one.api_version, one.kind))
    all_ = {**_of_catalog(), **found}
    return {key: one for key, one in all_.items() if key not in differs}


def definitions(values: Iterable[Any]) -> Iterator[CustomResource]:
    """Return the resources of all CustomResourceDefinitions among some manifests."""
    for value in values:
        if (at(value, "apiVersion"), at(value, "kind")) == DEFINITION:
            yield from _of_definition(mapping(at(value, "spec")))


def _of_definition(spec: Mapping[str, Any]) -> Iterator[CustomResource]:
    kind, group = text(at(spec, "names", "kind")), text(spec.get("group"))
    for _, version in entries(spec, "versions"):
        schema, name = mapping(at(version, "schema", "openAPIV3Schema")), text(at(version, "name"))
        if kind and group and name and at(version, "served") is not False:
            read = cache(partial(_usable, schema))
            yield CustomResource(f"{group}/{name}", kind, spec.get("scope") == "Cluster", read)


def _readable(schema: Mapping[str, Any], depth: int = 0) -> Mapping[str, Any]:
    """Return a schema without the patterns that only Go reads, such as one with a flag inside."""
    if depth > _DEEPEST:
        return schema
    kept = {key: value for key, value in schema.items() if key != "pattern" or _is_pattern(value)}
    return {
        key: _readable(mapping(value), depth + 1)
        if isinstance(value, dict)
        else [_readable(mapping(one), depth + 1) if isinstance(one, dict) else one for one in items(value)]
        if isinstance(value, list)
        else value
        for key, value in kept.items()
    }


def _is_pattern(value: Any) -> bool:
    """Return whether Python reads a pattern. A property can have the name `pattern`: its value is a mapping."""
    try:
        re.compile(text(value))
    except re.error:
        return False
    return True


def _usable(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema as it is checked with; {} for what is no schema of an object."""
    found = _readable(schema)
    try:
        Draft202012Validator.check_schema(dict(found))
    except (SchemaError, RecursionError):
        return {}
    return found if isinstance(found.get("properties"), dict) else {}


@cache
def _of_catalog() -> Known:
    return {
        (api, kind): CustomResource(api, kind, crd.cluster_scoped, partial(crd_schema, api, kind))
        for (api, kind), crd in crd_schemas().items()
    }
