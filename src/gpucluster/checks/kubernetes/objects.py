"""Kubernetes' objects in kubectl's JSON. What is missing or of another type is a ParseError."""

from collections.abc import Mapping
from typing import Any

from gpucluster.checks import json_fields
from gpucluster.checks.check import ParseError, QueryOutput
from gpucluster.text import short

Object = Mapping[str, Any]
_NOTHING: Object = {}


def items(output: QueryOutput) -> tuple[Object, ...]:
    """The objects of a list."""
    return json_fields.members(json_fields.table(output.text()), "items")


def name_of(item: Object) -> str:
    """`NAMESPACE/NAME`, or the name of an object of the cluster."""
    metadata = section(item, "metadata")
    namespace = json_fields.text(metadata, "namespace") if "namespace" in metadata else ""
    return "/".join(part for part in (namespace, json_fields.text(metadata, "name")) if part)


def section(item: Object, key: str) -> Object:
    """The mapping at `key`; empty without the key."""
    value: Any = item.get(key, _NOTHING)
    if not isinstance(value, Mapping):
        raise ParseError(f"{key} is {short(repr(value), 40)}, not an object")
    return value  # pyright: ignore[reportUnknownVariableType]


def words(item: Object, key: str) -> dict[str, str]:
    """The mapping of text to text at `key`, such as labels; empty without the key."""
    return {name: json_fields.text(section(item, key), name) for name in section(item, key)}


def condition(item: Object, kind: str) -> tuple[str, str]:
    """Status and message of a condition; `Unknown` if the object has none of this type."""
    for row in json_fields.members_if_any(section(item, "status"), "conditions"):
        if row.get("type") == kind:
            message = json_fields.text(row, "message") if "message" in row else ""
            return json_fields.text(row, "status"), message
    return "Unknown", f"no controller has set {kind}"


def count(item: Object, key: str) -> int:
    """The whole number at `key`; 0 without the key, as Kubernetes writes no zero."""
    return int(json_fields.number(item, key)) if key in item else 0
