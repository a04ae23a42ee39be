"""`gpucluster review`: one comment for each stack that a branch changes, for pull requests."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import Output, OutputOption, answer, print_result, progress, reporting
from gpucluster.cli.prices import PricesOption, prices_from
from gpucluster.cli.today import TodayOption, day_of
from gpucluster.errors import GpuclusterError, HostError
from gpucluster.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpucluster.catalog import Prices
    from gpucluster.cli.diff import Repeat
    from gpucluster.cli.revisions import GitSource
    from gpucluster.gitops.model import Diff, Origin

_WRONG = 2  # exit code: a spec of the branch is not valid
NAMED = re.compile(r"[a-z0-9-]+")  # what a cluster's name and the first line of a comment have
REVIEW = "review.json"  # in the folder of the comments: what was reviewed, written last
_STACK = re.compile(r"(?:stacks/(?:lookups/)?|workloads/)([^/]+)\.yaml")


@dataclass(frozen=True, slots=True)
class Changed:
    """A stack that differs between two commits; None where it is absent."""

    name: str
    old: "GitSource | None"
    new: "GitSource | None"


def review(  # noqa: PLR0917  typer's options
    base: Annotated[
        str, typer.Option("--base", metavar="REVISION", help="The branch that takes the change.")
    ],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder for NAME.md of each stack.")],
    head: Annotated[str, typer.Option("--head", metavar="REVISION", help="The change.")] = "HEAD",
    resources: Annotated[
        bool, typer.Option("--resources/--no-resources", help="Also run the program of both specs.")
    ] = True,
    prices: PricesOption = None,
    today: TodayOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Review every stack that differs between the common ancestor of two revisions and the second one."""
    from gpucluster.cli.diff import Repeat

    with reporting(output):
        options = Repeat(with_resources=resources, prices=prices, today=day_of(today))
        ancestor, commit = _commits(base, head)
        found, listed = list(changed_stacks(ancestor, commit)), prices_from(prices)
        reviews = [_reviewed(one, to, listed, options) for one in found]
        result = {"ancestor": ancestor, "head": commit, "reviews": reviews}
        _write(to / REVIEW, json.dumps(result, indent=1, sort_keys=True))
        if output is Output.JSON:
            answer(ok=not any(one["wrong"] == "new" for one in reviews), **result)
        for one in reviews if output is not Output.JSON else ():
            print_result(printable(f"{one['name']}: {_verdict(one)}: {one['comment'] or 'no comment'}"))
        if not reviews and output is not Output.JSON:
            print_result(f"no stack differs between {base} and {head}")
    raise typer.Exit(_WRONG if any(one["wrong"] == "new" for one in reviews) else 0)


def _verdict(review: dict[str, object]) -> object:
    return "not compared" if review["wrong"] else review["worst"] or "no change"


def _commits(base: str, head: str) -> tuple[str, str]:
    """Return the ids of the common ancestor and of the change. From here on no name is read."""
    from gpucluster.engine.git_objects import ancestor_of, commit_of

    step = (
        "run it inside the repository, with its whole history (`fetch-depth: 0`), and name existing revisions"
    )
    commits: dict[str, str] = {}
    for option, revision in (("--base", base), ("--head", head)):
        try:
            commits[option] = commit_of(revision)
        except GpuclusterError as error:
            raise GpuclusterError(f"{option}: {error.message}", next_step=step) from error
    try:
        return ancestor_of(*commits.values()), commits["--head"]
    except GpuclusterError as error:
        raise GpuclusterError(error.message, next_step=step) from error


def changed_stacks(ancestor: str, head: str) -> "Iterator[Changed]":
    """Yield the stacks whose spec, recorded look-ups or workloads differ between two commits, by name."""
    from gpucluster.cli.revisions import GitSource
    from gpucluster.engine.git_objects import changed_paths

    paths = changed_paths(ancestor, head)
    for name in sorted({found[1] for path in paths if (found := _STACK.fullmatch(path))}):
        sources = (GitSource(commit, commit, f"stacks/{name}.yaml") for commit in (ancestor, head))
        old, new = (source if source.exists() else None for source in sources)
        if old or new:  # not only look-ups without a stack
            yield Changed(name, old, new)


