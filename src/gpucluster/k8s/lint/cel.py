"""The CEL rules of a resource's schema (`x-kubernetes-validations`), evaluated as the API server does.

A rule that compares with the object in the cluster (`oldSelf`) cannot be evaluated here; `transitions` lists such rules.
A rule that the engine cannot evaluate is reported, so that it is not taken for a pass.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import cel
from cel.stdlib import STDLIB_FUNCTIONS

from gpucluster.k8s.lint.tree import Path, items, mapping, text

# the engine raises them for a wrong type, a missing key, an unknown function, or a value out of range
ENGINE_ERRORS = (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError)
_TRANSITION = "oldSelf"
_OPTIONAL = re.compile(r"(\.|[\[{,]\s*)\?")  # `a.?b`, `a[?b]`, `[?a]` and `{?a: b}`


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that does not hold, or that the engine could not evaluate (then `engine` has the reason)."""

    path: Path
    message: str
    engine: str = ""


def evaluate(schema: Mapping[str, Any], value: Any, wrong: frozenset[Path]) -> Iterator[Broken]:
    """Evaluate every rule of a schema. A rule at or above a `wrong` path is skipped: the value has an unexpected type."""
    yield from _walk(schema, value, (), wrong)


def matches(value: str, pattern: str) -> bool:
    """Search with the engine's regular expressions: similar to Go's, and in linear time on hostile text."""
    return bool(_pattern().execute(cel.Context({"text": value, "pattern": pattern})))


def rules(schema: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield all rules of a schema with their path; `[]` stands for each entry."""
    for rule in items(schema.get("x-kubernetes-validations")):
        yield path, text(rule["rule"])
    for name, inner in mapping(schema.get("properties")).items():
        yield from rules(mapping(inner), (*path, name))
    for key in ("items", "additionalProperties"):
        if inner := mapping(schema.get(key)):
            yield from rules(inner, (*path, ""))


def transitions(schema: Mapping[str, Any]) -> tuple[tuple[Path, str], ...]:
    """Return the rules that only an update can break."""
    return tuple((path, rule) for path, rule in rules(schema) if is_transition(rule))


def is_transition(rule: str) -> bool:
    return _TRANSITION in rule and _TRANSITION in compiled(rule).variables()


@cache
def compiled(rule: str) -> cel.Program:
    """Compile a rule. ValueError if it does not parse. The engine lacks optional fields, which Kubernetes has since 1.29:
    such a rule is read without their marks. Its values then fail at `orValue` and the like, which the engine lacks, too."""
    try:
        return cel.compile(rule)
    except ENGINE_ERRORS:
        plain = _OPTIONAL.sub(r"\1", rule)
        if plain == rule:
            raise
        return cel.compile(plain)


@cache
def _pattern() -> cel.Program:
    return cel.compile("text.matches(pattern)")


def _walk(schema: Mapping[str, Any], value: Any, path: Path, wrong: frozenset[Path]) -> Iterator[Broken]:
    own = items(schema.get("x-kubernetes-validations"))
    if own and not any(bad[: len(path)] == path for bad in wrong):
        for rule in own:
            yield from _check_rule(mapping(rule), value, path)
    for key, inner, child in _children(schema, value):
        yield from _walk(inner, child, (*path, key), wrong)


def _children(schema: Mapping[str, Any], value: Any) -> Iterator[tuple[str | int, Mapping[str, Any], Any]]:
    known, others = mapping(schema.get("properties")), mapping(schema.get("additionalProperties"))
    for key, child in mapping(value).items():
        if inner := mapping(known.get(key, others)):
            yield key, inner, child
    if inner := mapping(schema.get("items")):
        for number, child in enumerate(items(value)):
            yield number, inner, child


def _check_rule(rule: Mapping[str, Any], value: Any, path: Path) -> Iterator[Broken]:
    written = text(rule.get("rule"))
    message = text(rule.get("message")) or f"failed rule: {written}"
    try:
        if not is_transition(written) and compiled(written).execute(_context(value)) is not True:
            yield Broken(path, message)
    except ENGINE_ERRORS as error:
        yield Broken(path, message, engine=str(error).splitlines()[0])


def _context(value: Any) -> cel.Context:
    return cel.Context({"self": value}, {**STDLIB_FUNCTIONS, "find": _find, "findAll": _find_all})


def _find(value: str, pattern: str) -> str:
    """Kubernetes' own function: return the first match, or nothing. The patterns come from schemas, so they are trusted."""
    found = re.search(pattern, value)
    return found[0] if found else ""


def _find_all(value: str, pattern: str) -> list[str]:
    return [found[0] for found in re.finditer(pattern, value)]
