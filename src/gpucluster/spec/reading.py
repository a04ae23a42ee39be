"""Read a spec file: all its problems, and the typed spec if there is no error."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path as FilePath
from typing import Generic, TypeVar

from gpucluster import catalog as catalogs
from gpucluster.catalog import Catalog
from gpucluster.errors import GpuclusterError, SpecError
from gpucluster.spec import rules
from gpucluster.spec.decode import decode
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import Part
from gpucluster.spec.problem import Finding, Level, Mark, Path, Problem
from gpucluster.spec.secret_values import holds_secret
from gpucluster.spec.tree import ListNode, MapNode, Node, Scalar, mark_of, plain, renamed
from gpucluster.spec.unsupported import not_yet_below
from gpucluster.spec.yaml import MAX_BYTES, TreeError, parse
from gpucluster.text import quoted

P = TypeVar("P", bound=Part)


class InvalidSpecError(SpecError):
    """A SpecError with its problems as values."""

    def __init__(self, found: tuple[Problem, ...]) -> None:
        super().__init__(tuple(str(problem) for problem in found))
        self.found = found


@dataclass(frozen=True, slots=True)
class Read(Generic[P]):
    """The result of reading: the spec if there is no error, and all problems in the file's order.

    `document` is the tree as written. Messages and diffs show values from it in the words of the user.
    """

    spec: P | None
    problems: tuple[Problem, ...]
    document: Node | None = None

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.level is Level.ERROR)

    def result(self) -> P:
        """Return the spec. InvalidSpecError has every problem, with warnings."""
        if self.spec is None:
            raise InvalidSpecError(self.problems)
        return self.spec


Report = Read[ClusterSpec]


def load(path: FilePath) -> ClusterSpec:
    """Return the spec of a file. SpecError has all its problems."""
    return inspect(path).result()


def inspect(path: FilePath, today: date | None = None) -> Report:
    """Read a file and report its problems. GpuclusterError if the file cannot be read.

    `today`: also report the warnings whose acceptance has ended on that day. None: no acceptance ends.
    """
    return inspect_file(text_of(path), path, today=today)


def inspect_file(
    text: str, path: FilePath | str, file: str | None = None, today: date | None = None
) -> Report:
    """Check the text of a file, and the name of the file. `file`: its path, where `path` is another name for messages."""
    catalog = catalogs.load()
    return read(
        text, str(path), ClusterSpec, lambda spec: rules.check(spec, catalog, file or str(path), today)
    )


def inspect_text(text: str, file: str, catalog: Catalog, today: date | None = None) -> Report:
    """Check a text; the pure part of `inspect`."""
    return read(text, file, ClusterSpec, lambda spec: rules.check(spec, catalog, today=today))


def text_of(path: FilePath) -> str:
    """Return a file's text up to the size limit of a spec. GpuclusterError if it cannot be read."""
    return decoded(bytes_of(path))


def decoded(raw: bytes) -> str:
    """Return the text of a file, without the mark that some editors write at its begin."""
    return raw.decode("utf-8-sig", "surrogateescape")


def bytes_of(path: FilePath) -> bytes:
    """Return a file's bytes up to one more than a spec may have. GpuclusterError if it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        step = "name the file of a spec, or write a first one: gpucluster init"
        raise GpuclusterError(f"{path}: cannot be read: {error.strerror}", next_step=step) from error


def read(
    text: str,
    file: str,
    model: type[P],
    check: Callable[[P], Iterable[Finding]],
    later: Callable[[str], tuple[str, ...]] = not_yet_below,
) -> Read[P]:
    """Check a file of any kind, with its model, its rules, and the keys of later releases."""
    place = _Places(text, file)
    try:
        tree = parse(text)
    except TreeError as error:
        return Read(None, (place.problem(error.mark, error.finding, ""),))
    root = renamed(tree.root)
    spec, wrong = decode(model, root, later=later)
    findings = [*wrong, *check(spec)]
    located = [(mark_of(root, f.path, at_key=f.at_key), f) for f in findings]
    if any(finding.id == "literal-secret" for finding in findings):
        place = _Places("", file)  # its line may also be that of another finding
    problems = place.problems([*tree.findings, *located], root)
    if any(problem.level is Level.ERROR for problem in problems):
        return Read(None, problems, root)
    return Read(spec, problems, root)


class _Places:
    """Convert findings to problems of one file. A problem of a file that holds a secret shows no line of it."""

    def __init__(self, text: str, file: str) -> None:
        self._lines = [] if holds_secret(text) else text.splitlines()
        self._file = file

    def problems(self, found: Iterable[tuple[Mark, Finding]], root: Node) -> tuple[Problem, ...]:
        made = {self.problem(mark, finding, spell(finding.path, root)) for mark, finding in found}
        return tuple(sorted(made, key=lambda p: (p.mark, p.path, p.id, p.message)))

    def problem(self, mark: Mark, finding: Finding, path: str) -> Problem:
        return Problem(
            file=self._file,
            mark=mark,
            level=finding.level,
            id=finding.id,
            path=path,
            message=finding.message,
            source=self._shown(mark),
            ended=finding.ended,
        )

    def _shown(self, mark: Mark) -> str:
        return self._lines[mark.line - 1] if mark.line <= len(self._lines) else ""


def spell(path: Path, root: Node) -> str:
    """Format a path: `pools[h200].capacity[0]`. List items have their name if it can be printed."""
    words, node = "", root
    for step in path:
        if isinstance(step, str):
            words += f".{step}" if step.isidentifier() else f".{quoted(step)}"
            node = (
                node.entries[step].node
                if isinstance(node, MapNode) and step in node.entries
                else Scalar(root.mark, None)
            )
        else:
            node = node.items[step] if isinstance(node, ListNode) else node
            words += f"[{item_label(_name_of(node), step)}]"
    return words.removeprefix(".")


def _name_of(node: Node) -> object:
    return plain(node.entries["name"].node) if isinstance(node, MapNode) and "name" in node.entries else None


def item_label(name: object, index: int) -> str:
    """How a path names an item of a list: by its name if that can be printed, else by its index."""
    fit = isinstance(name, str) and 0 < len(name) <= 40 and name.replace("-", "").isalnum() and name.isascii()
    return str(name) if fit else str(index)
