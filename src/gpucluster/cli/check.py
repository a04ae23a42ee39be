"""`gpucluster check`: read specs, say everything that is wrong with them."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import answer, say, say_error
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.spec import Problem, Report, WorkloadsReport


class CheckOutput(StrEnum):
    """For people, for programs, for code scanning, and for the lines of a pull request."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


CheckOutputOption = Annotated[
    CheckOutput, typer.Option("--output", "-o", help="How to answer.", show_default=True)
]


def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME|FILE",
            help="Specs, such as stacks/burst.yaml or workloads/kube.yaml, or names of stacks/.",
        ),
    ],
    output: CheckOutputOption = CheckOutput.TEXT,
) -> None:
    """Check specs: every problem with its place. Exit 1 if one has an error, 2 if one cannot be read."""
    from gpucluster.cli.desk import the_spec
    from gpucluster.spec import inspect_any

    reports: dict[Path, Report | WorkloadsReport] = {}
    unread: list[GpuclusterError] = []
    for word in files:
        try:
            file = the_spec(word)
            reports[file] = inspect_any(file)
        except GpuclusterError as error:
            unread.append(error)
    code = 2 if unread else 1 if any(report.errors for report in reports.values()) else 0
    _ANSWERS[output](reports, unread, code)
    raise typer.Exit(code)


def _text(reports: "dict[Path, Report | WorkloadsReport]", unread: list[GpuclusterError], _code: int) -> None:
    for file, report in reports.items():
        for problem in report.problems:
            say(str(problem))
        say(f"{file}: {_verdict([problem.level.value for problem in report.problems])}")
    for error in unread:
        say_error(error)


def _json(reports: "dict[Path, Report | WorkloadsReport]", unread: list[GpuclusterError], code: int) -> None:
    from gpucluster.plan.codec import to_json

    errors = [{"message": error.message, "next": error.next_step} for error in unread]
    answer(ok=code == 0, problems=to_json(_problems(reports)), errors=errors)


def _sarif(
    reports: "dict[Path, Report | WorkloadsReport]", unread: list[GpuclusterError], _code: int
) -> None:
    import json
    from importlib.metadata import version

    from gpucluster.gitops.sarif import sarif

    log = sarif(
        _problems(reports),
        uris={str(file): from_top(file) for file in reports},
        unread=[error.message for error in unread],
        version=version("gpucluster"),
    )
    say(json.dumps(log, indent=1, sort_keys=True))


def _github(
    reports: "dict[Path, Report | WorkloadsReport]", unread: list[GpuclusterError], _code: int
) -> None:
    from gpucluster.gitops.annotations import annotations

    for line in annotations(_problems(reports), {str(file): from_top(file) for file in reports}):
        say(line)
    for error in unread:
        say_error(error)


def _problems(reports: "dict[Path, Report | WorkloadsReport]") -> "list[Problem]":
    return [problem for report in reports.values() for problem in report.problems]


def from_top(file: Path) -> str:
    """The path from the repository's top, wherever the verb was called; outside of one as it was given."""
    absolute = file.resolve()
    top = next((folder for folder in absolute.parents if (folder / ".git").exists()), None)
    return file.as_posix() if top is None else absolute.relative_to(top).as_posix()


def _verdict(levels: list[str]) -> str:
    counts = ((levels.count(level), level, plural) for level, plural in _LEVELS)
    words = [f"{count} {plural if count > 1 else level}" for count, level, plural in counts if count]
    return ", ".join(words if "error" in levels else ["ok", *words])


_LEVELS = (("error", "errors"), ("warning", "warnings"), ("advice", "advices"))
_ANSWERS = {
    CheckOutput.TEXT: _text,
    CheckOutput.JSON: _json,
    CheckOutput.SARIF: _sarif,
    CheckOutput.GITHUB: _github,
}
