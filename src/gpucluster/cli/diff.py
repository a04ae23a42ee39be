"""`gpucluster diff`: the effect of a spec change on the cluster, its jobs and its cost."""

import os
import re
import shlex
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from gpucluster.cli.output import ReviewOutput, ReviewOutputOption, answer, print_result, progress, reporting
from gpucluster.cli.prices import PricesOption, prices_from, warn_of_prices
from gpucluster.errors import GpuclusterError, SpecError

if TYPE_CHECKING:
    from pathlib import Path

    from gpucluster.catalog import Prices
    from gpucluster.gitops.model import Diff, Revision
    from gpucluster.spec import Problem, Report

_WORKLOADS = re.compile(r"^((?:.*[/:])?)workloads/([^/]+\.ya?ml)$")


class SideError(SpecError):
    """One of the two specs is not valid. The error names it and has every problem of both.

    Its exit code is 2: with `--exit-code`, 1 means that the specs differ.
    """

    exit_code = 2

    def __init__(self, wrong: "dict[str, tuple[Problem, ...]]") -> None:
        lines = (line for side, problems in wrong.items() for line in _problem_lines(side, problems))
        super().__init__(tuple(lines))
        self.found = tuple(problem for problems in wrong.values() for problem in problems)
        self.new_is_wrong = set(wrong) != {"old"}


def diff(  # noqa: PLR0917  typer's options
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD",
            help="A spec, a name of stacks/, or REVISION:PATH of a spec in git. /dev/null: the spec is new.",
        ),
    ],
    new: Annotated[
        str,
        typer.Argument(
            metavar="NEW", help="The spec after the change, in the same form. /dev/null: deleted."
        ),
    ],
    output: ReviewOutputOption = ReviewOutput.TEXT,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit 1 if the specs differ; 2 is an error.")
    ] = False,
    resources: Annotated[
        bool, typer.Option("--resources/--no-resources", help="Also run the program of both specs.")
    ] = True,
    prices: PricesOption = None,
) -> None:
    """Compare two specs: changes by class, what happens to running jobs, files, resources, cost a month."""
    with reporting(output):
        old, new = _file_of(old), _file_of(new)
        found, problems = compared_files(old, new, prices_from(prices), with_resources=resources)
        for problem in problems:
            progress(str(problem))
        warn_of_prices(found.cost_before, found.cost_after)
        _print_diff(found, output, with_resources=resources, prices=prices)
    raise typer.Exit(int(exit_code and found.differs))


def compared_files(
    old: str, new: str, prices: "Prices", *, with_resources: bool
) -> "tuple[Diff, tuple[Problem, ...]]":
    """Compare two files or revisions. Also return the warnings of the new spec: those of the old one are not new."""
    reports = _reports(old, new)
    sides = [
        report and _side(label, report, prices) for label, report in zip((old, new), reports, strict=True)
    ]
    found = _compare(sides[0], sides[1], with_resources=with_resources)
    return found, reports[1].problems if reports[1] else ()


def _file_of(word: str) -> str:
    """Return the file of a stack that is given by its name or by its workloads. Another word stays as it is."""
    from gpucluster.cli.spec_files import find_spec

    stack = _WORKLOADS.sub(r"\1stacks/\2", word)
    return stack if ":" in stack or os.path.exists(stack) else os.fspath(find_spec(stack))  # noqa: PTH110  a Path raises where the name is too long


def _reports(old: str, new: str) -> "tuple[Report | None, Report | None]":
    """Return both specs, or raise with the problems of both. None is the spec of /dev/null."""
    from gpucluster.cli.revisions import inspect_given
    from gpucluster.gitops.model import ABSENT

    if old == new == ABSENT:
        raise GpuclusterError(
            f"{ABSENT} on both sides: there is no spec", next_step=f"name a spec; {ABSENT} is the other side"
        )
    reports: dict[str, Report] = {}
    unread: list[GpuclusterError] = []
    for side, given in (("old", old), ("new", new)):
        try:
            if given != ABSENT:
                reports[side] = inspect_given(given)
        except GpuclusterError as error:
            unread.append(GpuclusterError(f"{side}: {error.message}", next_step=error.next_step))
    if unread:
        raise GpuclusterError("\n".join(one.message for one in unread), next_step=unread[-1].next_step)
    wrong = {side: report.problems for side, report in reports.items() if report.spec is None}
    if wrong:
        raise SideError(wrong)
    return reports.get("old"), reports.get("new")


def _problem_lines(side: str, problems: "tuple[Problem, ...]") -> "list[str]":
    return [f"{side} is not a valid spec:", *(str(problem) for problem in problems)]


def side_of(word: str, prices: "Prices") -> "Revision":
    """Return one spec of a file, a stack or a revision in all its forms."""
    from gpucluster.cli.revisions import inspect_given

    given = _file_of(word)
    return _side(given, inspect_given(given), prices)


def _side(label: str, report: "Report", prices: "Prices") -> "Revision":
    from gpucluster import catalog
    from gpucluster.cli.render import artifacts_of
    from gpucluster.cli.revisions import workloads_beside
    from gpucluster.cost import estimate
    from gpucluster.gitops.model import Revision
    from gpucluster.plan.resolve import resolve

    spec = report.result()
    plan = resolve(spec, catalog.load())
    document = report.document
    if document is None:
        _no_document()
    beside = workloads_beside(label, spec) if plan.kubernetes is not None else None
    running = None
    if beside is not None and plan.kubernetes is not None:
        from gpucluster.plan.resolve.workloads import workloads

        if beside.spec is None:
            raise SideError({label: beside.problems})
        running = workloads(beside.spec, plan.kubernetes)
    return Revision(
        label=label,
        spec=spec,
        document=document,
        plan=plan,
        artifacts=artifacts_of(plan, running),
        cost=estimate(plan, prices),
        workloads=beside and beside.spec,
        workloads_document=beside and beside.document,
    )


def _no_document() -> NoReturn:
    raise RuntimeError("a valid spec has a document")


def _compare(old: "Revision | None", new: "Revision | None", *, with_resources: bool) -> "Diff":
    from gpucluster.cli.compared import compared
    from gpucluster.gitops.diff import diff as compare
    from gpucluster.gitops.model import Compared
    from gpucluster.gitops.whole import created, deleted

    found = compared(old, new) if with_resources else Compared()
    if old is not None and new is not None:
        return compare(old, new, found)
    if new is not None:
        return created(new, found)
    if old is not None:
        return deleted(old, found)
    raise RuntimeError("one of the revisions has a spec")


def _print_diff(found: "Diff", output: ReviewOutput, *, with_resources: bool, prices: "Path | None") -> None:
    if output is ReviewOutput.JSON:
        from gpucluster.gitops.report.values import values

        answer(ok=True, diff=values(found))
    elif output is ReviewOutput.MARKDOWN:
        print_result(as_markdown(found, with_resources=with_resources, prices=prices))
    else:
        from gpucluster.gitops.report.text import text

        print_result(text(found))


def as_markdown(found: "Diff", *, with_resources: bool, prices: "Path | None") -> str:
    """Return the comment, with the command that repeats it."""
    from importlib.metadata import version

    from gpucluster.gitops.report.markdown import markdown

    options = [
        *([] if with_resources else ["--no-resources"]),
        *(["--prices", str(prices)] if prices else []),
    ]
    command = shlex.join(["gpucluster", "diff", found.old, found.new, *options])
    return markdown(found, version=version("gpucluster"), command=command)
