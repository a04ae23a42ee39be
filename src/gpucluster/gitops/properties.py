"""Find changed inputs of a resource and those that replace it, by the catalog's facts. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, cast

from gpucluster.catalog.properties import Comparison, OnChange, ResourceFacts
from gpucluster.json_text import parse_json

Inputs = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """Names of changed properties, sorted. `replaces` are those that cannot change in place."""

    changed: tuple[str, ...]
    replaces: tuple[str, ...]


def difference(facts: ResourceFacts, old: Inputs, new: Inputs) -> Difference:
    """Compare the inputs. A property without facts counts as replacing: an update in place is not documented."""
    names = sorted(old.keys() | new.keys())
    changed = tuple(name for name in names if _differs(facts, name, old.get(name), new.get(name)))
    return Difference(changed, tuple(name for name in changed if _replaces(facts, name, old, new)))


def is_fixed(facts: ResourceFacts, name: str) -> bool:
    """Return whether every change of the property replaces the resource."""
    known = facts.properties.get(name)
    return known is None or known.change is OnChange.REPLACE


def _differs(facts: ResourceFacts, name: str, old: object, new: object) -> bool:
    known = facts.properties.get(name)
    if known is None:
        return not _same(name, old, new, facts.sets)
    return known.change is not OnChange.COMPUTED and not _SAME[known.compare](name, old, new, facts.sets)


def _replaces(facts: ResourceFacts, name: str, old: Inputs, new: Inputs) -> bool:
    if is_fixed(facts, name):
        return True
    if any(one.property == name and one.holds(old, new) for one in facts.conditions):
        return True
    return any(
        not _same(f"{name}.{field}", _field(old.get(name), field), _field(new.get(name), field), facts.sets)
        for field in facts.properties[name].replacing_fields
    )


def _field(value: object, field: str) -> object:
    """Return the field of a record, or of each record of a list."""
    if isinstance(value, Mapping):
        return cast(Inputs, value).get(field)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_field(item, field) for item in cast(Sequence[object], value)]
    return None


def _same(name: str, old: object, new: object, sets: frozenset[str]) -> bool:
    if _empty(old) or _empty(new):
        return _empty(old) and _empty(new)
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        left, right = cast(Inputs, old), cast(Inputs, new)
        keys = left.keys() | right.keys()
        return all(_same(f"{name}.{key}", left.get(key), right.get(key), sets) for key in keys)
    if isinstance(old, list) and isinstance(new, list):
        left, right = cast(list[object], old), cast(list[object], new)
        if name in sets:
            return _same_set(name, left, right, sets)
        return len(left) == len(right) and all(map(lambda a, b: _same(name, a, b, sets), left, right))
    return isinstance(old, bool) == isinstance(new, bool) and old == new


def _same_set(name: str, old: object, new: object, sets: frozenset[str]) -> bool:
    left, right = _items(old), _items(new)
    if left is None or right is None:
        return _same(name, old, new, sets)
    inner = sets - {name}
    return len(left) == len(right) and all(
        any(_same(name, one, other, inner) for other in theirs)
        for ours, theirs in ((left, right), (right, left))
        for one in ours
    )


def _items(value: object) -> list[object] | None:
    return cast(list[object], value) if isinstance(value, list) else None


def _same_json(name: str, old: object, new: object, sets: frozenset[str]) -> bool:
    return _same(name, old, new, sets) or _parsed(old) == _parsed(new)


def _same_decimal(name: str, old: object, new: object, sets: frozenset[str]) -> bool:
    return _same(name, old, new, sets) or (_decimal(old) is not None and _decimal(old) == _decimal(new))


_SAME: Final[Mapping[Comparison, Callable[[str, object, object, frozenset[str]], bool]]] = {
    Comparison.PLAIN: _same,
    Comparison.SET: _same_set,
    Comparison.JSON: _same_json,
    Comparison.DECIMAL: _same_decimal,
}


def _empty(value: object) -> bool:
    """Return whether AWS treats the value as unset. False and 0 are values."""
    return value is None or value in ("", [], {})


def _parsed(value: object) -> object:
    try:
        return parse_json(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _decimal(value: object) -> Decimal | None:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return None
