"""Decode a tree to models. pydantic validates; this module gives its errors our messages and the positions of the file.

One mistake hides no other: pydantic reports all of them, and `_Rest` makes a partial spec of what is right, so that
the rules between parts run too. A field that is wrong is absent there: reading it raises `AbsentError`.
"""

import difflib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gpucluster.spec.part import Part
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.tree import Entry, ListNode, MapNode, Node, node_at, plain
from gpucluster.spec.unsupported import not_yet_below
from gpucluster.text import quoted

P = TypeVar("P", bound=Part)

_LIST, _MAP = "a list", "a mapping"
# Values for the messages of missing keys, by path, where the description shows none.
_EXAMPLES: Mapping[str, str] = {
    "schema": "1",
    "name": "burst",
    "aws.region": "us-east-1",
    "aws.network": "{cidr: 10.42.0.0/16, zones: [us-east-1a]}",
    "slurm.version": '"26.05"',
    "head": "{machine: m7i.2xlarge, state: 100GiB}",
    "head.machine": "m7i.2xlarge",
    "login.machine": "m7i.xlarge",
    "users[].name": "vision",
    "users[].uid": "5001",
    "storage[].mount": "/data",
    "pools": "[{name: h100, nodes: {min: 0, max: 4}, capacity: [{from: spot, machines: [p5.48xlarge]}]}]",
    "pools[].name": "h100",
    "pools[].nodes": "{min: 0, max: 4}",
    "pools[].nodes.min": "0",
    "pools[].nodes.max": "4",
    "pools[].capacity": "[{from: spot, machines: [p5.48xlarge]}]",
    "pools[].capacity[].from": "spot",
    "pools[].capacity[].machines": "[p5.48xlarge]",
    "pools[].job_heartbeat.after": "30m",
    "partitions": "[{name: gpu, pools: [h100], default: true}]",
    "partitions[].name": "gpu",
    "partitions[].pools": "[h100]",
}
_KEY = "[key]"  # pydantic's last path step for a key of a mapping


