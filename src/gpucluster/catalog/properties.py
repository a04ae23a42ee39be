"""Effects of property changes in AWS: update in place, or replacement of the resource. Data with sources and dates.

`data/aws-properties.json` comes from the Terraform provider's source and from CloudFormation's schemas;
`docs/facts/aws-properties.md` lists where these differ.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final, cast

from gpucluster.catalog.data_files import read_data

Inputs = Mapping[str, Any]  # by Pulumi's property names


class OnChange(StrEnum):
    """The provider's action when the property changes."""

    UPDATE = "update"
    REPLACE = "replace"
    COMPUTED = "computed"  # an output: no program sets it


class Comparison(StrEnum):
    """The rule by which two values of a property are equal."""

    PLAIN = "plain"
    SET = "set"  # the order of the items does not matter
    JSON = "json"  # a JSON document: whitespace does not matter
    DECIMAL = "decimal"  # a number as text: `100` equals `100.0`


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyFacts:
    """One property. `replacing_fields`: nested fields that replace the resource although the others update it."""

    change: OnChange
    compare: Comparison = Comparison.PLAIN
    optional_computed: bool = False  # unset: AWS chooses the value
    replacing_fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A case in which a property replaces the resource although it usually updates it."""

    property: str
    holds: Callable[[Inputs, Inputs], bool]  # of the old and the new inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFacts:
    """One resource type."""

    properties: Mapping[str, PropertyFacts]
    conditions: tuple[Condition, ...]
    sets: frozenset[str]  # dotted names of lists inside properties whose order does not matter
    auto_name: str | None  # the property that Pulumi fills with a generated name
    delete_before_replace: bool

    @property
    def tagged(self) -> bool:
        return "tags" in self.properties


@cache
def aws_properties() -> Mapping[str, ResourceFacts]:
    """Return the facts by type, such as `aws:ec2/vpc:Vpc`. Only types of our program and of the rehearsal are included."""
    types = read_data("aws-properties.json")["types"]
    return {token: _resource(row) for token, row in types.items()}


def _resource(row: dict[str, Any]) -> ResourceFacts:
    return ResourceFacts(
        properties={name: _property(one) for name, one in row["properties"].items()},
        conditions=tuple(_condition(dict(one)) for one in row.get("conditions", [])),
        sets=frozenset(row.get("sets", [])),
        auto_name=row.get("auto_name"),
        delete_before_replace=row.get("delete_before_replace", False),
    )


def _property(row: dict[str, Any]) -> PropertyFacts:
    return PropertyFacts(
        change=OnChange(row["change"]),
        compare=Comparison(row.get("compare", "plain")),
        optional_computed=row.get("optional_computed", False),
        replacing_fields=tuple(row.get("replacing_fields", [])),
    )


def _condition(row: dict[str, Any]) -> Condition:
    name = row.pop("property")
    ((kind, value),) = row.items()
    return Condition(property=name, holds=_KINDS[kind](name, value))


def _unless_change(name: str, pair: list[Any]) -> Callable[[Inputs, Inputs], bool]:
    return lambda old, new: [old.get(name), new.get(name)] != pair


def _less(name: str, field: str) -> Callable[[Inputs, Inputs], bool]:
    def number(inputs: Inputs) -> object:
        value = inputs.get(name)
        return cast(Inputs, value).get(field) if field and isinstance(value, Mapping) else value

    def holds(old: Inputs, new: Inputs) -> bool:
        was, now = number(old), number(new)
        return isinstance(was, int | float) and isinstance(now, int | float) and now < was

    return holds


def _if(_: str, expected: Inputs) -> Callable[[Inputs, Inputs], bool]:
    return lambda _old, new: all(new.get(other) == value for other, value in expected.items())


def _if_old(_: str, expected: Inputs) -> Callable[[Inputs, Inputs], bool]:
    return lambda old, _new: all(old.get(other) == value for other, value in expected.items())


def _unless(_: str, expected: Inputs) -> Callable[[Inputs, Inputs], bool]:
    return lambda _old, new: any(new.get(other) != value for other, value in expected.items())


def _other_kind(_: str, names: list[str]) -> Callable[[Inputs, Inputs], bool]:
    return lambda old, new: [bool(old.get(one)) for one in names] != [bool(new.get(one)) for one in names]


_KINDS: Final[Mapping[str, Callable[[str, Any], Callable[[Inputs, Inputs], bool]]]] = {
    "if": _if,
    "if_old": _if_old,
    "less": _less,
    "other_kind": _other_kind,
    "unless": _unless,
    "unless_change": _unless_change,
}
