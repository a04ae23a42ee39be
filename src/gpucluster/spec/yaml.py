# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
"""YAML text to a tree. (ruamel.yaml is not typed: what it gives is checked here and goes no further.)

YAML 1.2. Refused, with the place: duplicate keys, tags, several documents, keys that are not text.
Anchors and merge keys are followed. A hostile file meets limits before it costs anything: bytes, then
events and depth (the event parser does not recurse), then the size of the tree with aliases followed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.nodes import Node as YamlNode
from ruamel.yaml.parser import RoundTripParser
from ruamel.yaml.reader import ReaderError

from gpucluster.spec.problem import Finding, Mark
from gpucluster.spec.tree import Entry, ListNode, MapNode, Node, Scalar, Value, WrittenFloat
from gpucluster.text import quoted

MAX_BYTES = 256 * 1024
MAX_EVENTS = 20_000
MAX_DEPTH = 24
MAX_NODES = 50_000  # with aliases expanded

_CORE = "tag:yaml.org,2002:"
_MERGE = f"{_CORE}merge"
_COLLECTIONS = (f"{_CORE}seq", f"{_CORE}map")


class TreeError(Exception):
    """The text is not a valid tree. There is exactly one reason."""

    def __init__(self, mark: Mark, finding: Finding) -> None:
        super().__init__(finding.message)
        self.mark, self.finding = mark, finding


@dataclass(slots=True)
class Parsed:
    """The tree, and the problems that did not stop the parser."""

    root: Node
    findings: list[tuple[Mark, Finding]] = field(default_factory=list[tuple[Mark, Finding]])


def parse(text: str) -> Parsed:
    """Parse one document. TreeError if there is no tree."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _refuse(Mark(1, 1), "too-large", f"a spec is at most {MAX_BYTES // 1024} KiB")
    try:
        yaml = YAML(typ="rt", pure=True)
        yaml.Parser = _BoundedParser
        documents = list(yaml.compose_all(text))
    except MarkedYAMLError as error:
        raise _marked(error) from error
    except ReaderError as error:
        raise _unreadable(text, error) from error
    except YAMLError as error:
        raise _refuse(Mark(1, 1), "yaml", str(error).splitlines()[0]) from error
    if not documents or documents[0] is None:
        raise _refuse(Mark(1, 1), "yaml", "the file is empty")
    if len(documents) != 1:
        raise _refuse(Mark(1, 1), "yaml", f"a spec is one YAML document, found {len(documents)}")
    return _Builder().build(documents[0])


class _BoundedParser(RoundTripParser):
    """Refuses a document that is too deep or too long while it is read, before the composer recurses deeper."""

    _depth = 0
    _count = -1  # of the events before the current one

    def get_event(self) -> Any:
        event = super().get_event()
        if getattr(event, "version", None) not in (None, (1, 2)):
            raise _refuse(_mark(event.start_mark), "yaml", "a spec is YAML 1.2")
        self._count += 1
        self._depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if self._depth > MAX_DEPTH or self._count > MAX_EVENTS:
            limit = (
                f"{MAX_DEPTH} levels deep" if self._depth > MAX_DEPTH else f"{MAX_EVENTS} YAML events long"
            )
            raise _refuse(_mark(event.start_mark), "too-large", f"a spec is at most {limit}")
        return event


class _Builder:
    """Convert composed nodes to our tree, and count the nodes that aliases add."""

    def __init__(self) -> None:
        self._made = 0
        self._findings: list[tuple[Mark, Finding]] = []

    def build(self, root: YamlNode) -> Parsed:
        return Parsed(self._node(root, 0), self._findings)

    def _node(self, node: YamlNode, depth: int) -> Node:
        mark = _mark(node.start_mark)
        self._made += 1
        if self._made > MAX_NODES or depth > MAX_DEPTH:
            raise _refuse(
                mark, "too-large", f"a spec has at most {MAX_NODES} parts, with its aliases expanded"
            )
        if isinstance(node, ScalarNode):
            return Scalar(mark, self._scalar(node))
        if str(node.tag) not in _COLLECTIONS:
            self._note(node, "tag", f"the tag {quoted(node.tag)} is not allowed")
        if isinstance(node, SequenceNode):
            return ListNode(mark, tuple(self._node(item, depth + 1) for item in node.value))
        return MapNode(mark, self._entries(node, depth))

    def _scalar(self, node: ScalarNode) -> Value:
        kind = str(node.tag).removeprefix(_CORE)
        if kind not in _SCALARS:
            self._note(node, "tag", f"the tag {quoted(node.tag)} is not allowed")
            return str(node.value)
        try:
            return _SCALARS[kind](node.value)
        except ValueError:
            self._note(node, "yaml", f"{quoted(node.value)} is not a YAML {kind}")
            return None

    def _entries(self, node: YamlNode, depth: int) -> dict[str, Entry]:
        own: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        for key, value in node.value:
            if str(key.tag) == _MERGE:
                for name, entry in self._merge(value, depth):
                    merged.setdefault(name, entry)
            elif not isinstance(key, ScalarNode) or not isinstance(name := self._scalar(key), str):
                found = quoted(key.value) if isinstance(key, ScalarNode) else "a list or a mapping"
                self._note(key, "bad-key", f"a key is text, found {found}")
            elif name in own:
                self._note(
                    key, "duplicate-key", f"{quoted(name)} is already given on line {own[name].key.line}"
                )
            else:
                own[name] = Entry(_mark(key.start_mark), self._node(value, depth + 1))
        return {**own, **{name: entry for name, entry in merged.items() if name not in own}}

    def _merge(self, value: YamlNode, depth: int) -> Iterator[tuple[str, Entry]]:
        sources = value.value if isinstance(value, SequenceNode) else [value]
        for source in sources:
            if not isinstance(source, MappingNode):
                self._note(source, "bad-merge", "`<<` takes a mapping or a list of mappings")
                continue
            built = self._node(source, depth + 1)
            if isinstance(built, MapNode):
                yield from built.entries.items()

    def _note(self, node: YamlNode, problem: str, message: str) -> None:
        self._findings.append((_mark(node.start_mark), Finding(path=(), id=problem, message=message)))


def _integer(text: str) -> int:
    digits = text.replace("_", "").lower()
    if len(digits) > 20:  # no count or size of a spec is near this limit
        raise ValueError
    return int(digits, 0) if digits.lstrip("+-")[:2] in ("0x", "0o") else int(digits)


_SCALARS: dict[str, Callable[[str], Value]] = {
    "str": str,
    "timestamp": str,  # a date is text in a spec
    "null": lambda _: None,
    "bool": lambda text: text.lower() == "true",
    "int": _integer,
    "float": WrittenFloat,
}


def _mark(mark: object) -> Mark:
    return Mark(getattr(mark, "line", 0) + 1, getattr(mark, "column", 0) + 1)


def _refuse(mark: Mark, problem: str, message: str) -> TreeError:
    return TreeError(mark, Finding(path=(), id=problem, message=message))


def _marked(error: MarkedYAMLError) -> TreeError:
    context = f", {error.context}" if error.context else ""
    if "flow" in context and error.context_mark is not None:
        context += f" that begins on line {_mark(error.context_mark).line}"
    message = f"{error.problem or 'not YAML'}{context}".replace("\n", " ")
    if "'\\t'" in message:
        message = "a tab: YAML allows only spaces for indentation; replace it"
    return _refuse(_mark(error.problem_mark or error.context_mark), "yaml", message)


def _unreadable(text: str, error: ReaderError) -> TreeError:
    before = text[: error.position]
    mark = Mark(before.count("\n") + 1, error.position - before.rfind("\n"))
    return _refuse(mark, "yaml", f"the character {quoted(chr(error.character))} is not allowed in YAML")
