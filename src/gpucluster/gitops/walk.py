"""Compare two specs field by field. The models define the fields, so a new spec field needs no change here.

List items with a name (`name`, `mount`) are matched by name, other items by similarity. A list of plain values counts
as one value. Mappings match by key.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, cast

from gpucluster.gitops.model import Kind, worst
from gpucluster.spec import UpdateClass
from gpucluster.spec.part import Part
from gpucluster.spec.tree import Node, WrittenFloat, plain

NAMES = ("name", "mount")  # keys of list items; the first one that the model has identifies an item
Pairs = tuple[tuple[int | None, int | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One raw difference: typed values for rules, written values for people."""

    path: str  # pools[h200].nodes.max
    pattern: str  # pools[].nodes.max
    kind: Kind
    old: Any
    new: Any
    before: str | None
    after: str | None
    update: UpdateClass  # from the field's metadata


@dataclass(frozen=True, slots=True)
class _Place:
    """The current position, and both documents there (None: not written)."""

    path: str
    pattern: str
    update: UpdateClass
    old: object
    new: object

    def field(self, key: str, update: UpdateClass) -> "_Place":
        dot = "." if self.path else ""
        return _Place(
            f"{self.path}{dot}{key}",
            f"{self.pattern}{dot}{key}",
            update,
            _get(self.old, key),
            _get(self.new, key),
        )

    def item(self, name: object, old: object, new: object) -> "_Place":
        return _Place(f"{self.path}[{name}]", f"{self.pattern}[]", self.update, old, new)

    def unwritten(self) -> "_Place":
        return replace(self, old=None, new=None)


def walk(old: Part, new: Part, old_document: Node, new_document: Node) -> Iterator[Found]:
    """Yield every difference, in the order of the models' fields."""
    root = _Place("", "", UpdateClass.NONE, plain(old_document), plain(new_document))
    yield from _parts(old, new, root)


def _parts(old: Part, new: Part, at: _Place) -> Iterator[Found]:
    for name, info in type(new).model_fields.items():
        place = at.field(info.alias or name, _class_of(info))
        yield from _values(getattr(old, name), getattr(new, name), place)


def _values(old: object, new: object, at: _Place) -> Iterator[Found]:
    if old == new:
        return
    if isinstance(old, Part) and isinstance(new, Part) and type(old) is type(new):
        yield from _parts(old, new, at)
    elif any(isinstance(value, Mapping) for value in (old, new)):
        yield from _mappings(_mapping(old), _mapping(new), at)
    elif _holds_parts(old) or _holds_parts(new):
        yield from _lists(_items(old), _items(new), at)
    else:
        yield _leaf(old, new, at)


def _leaf(old: object, new: object, at: _Place) -> Found:
    kind = Kind.ADDED if _none(old) else Kind.REMOVED if _none(new) else _changed_or_reordered(old, new)
    update = at.update if kind is not Kind.REMOVED else _worst_of(old, at.update)
    return _found(at, kind, old, new, update)


def _changed_or_reordered(old: object, new: object) -> Kind:
    if isinstance(old, tuple) and isinstance(new, tuple):
        was, now = cast("tuple[object, ...]", old), cast("tuple[object, ...]", new)
        return Kind.REORDERED if Counter(was) == Counter(now) else Kind.CHANGED
    return Kind.CHANGED


def _mappings(old: Mapping[str, object], new: Mapping[str, object], at: _Place) -> Iterator[Found]:
    for key in sorted(old.keys() | new.keys()):
        place = at.item(key, _get(at.old, key), _get(at.new, key))
        yield from _item(old.get(key), new.get(key), place)


def _lists(old: Sequence[Part], new: Sequence[Part], at: _Place) -> Iterator[Found]:
    named = next((name for name in NAMES if name in type((*old, *new)[0]).model_fields), None)
    if named is not None:
        yield from _named(old, new, at, named)
    else:
        yield from _anonymous(old, new, at)


def _named(old: Sequence[Part], new: Sequence[Part], at: _Place, name: str) -> Iterator[Found]:
    before = {getattr(part, name): (index, part) for index, part in enumerate(old)}
    after = {getattr(part, name): (index, part) for index, part in enumerate(new)}
    for key in sorted(before.keys() | after.keys()):
        left, right = before.get(key), after.get(key)
        place = at.item(key, _at(at.old, left), _at(at.new, right))
        yield from _item(left and left[1], right and right[1], place)
    was, now = _stayed(before, after), _stayed(after, before)
    if was != now:
        yield _found(at.unwritten(), Kind.REORDERED, was, now, at.update)


def _stayed(names: Iterable[object], others: Container[object]) -> tuple[object, ...]:
    return tuple(name for name in names if name in others)


def _anonymous(old: Sequence[Part], new: Sequence[Part], at: _Place) -> Iterator[Found]:
    pairs = matched(old, new)
    for left, right in pairs:
        was = None if left is None else (left, old[left])
        now = None if right is None else (right, new[right])
        place = at.item(left if right is None else right, _at(at.old, was), _at(at.new, now))
        yield from _item(was and was[1], now and now[1], place)
    if not order_kept(pairs):
        yield _found(at, Kind.REORDERED, old, new, at.update)