def _reviewed(one: Changed, to: Path, prices: "Prices", options: "Repeat") -> dict[str, object]:
    """Write the comment of a stack. What is wrong with it is told in its comment, and stops no other stack."""
    from gpucluster.cli.diff import as_markdown, compared_files
    from gpucluster.gitops.report.values import compared_values

    if not NAMED.fullmatch(one.name):
        return _nameless(one)
    comment = to / f"{one.name}.md"
    worst, wrong, read = None, None, (_origins(one.old), _origins(one.new))
    try:
        found = compared_files(
            one.old, one.new, prices, with_resources=options.with_resources, today=options.today
        )
    except HostError:
        raise  # of this machine, so of each stack
    except GpuclusterError as error:
        wrong, text, problems = _refused(one, error, read, prices, with_resources=options.with_resources)
    else:
        worst, text = _worst(found), as_markdown(found, options)
        read, problems = (found.old_origins, found.new_origins), tuple(map(str, found.warnings))
    for problem in problems:
        progress(problem)
    _write(comment, text)
    told = {"name": one.name, "worst": worst, "wrong": wrong, "comment": os.fspath(comment)}
    return {**told, "compared": compared_values(*read)}


def _refused(
    one: Changed,
    error: GpuclusterError,
    read: "tuple[tuple[Origin, ...], tuple[Origin, ...]]",
    prices: "Prices",
    *,
    with_resources: bool | None,
) -> tuple[str, str, tuple[str, ...]]:
    """Return the side that is wrong, the comment, and the problems."""
    from gpucluster.cli.diff import SideError
    from gpucluster.gitops.report.markdown import not_compared

    if isinstance(error, SideError):
        wrong, problems = "new" if error.new_is_wrong else "old", tuple(map(str, error.found))
        what = "The spec of {} is not valid"
    else:
        wrong = "old" if _passes(one.new, prices, with_resources=with_resources) else "new"
        what, problems = "A file of {} cannot be read, or its program does not run", (str(error),)
    return wrong, not_compared(one.name, _reason(one, wrong, what), problems, read), problems


def _passes(new: "GitSource | None", prices: "Prices", *, with_resources: bool | None) -> bool:
    """Return whether the branch's side is right: it is deleted, or can be reviewed as a new stack."""
    from gpucluster.cli.diff import compared_files

    try:
        return new is None or bool(compared_files(None, new, prices, with_resources=with_resources))
    except GpuclusterError:
        return False


def _nameless(one: Changed) -> dict[str, object]:
    """Tell of a file that cannot be a stack. It gets no comment: its name could write a comment of its own."""
    from gpucluster.gitops.report.values import compared_values

    progress(
        printable(
            f"stacks/{one.name}.yaml: error[bad-name] no cluster can have this name, so nothing is compared"
        )
    )
    progress("  next: name the file as its cluster: a-z, 0-9 and '-'")
    wrong = "old" if one.new is None else "new"
    read = _origins(one.old), _origins(one.new)
    return {
        "name": one.name,
        "worst": None,
        "wrong": wrong,
        "comment": None,
        "compared": compared_values(*read),
    }


def _origins(source: "GitSource | None") -> "tuple[Origin, ...]":
    """Return what can be read of a stack. A second reading of a commit finds the same bytes."""
    from gpucluster.cli.revisions import origin_of

    try:
        return () if source is None else (origin_of(source, source.read()),)
    except GpuclusterError:
        return ()


def _reason(one: Changed, wrong: str, what: str) -> str:
    """Return why there is nothing to compare, and what follows."""
    if wrong == "new":
        return f"{what.format('this branch')}, so nothing is compared. It cannot be applied."
    rest = "The branch deletes it." if one.new is None else "The spec of this branch is valid."
    return (
        f"{what.format('the base')} for this version of gpucluster, so nothing is compared. {rest} "
        "What applying it does to a cluster that runs: `pulumi preview`."
    )


def _worst(found: "Diff") -> str | None:
    return found.worst.value if found.worst else None


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise GpuclusterError(f"{file}: cannot be written: {error.strerror}") from error
