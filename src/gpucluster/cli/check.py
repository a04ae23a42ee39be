"""`gpucluster check`: read specs, say everything that is wrong with them."""

from pathlib import Path
from typing import Annotated

import typer

from gpucluster.cli.output import Output, OutputOption, answer, say, say_error
from gpucluster.errors import GpuclusterError


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Specs, such as stacks/burst.yaml.")],
    output: OutputOption = Output.TEXT,
) -> None:
    """Check specs: every problem with its place. Exit 1 if one has an error, 2 if one cannot be read."""
    from gpucluster.plan.codec import to_json
    from gpucluster.spec import Report, inspect

    reports: list[tuple[Path, Report]] = []
    unread: list[GpuclusterError] = []
    for file in files:
        try:
            reports.append((file, inspect(file)))
        except GpuclusterError as error:
            unread.append(error)
    code = 2 if unread else 1 if any(report.errors for _, report in reports) else 0
    if output is Output.JSON:
        problems = [to_json(problem) for _, report in reports for problem in report.problems]
        errors = [{"message": error.message, "next": error.next_step} for error in unread]
        answer(ok=code == 0, problems=problems, errors=errors)
    else:
        for file, report in reports:
            for problem in report.problems:
                say(str(problem))
            say(f"{file}: {_verdict(len(report.errors), len(report.problems) - len(report.errors))}")
        for error in unread:
            say_error(error)
    raise typer.Exit(code)


def _verdict(errors: int, warnings: int) -> str:
    words = [f"{n} {what}{'s' * (n > 1)}" for n, what in ((errors, "error"), (warnings, "warning")) if n]
    return ", ".join(words if errors else ["ok", *words])
