# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Manifests between a template and its file: read strictly, then written by the one dumper.

kubectl reads YAML 1.1, where `on` is true and `1:30` a number: whatever is not plainly a word is quoted. A key whose
value is null is left out: a template says so where the plan has nothing to say. No anchors, no tags, no clock.
"""

import io
import re
from collections.abc import Hashable
from functools import cache
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import SafeRepresenter

Manifest = dict[
    str, Any
]  # the one place where plain JSON goes on: what a resource looks like is its schema's business

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9./_-]*")
_WORDS_OF_YAML = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
_WIDTH = 110


def documents(text: str) -> list[Manifest]:
    """The documents of a rendered template, as kubectl would read them; ValueError for a key given twice and the like."""
    found = list(yaml.load_all(text, Loader=_Strict))
    if not all(isinstance(one, dict) for one in found):
        raise ValueError("a template's document is not a mapping")
    return [_without_nulls(one) for one in found]


def dump(manifests: list[Manifest], comment: str = "") -> str:
    """The text of a file: a comment of lines with `#`, then the documents."""
    out = io.StringIO()
    _writer().dump_all(manifests, out)
    return f"{comment}{out.getvalue()}"


def plain(value: str) -> bool:
    """A string that every reader takes for one without quotes."""
    return bool(_WORD.fullmatch(value)) and value.lower() not in _WORDS_OF_YAML


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


class _Strict(yaml.CSafeLoader):
    """libyaml, ten times ruamel's speed; PyYAML itself takes the last of two keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [str(key.value) for key, _ in node.value]
        if len({*keys}) < len(keys):
            raise ValueError(f"line {node.start_mark.line + 1}: a key is already given")
        return super().construct_mapping(node, deep)


def _writer() -> YAML:
    made = YAML(typ="safe", pure=True)
    made.Representer = _representer()
    made.default_flow_style = False
    made.width = _WIDTH
    made.allow_unicode = True
    return made


@cache
def _representer() -> type[SafeRepresenter]:
    class Representer(SafeRepresenter):
        def ignore_aliases(self, data: Any) -> bool:  # the same value twice is written twice
            return True

    Representer.add_representer(str, _text)
    return Representer


def _lines(value: str) -> bool:
    """Text of several lines, and nothing in it that only quotes can hold."""
    return "\n" in value and all(character.isprintable() for character in value.replace("\n", ""))


def _text(representer: SafeRepresenter, value: str) -> ScalarNode:
    style = None if plain(value) else "|" if _lines(value) else '"'
    return representer.represent_scalar("tag:yaml.org,2002:str", value, style=style)
