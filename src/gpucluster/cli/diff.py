"""`gpucluster diff`: what a change of a spec does to the cluster, its jobs and its cost."""

import shlex
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from gpucluster.cli.output import ReviewOutput, ReviewOutputOption, answer, progress, reporting, say
from gpucluster.errors import GpuclusterError, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpucluster.engine.offline.answers import Recording
    from gpucluster.engine.offline.model import Lookup, Planned
    from gpucluster.gitops.model import Diff, ResourceChange, Side
    from gpucluster.plan.model import ClusterPlan
    from gpucluster.spec import Problem, Report

    Known = tuple[Path, tuple[Recording, ...]]  # where a side's look-ups are answered, and how

_HELD_DAYS = 60  # prices older than this are worth a warning


class SideError(SpecError):
    """A side that is no spec: which, and every problem of both, as words and as values."""

    def __init__(self, wrong: "dict[str, tuple[Problem, ...]]") -> None:
        lines = (line for side, problems in wrong.items() for line in _told(side, problems))
        super().__init__(tuple(lines))
        self.found = tuple(problem for problems in wrong.values() for problem in problems)


def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A spec, or REVISION:PATH of one in git.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The same after the change.")],
    output: ReviewOutputOption = ReviewOutput.TEXT,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit 1 if the two differ.")] = False,
    resources: Annotated[
        bool, typer.Option("--resources/--no-resources", help="Run the program of both sides, too.")
    ] = True,
) -> None:
    """Compare two specs: changes by class, what happens to running jobs, files, resources, cost a month."""
    with reporting(output):
        reports = _reports(old, new)
        sides = [_side(label, report) for label, report in zip((old, new), reports, strict=True)]
        found = _compare(sides[0], sides[1], with_resources=resources)
        for problem in reports[1].problems:  # the old one's warnings are nothing new
            progress(str(problem))
        _warn_of_age(found)
        _say(found, output, with_resources=resources)
    raise typer.Exit(int(exit_code and found.differs))


def _reports(old: str, new: str) -> "tuple[Report, Report]":
    """Both sides, or the problems of both: a mistake in one hides none in the other."""
    from gpucluster.cli.sides import inspect_side

    reports: dict[str, Report] = {}
    unread: list[GpuclusterError] = []
    for side, given in (("old", old), ("new", new)):
        try:
            reports[side] = inspect_side(given)
        except GpuclusterError as error:
            unread.append(GpuclusterError(f"{side}: {error.message}", next_step=error.next_step))
    if unread:
        raise GpuclusterError("\n".join(one.message for one in unread), next_step=unread[-1].next_step)
    wrong = {side: report.problems for side, report in reports.items() if report.spec is None}
    if wrong:
        raise SideError(wrong)
    return reports["old"], reports["new"]


def _told(side: str, problems: "tuple[Problem, ...]") -> "list[str]":
    return [f"{side} does not pass as a spec:", *(str(problem) for problem in problems)]


def _side(label: str, report: "Report") -> "Side":
    from gpucluster import catalog
    from gpucluster.cli.render import artifacts_of
    from gpucluster.cost import estimate
    from gpucluster.gitops.model import Side
    from gpucluster.plan.resolve import resolve

    spec = report.result()
    plan = resolve(spec, catalog.load())
    document = report.document
    if document is None:
        _no_document()
    return Side(
        label=label,
        spec=spec,
        document=document,
        plan=plan,
        artifacts=artifacts_of(plan),
        cost=estimate(plan, catalog.prices()),
    )


def _no_document() -> NoReturn:
    raise RuntimeError("a spec that passed has a document")


def _compare(old: "Side", new: "Side", *, with_resources: bool) -> "Diff":
    from gpucluster.gitops.diff import diff as compare

    if with_resources and not all(_declared(side.plan) for side in (old, new)):
        progress(
            "resources are not compared: Pulumi's program builds no cluster on AWS that is without Slurm"
        )
        with_resources = False
    return compare(old, new, _resources(old, new) if with_resources else None)


def _declared(plan: "ClusterPlan") -> bool:
    """Whether there is a program for it, or nothing to declare."""
    from gpucluster.cli.resources import why_not

    return plan.aws is None or why_not(plan) is None


def _resources(old: "Side", new: "Side") -> "tuple[ResourceChange, ...]":
    """Two programs side by side; each waits for its own process."""
    from concurrent.futures import ThreadPoolExecutor

    known = _answers(old, new)
    with ThreadPoolExecutor(2) as pool:
        sides = pool.map(_planned, (("old", old), ("new", new)), known)
        from gpucluster.gitops.resources import compare  # boto3 comes with it: while the programs run

        return compare(*sides)


def _answers(old: "Side", new: "Side") -> "tuple[Known, Known]":
    """Each side's own; what a past revision did not record yet, the change may bring."""
    from gpucluster.cli.sides import answers_beside
    from gpucluster.engine.offline.answers import merged

    (_, before), (path, after) = (answers_beside(side.label, side.plan.name) for side in (old, new))
    return (path, merged(before, after)), (path, after)


def _planned(named: "tuple[str, Side]", known: "Known") -> "Planned":
    """What the program declares; without a cloud it declares nothing. An unanswered look-up stays open, and is told.

    A review of two specs must not fail for what is the same on both sides.
    """
    from gpucluster.cli.resources import planned_of
    from gpucluster.engine.offline.answers import lacking
    from gpucluster.engine.offline.model import Planned

    word, side = named
    path, answers = known
    try:
        planned = planned_of(side.plan, answers)
    except GpuclusterError as error:
        raise GpuclusterError(f"{word}: {error.message}", next_step=error.next_step) from error
    if planned is not None and (questions := lacking(planned, answers)):
        _tell_open(word, side, path, questions)
    return planned or Planned(project="gpucluster", stack=side.plan.name, resources=())


def _tell_open(word: str, side: "Side", path: "Path", questions: "Sequence[Lookup]") -> None:
    from gpucluster.cli.sides import path_of
    from gpucluster.engine.offline.answers import refuse

    refusal = refuse(side.plan.name, path_of(side.label), path, questions)
    step = (refusal.next_step or "").partition("; or add")[0]
    progress(f"warning[open-look-up] {word}: {refusal.message}: what hangs on it is not compared")
    progress(f"  next: {step}")


def _warn_of_age(found: "Diff") -> None:
    """The one place that looks at a clock: what is printed as the result does not change by the day."""
    from datetime import UTC, date, datetime

    if not (found.cost_after.most.known or found.cost_before.most.known):
        return  # nothing was priced
    held = (datetime.now(UTC).date() - date.fromisoformat(found.cost_after.prices_date)).days
    if held > _HELD_DAYS:
        progress(f"warning[old-prices] the prices are of {found.cost_after.prices_date}, {held} days ago")
        progress(
            "  next: a newer gpucluster; or hold the sums against the provider's price page, and correct "
            "src/gpucluster/catalog/data/prices-us-east-1.json"
        )


def _say(found: "Diff", output: ReviewOutput, *, with_resources: bool) -> None:
    if output is ReviewOutput.JSON:
        from gpucluster.gitops.report.values import values

        answer(ok=True, diff=values(found))
    elif output is ReviewOutput.MARKDOWN:
        from importlib.metadata import version

        from gpucluster.gitops.report.markdown import markdown

        without = "" if with_resources else " --no-resources"
        command = f"gpucluster diff {shlex.quote(found.old)} {shlex.quote(found.new)}{without}"
        say(markdown(found, version=version("gpucluster"), command=command))
    else:
        from gpucluster.gitops.report.text import text

        say(text(found))
