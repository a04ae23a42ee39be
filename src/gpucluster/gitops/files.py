"""Rendered files to unified diffs. Pure; paths in order, so that the same two trees give the same text."""

import difflib
from collections.abc import Iterable, Iterator

from gpucluster.artifacts import Artifact
from gpucluster.gitops.model import FileChange, Kind


def compare(
    old: Iterable[Artifact], new: Iterable[Artifact], *, names: tuple[str, str] = ("old", "new")
) -> tuple[FileChange, ...]:
    """Every file that was added, removed or changed."""
    before = {artifact.path: artifact.content for artifact in old}
    after = {artifact.path: artifact.content for artifact in new}
    return tuple(
        _change(path, before.get(path), after.get(path), names)
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    )


def _change(path: str, old: bytes | None, new: bytes | None, names: tuple[str, str]) -> FileChange:
    kind = Kind.ADDED if old is None else Kind.REMOVED if new is None else Kind.CHANGED
    before, after = _file(names[0], path, old), _file(names[1], path, new)
    lines = list(difflib.unified_diff(_lines(old), _lines(new), before, after, lineterm=""))
    touched = sum(1 for line in lines[2:] if line.startswith(("+", "-")))
    text = "\n".join(lines or [f"--- {before}", f"+++ {after}"])  # an empty file came or went
    return FileChange(path=path, kind=kind, diff=text, lines=touched)


def _file(side: str, path: str, content: bytes | None) -> str:
    return "/dev/null" if content is None else f"{side}/{path}"


def _lines(content: bytes | None) -> list[str]:
    """Lines end where Slurm and git end them; a last line without its end is marked as git does."""
    return list(_split("" if content is None else content.decode(errors="replace")))


def _split(text: str) -> Iterator[str]:
    *lines, rest = text.split("\n")
    yield from lines
    if rest:
        yield f"{rest}\n\\ No newline at end of file"
