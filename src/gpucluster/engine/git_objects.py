"""Read objects of git by their ids. A name is resolved once, to a commit; no file, link or setting of a checkout takes its place."""

import re
from dataclasses import dataclass
from pathlib import Path

from gpucluster.errors import GpuclusterError
from gpucluster.shell import Result, run
from gpucluster.text import printable

_TIMEOUT_S = 60.0
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # SHA-1 or SHA-256
_UNKNOWN = "Needed a single revision"  # what git reports of a name that it does not know
# No pager, no prompt, no lock, no object in place of another one, no pattern in a path. Messages are English because they are read.
_ENV = {
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_WITHOUT = ("GIT_GLOB_", "GIT_ICASE_", "GIT_NOGLOB_", "GIT_TRACE")  # not with literal paths; lines on stderr
# A folder that looks like a bare repository is none (git 2.38): a change may contain one, with a configuration that runs programs.
_GIT = ("git", "-c", "core.warnAmbiguousRefs=true", "-c", "safe.bareRepository=explicit")
_KINDS = {"040000": "a folder", "120000": "a symbolic link", "160000": "a submodule"}


@dataclass(frozen=True, slots=True)
class Entry:
    """What a commit has at a path."""

    mode: str
    id: str
    size: int

    @property
    def other_kind(self) -> str | None:
        """What it is instead of a file; None for a file."""
        return _KINDS.get(self.mode)


def commit_of(revision: str) -> str:
    """Return the id of the commit that a revision names. GpuclusterError if it names none, or may name another one."""
    shown = printable(revision, 80)
    if revision.startswith("-"):
        raise GpuclusterError("a revision does not begin with '-'")
    answer = _git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    commit = answer.stdout.strip()
    if answer.code != 0 and _UNKNOWN not in answer.stderr:
        raise GpuclusterError(f"git reports: {reason_of(answer)}")
    if answer.code != 0 or not _ID.fullmatch(commit):
        raise GpuclusterError(f"there is no commit {shown!r} in this repository")
    if "is ambiguous" in answer.stderr and revision.lower() != commit:  # git takes a full id before any name
        raise GpuclusterError(f"git has more than one {shown!r}, for example a branch and a tag")
    return commit


def entry_of(commit: str, path: str) -> Entry | None:
    """Return what a commit has at a path from the repository's top; None if there is nothing. A link is not followed."""
    listed = _read("ls-tree", "-z", "--long", "--full-tree", commit, "--", path)
    for line in listed.split("\0"):
        facts, _, name = line.partition("\t")
        if name == path:
            mode, _, object_id, size = facts.split()
            return Entry(mode, object_id, int(size) if size.isdecimal() else 0)
    return None


def blob(entry: Entry) -> bytes:
    """Return the bytes of a file."""
    return _read("cat-file", "blob", entry.id).encode("utf-8", "surrogateescape")


def prefix() -> str:
    """Return the current folder, from the repository's top; empty at the top."""
    return _read("rev-parse", "--show-prefix").removesuffix("\n")


def ancestor_of(base: str, head: str) -> str:
    """Return the common ancestor of two commits."""
    answer = _git("merge-base", base, head)
    if answer.code != 0:
        raise GpuclusterError(f"git merge-base failed for {base} and {head}: {reason_of(answer)}")
    return answer.stdout.strip()


def changed_paths(old: str, new: str) -> tuple[str, ...]:
    """Return the paths that differ between two commits, from the repository's top."""
    return tuple(_read("diff-tree", "-r", "-z", "--no-renames", "--name-only", old, new).split("\0"))


def committed(file: Path) -> tuple[str, bool]:
    """Return the last commit that changed a file, empty if there is none, and whether the file differs from HEAD's.

    Outside of a repository nothing differs. Of a link, the file that it leads to counts, if it is in a repository, too.
    """
    if _git("rev-parse", "--is-inside-work-tree", cwd=file.parent).code != 0:
        return "", False
    target = file.resolve()
    if target != file and _git("rev-parse", "--is-inside-work-tree", cwd=target.parent).code == 0:
        file = target
    commit = _git("rev-list", "--max-count=1", "HEAD", "--", file.name, cwd=file.parent).stdout.strip()
    head = _git("rev-parse", "--verify", "--quiet", f"HEAD:./{file.name}", cwd=file.parent).stdout.strip()
    now = _git("hash-object", "--", file.name, cwd=file.parent).stdout.strip()
    return commit, not now or head != now


def is_ancestor(commit: str, other: str, folder: Path) -> bool:
    """Return whether a commit comes before another one in the repository of a folder. A commit that git lacks does not."""
    both = all(_ID.fullmatch(one) for one in (commit, other))
    return both and _git("merge-base", "--is-ancestor", commit, other, cwd=folder).code == 0


def reason_of(answer: Result) -> str:
    """Return git's own line about a failure."""
    lines = [line for line in answer.stderr.splitlines() if not line.startswith("warning: ")]
    return printable(lines[0], 300) if lines else f"code {answer.code}"


def _read(*words: str) -> str:
    answer = _git(*words)
    if answer.code != 0:
        raise GpuclusterError(f"git reports: {reason_of(answer)}")
    return answer.stdout


def _git(*words: str, cwd: Path | None = None) -> Result:
    argv = (*_GIT, *words)
    return run(
        argv,
        timeout_s=_TIMEOUT_S,
        env=_ENV,
        without=_WITHOUT,
        cwd=cwd,
        check=False,
        undecodable="surrogateescape",
    )
