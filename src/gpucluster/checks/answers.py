"""Reading JSON that another program wrote: every surprise is a ParseError with the place."""

import json
from collections.abc import Mapping
from typing import Any, cast

from gpucluster.checks.model import Answer, ParseError, short


def loaded(text: str) -> Any:
    """The JSON value of `text`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"not JSON: {short(str(error))}") from error


def table(text: str) -> Mapping[str, Any]:
    """The JSON object of `text`."""
    body = loaded(text)
    if not isinstance(body, dict):
        raise ParseError(f"an object was expected, not {short(repr(cast('object', body)), 40)}")
    return cast("dict[str, Any]", body)


def objects(answer: Answer, key: str) -> tuple[Mapping[str, Any], ...]:
    """The list `key` of scontrol's --json. It can exit with 0 beside errors; then it said nothing."""
    found = table(answer.text())
    if found.get("errors"):
        raise ParseError(f"scontrol could not say: {short(str(found['errors']))}")
    return members(found, key)


def members(body: Mapping[str, Any], key: str) -> tuple[Mapping[str, Any], ...]:
    """A list of objects."""
    items = body.get(key)
    if not isinstance(items, list):
        raise ParseError(f"no list of {key}")
    for item in cast("list[object]", items):
        if not isinstance(item, dict):
            raise ParseError(f"{key}: an object was expected, not {short(repr(item), 40)}")
    return tuple(cast("list[Mapping[str, Any]]", items))


def text(item: Mapping[str, Any], *path: str) -> str:
    """A string; missing is an error, empty is not."""
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


def words(item: Mapping[str, Any], *path: str) -> tuple[str, ...]:
    """State words: a list, or one word."""
    value = _at(item, path)
    found = (value,) if isinstance(value, str) else strings(item, *path)
    return tuple(word.upper() for word in found)


def number(item: Mapping[str, Any], *path: str) -> float:
    """A finite number."""
    value = _at(item, path)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e18:
        raise ParseError(f"{'.'.join(path)} is {short(repr(value), 40)}, not a number")
    return float(value)


def optional(item: Mapping[str, Any], *path: str) -> float | None:
    """Slurm's {set, infinite, number}; None when it is not set or infinite."""
    value = _at(item, path)
    if not isinstance(value, dict):
        raise ParseError(f"{'.'.join(path)} is {short(repr(value), 40)}, not {{set, number}}")
    wrapped = cast("dict[str, Any]", value)
    return None if wrapped.get("infinite") or not wrapped.get("set") else number(wrapped, "number")


def _at(item: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = item
    for key in path:
        if not isinstance(value, dict) or key not in value:
            raise ParseError(f"no {'.'.join(path)}")
        value = cast("dict[str, Any]", value)[key]
    return value