def _item(old: object, new: object, at: _Place) -> Iterator[Found]:
    if old is None:
        yield _found(at, Kind.ADDED, old, new, at.update)
    elif new is None:
        yield _found(at, Kind.REMOVED, old, new, _worst_of(old, at.update))
    else:
        yield from _values(old, new, at)


def _found(at: _Place, kind: Kind, old: object, new: object, update: UpdateClass) -> Found:
    return Found(
        path=at.path,
        pattern=at.pattern,
        kind=kind,
        old=old,
        new=new,
        before=None if _none(old) else written(at.old, old),
        after=None if _none(new) else written(at.new, new),
        update=update,
    )


def _worst_of(value: object, update: UpdateClass) -> UpdateClass:
    """Return the worst class of all fields set in a removed part."""
    return worst((update, *_classes(value))) or update


def _classes(value: object) -> Iterator[UpdateClass]:
    if isinstance(value, Part):
        for name, info in type(value).model_fields.items():
            inner = getattr(value, name)
            if not _none(inner):
                yield _class_of(info)
                yield from _classes(inner)
    elif isinstance(value, Mapping):
        for inner in cast(Mapping[str, object], value).values():
            yield from _classes(inner)
    elif isinstance(value, tuple):
        for inner in cast(tuple[object, ...], value):
            yield from _classes(inner)


def _class_of(info: Any) -> UpdateClass:
    """Return the class of a field. Every field of the models has one."""
    return UpdateClass(info.json_schema_extra["x-update-class"])


def _holds_parts(value: object) -> bool:
    items = cast(tuple[object, ...], value) if isinstance(value, tuple) else ()
    return any(isinstance(item, Part) for item in items)


def _items(value: object) -> Sequence[Part]:
    return cast(Sequence[Part], value) if isinstance(value, tuple) else ()


def _mapping(value: object) -> Mapping[str, object]:
    return cast(Mapping[str, object], value) if isinstance(value, Mapping) else {}


def _none(value: object) -> bool:
    return value is None or value == ()


def _get(document: object, key: str) -> object:
    return cast(dict[str, object], document).get(key) if isinstance(document, dict) else None


def _at(document: object, place: tuple[int, Part] | None) -> object:
    written_items = cast(list[object], document) if isinstance(document, list) else []
    return written_items[place[0]] if place is not None and place[0] < len(written_items) else None


def matched(old: Sequence[Part], new: Sequence[Part]) -> Pairs:
    """Match equal items first, then the most similar, nearest first. Unmatched items were removed or added."""
    left, right = dict(enumerate(old)), dict(enumerate(new))
    found: list[tuple[int | None, int | None]] = []
    ranked = sorted(
        (-_likeness(was, now), abs(i - j), i, j) for i, was in left.items() for j, now in right.items()
    )
    for likeness, _, i, j in ranked:
        if likeness < 0 and i in left and j in right:
            found.append((i, j))
            del left[i], right[j]
    found += [(i, None) for i in left]
    found += [(None, j) for j in right]
    return tuple(sorted(found, key=lambda pair: (pair[1] is None, pair[1] or 0, pair[0] or 0)))


def order_kept(pairs: Pairs) -> bool:
    """Return whether the remaining items have their old order."""
    stayed = [i for i, j in pairs if i is not None and j is not None]
    return stayed == sorted(stayed)


def _likeness(old: Part, new: Part) -> float:
    """Count equal fields of both items; lists count by their overlap."""
    if old == new:
        return float("inf")
    score = 0.0
    for name in type(new).model_fields:
        was, now = getattr(old, name), getattr(new, name)
        if was is None or now is None or was == ():
            continue
        if isinstance(was, tuple) and isinstance(now, tuple):
            score += _overlap(cast(tuple[object, ...], was), cast(tuple[object, ...], now))
        else:
            score += was == now
    return score


def _overlap(old: tuple[object, ...], new: tuple[object, ...]) -> float:
    return len({*map(repr, old)} & {*map(repr, new)}) / max(len(old), len(new), 1)


def written(document: object, value: object) -> str:
    """Return the value from the document. If a short form hides it, return the model's value."""
    return flow(value if document is None else document)


def flow(value: object) -> str:
    """Return YAML's flow form: `{from: spot, machines: [p5en.48xlarge]}`."""
    if isinstance(value, Part):
        return _flow_mapping(_set_fields(value))
    if isinstance(value, Mapping):
        return _flow_mapping(cast(Mapping[str, object], value))
    if isinstance(value, list | tuple):
        return f"[{', '.join(flow(item) for item in cast(list[object], value))}]"
    return _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, WrittenFloat):
        return value.text
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    return "" if value is None else str(value)


def _flow_mapping(value: Mapping[str, object]) -> str:
    return f"{{{', '.join(f'{key}: {flow(item)}' for key, item in value.items())}}}"


def _set_fields(part: Part) -> Mapping[str, object]:
    """Return the fields that are set, by their names in the spec."""
    every = ((info.alias or name, getattr(part, name)) for name, info in type(part).model_fields.items())
    return {key: value for key, value in every if value is not None and value != ()}
