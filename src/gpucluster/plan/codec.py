"""Frozen dataclasses to JSON and back, by their type hints. Standard library only, because machines import it.

A member of a union of dataclasses has a class constant `kind`. JSON carries it under the key `kind`, and it decides
which member is built. A function for each type is made once: the head reads a report of each node every few seconds.
"""

import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from gpucluster.json_text import parse_json

T = TypeVar("T")
KIND = "kind"
JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]
Writer = Callable[[Any], JSON]
Builder = Callable[[Any], Any]


def to_json(value: object) -> JSON:
    """Return `value` (dataclass, tuple, mapping, enum, plain) as plain JSON values."""
    return _writer(type(value))(value)


def dumps(value: object) -> str:
    """Return the canonical text: sorted keys, one space of indent, a newline at the end."""
    return json.dumps(to_json(value), indent=1, sort_keys=True) + "\n"


def message(value: object) -> str:
    """Return the text on one line, for what only programs read."""
    return json.dumps(to_json(value), separators=(",", ":"), sort_keys=True)


def loads(kind: type[T], text: str | bytes) -> T:
    """Parse JSON into `kind`; ValueError names the place of what does not fit."""
    return from_json(kind, parse_json(text))


def loads_whole(kind: type[T], text: str | bytes, *, newer: frozenset[str] = frozenset()) -> T:
    """Parse JSON into `kind`; a missing key is a ValueError, even if its field has a default.

    `newer`: the keys that earlier versions of this program did not write.
    """
    value = parse_json(text)
    built = from_json(kind, value)
    if missing := _missing(to_json(built), value) - newer:
        raise ValueError(f"{kind.__name__} without {', '.join(sorted(missing))}")
    return built


def loads_known(kind: type[T], text: str | bytes) -> T:
    """Parse JSON of another version of this program into `kind`, without its keys that this version does not know."""
    return from_json(kind, known_part(kind, parse_json(text)))


def from_json(kind: type[T], value: object, where: str = "") -> T:
    """Build `kind` from plain JSON; unknown or missing keys are a ValueError that names the place."""
    return typing.cast(T, _build(kind, value, where or kind.__name__))


def known_part(kind: Any, value: JSON) -> JSON:
    """Return plain JSON without the keys that `kind` and its parts do not have, such as those of a newer version."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        some = tuple(one for one in typing.get_args(kind) if one is not types.NoneType)
        kind = some[0] if len(some) == 1 else Any
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(value, list) and origin is tuple:
        return [known_part(args[0], part) for part in value]
    if not isinstance(value, dict):
        return value
    if is_dataclass(kind):
        hints = _hints(typing.cast(type, kind))
        return {key: known_part(hints[key], part) for key, part in value.items() if key in hints}
    if origin is not None and issubclass(origin, Mapping):
        return {key: known_part(args[1], part) for key, part in value.items()}
    return value


def _missing(whole: JSON, value: JSON) -> set[str]:
    """Return the keys of `whole`, at each depth, that `value` lacks."""
    if isinstance(whole, dict) and isinstance(value, dict):
        return {key for key in whole if key not in value}.union(
            *(_missing(whole[key], value[key]) for key in value)
        )
    if isinstance(whole, list) and isinstance(value, list):
        return set[str]().union(*map(_missing, whole, value))
    return set()


class _MisfitError(ValueError):
    """A value that does not fit its type. `place` is its path below the value that was given, such as `.steps[0].name`."""

    def __init__(self, words: str, place: str = "") -> None:
        super().__init__(words)
        self.words, self.place = words, place

    def below(self, place: str) -> "_MisfitError":
        """Return the same error, seen from the value that has it at `place`."""
        return _MisfitError(self.words, place + self.place)


def _build(kind: Any, value: Any, where: str) -> Any:
    try:
        return _builder(kind)(value)
    except _MisfitError as misfit:
        raise ValueError(f"{where}{misfit.place}: {misfit.words}") from misfit


# --- to JSON --------------------------------------------------------------------------------------


@cache
def _writer(kind: Any) -> Writer:
    if issubclass(kind, Enum):
        return lambda value: to_json(value.value)
    if issubclass(kind, bool | int | float | str | types.NoneType):
        return lambda value: value
    if is_dataclass(kind):
        return _write_dataclass(typing.cast(type, kind))
    if issubclass(kind, Mapping):
        return lambda value: {key: to_json(item) for key, item in sorted(value.items())}
    if issubclass(kind, tuple | list):
        return lambda value: [to_json(item) for item in value]
    raise TypeError(f"{kind.__name__} has no JSON form")


def _write_dataclass(kind: type) -> Writer:
    names, tag = tuple(f.name for f in fields(kind)), _tag(kind)
    tagged: dict[str, JSON] = {} if tag is None else {KIND: tag}

    def write(value: object) -> JSON:
        return tagged | {name: to_json(getattr(value, name)) for name in names}

    return write


# --- from JSON ------------------------------------------------------------------------------------


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


@cache
def _tag(kind: type) -> str | None:
    """The `kind` of a union's member; None for a class outside of a union."""
    found = getattr(kind, KIND, None)
    return found if isinstance(found, str) and KIND not in _hints(kind) else None


