"""Messages for the errors of a JSON Schema validator: one for each field, none longer than a line."""

from collections.abc import Iterator, Sized
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol, cast

from jsonschema import ValidationError

from gpucluster.k8s.lint.tree import Path, items, mapping
from gpucluster.text import quoted

_TYPES = {"object": "a mapping", "array": "a list", "string": "text", "boolean": "true or false", "integer": "a whole number", "number": "a number", "null": "nothing"}  # fmt: skip
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Complaint:
    """`typed`: the value has another shape than the schema requires, so no CEL rule can read it."""

    rule: str
    path: Path
    message: str
    typed: bool = True


class Validator(Protocol):
    """The common protocol of jsonschema's validator classes (its own protocol is only partly typed)."""

    def iter_errors(self, instance: Any) -> Iterator[ValidationError]: ...


def complaints(validator: Validator, value: Any) -> Iterator[Complaint]:
    """Return all errors of a value, split into single complaints."""
    for error in validator.iter_errors(value):
        yield from _taken_apart(error)


def _taken_apart(error: ValidationError) -> Iterator[Complaint]:
    path: Path = tuple(error.absolute_path)
    if error.validator == "additionalProperties" and error.validator_value is False:
        yield from _unknown(error, path)
    elif error.validator == "required":
        yield from _missing(error, path)
    else:
        yield Complaint("schema", path, _sentence(error))


def _unknown(error: ValidationError, path: Path) -> Iterator[Complaint]:
    known = sorted(mapping(mapping(error.schema).get("properties")))
    for field in mapping(error.instance):
        if field not in known:
            near = get_close_matches(str(field), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield Complaint(
                "unknown-field", (*path, field), f"no field of that name: {quoted(field)}{hint}", typed=False
            )


def _missing(error: ValidationError, path: Path) -> Iterator[Complaint]:
    """The validator reports each missing field as a separate error, and names the field only in the message."""
    for field in items(error.validator_value):
        if f"'{field}' is a required property" == error.message:
            yield Complaint("schema", path, f"`{field}` is required")


def _sentence(error: ValidationError) -> str:
    value, expected = quoted(error.instance), error.validator_value
    match error.validator:
        case "type":
            return f"expected {_type(expected)}, found {_found(error.instance)}"
        case "anyOf":
            return f"expected a whole number or text, found {_found(error.instance)}"
        case "enum":
            return f"{value} is none of {', '.join(str(word) for word in items(expected))}"[:_LONGEST]
        case "pattern":
            return f"{value} does not match {str(expected)[:_LONGEST]}"
        case "minItems" | "maxItems" | "minProperties" | "maxProperties" | "minLength" | "maxLength":
            return f"has {len(cast('Sized', error.instance))} entries or characters, {error.validator} is {expected}"
        case _:
            return error.message[:_LONGEST]


def _type(expected: Any) -> str:
    names = items(expected) or (expected,)
    return " or ".join(_TYPES.get(name, f"a {name}") for name in names)


def _found(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    return (
        "a list" if isinstance(value, list) else quoted(value) if isinstance(value, str) else repr(value)[:60]
    )
