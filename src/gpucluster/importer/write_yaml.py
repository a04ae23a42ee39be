"""A spec as YAML text: one line for each pool, machine and partition, values quoted where YAML needs it. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

Value: TypeAlias = "str | int | bool | Sequence[Value] | Mapping[str, Value] | None"

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*|[0-9]+[A-Za-z]+")
_WIDTH = 160  # characters of a mapping in one line
_NOT_TEXT = frozenset(("true", "false", "null", "~", "yes", "no", "on", "off", "y", "n"))


def write(spec: Mapping[str, Value], comments: Sequence[str]) -> str:
    """The file, with a comment for each sentence."""
    lines = ["# yaml-language-server: $schema=../schema/cluster.json", *(f"# {one}" for one in comments)]
    for key, value in spec.items():
        lines.extend(_block(key, value, ""))
    return "\n".join(lines) + "\n"


def _block(key: str, value: Value, indent: str) -> Iterator[str]:
    """A list of parts has a line for each; a mapping has one line, or several if it is long."""
    if isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value):
        yield f"{indent}{_key(key)}:"
        yield from (f"{indent}  - {_flow(one)}" for one in value)
    elif (
        isinstance(value, Mapping) and value and (not indent or len(_flow(value)) > _WIDTH) and _nested(value)
    ):
        yield f"{indent}{_key(key)}:"
        for name, one in value.items():
            yield from _block(str(name), one, indent + "  ")
    else:
        yield f"{indent}{_key(key)}: {_flow(value)}"


def _nested(value: Mapping[str, Value]) -> bool:
    return any(isinstance(one, Mapping | list) for one in value.values())


def _flow(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(key))}: {_flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if value is None:
        return "null"
    return _scalar(str(value))


def _key(key: str) -> str:
    return _scalar(key)


def _scalar(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT:
        return text
    escaped = "".join(
        _ESCAPES.get(char, char if char.isprintable() else f"\\U{ord(char):08X}") for char in text
    )
    return f'"{escaped}"'


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
