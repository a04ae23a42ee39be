"""A spec by file or by git revision (`main:stacks/burst.yaml`), read and checked."""

import os.path
from pathlib import Path
from typing import TYPE_CHECKING

from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.engine.offline.answers import Recording
    from gpucluster.shell import Result
    from gpucluster.spec import Report

_TIMEOUT_S = 30.0
# No pager, no question, no lock; the words are English, for they are passed on.
_GIT_ENV = {"GIT_OPTIONAL_LOCKS": "0", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
_STEP = (
    "name a file, or REVISION:PATH with the path from the repository's top, such as main:stacks/burst.yaml"
)


def inspect_side(given: str) -> "Report":
    """Read what was given; a file wins over a revision of the same spelling."""
    from gpucluster import catalog
    from gpucluster.spec import inspect, inspect_text

    if _is_file(given):
        return inspect(Path(given))
    return inspect_text(_of_revision(given), given, catalog.load())


def answers_beside(given: str, name: str) -> "tuple[Path, tuple[Recording, ...]]":
    """Where the recorded answers of the spec `given` stand, in the same revision, and what they say."""
    from gpucluster.engine.offline.answers import place, read, read_text

    if _is_file(given):
        path = place(Path(given), name)
        return path, read(path)
    beside = f"{given[: max(given.rfind('/'), given.find(':')) + 1]}lookups/{name}.yaml"
    found = _git(beside)  # the revision is there: the spec was read from it
    return Path(beside), read_text(found.stdout, beside) if found.code == 0 else ()


def path_of(given: str) -> str:
    """The file for verbs that take no revision: `PATH` of `REVISION:PATH`."""
    return given if _is_file(given) else given.partition(":")[2]


def _is_file(given: str) -> bool:
    return ":" not in given or os.path.exists(given)  # noqa: PTH110  a Path raises where the name is too long


def _of_revision(given: str) -> str:
    revision, _, path = given.partition(":")
    if revision.startswith("-") or not revision or not path:
        found = "a revision does not begin with '-'" if revision.startswith("-") else "half of it is missing"
        raise GpuclusterError(f"{given}: neither a file nor REVISION:PATH: {found}", next_step=_STEP)
    found = _git(given)
    if found.code != 0:
        said = (found.stderr.strip() or f"ended with code {found.code}").splitlines()[0]
        raise GpuclusterError(f"{given}: no such file, and git says: {said}", next_step=_STEP)
    return found.stdout.removeprefix("\ufeff")


def _git(given: str) -> "Result":
    """`git show` would take a `*` as a pattern and `a..b` as a range, and answer with nothing."""
    from gpucluster.shell import run

    argv = ["git", "cat-file", "blob", "--end-of-options", given]
    return run(argv, timeout_s=_TIMEOUT_S, env=_GIT_ENV, check=False)
