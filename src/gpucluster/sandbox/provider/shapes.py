"""Normalise values: how a property looks in a program and in the API, and when two values are equal.

Each shape lists problems of a value (`problems`), converts it in both directions, and compares two values (`same`).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Protocol, cast
from urllib.parse import unquote

from gpucluster.engine.values import UNKNOWN, Value, Values, has_unknown


class Shape(Protocol):
    """The form of a value."""

    def problems(self, value: Value, where: str) -> Iterator[str]:
        """Return why a program may not write this value."""
        ...

    def to_api(self, value: Value) -> Value:
        """Convert a program's value to the API's form."""
        ...

    def from_api(self, value: Value) -> Value:
        """Convert the API's value to a program's form."""
        ...

    def same(self, one: Value, other: Value) -> bool:
        """Return whether both values mean the same."""
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """Text, number or flag, equal in program and API."""

    kind: type

    def problems(self, value: Value, where: str) -> Iterator[str]:
        if value is UNKNOWN:
            return
        kinds = (int, float) if self.kind is float else (self.kind,)  # a whole number is a valid fraction
        if not isinstance(value, kinds) or (isinstance(value, bool) and self.kind is not bool):
            yield f"{where}: expected {self.kind.__name__}, found {type(value).__name__}"

    def to_api(self, value: Value) -> Value:
        return value

    def from_api(self, value: Value) -> Value:
        return value

    def same(self, one: Value, other: Value) -> bool:
        return isinstance(one, bool) == isinstance(other, bool) and one == other


@dataclass(frozen=True, slots=True)
class FlagAsText:
    """A flag that Pulumi writes as "true", because launch templates distinguish unset from false."""

    def problems(self, value: Value, where: str) -> Iterator[str]:
        if value is not UNKNOWN and value not in ("true", "false"):
            yield f'{where}: expected "true" or "false", found {value!r}'

    def to_api(self, value: Value) -> Value:
        return value == "true"

    def from_api(self, value: Value) -> Value:
        return str(value).lower()

    def same(self, one: Value, other: Value) -> bool:
        return one == other


@dataclass(frozen=True, slots=True)
class Document:
    """A policy as JSON text. Two texts are equal if they parse to equal documents."""

    def problems(self, value: Value, where: str) -> Iterator[str]:
        if value is UNKNOWN:
            return
        try:
            json.loads(value)
        except (TypeError, ValueError) as error:
            yield f"{where}: not JSON: {error}"

    def to_api(self, value: Value) -> Value:
        return value

    def from_api(self, value: Value) -> Value:
        if isinstance(value, str):  # IAM returns it URL-encoded; boto3 decodes only some responses
            return value if value.startswith("{") else unquote(value)
        return json.dumps(value, sort_keys=True)

    def same(self, one: Value, other: Value) -> bool:
        if not (isinstance(one, str) and isinstance(other, str)):
            return False
        return one == other or _parsed(one) == _parsed(other)


@dataclass(frozen=True, slots=True)
class Tags:
    """A map in a program, a list of Key and Value in the API. AWS sets `aws:` tags itself."""

    def problems(self, value: Value, where: str) -> Iterator[str]:
        if value is not UNKNOWN and not isinstance(value, dict):
            yield f"{where}: expected a map of tags"

    def to_api(self, value: Value) -> Value:
        return [{"Key": k, "Value": v} for k, v in sorted(cast(Values, value).items())]

    def from_api(self, value: Value) -> Value:
        pairs = cast(list[dict[str, str]], value)
        return {t["Key"]: t["Value"] for t in pairs if not t["Key"].startswith("aws:")}

    def same(self, one: Value, other: Value) -> bool:
        return one == other


class Pairs(Tags):
    """A map in a program and in the API (labels of nodes)."""

    def to_api(self, value: Value) -> Value:
        return value

    def from_api(self, value: Value) -> Value:
        return value


@dataclass(frozen=True, slots=True)
class Many:
    """A list; a set if `ordered` is false."""

    item: Shape
    ordered: bool = False

    def problems(self, value: Value, where: str) -> Iterator[str]:
        if value is UNKNOWN:
            return
        if not isinstance(value, list):
            yield f"{where}: expected a list"
            return
        for index, item in enumerate(cast(list[Value], value)):
            yield from self.item.problems(item, f"{where}[{index}]")

    def to_api(self, value: Value) -> Value:
        return [self.item.to_api(item) for item in value]

    def from_api(self, value: Value) -> Value:
        return [self.item.from_api(item) for item in value]

    def same(self, one: Value, other: Value) -> bool:
        if not (isinstance(one, list) and isinstance(other, list)):
            return False
        left, right = cast(list[Value], one), cast(list[Value], other)
        if len(left) != len(right):
            return False
        if self.ordered:
            return all(self.item.same(a, b) for a, b in zip(left, right, strict=True))
        return all(any(self.item.same(a, b) for b in right) for a in left) and all(
            any(self.item.same(a, b) for a in left) for b in right
        )


@dataclass(frozen=True, slots=True)
class One:
    """One value in a program, a list with one item in the API (`subnetIds` of a Lustre)."""

    item: Shape

    def problems(self, value: Value, where: str) -> Iterator[str]:
        yield from self.item.problems(value, where)

    def to_api(self, value: Value) -> Value:
        return [self.item.to_api(value)]

    def from_api(self, value: Value) -> Value:
        return self.item.from_api(value[0])

    def same(self, one: Value, other: Value) -> bool:
        return self.item.same(one, other)


@dataclass(frozen=True, slots=True)
class Amount:
    """A decimal number as text: `100` equals `100.0`."""

    def problems(self, value: Value, where: str) -> Iterator[str]:
        if value is not UNKNOWN and (not isinstance(value, str) or _decimal(value) is None):
            yield f"{where}: expected a decimal number as text, found {value!r}"

    def to_api(self, value: Value) -> Value:
        return value

    def from_api(self, value: Value) -> Value:
        return str(value)

    def same(self, one: Value, other: Value) -> bool:
        return one == other or (_decimal(one) is not None and _decimal(one) == _decimal(other))


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record: its API name and its shape. `default` is the meaning of unset."""

    api: str
    shape: Shape
    default: Value = None
    from_cloud: bool = False  # unset: the cloud chooses a value, which is no difference


