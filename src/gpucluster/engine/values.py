"""Property values as plain JSON values, with UNKNOWN for values that a preview cannot know."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from google.protobuf import json_format, struct_pb2

Value = Any  # None | bool | int | float | str | list[Value] | dict[str, Value] | Unknown
Values = dict[str, Value]

UNKNOWN_ON_WIRE: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"  # the engine's constant for an unknown value


class Unknown:
    """A value that is known only after the deployment."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()


def from_struct(struct: struct_pb2.Struct) -> Values:
    """Read a property map from the protocol's form."""
    return cast(Values, read_back(json_format.MessageToDict(struct)))


def read_back(value: Value) -> Value:
    """Convert a JSON value: the constant for unknown becomes UNKNOWN, whole numbers become int."""
    if value == UNKNOWN_ON_WIRE:
        return UNKNOWN
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {k: read_back(v) for k, v in cast(Values, value).items()}
    if isinstance(value, list):
        return [read_back(v) for v in cast(list[Value], value)]
    return value


def to_struct(values: Mapping[str, Value]) -> struct_pb2.Struct:
    """Write a property map in the protocol's form. None values are left out, as in a program."""
    plain = {k: _to_wire(v) for k, v in values.items() if v is not None}
    return json_format.Parse(json.dumps(plain), struct_pb2.Struct())


def has_unknown(value: Value) -> bool:
    """Return whether any part of the value is unknown."""
    if isinstance(value, Mapping):
        return any(has_unknown(v) for v in cast(Mapping[str, Value], value).values())
    if isinstance(value, list | tuple):
        return any(has_unknown(v) for v in cast(Sequence[Value], value))
    return value is UNKNOWN


def _to_wire(value: Value) -> Value:
    if value is UNKNOWN:
        return UNKNOWN_ON_WIRE
    if isinstance(value, Mapping):
        return {k: _to_wire(v) for k, v in cast(Mapping[str, Value], value).items() if v is not None}
    if isinstance(value, list | tuple):
        return [_to_wire(v) for v in cast(Sequence[Value], value)]
    return value
