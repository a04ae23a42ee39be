"""Tree to models, field by field, so that one mistake hides no other.

What does not parse is noted and left out of its model: reading it raises `AbsentError` (see `model.Part`).
Items of a list keep their places.
"""

import difflib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from annotated_types import MinLen
from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from gpucluster.spec.model import Nodes
from gpucluster.spec.part import Part
from gpucluster.spec.problem import Finding, Path, quoted
from gpucluster.spec.tree import ListNode, MapNode, Node, Scalar, plain
from gpucluster.spec.unsupported import not_yet_below

P = TypeVar("P", bound=Part)

_LIST, _MAP = "a list", "a mapping"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One field as the decoder needs it: `parse` for a leaf, `part` for a mapping; in a list, by key, or alone."""

    name: str
    key: str
    many: bool
    keyed: Callable[[object], object] | None  # the parser of the keys of a mapping whose keys are the user's
    each: "_Wanted | None"  # what stands under such a key
    filled: bool  # an empty mapping is refused
    required: bool
    part: type[Part] | None
    parse: Callable[[object], object]
    description: str


@dataclass(slots=True)
class Decoder:
    """Collects what is wrong while it decodes."""

    findings: list[Finding] = field(default_factory=list[Finding])
    later: Callable[[str], tuple[str, ...]] = not_yet_below  # keys below a path that a later release reads

    def part(self, model: type[P], node: Node, path: Path = ()) -> P:
        """The model with every field that parsed."""
        wanted = _fields(model)
        if not isinstance(node, MapNode):
            if _counts(model) and isinstance(node, Scalar) and type(node.value) is int:
                return self._whole_number(model, node.value, path)
            also = "a whole number or " if _counts(model) else ""
            keys = f"with {', '.join(wanted)}" if wanted else "without keys: {}"
            self._note(path, "bad-type", f"expected {also}{_MAP} {keys}; found {_kind(node)}")
            return _made(model, {}, absent=wanted.values())
        self._unknown(node, wanted, path)
        values, absent = dict[str, object](), list[_Wanted]()
        for one in wanted.values():
            if one.key in node.entries:
                try:
                    values[one.key] = self._value(one, node.entries[one.key].node, (*path, one.key))
                except _NotParsed:
                    absent.append(one)
            elif one.required:
                self._note(path, "missing-key", f"'{one.key}' is missing: {_begin_small(one.description)}")
                absent.append(one)
        return _made(model, values, absent=absent)

    def _whole_number(self, model: type[P], value: int, path: Path) -> P:
        """`nodes: 4`: the same number for min and max, checked as max."""
        top = _fields(model)["max"]
        try:
            self._leaf(top, value, path)
        except _NotParsed:
            return _made(model, {}, absent=_fields(model).values())
        return _made(model, {"min": value, "max": value}, absent=())

    def _value(self, wanted: _Wanted, node: Node, path: Path) -> object:
        if wanted.filled and isinstance(node, MapNode) and not node.entries:
            self._note(path, "empty-mapping", "the mapping is empty; it needs at least one key")
            raise _NotParsed
        if wanted.keyed is not None and wanted.each is not None:
            return self._by_key(wanted.each, wanted.keyed, node, path)
        if not wanted.many:
            return self._item(wanted, node, path)
        if not isinstance(node, ListNode):
            self._note(path, "bad-type", f"expected {_LIST}, found {_kind(node)}")
            raise _NotParsed
        if not node.items:
            self._note(path, "empty-list", "the list is empty; it needs at least one item")
            raise _NotParsed
        items, whole = list[object](), True
        for index, item in enumerate(node.items):
            try:
                items.append(self._item(wanted, item, (*path, index)))
            except _NotParsed:
                whole = False
        if not whole:
            raise _NotParsed
        return tuple(items)

    def _by_key(self, each: _Wanted, parse_key: Callable[[object], object], node: Node, path: Path) -> object:
        if not isinstance(node, MapNode):
            self._note(path, "bad-type", f"expected {_MAP}, found {_kind(node)}")
            raise _NotParsed
        items, whole = dict[object, object](), True
        for key, entry in node.entries.items():
            try:
                name = self._key(parse_key, key, (*path, key))
                items[name] = self._value(each, entry.node, (*path, key))
            except _NotParsed:
                whole = False
        if not whole:
            raise _NotParsed
        return items

    def _key(self, parse: Callable[[object], object], key: str, path: Path) -> object:
        try:
            return parse(key)
        except PydanticCustomError as error:
            self._note(path, error.type, error.message(), at_key=True)
            raise _NotParsed from None

    def _item(self, wanted: _Wanted, node: Node, path: Path) -> object:
        if wanted.part is not None:
            return self.part(wanted.part, node, path)
        return self._leaf(wanted, plain(node), path)

    def _leaf(self, wanted: _Wanted, value: object, path: Path) -> object:
        try:
            return wanted.parse(value)
        except PydanticCustomError as error:
            self._note(path, error.type, error.message())
            raise _NotParsed from None

    def _unknown(self, node: MapNode, wanted: dict[str, _Wanted], path: Path) -> None:
        later = self.later(_pattern(path))
        for key in node.entries:
            if key in wanted or (not path and key.startswith("x-")):
                continue
            if key in later:
                self._note((*path, key), "not-supported", f"'{key}' is not supported yet", at_key=True)
            else:
                near = did_you_mean(key, (*wanted, *later))
                self._note((*path, key), "unknown-key", f"unknown key {quoted(key)}{near}", at_key=True)

    def _note(self, path: Path, problem: str, message: str, *, at_key: bool = False) -> None:
        self.findings.append(Finding(path=path, id=problem, message=message, at_key=at_key))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'p5.48xlarge'?`, or nothing if no known word is near."""
    near = difflib.get_close_matches(word[:200], list(known), n=5)
    near.sort(key=lambda found: sorted(found) != sorted(word))  # swapped letters are the likeliest slip
    return f"; did you mean '{near[0]}'?" if near else ""