@dataclass(frozen=True, slots=True)
class Record:
    """A nested object. Check rejects unlisted fields."""

    fields: Mapping[str, Field]

    def problems(self, value: Value, where: str) -> Iterator[str]:
        if value is UNKNOWN:
            return
        if not isinstance(value, dict):
            yield f"{where}: expected an object"
            return
        for name, item in cast(Values, value).items():
            if name not in self.fields:
                yield f"{where}.{name}: the stand-in for AWS does not know this property"
            else:
                yield from self.fields[name].shape.problems(item, f"{where}.{name}")

    def to_api(self, value: Value) -> Value:
        return {self.fields[k].api: self.fields[k].shape.to_api(v) for k, v in cast(Values, value).items()}

    def from_api(self, value: Value) -> Value:
        seen = cast(Values, value)
        return {
            name: field.shape.from_api(seen[field.api])
            for name, field in self.fields.items()
            if not empty(seen.get(field.api))
        }

    def same(self, one: Value, other: Value) -> bool:
        if not (isinstance(one, dict) and isinstance(other, dict)):
            return False
        left, right = cast(Values, one), cast(Values, other)
        return all(_same_field(f, left.get(name), right.get(name)) for name, f in self.fields.items())


@dataclass(frozen=True, slots=True)
class Refused:
    """A field that only the API knows: a program may not set it, and a set value is a difference."""

    def problems(self, value: Value, where: str) -> Iterator[str]:
        yield f"{where}: the stand-in for AWS does not support this property"

    def to_api(self, value: Value) -> Value:
        return value

    def from_api(self, value: Value) -> Value:
        return json.dumps(value, sort_keys=True, default=str)

    def same(self, one: Value, other: Value) -> bool:
        return one == other


class ReadOnly(Refused):
    """A value that upstream reads in the form of the program, and that a program may not set here."""

    def from_api(self, value: Value) -> Value:
        return value


TEXT, NUMBER, FRACTION, FLAG = Plain(str), Plain(int), Plain(float), Plain(bool)
FLAG_AS_TEXT, DOCUMENT, TAGS, REFUSED, AMOUNT = FlagAsText(), Document(), Tags(), Refused(), Amount()
PAIRS = Pairs()
READ_ONLY = ReadOnly()
TEXTS = Many(TEXT)


def empty(value: Value) -> bool:
    """Return whether the API means "not set". False and 0 are values."""
    return value is None or value in ("", [], {})


def same(shape: Shape, one: Value, other: Value) -> bool:
    """Return whether both mean the same. Unset equals empty; UNKNOWN equals nothing."""
    if has_unknown(one) or has_unknown(other):
        return False
    if empty(one) or empty(other):
        return empty(one) and empty(other)
    return shape.same(one, other)


def _same_field(field: Field, one: Value, other: Value) -> bool:
    left = field.default if empty(one) else one
    right = field.default if empty(other) else other
    if field.from_cloud and (empty(left) or empty(right)):
        return True
    return same(field.shape, left, right)


def _parsed(text: str) -> Value:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _decimal(text: Value) -> Decimal | None:
    try:
        return Decimal(str(text))
    except InvalidOperation:
        return None
