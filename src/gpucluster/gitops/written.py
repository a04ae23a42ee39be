"""Values of a spec as a person writes them, on one line."""

from collections.abc import Mapping
from enum import Enum
from typing import cast

from gpucluster.spec.part import Part
from gpucluster.spec.tree import WrittenFloat


def written(document: object, value: object) -> str:
    """As it stands in the document; else (a short form hid it) as the model has it."""
    return flow(value if document is None else document)


def flow(value: object) -> str:
    """YAML's flow form: `{from: spot, machines: [p5en.48xlarge]}`."""
    if isinstance(value, Part):
        return _mapping(_wishes(value))
    if isinstance(value, Mapping):
        return _mapping(cast(Mapping[str, object], value))
    if isinstance(value, list | tuple):
        return f"[{', '.join(flow(item) for item in cast(list[object], value))}]"
    return _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, WrittenFloat):
        return value.text
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    return "" if value is None else str(value)


def _mapping(value: Mapping[str, object]) -> str:
    return f"{{{', '.join(f'{key}: {flow(item)}' for key, item in value.items())}}}"


def _wishes(part: Part) -> Mapping[str, object]:
    """The fields that were set, by the words of the spec."""
    every = ((info.alias or name, getattr(part, name)) for name, info in type(part).model_fields.items())
    return {key: value for key, value in every if value is not None and value != ()}
