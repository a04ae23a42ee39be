# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Read YAML manifests to documents, strictly, with kubectl's meaning of plain words.

kubectl reads YAML 1.1 by Go's rules: `on` and `yes` are true, `0644` is octal, a number is a key, an anchor can be given
again. A key that is given twice and a tag are warnings: kubectl 1.32 takes the last value and drops the tag, Kustomize
refuses both. Limits protect the recursive code from hostile text. The parser is libyaml (PyYAML), which is twenty times as
fast as ruamel.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from gpucluster.k8s.lint.document import Document
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.tree import Path
from gpucluster.text import quoted

MAX_BYTES = 4 * 1024 * 1024  # etcd accepts 1.5 MiB for an object
MAX_DEPTH = 64
MAX_NODES = 200_000  # nodes of a file, with aliases expanded

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TRUE = frozenset({"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})
_FALSE = frozenset({"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_INT = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9_]{0,30})", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?", re.ASCII)
_FILLED = re.compile(r"\$\{(\w[^{}\n]*)\}", re.ASCII)
_BRACES = str.maketrans("\ue000\ue001", "{}")  # private characters, which no manifest has
_MERGE = "tag:yaml.org,2002:merge"
_QUOTED = frozenset("'\"|>")
_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}"
    for kind in ["binary", "bool", "float", "int", "map", "merge", "null", "seq", "str", "timestamp", "value"]
)


class _RefusedError(Exception):
    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line, self.message = line, message


@dataclass(frozen=True, slots=True)
class Read:
    """The documents of a file, and the errors of its YAML."""

    documents: tuple[Document, ...]
    findings: tuple[Finding, ...]


class _BrokenError(Exception):
    """The text is no YAML. `read` has the documents before the place, and the error."""

    def __init__(self, read: Read) -> None:
        super().__init__()
        self.read = read


def read(text: str, file: str) -> Read:
    """All documents of a file; empty ones are left out. `${NAME}` in flow style is no YAML before envsubst or clusterctl
    fills it: a text that is no YAML is read again with these braces as letters."""
    try:
        return _read(text, file)
    except _BrokenError as error:
        with contextlib.suppress(_BrokenError):
            return _read(_FILLED.sub("$\ue000\\1\ue001", text), file)
        return error.read


def _read(text: str, file: str) -> Read:
    builder = _Builder(file)
    try:
        loader = _AgainLoader if _bound(text) else _LOADER
        for number, node in enumerate(yaml.compose_all(text, Loader=loader), start=1):
            builder.document(number, node)
    except _RefusedError as error:
        builder.refuse(error.line, error.message)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        builder.refuse(mark.line + 1 if mark else 0, str(error.problem or "not YAML"))
        raise _BrokenError(builder.read()) from error
    except yaml.YAMLError as error:
        builder.refuse(0, str(error).splitlines()[0])
    return builder.read()


class _AgainLoader(yaml.SafeLoader):
    """Take an anchor that is given again, as YAML allows. The loaders of PyYAML refuse it."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.NodeEvent) and not isinstance(event, yaml.AliasEvent) and event.anchor:
            self.anchors.pop(event.anchor, None)
        return super().compose_node(parent, index)


def _bound(text: str) -> bool:
    """Refuse what is too large or too deep; the event parser does not recurse. Return whether an anchor is given again."""
    if len(text) > MAX_BYTES:
        raise _RefusedError(1, f"a manifest file has at most {MAX_BYTES // 1024 // 1024} MiB")
    depth, again = 0, False
    anchors: set[str] = set()
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _RefusedError(event.start_mark.line + 1, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.NodeEvent) and not isinstance(event, yaml.AliasEvent) and event.anchor:
            again = again or event.anchor in anchors
            anchors.add(event.anchor)
    return again


class _Builder:
    """Convert composed nodes to plain values, and count what aliases multiply."""

    def __init__(self, file: str) -> None:
        self.documents: list[Document] = []
        self.findings: list[Finding] = []
        self._file, self._number, self._made = file, 0, 0
        self._lines: dict[Path, int] = {}

    def document(self, number: int, node: yaml.Node) -> None:
        self._number, self._lines = number, {}
        value = self._value(node, ())
        if value is not None:
            place = _locator(self._lines)
            self.documents.append(Document(value=value, file=self._file, number=number, line_of=place))

    def read(self) -> Read:
        return Read(tuple(self.documents), tuple(self.findings))

    def refuse(self, line: int, message: str, level: Severity = Severity.ERROR) -> None:
        self.findings.append(
            Finding(
                level=level, rule="yaml", message=message, file=self._file, document=self._number, line=line
            )
        )

    def _value(self, node: yaml.Node, path: Path) -> Any:
        self._made += 1
        line = node.start_mark.line + 1
        self._lines[path] = line
        if self._made > MAX_NODES:
            raise _RefusedError(line, f"a file has at most {MAX_NODES} parts, with its aliases expanded")
        if len(path) > MAX_DEPTH:
            raise _RefusedError(line, f"nested deeper than {MAX_DEPTH} levels")
        if node.tag not in _TAGS:
            self.refuse(line, f"kubectl drops the tag {quoted(node.tag)}", Severity.WARNING)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(entry, (*path, number)) for number, entry in enumerate(node.value)]
        return dict(self._entries(node, path)) if isinstance(node, yaml.MappingNode) else self._scalar(node)

    def _entries(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[str, Any]]:
        """Yield the entries. Those of a merge key come first, so that the mapping's own replace them."""
        seen: dict[str, int] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                yield from self._merged(key.start_mark.line + 1, self._value(value, (*path, "<<")))
        for key, value in node.value:
            line = key.start_mark.line + 1
            name = _key(self._scalar(key)) if isinstance(key, yaml.ScalarNode) else None
            if key.tag == _MERGE:
                continue
            if name is None:
                self.refuse(line, f"a key must be text (quote it), found {quoted(key.value)}")
                continue
            if name in seen:
                words = f"the key {quoted(name)} is already given on line {seen[name]}: kubectl takes the last, Kustomize refuses"
                self.refuse(line, words, Severity.WARNING)
            seen[name] = line
            made = self._value(value, (*path, name))
            self._lines[(*path, name)] = line
            yield name, made

    def _merged(self, line: int, value: Any) -> Iterator[tuple[str, Any]]:
        """Of several mappings the first counts."""
        for one in reversed(value if isinstance(value, list) else [value]):
            if isinstance(one, dict):
                yield from one.items()
            else:
                self.refuse(line, "a merge key needs a mapping")

    def _scalar(self, node: yaml.Node) -> Any:
        written = str(node.value).translate(_BRACES)
        if getattr(node, "style", "") in _QUOTED:
            return written
        for form, meaning in _MEANINGS:
            if form(written):
                return meaning(written)
        return written


def _key(value: Any) -> str | None:
    """Return a key as JSON has it: kubectl turns numbers and `on` into text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None


def _integer(written: str) -> int:
    sign, digits = (-1 if written.startswith("-") else 1), written.lstrip("+-").replace("_", "")
    old_octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    return sign * int(f"0o{digits[1:]}" if old_octal else digits, 0)


def _locator(lines: dict[Path, int]) -> Callable[[Path], int]:
    def line_of(path: Path) -> int:
        while path and path not in lines:
            path = path[:-1]
        return lines.get(path, 0)

    return line_of


_MEANINGS: tuple[tuple[Callable[[str], object], Callable[[str], Any]], ...] = (
    (_NULL.__contains__, lambda _: None),
    (_TRUE.__contains__, lambda _: True),
    (_FALSE.__contains__, lambda _: False),
    (_INT.fullmatch, _integer),
    (_FLOAT.fullmatch, float),
)
