"""A spec by file or by git revision (`main:stacks/burst.yaml`), read and checked."""

import os.path
from pathlib import Path
from typing import TYPE_CHECKING

from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
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

    if ":" not in given or os.path.exists(given):  # noqa: PTH110  a Path raises where the name is too long
        return inspect(Path(given))
    return inspect_text(_of_revision(given), given, catalog.load())


def _of_revision(given: str) -> str:
    from gpucluster.shell import run

    revision, _, path = given.partition(":")
    if revision.startswith("-") or not revision or not path:
        found = "a revision does not begin with '-'" if revision.startswith("-") else "half of it is missing"
        raise GpuclusterError(f"{given}: neither a file nor REVISION:PATH: {found}", next_step=_STEP)
    # `git show` would take a `*` as a pattern and `a..b` as a range, and answer with nothing.
    argv = ["git", "cat-file", "blob", "--end-of-options", given]
    found = run(argv, timeout_s=_TIMEOUT_S, env=_GIT_ENV, check=False)
    if found.code != 0:
        said = (found.stderr.strip() or f"ended with code {found.code}").splitlines()[0]
        raise GpuclusterError(f"{given}: no such file, and git says: {said}", next_step=_STEP)
    return found.stdout.removeprefix("\ufeff")
