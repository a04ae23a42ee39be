# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
"""YAML text to a tree. (ruamel.yaml is not typed: what it gives is checked here and goes no further.)

YAML 1.2. Refused, with the place: duplicate keys, tags, several documents, keys that are not text.
Anchors and merge keys are followed. A hostile file meets limits before it costs anything: bytes, then
events and depth (the event parser does not recurse), then the size of the tree with aliases followed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.nodes import Node as YamlNode
from ruamel.yaml.reader import ReaderError

from gpucluster.spec.problem import Finding, Mark, quoted
from gpucluster.spec.tree import Entry, ListNode, MapNode, Node, Scalar, Value, WrittenFloat

MAX_BYTES = 256 * 1024
MAX_EVENTS = 20_000
MAX_DEPTH = 24
MAX_NODES = 50_000  # with aliases followed

_CORE = "tag:yaml.org,2002:"
_MERGE = f"{_CORE}merge"
_COLLECTIONS = (f"{_CORE}seq", f"{_CORE}map")


class TreeError(Exception):
    """The text is not a tree that we read; there is exactly one reason."""

    def __init__(self, mark: Mark, finding: Finding) -> None:
        super().__init__(finding.message)
        self.mark, self.finding = mark, finding


@dataclass(slots=True)
class Parsed:
    """The tree, and what was wrong in it that did not hide the rest."""

    root: Node
    findings: list[tuple[Mark, Finding]] = field(default_factory=list[tuple[Mark, Finding]])


def parse(text: str) -> Parsed:
    """Parse one document; TreeError when no tree can be had."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _refuse(Mark(1, 1), "too-large", f"a spec is at most {MAX_BYTES // 1024} KiB")
    try:
        _bound(text)
        documents = list(YAML(typ="rt", pure=True).compose_all(text))
    except MarkedYAMLError as error:
        raise _marked(error) from error
    except ReaderError as error:
        raise _unreadable(text, error) from error
    except YAMLError as error:
        raise _refuse(Mark(1, 1), "yaml", str(error).splitlines()[0]) from error
    if len(documents) != 1 or documents[0] is None:
        raise _refuse(Mark(1, 1), "yaml", f"a spec is one YAML document, found {len(documents)}")
    return _Builder().build(documents[0])


def _bound(text: str) -> None:
    """Refuse what is too deep or too long before anything recurses over it."""
    depth = 0
    for count, event in enumerate(YAML(typ="rt", pure=True).parse(text)):
        if getattr(event, "version", None) not in (None, (1, 2)):
            raise _refuse(_mark(event.start_mark), "yaml", "a spec is YAML 1.2")
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAX_DEPTH or count > MAX_EVENTS:
            limit = f"{MAX_DEPTH} levels deep" if depth > MAX_DEPTH else f"{MAX_EVENTS} YAML events long"
            raise _refuse(_mark(event.start_mark), "too-large", f"a spec is at most {limit}")


class _Builder:
    """Composed nodes to our tree; counts what aliases multiply."""

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
                mark, "too-large", f"with its aliases followed a spec has at most {MAX_NODES} parts"
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
    if len(digits) > 20:  # no count or size of a spec comes near it
        raise ValueError
    return int(digits, 0) if digits.lstrip("+-")[:2] in ("0x", "0o") else int(digits)


_SCALARS: dict[str, Callable[[str], Value]] = {
    "str": str,
    "timestamp": str,  # a date is text to us
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
    message = f"{error.problem or 'not YAML'}{context}".replace("\n", " ")
    return _refuse(_mark(error.problem_mark or error.context_mark), "yaml", message)


def _unreadable(text: str, error: ReaderError) -> TreeError:
    before = text[: error.position]
    mark = Mark(before.count("\n") + 1, error.position - before.rfind("\n"))
    return _refuse(mark, "yaml", f"the character {quoted(chr(error.character))} is not allowed in YAML")
