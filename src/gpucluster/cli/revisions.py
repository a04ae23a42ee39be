"""Read a spec, and what is beside it, from a file or from a revision of git (`main:stacks/burst.yaml`).

A name with `:` is a revision, unless it begins with `./` or `/`: a change may hold a folder `main:stacks`. The name is
resolved once, to a Source. Everything else is read from there, of a revision by the id of its commit.
"""

import os
import posixpath
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from gpucluster.cli.spec_files import is_path
from gpucluster.errors import GpuclusterError
from gpucluster.text import printable

if TYPE_CHECKING:
    from datetime import date

    from gpucluster.engine.offline.answers import Recording
    from gpucluster.gitops.model import Origin, Revision
    from gpucluster.spec import ClusterSpec, Report, WorkloadsReport

_STEP = (
    "name a file, or REVISION:PATH with the path from the repository's top, such as main:stacks/burst.yaml; "
    "a file whose name holds ':' begins with ./ or /"
)


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file. `label` is the user's name of it."""

    label: str

    @property
    def file(self) -> str:
        """The name for a command that takes only files."""
        return self.label

    @property
    def commit(self) -> None:
        """A file has no commit."""
        return

    def read(self) -> bytes:
        """Return its bytes, up to one more than a spec may have. GpuclusterError if it cannot be read."""
        from gpucluster.spec.reading import bytes_of

        return bytes_of(Path(self.label))

    def beside(self, relative: str) -> "FileSource":
        """Return the file at a path from this one's folder."""
        beside = Path(self.label).parent / relative
        return FileSource(os.path.normpath(beside) if relative.startswith("../") else os.fspath(beside))

    def exists(self) -> bool:
        """Return whether there is a file."""
        return Path(self.label).is_file()


@dataclass(frozen=True, slots=True)
class GitSource:
    """A path in a commit, from the repository's top. `revision` is the user's name of the commit."""

    revision: str
    commit: str
    path: str

    @property
    def label(self) -> str:
        """The name for messages."""
        return f"{self.revision}:{self.path}"

    @property
    def file(self) -> str:
        """The name for a command that takes only files."""
        return self.path

    def read(self) -> bytes:
        """Return the bytes of the file. GpuclusterError if the commit has none there, or another thing."""
        from gpucluster.engine.git_objects import blob, entry_of
        from gpucluster.spec.yaml import MAX_BYTES

        entry = entry_of(self.commit, self.path)
        if entry is None:
            wrong = f"there is no such file in commit {self.commit}"
        elif entry.other_kind:
            wrong = f"it is {entry.other_kind} in commit {self.commit}, expected a file"
        elif entry.size > MAX_BYTES:
            wrong = f"found {entry.size} bytes, expected at most {MAX_BYTES // 1024} KiB"
        else:
            return blob(entry)
        raise GpuclusterError(f"{printable(self.label, 300)}: {wrong}", next_step=_STEP)

    def beside(self, relative: str) -> "GitSource":
        """Return the path from this one's folder. Above the repository's top there is nothing."""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self.path), relative))
        return GitSource(self.revision, self.commit, path)

    def exists(self) -> bool:
        """Return whether the commit has anything there."""
        from gpucluster.engine.git_objects import entry_of

        return not _is_above(self.path) and entry_of(self.commit, self.path) is not None


Source: TypeAlias = FileSource | GitSource


@dataclass(frozen=True, slots=True)
class Opened:
    """A spec that was read: from where, which bytes, and its problems."""

    source: Source
    origin: "Origin"
    report: "Report"


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: where its spec was read, and the spec in all its forms."""

    source: Source
    revision: "Revision"


def source_of(given: str) -> Source:
    """Resolve a name of the command line. GpuclusterError if it names nothing in git, or may name two things."""
    if is_path(given):
        return FileSource(given)
    shown = printable(given, 300)
    try:
        source = _git_source(*given.split(":", 1))
    except GpuclusterError as error:
        raise GpuclusterError(f"{shown}: {error.message}", next_step=_STEP) from error
    by_id = source.revision.lower() == source.commit  # has no other meaning
    if not by_id and os.path.lexists(given):
        raise GpuclusterError(
            f"{shown} is a file and a revision of git",
            next_step=f"write ./{shown} for the file, or {source.commit}:{printable(source.path, 300)} for the revision",
        )
    return source


def _git_source(revision: str, path: str) -> GitSource:
    from gpucluster.engine.git_objects import commit_of

    if not revision or not path:
        raise GpuclusterError("the revision or the path is missing")
    return GitSource(revision, commit_of(revision), _from_top(path))


def opened(source: Source, today: "date | None" = None) -> Opened:
    """Read and check a spec. `today`: its acceptances may have ended on that day."""
    from gpucluster.spec import inspect_file
    from gpucluster.spec.reading import decoded

    raw = source.read()
    report = inspect_file(decoded(raw), source.label, source.file, today)
    return Opened(source, origin_of(source, raw), report)


def origin_of(source: Source, raw: bytes) -> "Origin":
    """Return what a comment names of a file that was read."""
    from gpucluster.gitops.model import Origin

    return Origin(file=source.file, commit=source.commit, sha256=sha256(raw).hexdigest())


def answers_beside(source: Source, name: str) -> "tuple[Path, tuple[Recording, ...]]":
    """Return the path of the spec's recorded answers, in the same revision, and the answers."""
    from gpucluster.engine.offline.answers import read, read_text

    beside = source.beside(f"lookups/{name}.yaml")
    if isinstance(beside, FileSource):
        return Path(beside.label), read(Path(beside.label))
    text = beside.read().decode(errors="replace") if beside.exists() else None
    return Path(beside.label), () if text is None else read_text(text, beside.label)


def workloads_beside(
    source: Source, spec: "ClusterSpec"
) -> "tuple[WorkloadsReport, tuple[Origin, ...]] | None":
    """Read `../workloads/NAME.yaml` of the same revision; None if there is no such file."""
    from gpucluster import catalog
    from gpucluster.spec import inspect_workloads_text
    from gpucluster.spec.reading import decoded

    beside = source.beside(f"../workloads/{spec.name}.yaml")
    if not beside.exists():
        return None
    raw = beside.read()
    report = inspect_workloads_text(decoded(raw), beside.label, spec, catalog.load())
    return report, (origin_of(beside, raw),)


def _from_top(path: str) -> str:
    """Return the path from the repository's top. As git has it, `./` and `../` begin at the current folder."""
    from gpucluster.engine.git_objects import prefix

    if not path.startswith(("./", "../")):
        return path
    found = posixpath.normpath(posixpath.join(prefix(), path))
    if _is_above(found):
        raise GpuclusterError(f"{printable(path, 80)!r} is outside of the repository")
    return found


def _is_above(path: str) -> bool:
    return path == ".." or path.startswith("../")
