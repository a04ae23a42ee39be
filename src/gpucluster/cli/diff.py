"""`gpucluster diff`: the effect of a spec change on the cluster, its jobs and its cost."""

import os
import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer

from gpucluster.cli.output import ReviewOutput, ReviewOutputOption, answer, print_result, progress, reporting
from gpucluster.cli.prices import PricesOption, prices_from, warn_of_prices
from gpucluster.cli.today import TodayOption, day_of
from gpucluster.errors import GpuclusterError, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import date

    from gpucluster.catalog import Prices
    from gpucluster.cli.revisions import Opened, Side, Source
    from gpucluster.gitops.model import Diff
    from gpucluster.spec import Problem

G = TypeVar("G")
R = TypeVar("R")
_WORKLOADS = re.compile(r"^((?:.*[/:])?)workloads/([^/]+\.ya?ml)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """The options of a comparison, as the command that repeats it has them."""

    with_resources: bool | None
    prices: str | None
    today: "date | None"

    def words(self) -> list[str]:
        """Return them as words of a command line."""
        return [
            *(["--no-resources"] if self.with_resources is False else []),
            *(["--prices", self.prices] if self.prices else []),
            *(["--today", self.today.isoformat()] if self.today else []),
        ]


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
        bool | None,
        typer.Option(
            "--resources/--no-resources",
            help="Also run the Pulumi program of both specs. Default: if its packages are installed.",
        ),
    ] = None,
    prices: PricesOption = None,
    today: TodayOption = None,
) -> None:
    """Compare two specs: changes by class, what happens to running jobs, files, resources, cost a month."""
    with reporting(output):
        options = Repeat(with_resources=resources, prices=prices, today=day_of(today))
        found = compared_files(
            *_sources(old, new), prices_from(prices), with_resources=resources, today=options.today
        )
        for problem in found.warnings:
            progress(str(problem))
        warn_of_prices(found.cost_before, found.cost_after)
        _print_diff(found, output, options)
    raise typer.Exit(int(exit_code and found.differs))


def compared_files(
    old: "Source | None",
    new: "Source | None",
    prices: "Prices",
    *,
    with_resources: bool | None,
    today: "date | None" = None,
) -> "Diff":
    """Compare two specs; None is an absent one. The warnings are those of the new spec: those of the old one are not new.

    `with_resources` None: if the packages of the Pulumi program are installed. `today`: acceptances may have ended on that day.
    """
    specs = _specs(old, new, today)
    sides = [spec and _side(spec, prices) for spec in specs]
    found = _compare(sides[0], sides[1], with_resources=with_resources)
    return replace(found, warnings=specs[1].report.problems if specs[1] else ())


def _sources(old: str, new: str) -> "tuple[Source | None, Source | None]":
    """Return where both specs are. None is /dev/null."""
    from gpucluster.gitops.model import ABSENT

    if old == new == ABSENT:
        raise GpuclusterError(
            f"{ABSENT} on both sides: there is no spec", next_step=f"name a spec; {ABSENT} is the other side"
        )
    return _both({side: word for side, word in (("old", old), ("new", new)) if word != ABSENT}, _source_of)


def _source_of(word: str) -> "Source":
    """Return where the spec is that is given as a file, a stack, a revision, or by its workloads."""
    from gpucluster.cli.revisions import source_of
    from gpucluster.cli.spec_files import find_spec

    stack = _WORKLOADS.sub(r"\1stacks/\2", word)
    return source_of(stack if ":" in stack else os.fspath(find_spec(stack)))


def _specs(
    old: "Source | None", new: "Source | None", today: "date | None"
) -> "tuple[Opened | None, Opened | None]":
    """Return both specs, or raise with the problems of both."""
    from gpucluster.cli.revisions import opened

    given = {side: source for side, source in (("old", old), ("new", new)) if source}
    specs = _both(given, lambda source: opened(source, today))
    both = (("old", specs[0]), ("new", specs[1]))
    wrong = {side: one.report.problems for side, one in both if one is not None and one.report.spec is None}
    if wrong:
        raise SideError(wrong)
    return specs


def _both(given: "Mapping[str, G]", read: "Callable[[G], R]") -> "tuple[R | None, R | None]":
    """Read what there is of `old` and `new`, or raise with the errors of both."""
    done: dict[str, R] = {}
    unread: list[GpuclusterError] = []
    for side, one in given.items():
        try:
            done[side] = read(one)
        except GpuclusterError as error:
            unread.append(GpuclusterError(f"{side}: {error.message}", next_step=error.next_step))
    if unread:
        raise GpuclusterError("\n".join(one.message for one in unread), next_step=unread[-1].next_step)
    return done.get("old"), done.get("new")


def _problem_lines(side: str, problems: "tuple[Problem, ...]") -> "list[str]":
    return [f"{side} is not a valid spec:", *(str(problem) for problem in problems)]


def side_of(word: str, prices: "Prices") -> "Side":
    """Return one spec of a file, a stack or a revision in all its forms."""
    from gpucluster.cli.revisions import opened

    return _side(opened(_source_of(word)), prices)


def _side(given: "Opened", prices: "Prices") -> "Side":
    from gpucluster import catalog
    from gpucluster.cli.render import artifacts_of
    from gpucluster.cli.revisions import Side, workloads_beside
    from gpucluster.cost import estimate
    from gpucluster.gitops.model import Revision
    from gpucluster.plan.resolve import resolve

    source, spec = given.source, given.report.result()
    plan = resolve(spec, catalog.load())
    document = given.report.document
    if document is None:
        _no_document()
    found = workloads_beside(source, spec) if plan.kubernetes is not None else None
    beside, origins = found or (None, ())
    running = None
    if beside is not None and plan.kubernetes is not None:
        from gpucluster.plan.resolve.workloads import workloads

        if beside.spec is None:
            raise SideError({source.label: beside.problems})
        running = workloads(beside.spec, plan.kubernetes)
    revision = Revision(
        label=source.label,
        spec=spec,
        document=document,
        plan=plan,
        artifacts=artifacts_of(plan, running),
        cost=estimate(plan, prices),
        workloads=beside and beside.spec,
        workloads_document=beside and beside.document,
        origins=(given.origin, *origins),
    )
    return Side(source, revision)


def _no_document() -> NoReturn:
    raise RuntimeError("a valid spec has a document")


def _compare(before: "Side | None", after: "Side | None", *, with_resources: bool | None) -> "Diff":
    from gpucluster.cli.compared import compared
    from gpucluster.gitops.diff import diff as compare
    from gpucluster.gitops.model import Compared
    from gpucluster.gitops.whole import created, deleted

    found = Compared()
    if with_resources is not False:
        found = compared(before, after, required=with_resources is True)
    old, new = (None if side is None else side.revision for side in (before, after))
    if old is not None and new is not None:
        return compare(old, new, found)
    if new is not None:
        return created(new, found)
    if old is not None:
        return deleted(old, found)
    raise RuntimeError("one of the revisions has a spec")


def _print_diff(found: "Diff", output: ReviewOutput, options: Repeat) -> None:
    if output is ReviewOutput.JSON:
        from gpucluster.gitops.report.values import values

        answer(ok=True, diff=values(found))
    elif output is ReviewOutput.MARKDOWN:
        print_result(as_markdown(found, options))
    else:
        from gpucluster.gitops.report.text import text

        print_result(text(found))


def as_markdown(found: "Diff", options: Repeat) -> str:
    """Return the comment, with the command that repeats it."""
    from importlib.metadata import version

    from gpucluster.gitops.report.markdown import markdown

    command = shlex.join(["gpucluster", "diff", found.old, found.new, *options.words()])
    return markdown(found, version=version("gpucluster"), command=command)