def decode(
    model: type[P], root: Node, *, later: Callable[[str], tuple[str, ...]] = not_yet_below
) -> tuple[P, list[Finding]]:
    """Return the model with every valid field, and a finding for each error.

    `later` gives the keys below a path that a later release reads.
    """
    if isinstance(root, MapNode):  # keys that begin with x- hold anchors
        root = MapNode(root.mark, {k: v for k, v in root.entries.items() if not k.startswith("x-")})
    try:
        return model.model_validate(plain(root)), []
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False)
    errors = [one for one in errors if not _is_counted_short(one, root)]
    findings = [_finding(_Place(one, model, root, later)) for one in errors]
    wrong = frozenset(tuple(step for step in one["loc"] if step != _KEY) for one in errors)
    return _Rest(wrong).part(model, root, ()), findings


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'p5.48xlarge'?`, or an empty text if no known word is similar."""
    near = difflib.get_close_matches(word[:200], list(known), n=5)
    near.sort(
        key=lambda found: sorted(found) != sorted(word)
    )  # swapped letters are the most frequent mistake
    return f"; did you mean '{near[0]}'?" if near else ""


def example_of(path: str) -> str:
    """Return `; write uid: 5001` for `users[].uid`, or an empty text for a path without an example."""
    return f"; write `{path.rpartition('.')[2]}: {_EXAMPLES[path]}`" if path in _EXAMPLES else ""


# --- errors -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Place:
    """An error of pydantic, with the node and the model at its path."""

    error: ErrorDetails
    model: type[Part]
    root: Node
    later: Callable[[str], tuple[str, ...]]

    @property
    def path(self) -> Path:
        return self.error["loc"]

    @property
    def node(self) -> Node:
        return node_at(self.root, self.path)


def _finding(place: _Place) -> Finding:
    return _FINDINGS.get(place.error["type"], _refused)(place)


def _refused(place: _Place) -> Finding:
    """Return the finding of an error of our own parsers."""
    at_key = place.path[-1:] == (_KEY,)
    path = place.path[:-1] if at_key else place.path
    return Finding(path=path, id=place.error["type"], message=place.error["msg"], at_key=at_key)


def _missing(place: _Place) -> Finding:
    *above, key = place.path
    info = fields_of(_model_at(place.model, above))[str(key)].info
    example = example_of(_pattern((*above, str(key))))
    message = f"'{key}' is missing: {_begin_small(info.description)}{example}"
    return Finding(path=tuple(above), id="missing-key", message=message)


def _unknown(place: _Place) -> Finding:
    *above, last = place.path
    key, fields = str(last), fields_of(_model_at(place.model, above))
    coming = place.later(_pattern(tuple(above)))
    if key in coming:
        return Finding(
            path=place.path, id="not-supported", message=f"'{key}' is not supported yet", at_key=True
        )
    near = did_you_mean(key, (*fields, *coming)) or f"; known here are {', '.join(fields)}" * bool(fields)
    return Finding(path=place.path, id="unknown-key", message=f"unknown key {quoted(key)}{near}", at_key=True)


def _no_mapping(place: _Place) -> Finding:
    model = _model_at(place.model, place.path)
    fields = fields_of(model)
    keys = f"with {', '.join(fields)}" if fields else "without keys: {}"
    return _bad_type(place, f"{model.instead}{_MAP} {keys};")


def _bad_type(place: _Place, expected: str) -> Finding:
    return Finding(path=place.path, id="bad-type", message=f"expected {expected} found {_kind(place.node)}")


def _empty(place: _Place) -> Finding:
    if isinstance(place.node, MapNode):
        message = "the mapping is empty; it needs at least one key"
        return Finding(path=place.path, id="empty-mapping", message=message)
    message = "the list is empty; it needs at least one item"
    return Finding(path=place.path, id="empty-list", message=message)


_FINDINGS: Mapping[str, Callable[[_Place], Finding]] = {
    "missing": _missing,
    "extra_forbidden": _unknown,
    "model_type": _no_mapping,
    "tuple_type": lambda place: _bad_type(place, f"{_LIST},"),
    "dict_type": lambda place: _bad_type(place, f"{_MAP},"),
    "too_short": _empty,
}


def _is_counted_short(error: ErrorDetails, root: Node) -> bool:
    """Return whether items of the list are wrong: pydantic does not count them and also reports a list that is too short."""
    return error["type"] == "too_short" and bool(plain(node_at(root, error["loc"])))


def _pattern(path: Path) -> str:
    steps = "".join("[]" if isinstance(step, int) else f".{step}" for step in path)
    return steps.removeprefix(".")


def _kind(node: Node) -> str:
    if isinstance(node, ListNode):
        return _LIST
    if isinstance(node, MapNode):
        return _MAP
    return "nothing" if node.value is None else quoted(node.value)


def _begin_small(text: str | None) -> str:
    return "" if not text else text[:1].lower() + text[1:].rstrip(".")


# --- the partial spec ---------------------------------------------------------------------------------
class _Absent(Exception):  # noqa: N818 - it never leaves this module
    """The field is wrong. Another finding reports it."""


@dataclass(frozen=True, slots=True)
class _Rest:
    """Build models from the valid fields. `wrong` has the paths of all errors."""

    wrong: frozenset[Path]

    def part(self, model: type[P], node: Node, path: Path) -> P:
        values, absent = dict[str, object](), list[str]()
        entries: Mapping[str, Entry] = node.entries if isinstance(node, MapNode) else {}
        for key, field in fields_of(model).items():
            try:
                if key in entries:
                    values[key] = self._value(field.hint, entries[key].node, (*path, key))
                elif field.info.is_required() or not isinstance(node, MapNode):
                    absent.append(field.name)
            except _Absent:
                absent.append(field.name)
        part = model.model_construct(**values)  # type: ignore[arg-type]
        for name in absent:
            vars(part).pop(name, None)  # a default must not replace a wrong value
        return part

    def _value(self, hint: Any, node: Node, path: Path) -> object:
        if not any(one[: len(path)] == path for one in self.wrong):
            return _validated(hint, plain(node))
        inner = without_none(hint)
        if isinstance(inner, type) and issubclass(inner, Part):
            return self.part(inner, node, path)
        if path in self.wrong:
            raise _Absent
        origin, inside = typing.get_origin(inner), typing.get_args(inner)
        if origin is tuple and isinstance(node, ListNode):
            return tuple(self._value(inside[0], item, (*path, i)) for i, item in enumerate(node.items))
        if origin is Mapping and isinstance(node, MapNode):
            return {
                _validated(inside[0], key): self._value(inside[1], entry.node, (*path, key))
                for key, entry in node.entries.items()
                if not self._is_wrong_key((*path, key))
            }
        raise _Absent

    def _is_wrong_key(self, path: Path) -> bool:
        if path in self.wrong:
            raise _Absent
        return False


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    info: Any  # pydantic's FieldInfo
    hint: Any


@cache
def fields_of(model: type[Part]) -> Mapping[str, _Field]:
    """Return the field by its key in the file."""
    hints = typing.get_type_hints(model, include_extras=True)
    return {info.alias or name: _Field(name, info, hints[name]) for name, info in model.model_fields.items()}


def _model_at(model: type[Part], path: Iterable[str | int]) -> type[Part]:
    """Return the model at pydantic's path."""
    hint: Any = model
    for step in path:
        hint = without_none(hint)
        if isinstance(hint, type):
            hint = fields_of(hint)[str(step)].hint
        else:
            hint = typing.get_args(hint)[0 if isinstance(step, int) else 1]
    return without_none(hint)


def without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return next(one for one in typing.get_args(hint) if one is not type(None))
    return hint


def _validated(hint: Any, value: object) -> object:
    from pydantic import TypeAdapter  # noqa: PLC0415 - a file without errors does not need it

    return TypeAdapter(hint).validate_python(value)
