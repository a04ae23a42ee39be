"""Diff: find changed properties, and whether the resource must be replaced. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster.engine.values import Value
from gpucluster.sandbox.provider.check import DEFAULTED
from gpucluster.sandbox.provider.schema import Change, Property, ResourceType
from gpucluster.sandbox.provider.shapes import Record, same


@dataclass(frozen=True, slots=True)
class Difference:
    """Changed properties by name, sorted."""

    changed: tuple[str, ...]
    replaces: tuple[str, ...]
    delete_first: bool


def diff(kind: ResourceType, olds: Mapping[str, Value], news: Mapping[str, Value]) -> Difference:
    """Compare old inputs with new ones by the table."""
    inputs = {k: row for k, row in kind.properties.items() if row.change is not Change.COMPUTED}
    changed = tuple(sorted(k for k, row in inputs.items() if not same(row.shape, olds.get(k), news.get(k))))
    replaced = tuple(k for k in changed if _makes_anew(k, inputs[k], olds, news))
    return Difference(changed, replaced, bool(replaced) and (kind.delete_first or _named_by_hand(kind, news)))


def _makes_anew(key: str, row: Property, olds: Mapping[str, Value], news: Mapping[str, Value]) -> bool:
    if row.change is Change.REPLACE:
        return True
    if row.anew_when is not None:
        return row.anew_when(dict(olds), dict(news))
    if not row.anew or not isinstance(row.shape, Record):
        return False
    final = Record({name: field for name, field in row.shape.fields.items() if name in row.anew})
    return not final.same(olds.get(key) or {}, news.get(key) or {})


def _named_by_hand(kind: ResourceType, news: Mapping[str, Value]) -> bool:
    """Return whether to delete first: two resources cannot have the same explicit name."""
    return kind.autoname is not None and kind.autoname.property not in news.get(DEFAULTED, ())
