"""Read a spec file: every problem of it, and the typed spec when there is no error."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Generic, TypeVar

from gpucluster import catalog as catalogs
from gpucluster.catalog import Catalog
from gpucluster.errors import GpuclusterError, SpecError
from gpucluster.spec import rules
from gpucluster.spec.decode import Decoder
from gpucluster.spec.host_fields import holds_private_key
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import Part
from gpucluster.spec.problem import Finding, Level, Mark, Path, Problem, quoted
from gpucluster.spec.tree import ListNode, MapNode, Node, Scalar, mark_of, plain
from gpucluster.spec.yaml import MAX_BYTES, TreeError, parse

P = TypeVar("P", bound=Part)


class InvalidSpecError(SpecError):
    """A SpecError that also has its problems as values."""

    def __init__(self, found: tuple[Problem, ...]) -> None:
        super().__init__(tuple(str(problem) for problem in found))
        self.found = found


@dataclass(frozen=True, slots=True)
class Read(Generic[P]):
    """What reading gave: the spec if no problem is an error, and all problems in the file's order.

    `document` is the tree as written, for whoever shows values in the user's own words.
    """

    spec: P | None
    problems: tuple[Problem, ...]
    document: Node | None = None

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.level is Level.ERROR)

    def result(self) -> P:
        """The spec, or InvalidSpecError with every problem, warnings too."""
        if self.spec is None:
            raise InvalidSpecError(self.problems)
        return self.spec


Report = Read[ClusterSpec]


def load(path: FilePath) -> ClusterSpec:
    """The spec of a file; SpecError with all its problems if it has an error."""
    return inspect(path).result()


def inspect(path: FilePath) -> Report:
    """Read a file without raising on a bad spec; a GpuclusterError if there is nothing to read."""
    return inspect_text(text_of(path), str(path), catalogs.load())


def inspect_text(text: str, file: str, catalog: Catalog) -> Report:
    """The pure half of `inspect`."""
    return read(text, file, lambda _: (ClusterSpec, Decoder(), lambda spec: rules.check(spec, catalog)))


def text_of(path: FilePath) -> str:
    """A file's text, no more than a spec may have; a GpuclusterError if it cannot be read."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        step = "name a spec, for example stacks/burst.yaml"
        raise GpuclusterError(f"{path}: cannot be read: {error.strerror}", next_step=step) from error
    return raw.decode("utf-8-sig", "surrogateescape")


def read(
    text: str, file: str, kind: Callable[[Node], tuple[type[P], Decoder, Callable[[P], Iterable[Finding]]]]
) -> Read[P]:
    """Any of our kinds of files: `kind` looks at the tree and gives the model, its decoder and its rules."""
    place = _Places(text, file)
    try:
        tree = parse(text)
    except TreeError as error:
        return Read(None, (place.problem(error.mark, error.finding, ""),))
    model, decoder, check = kind(tree.root)
    partial = decoder.part(model, tree.root)
    findings = [*decoder.findings, *check(partial)]
    located = [(mark_of(tree.root, f.path, at_key=f.at_key), f) for f in findings]
    problems = place.problems([*tree.findings, *located], tree.root)
    if any(problem.level is Level.ERROR for problem in problems):
        return Read(None, problems, tree.root)
    return Read(partial, problems, tree.root)


class _Places:
    """Findings to problems of one file."""

    def __init__(self, text: str, file: str) -> None:
        secret = holds_private_key(
            text
        )  # it would go on into logs and reports, whatever the finding is about
        self._lines = [] if secret else text.splitlines()
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
        )

    def _shown(self, mark: Mark) -> str:
        return self._lines[mark.line - 1] if mark.line <= len(self._lines) else ""


def spell(path: Path, root: Node) -> str:
    """`pools[h200].capacity[0]`: items by their name where they have one that can be shown."""
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
            words += f"[{_name_of(node) or step}]"
    return words.removeprefix(".")


def _name_of(node: Node) -> str | None:
    if not isinstance(node, MapNode) or "name" not in node.entries:
        return None
    name = plain(node.entries["name"].node)
    fit = isinstance(name, str) and 0 < len(name) <= 40 and name.replace("-", "").isalnum() and name.isascii()
    return str(name) if fit else None
