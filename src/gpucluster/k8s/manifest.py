# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Turn the text of a template into the text of a file: read it strictly, and write it with one dumper.

kubectl reads YAML 1.1, where `on` is true and `1:30` is a number. So every string that is not clearly a word is quoted.
A key with the value null is left out: a template writes null if the plan has no value. The output has no anchors, no
tags and no time.
"""

import json
import re
from collections.abc import Hashable
from functools import lru_cache
from typing import Any

import yaml

Manifest = dict[
    str, Any
]  # Below this point values are plain JSON: only the schema of a resource knows its shape.

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9./_-]*")
_WORDS_OF_YAML = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
_WIDTH = 110
_STR, _NULL, _MAP, _SEQ = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "null", "map", "seq"))
_NO_MAPPING = "a template's document is not a mapping"
_UNREAD = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def documents(text: str) -> list[Manifest]:
    """Return the documents of a rendered template, by kubectl's rules. ValueError for a duplicate key and similar errors."""
    found = list(yaml.load_all(text, Loader=_Strict))
    if not all(isinstance(one, dict) for one in found):
        raise ValueError(_NO_MAPPING)
    return [_without_nulls(one) for one in found]


def dump(manifests: list[Manifest], comment: str = "") -> str:
    """Return the text of a file: comment lines with `#`, then the documents, with sorted keys."""
    return comment + yaml.dump_all(
        manifests, Dumper=_Writer, default_flow_style=False, width=_WIDTH, allow_unicode=True, sort_keys=True
    )


def rewrite(text: str, comment: str = "") -> str:
    """Return `dump(documents(text), comment)`. It changes YAML's nodes and makes no values of them: twice as fast."""
    nodes = list(yaml.compose_all(text, Loader=_Strict))
    for node in nodes:
        if node.tag != _MAP:
            raise ValueError(_NO_MAPPING)
        _normalize(node)
    return comment + yaml.serialize_all(nodes, Dumper=_Writer, width=_WIDTH, allow_unicode=True)


def plain(value: str) -> bool:
    """A string that every reader takes for a string without quotes."""
    return bool(_WORD.fullmatch(value)) and value.lower() not in _WORDS_OF_YAML


def scalar(value: object) -> str:
    """Return one line of JSON, which is also YAML: no value can end its own field.

    JSON escapes characters beyond 16 bits as pairs that YAML does not join, so these characters are not escaped. Control
    characters and Unicode line ends are escaped: JSON leaves them, but YAML refuses them or reads them as line ends.
    """
    return _UNREAD.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


class _Tags:
    """Find the tag of a node by YAML's own table, and keep it: manifests repeat their words."""

    def descend_resolver(self, current_node: object, current_index: object) -> None: ...

    def ascend_resolver(self) -> None: ...

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str:
        if kind is not yaml.ScalarNode:
            return _MAP if kind is yaml.MappingNode else _SEQ
        return _tag_of_plain(value) if implicit[0] else _STR


@lru_cache(maxsize=4096)
def _tag_of_plain(value: str) -> str:
    return yaml.resolver.Resolver().resolve(yaml.ScalarNode, value, (True, False))


class _Strict(_Tags, yaml.CSafeLoader):
    """A loader on libyaml, ten times as fast as ruamel. It refuses a duplicate key, of which PyYAML takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        _refuse_twice(node)
        return super().construct_mapping(node, deep)


class _Writer(_Tags, yaml.CSafeDumper):
    """A writer on libyaml, six times as fast as ruamel's."""

    def ignore_aliases(self, data: Any) -> bool:  # write an equal value twice, without an anchor
        return True


def _refuse_twice(node: yaml.MappingNode) -> None:
    keys = [str(key.value) for key, _ in node.value]
    if len({*keys}) < len(keys):
        raise ValueError(f"line {node.start_mark.line + 1}: a key is already given")


def _normalize(node: yaml.Node) -> None:
    """Sort keys, leave nulls of mappings out, and set the style of each value."""
    if isinstance(node, yaml.ScalarNode):
        node.style = _style(node.value) if node.tag == _STR else None
    elif isinstance(node, yaml.MappingNode):
        _refuse_twice(node)
        node.flow_style = False
        node.value = sorted((pair for pair in node.value if pair[1].tag != _NULL), key=_key)
        for key, value in node.value:
            _normalize(key)
            _normalize(value)
    elif isinstance(node, yaml.SequenceNode):
        node.flow_style = False
        for item in node.value:
            _normalize(item)


def _key(pair: tuple[yaml.Node, yaml.Node]) -> str:
    return str(pair[0].value)


def _lines(value: str) -> bool:
    """Return whether it is text of several lines that needs no quotes."""
    return "\n" in value and all(character.isprintable() for character in value.replace("\n", ""))


@lru_cache(maxsize=4096)
def _style(value: str) -> str | None:
    return None if plain(value) else "|" if _lines(value) else '"'


def _text(writer: _Writer, value: str) -> yaml.ScalarNode:
    return writer.represent_scalar(_STR, value, style=_style(value))


_Writer.add_representer(str, _text)