@cache
def _builder(kind: Any) -> Builder:
    if kind is Any:  # already plain JSON
        return lambda value: value
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is not None:
        return _build_generic(origin, args)
    if is_dataclass(kind):
        return _build_dataclass(typing.cast(type, kind))
    if issubclass(kind, Enum):
        return _build_enum(kind)
    return _finite if kind is float else _build_plain(kind)


def _build_generic(origin: Any, args: tuple[Any, ...]) -> Builder:
    if origin in (types.UnionType, typing.Union):
        some = _build_some(tuple(a for a in args if a is not types.NoneType))
        return (lambda value: None if value is None else some(value)) if types.NoneType in args else some
    return _build_tuple(args[0]) if origin is tuple else _build_mapping(args[1])


def _build_some(kinds: tuple[Any, ...]) -> Builder:
    if len(kinds) == 1:
        return _builder(kinds[0])
    by_tag = {_tag(kind): kind for kind in kinds}

    def build(value: Any) -> Any:
        _expect(value, dict)
        tag = value.get(KIND)
        if not isinstance(tag, str) or tag not in by_tag:
            found = f"found {tag!r:.40}" if KIND in value else "it is missing"
            raise _MisfitError(f"{found}, expected {' or '.join(sorted(map(str, by_tag)))}", f".{KIND}")
        return _builder(by_tag[tag])(value)

    return build


def _build_tuple(kind: Any) -> Builder:
    part = _builder(kind)

    def build(value: Any) -> tuple[Any, ...]:
        _expect(value, list)
        built: list[Any] = []
        try:
            for item in value:
                built.append(part(item))  # noqa: PERF401 -- the place of a misfit is the count
        except _MisfitError as misfit:
            raise misfit.below(f"[{len(built)}]") from misfit.__cause__
        return tuple(built)

    return build


def _build_mapping(kind: Any) -> Builder:
    part = _builder(kind)

    def build(value: Any) -> dict[str, Any]:
        _expect(value, dict)
        return _build_items(value, lambda _: part)

    return build


def _build_dataclass(kind: type) -> Builder:
    tag = _tag(kind)

    def build(value: Any) -> Any:
        _expect(value, dict)
        if tag is not None:
            if value.get(KIND) != tag:
                raise _MisfitError(f"found {value.get(KIND)!r:.40}, expected {tag}", f".{KIND}")
            value = {key: item for key, item in value.items() if key != KIND}
        parts = _field_builders(kind)
        if not value.keys() <= parts.keys():
            raise _MisfitError(f"unknown keys {', '.join(sorted(value.keys() - parts.keys()))}")
        built = _build_items(value, parts.__getitem__)
        try:
            return kind(**built)
        except TypeError as error:
            raise _MisfitError(str(error)) from error

    return build


@cache
def _field_builders(kind: type) -> dict[str, Builder]:
    """A builder for each field. Made at the first value, because a type may have fields of its own type."""
    return {name: _builder(hint) for name, hint in _hints(kind).items()}


def _build_items(value: dict[str, Any], builder: Callable[[str], Builder]) -> dict[str, Any]:
    key, built = "", dict[str, Any]()
    try:
        for key, item in value.items():
            built[key] = builder(key)(item)
    except _MisfitError as misfit:
        raise misfit.below(f".{key}") from misfit.__cause__
    return built


def _build_enum(kind: type[Enum]) -> Builder:
    def build(value: Any) -> Enum:
        try:
            return kind(value)
        except ValueError as error:
            raise _MisfitError(str(error)) from error

    return build


def _build_plain(kind: type) -> Builder:
    def build(value: Any) -> Any:
        _expect(value, kind)
        return value

    return build


def _finite(value: Any) -> float:
    """Refuse NaN, Infinity, and whole numbers beyond any float, which Python's JSON parser accepts."""
    if not isinstance(value, int) or isinstance(value, bool):
        _expect(value, float)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _MisfitError(f"expected a number, found {value!s:.20}")
    return number


def _expect(value: object, kind: type) -> None:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _MisfitError(f"expected {kind.__name__}, found {type(value).__name__}")
