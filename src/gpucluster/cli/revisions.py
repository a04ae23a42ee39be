"""Read a spec from a file or from a git revision (`main:stacks/burst.yaml`)."""

import os.path
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.engine.offline.answers import Recording
    from gpucluster.shell import Result
    from gpucluster.spec import ClusterSpec, Report, WorkloadsReport

_TIMEOUT_S = 30.0
_STACKS = re.compile(r"(.*[/:])stacks/[^/]+")
# No pager, no prompt, no lock. Messages are English because they are printed.
GIT_ENV = {"GIT_OPTIONAL_LOCKS": "0", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
_STEP = (
    "name a file, or REVISION:PATH with the path from the repository's top, such as main:stacks/burst.yaml"
)


def inspect_given(given: str) -> "Report":
    """Read a file or a revision. A file comes first if both exist."""
    from gpucluster.spec import inspect, inspect_file

    if _is_file(given):
        return inspect(Path(given))
    return inspect_file(_of_revision(given), given)


def answers_beside(given: str, name: str) -> "tuple[Path, tuple[Recording, ...]]":
    """Return the path of the spec's recorded answers, in the same revision, and the answers."""
    from gpucluster.engine.offline.answers import place, read, read_text

    if _is_file(given):
        path = place(Path(given), name)
        return path, read(path)
    beside = f"{given[: max(given.rfind('/'), given.find(':')) + 1]}lookups/{name}.yaml"
    found = _git(beside)  # the revision exists: the spec came from it
    return Path(beside), read_text(found.stdout, beside) if found.code == 0 else ()


def workloads_beside(given: str, spec: "ClusterSpec") -> "WorkloadsReport | None":
    """Read `../workloads/NAME.yaml` of the same revision; None if there is no such file."""
    from gpucluster import catalog
    from gpucluster.spec import inspect_workloads, inspect_workloads_text

    if _is_file(given):
        file = Path(os.path.normpath(Path(given).parent / ".." / "workloads" / f"{spec.name}.yaml"))
        return inspect_workloads(file, spec) if file.is_file() else None
    if not (found := _STACKS.fullmatch(given)):
        return None
    beside = f"{found[1]}workloads/{spec.name}.yaml"
    text = _git(beside)  # the revision exists: the spec came from it
    return inspect_workloads_text(text.stdout, beside, spec, catalog.load()) if text.code == 0 else None


def path_of(given: str) -> str:
    """Return the file for commands without revisions: `PATH` of `REVISION:PATH`."""
    return given if _is_file(given) else given.partition(":")[2]


def _is_file(given: str) -> bool:
    return ":" not in given or os.path.exists(given)  # noqa: PTH110  a Path raises where the name is too long


def _of_revision(given: str) -> str:
    revision, _, path = given.partition(":")
    if revision.startswith("-") or not revision or not path:
        found = (
            "a revision does not begin with '-'"
            if revision.startswith("-")
            else "the revision or the path is missing"
        )
        raise GpuclusterError(f"{given}: neither a file nor REVISION:PATH: {found}", next_step=_STEP)
    found = _git(given)
    if found.code != 0:
        reason = (found.stderr.strip() or f"ended with code {found.code}").splitlines()[0]
        raise GpuclusterError(f"{given}: no such file, and git reports: {reason}", next_step=_STEP)
    return found.stdout.removeprefix("\ufeff")


def _git(given: str) -> "Result":
    """Read with `git cat-file`: `git show` accepts patterns and ranges, and then prints nothing."""
    from gpucluster.shell import run

    argv = ["git", "cat-file", "blob", "--end-of-options", given]
    return run(argv, timeout_s=_TIMEOUT_S, env=GIT_ENV, check=False)
