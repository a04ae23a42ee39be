"""Frozen dataclasses to JSON and back, by their type hints; standard library only (it runs on nodes)."""

import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]


def to_json(value: object) -> JSON:
    """Return `value` (dataclass, tuple, mapping, enum, plain) as plain JSON values."""
    if isinstance(value, Enum):
        return to_json(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        mapping = typing.cast(Mapping[str, object], value)
        return {key: to_json(item) for key, item in sorted(mapping.items())}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in typing.cast(Sequence[object], value)]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def dumps(value: object) -> str:
    """Return the canonical text: sorted keys, one space of indent, a newline at the end."""
    return json.dumps(to_json(value), indent=1, sort_keys=True) + "\n"


def loads(kind: type[T], text: str | bytes) -> T:
    """Parse JSON into `kind`; ValueError names the place of what does not fit."""
    return from_json(kind, json.loads(text))


def from_json(kind: type[T], value: object, where: str = "") -> T:
    """Build `kind` from plain JSON; unknown or missing keys are a ValueError that names the place."""
    return typing.cast(T, _build(kind, value, where or kind.__name__))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _build(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:  # plain JSON already
        return value
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is not None:
        return _build_generic(origin, args, value, where)
    if is_dataclass(kind):
        return _build_dataclass(typing.cast(type, kind), value, where)
    if issubclass(kind, Enum):
        return kind(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return _finite(value, where)
    _expect(value, kind, where)
    return _finite(value, where) if kind is float else value


def _build_generic(origin: Any, args: tuple[Any, ...], value: Any, where: str) -> Any:
    if origin in (types.UnionType, typing.Union):
        some = next(a for a in args if a is not type(None))
        return None if value is None else _build(some, value, where)
    if origin is tuple:
        _expect(value, list, where)
        return tuple(_build(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    _expect(value, dict, where)
    return {key: _build(args[1], item, f"{where}.{key}") for key, item in value.items()}


def _build_dataclass(kind: type, value: Any, where: str) -> Any:
    _expect(value, dict, where)
    hints = _hints(kind)
    unknown = sorted(value.keys() - hints.keys())
    if unknown:
        raise ValueError(f"{where}: unknown keys {', '.join(unknown)}")
    try:
        return kind(**{k: _build(hints[k], v, f"{where}.{k}") for k, v in value.items()})
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from error


def _finite(value: float, where: str) -> float:
    """JSON as Python reads it has NaN and Infinity, and whole numbers beyond any float."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{where}: expected a number, found {value!s:.20}")
    return number


def _expect(value: object, kind: type, where: str) -> None:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{where}: expected {kind.__name__}, found {type(value).__name__}")
