"""Typed fields of JSON from other programs: a wrong type or a missing field is a ParseError that names the field."""

from collections.abc import Mapping
from typing import Any, cast

from gpucluster.checks.check import ParseError
from gpucluster.json_text import parse_json
from gpucluster.text import short


def loaded(text: str) -> Any:
    """The JSON value of `text`."""
    try:
        return parse_json(text)
    except ValueError as error:
        raise ParseError(f"not JSON: {short(str(error))}") from error


def table(text: str) -> Mapping[str, Any]:
    """The JSON object of `text`."""
    body = loaded(text)
    if not isinstance(body, dict):
        raise ParseError(f"an object was expected, not {short(repr(cast('object', body)), 40)}")
    return cast("dict[str, Any]", body)


def members(body: Mapping[str, Any], key: str) -> tuple[Mapping[str, Any], ...]:
    """The list of objects at `key`."""
    items = body.get(key)
    if not isinstance(items, list):
        raise ParseError(f"no list of {key}")
    for item in cast("list[object]", items):
        if not isinstance(item, dict):
            raise ParseError(f"{key}: an object was expected, not {short(repr(item), 40)}")
    return tuple(cast("list[Mapping[str, Any]]", items))


def members_if_any(body: Mapping[str, Any], key: str) -> tuple[Mapping[str, Any], ...]:
    """The list of objects at `key`; empty without the key: botocore leaves out an empty list."""
    return members(body, key) if key in body else ()


def part_if_any(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object at `key`; empty without the key."""
    value: object = body.get(key, {})
    if not isinstance(value, dict):
        raise ParseError(f"{key} is {short(repr(value), 40)}, not an object")
    return cast("dict[str, Any]", value)


def text(item: Mapping[str, Any], *path: str) -> str:
    """A string, possibly empty."""
    value = _at(item, path)
    if not isinstance(value, str):
        raise ParseError(f"{'.'.join(path)} is {short(repr(value), 40)}, not text")
    return value


def strings(item: Mapping[str, Any], *path: str) -> tuple[str, ...]:
    """A list of strings."""
    value: object = _at(item, path)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in cast("list[object]", value)):
        raise ParseError(f"{'.'.join(path)} is {short(repr(cast('object', value)), 40)}, not a list of words")
    return tuple(cast("list[str]", value))


def number(item: Mapping[str, Any], *path: str) -> float:
    """A finite number."""
    value = _at(item, path)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e18:
        raise ParseError(f"{'.'.join(path)} is {short(repr(value), 40)}, not a number")
    return float(value)


def flag(item: Mapping[str, Any], *path: str) -> bool:
    """True or false."""
    value = _at(item, path)
    if not isinstance(value, bool):
        raise ParseError(f"{'.'.join(path)} is {short(repr(value), 40)}, not true or false")
    return value


def _at(item: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = item
    for key in path:
        if not isinstance(value, dict) or key not in value:
            raise ParseError(f"no {'.'.join(path)}")
        value = cast("dict[str, Any]", value)[key]
    return value
