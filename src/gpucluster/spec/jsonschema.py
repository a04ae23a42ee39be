"""The specs' JSON Schemas for editors, draft-07 for reach; committed as schema/NAME.json, checked for drift."""

import json
from typing import Any

from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import Part
from gpucluster.spec.workloads import WorkloadsSpec

_DRAFT = "http://json-schema.org/draft-07/schema#"


def schema_text() -> str:
    """The text of schema/cluster.json."""
    return _text(ClusterSpec)


def workloads_text() -> str:
    """The text of schema/workloads.json."""
    return _text(WorkloadsSpec)


def _text(model: type[Part]) -> str:
    made = model.model_json_schema(by_alias=True, ref_template="#/definitions/{model}")
    made["definitions"] = made.pop("$defs")
    made["patternProperties"] = {"^x-": {"description": "For anchors; not read."}}
    return json.dumps({"$schema": _DRAFT, **_tidy(made)}, indent=1, sort_keys=True) + "\n"


def _tidy(value: Any) -> Any:
    """Without pydantic's titles and its nulls: an absent wish is a key that is not there."""
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
    return kept
