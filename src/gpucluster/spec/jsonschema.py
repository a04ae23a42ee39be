"""The JSON Schemas for editors, in draft-07 because most editors support it; committed as schema/NAME.json."""

import json
from typing import Any

from gpucluster.catalog import Catalog
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import Part
from gpucluster.spec.schema_rules import add_rules
from gpucluster.spec.workloads import WorkloadsSpec

_DRAFT = "http://json-schema.org/draft-07/schema#"


def schema_text(catalog: Catalog) -> str:
    """Return the text of schema/cluster.json, with the machines, regions and versions of the catalog."""
    made = fields_schema(ClusterSpec)
    add_rules(made, catalog)
    return _text(made)


def workloads_text() -> str:
    """Return the text of schema/workloads.json."""
    return _text(fields_schema(WorkloadsSpec))


def fields_schema(model: type[Part]) -> dict[str, Any]:
    """Return the schema of the fields alone, without words of the catalog and rules between fields."""
    made = model.model_json_schema(by_alias=True, ref_template="#/definitions/{model}")
    made["definitions"] = made.pop("$defs")
    anchors = {"patternProperties": {"^x-": {"description": "For anchors; not read."}}}
    return {"$schema": _DRAFT, **_tidy(made), **anchors}


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


def _tidy(value: Any) -> Any:
    """Remove pydantic's titles and nulls: an optional field is a missing key, never null."""
    if isinstance(value, list):
        return [_tidy(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
        if key == "anyOf" and {"type": "null"} in item:
            (only,) = [choice for choice in item if choice != {"type": "null"}]  # pyright: ignore[reportUnknownVariableType]
            kept |= _tidy(only)
        elif not (key == "title" and isinstance(item, str)) and not (key == "default" and item is None):
            kept[str(key)] = _tidy(item)  # pyright: ignore[reportUnknownArgumentType]
    return _closed(kept) if "patternProperties" in kept else kept


def _closed(mapping: dict[str, Any]) -> dict[str, Any]:
    """Refuse keys without the pattern: pydantic's `patternProperties` alone accepts every other key."""
    ((pattern, values),) = mapping.pop("patternProperties").items()
    names = {**mapping.get("propertyNames", {}), "pattern": pattern}
    return {**mapping, "additionalProperties": values, "propertyNames": names}
