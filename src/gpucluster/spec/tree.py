"""The tree of a spec: plain values that remember where each stands in the file."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster.spec.problem import Mark, Path


class WrittenFloat(float):
    """A float that remembers how it was written, so that `24.10` can be shown as it stands in the file."""

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
    """One key of a mapping and what it holds."""

    key: Mark
    node: "Node"


@dataclass(frozen=True, slots=True)
class MapNode:
    """A mapping, merges applied, in the file's order."""

    mark: Mark
    entries: Mapping[str, Entry]


Node = Scalar | ListNode | MapNode


def plain(node: Node) -> object:
    """The tree's values without their places."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    return {key: plain(entry.node) for key, entry in node.entries.items()}


def mark_of(root: Node, path: Path, *, at_key: bool = False) -> Mark:
    """Where `path` stands; of a path that is not there, its nearest part that is."""
    node, mark = root, root.mark
    for step in path:
        if isinstance(node, MapNode) and isinstance(step, str) and step in node.entries:
            entry = node.entries[step]
            node = entry.node
            empty = isinstance(node, Scalar) and node.value is None  # what is not there has no place
            mark = entry.key if empty or (at_key and step == path[-1]) else node.mark
        elif isinstance(node, ListNode) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
            mark = node.mark
        else:
            break
    return mark
