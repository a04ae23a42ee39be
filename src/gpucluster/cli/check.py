"""`gpucluster check`: read specs and report every problem."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.checked import Reports, reports_of, text_of
from gpucluster.cli.output import answer, print_error, print_result
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.spec import Problem


class CheckOutput(StrEnum):
    """Output forms: for people, programs, code scanning, and annotations of a pull request."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


CheckOutputOption = Annotated[
    CheckOutput, typer.Option("--output", "-o", help="Output format.", show_default=True)
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
    reports, unread = reports_of(files)
    code = 2 if unread else 1 if any(report.errors for report in reports.values()) else 0
    _ANSWERS[output](reports, unread, code)
    raise typer.Exit(code)


def _text(reports: Reports, unread: list[GpuclusterError], _code: int) -> None:
    for line in text_of(reports):
        print_result(line)
    for error in unread:
        print_error(error)


def _json(reports: Reports, unread: list[GpuclusterError], code: int) -> None:
    from gpucluster.plan.codec import to_json

    errors = [{"message": error.message, "next": error.next_step} for error in unread]
    answer(ok=code == 0, problems=to_json(_problems(reports)), errors=errors)


def _sarif(reports: Reports, unread: list[GpuclusterError], _code: int) -> None:
    import json
    from importlib.metadata import version

    from gpucluster.gitops.sarif import sarif

    log = sarif(
        _problems(reports),
        uris={str(file): from_top(file) for file in reports},
        unread=[error.message for error in unread],
        version=version("gpucluster"),
    )
    print_result(json.dumps(log, indent=1, sort_keys=True))


def _github(reports: Reports, unread: list[GpuclusterError], _code: int) -> None:
    from gpucluster.gitops.sarif import annotations

    for line in annotations(_problems(reports), {str(file): from_top(file) for file in reports}):
        print_result(line)
    for error in unread:
        print_error(error)


def _problems(reports: Reports) -> "list[Problem]":
    return [problem for report in reports.values() for problem in report.problems]


def from_top(file: Path) -> str:
    """Return the path from the top of the repository, or the given path outside a repository."""
    absolute = file.resolve()
    top = next((folder for folder in absolute.parents if (folder / ".git").exists()), None)
    return file.as_posix() if top is None else absolute.relative_to(top).as_posix()


_ANSWERS = {
    CheckOutput.TEXT: _text,
    CheckOutput.JSON: _json,
    CheckOutput.SARIF: _sarif,
    CheckOutput.GITHUB: _github,
}
