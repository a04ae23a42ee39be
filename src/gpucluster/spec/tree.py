"""The tree of a spec: plain values with their positions in the file."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster.spec.problem import Mark, Path


class WrittenFloat(float):
    """A float that keeps its text, so that `24.10` is shown as written."""

    text: str

    def __new__(cls, text: str) -> "WrittenFloat":
        made = super().__new__(
            cls, text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan").lower()
        )
        made.text = text
        return made


Value = None | bool | int | float | str


@dataclass(frozen=True, slots=True)
class Scalar:
    """A leaf."""

    mark: Mark
    value: Value


@dataclass(frozen=True, slots=True)
class ListNode:
    """A list."""

    mark: Mark
    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a mapping and its node."""

    key: Mark
    node: "Node"


@dataclass(frozen=True, slots=True)
class MapNode:
    """A mapping after its merges, in the file's order."""

    mark: Mark
    entries: Mapping[str, Entry]


Node = Scalar | ListNode | MapNode


def plain(node: Node) -> object:
    """Return the tree's values without positions."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    return {key: plain(entry.node) for key, entry in node.entries.items()}


def mark_of(root: Node, path: Path, *, at_key: bool = False) -> Mark:
    """Return the position of `path`, or of its nearest parent that exists."""
    node, mark = root, root.mark
    for step in path:
        if isinstance(node, MapNode) and isinstance(step, str) and step in node.entries:
            entry = node.entries[step]
            node = entry.node
            empty = isinstance(node, Scalar) and node.value is None  # a missing part has no position
            mark = entry.key if empty or (at_key and step == path[-1]) else node.mark
        elif isinstance(node, ListNode) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
            mark = node.mark
        else:
            break
    return mark


def node_at(root: Node, path: Path) -> Node:
    """Return the node at a path that exists."""
    node = root
    for step in path:
        if isinstance(node, MapNode):
            node = node.entries[str(step)].node
        elif isinstance(node, ListNode):
            node = node.items[int(step)]
    return node


# Old keys of list items at the top level, with their new names. Specs with the old name stay valid.
OLD_KEYS: Mapping[tuple[str, str], str] = {("pools", "farewell"): "termination"}


def renamed(root: Node) -> Node:
    """Return the tree with new keys for old ones. A mapping with both keeps both, and the decoder refuses it."""
    if not isinstance(root, MapNode):
        return root
    entries = dict(root.entries)
    for (top, old), new in OLD_KEYS.items():
        if top in entries and isinstance(node := entries[top].node, ListNode):
            items = tuple(_with_key(item, old, new) for item in node.items)
            entries[top] = Entry(entries[top].key, ListNode(node.mark, items))
    return MapNode(root.mark, entries)


def _with_key(node: Node, old: str, new: str) -> Node:
    if not isinstance(node, MapNode) or old not in node.entries or new in node.entries:
        return node
    return MapNode(node.mark, {new if key == old else key: entry for key, entry in node.entries.items()})