class _NotParsed(Exception):  # noqa: N818 - it never leaves this module
    """The finding is noted; the field stays absent."""


@cache
def _fields(model: type[Part]) -> dict[str, _Wanted]:
    hints = typing.get_type_hints(model, include_extras=True)
    made = (_wanted(name, info, hints[name]) for name, info in model.model_fields.items())
    return {wanted.key: wanted for wanted in made}


def _wanted(name: str, info: Any, hint: Any) -> _Wanted:
    inner = hint
    if typing.get_origin(inner) in (types.UnionType, typing.Union):
        inner = next(a for a in typing.get_args(inner) if a is not type(None))
    many = typing.get_origin(inner) is tuple
    inner = typing.get_args(inner)[0] if many else inner
    by_key = typing.get_origin(inner) is Mapping
    key, value = typing.get_args(inner) if by_key else (None, None)
    return _Wanted(
        name=name,
        key=info.alias or name,
        many=many,
        keyed=_parser(key) if by_key else None,
        each=_wanted(name, info, value) if by_key else None,
        filled=by_key and any(isinstance(limit, MinLen) for limit in info.metadata),
        required=info.is_required(),
        part=inner if isinstance(inner, type) and issubclass(inner, Part) else None,
        parse=_parser(inner),
        description=info.description or "",
    )


def _parser(hint: Any) -> Callable[[object], object]:
    validators = [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, BeforeValidator)]
    return typing.cast(Callable[[object], object], validators[0].func) if validators else _as_is


def _counts(model: type[Part]) -> bool:
    """`nodes: 4` is short for a mapping."""
    return model is Nodes


def _as_is(value: object) -> object:
    return value


def _made(model: type[P], values: dict[str, object], *, absent: Iterable[_Wanted]) -> P:
    part = model.model_construct(**values)  # type: ignore[arg-type]
    for one in absent:
        vars(part).pop(one.name, None)  # a default must not stand in for what was written wrongly
    return part


def _pattern(path: Path) -> str:
    steps = "".join("[]" if isinstance(step, int) else f".{step}" for step in path)
    return steps.removeprefix(".")


def _kind(node: Node) -> str:
    if isinstance(node, ListNode):
        return _LIST
    if isinstance(node, MapNode):
        return _MAP
    return "nothing" if node.value is None else quoted(node.value)


def _begin_small(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")
