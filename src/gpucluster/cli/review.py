"""`gpucluster review`: one comment for each stack that a branch changes, for pull requests."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import Output, OutputOption, answer, print_result, progress, reporting
from gpucluster.cli.prices import PricesOption, prices_from
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpucluster.gitops.model import Diff

_WRONG = 2  # exit code: a spec of the branch is not valid
_STACK = re.compile(r"(?:stacks/(?:lookups/)?|workloads/)([^/]+)\.yaml")


@dataclass(frozen=True, slots=True)
class Changed:
    """A stack that differs between the two revisions; `/dev/null` where it is absent."""

    name: str
    old: str
    new: str


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
    output: OutputOption = Output.TEXT,
) -> None:
    """Review every stack that differs between the common ancestor of two revisions and the second one."""
    with reporting(output):
        found = list(changed_stacks(base, head))
        reviews = [_reviewed(one, to, prices, with_resources=resources) for one in found]
        if output is Output.JSON:
            answer(ok=not any(one["wrong"] == "new" for one in reviews), reviews=reviews)
        for one in reviews if output is not Output.JSON else ():
            print_result(f"{one['name']}: {_verdict(one)}: {one['comment']}")
        if not reviews and output is not Output.JSON:
            print_result(f"no stack differs between {base} and {head}")
    raise typer.Exit(_WRONG if any(one["wrong"] == "new" for one in reviews) else 0)


def _verdict(review: dict[str, object]) -> object:
    return "not compared" if review["wrong"] else review["worst"] or "no change"


def changed_stacks(base: str, head: str) -> "Iterator[Changed]":
    """Yield the stacks whose spec, recorded look-ups or workloads differ, by name."""
    from gpucluster.gitops.model import ABSENT

    ancestor = _git("merge-base", "--end-of-options", base, head).strip()
    words = _git(
        "diff", "--name-only", "--no-renames", "-z", ancestor, head, "--", "stacks", "workloads"
    ).split("\0")
    names = sorted({found[1] for word in words if (found := _STACK.fullmatch(word))})
    for name in names:
        old, new = (f"{revision}:stacks/{name}.yaml" for revision in (ancestor, head))
        sides = [side if _exists(side) else ABSENT for side in (old, new)]
        if sides != [ABSENT, ABSENT]:  # only look-ups without a stack
            yield Changed(name, *sides)


def _exists(given: str) -> bool:
    return _run("cat-file", "-e", given) is not None


def _git(*words: str) -> str:
    found = _run(*words)
    if found is None:
        raise GpuclusterError(
            f"git {words[0]} failed for {' and '.join(words[-2:])}",
            next_step="run it inside the repository, with its whole history (`fetch-depth: 0`), and name existing revisions",
        )
    return found


def _run(*words: str) -> str | None:
    from gpucluster.cli.revisions import GIT_ENV
    from gpucluster.shell import run

    done = run(["git", *words], timeout_s=60, env=GIT_ENV, check=False)
    if done.code != 0 and done.stderr.strip() and words[0] != "cat-file":
        progress(done.stderr.strip().splitlines()[0])
    return done.stdout if done.code == 0 else None


def _reviewed(one: Changed, to: Path, prices: Path | None, *, with_resources: bool) -> dict[str, object]:
    """Write the comment of a stack. A wrong spec is told in its comment, and stops no other stack."""
    from gpucluster.cli.diff import SideError, as_markdown, compared_files
    from gpucluster.gitops.report.markdown import not_compared

    comment = to / f"{one.name}.md"
    worst, wrong = None, ""
    try:
        found, problems = compared_files(one.old, one.new, prices_from(prices), with_resources=with_resources)
        worst, text = _worst(found), as_markdown(found, with_resources=with_resources, prices=prices)
    except SideError as error:
        problems, wrong = error.found, "new" if error.new_is_wrong else "old"
        text = not_compared(one.name, _reason(one, wrong), tuple(map(str, problems)))
    for problem in problems:
        progress(str(problem))
    _write(comment, text)
    return {"name": one.name, "worst": worst, "wrong": wrong or None, "comment": os.fspath(comment)}


def _reason(one: Changed, wrong: str) -> str:
    """Return why there is nothing to compare, and what follows."""
    from gpucluster.gitops.model import ABSENT

    if wrong == "new":
        return "The spec of this branch is not valid, so nothing is compared. It cannot be applied."
    rest = "The branch deletes it." if one.new == ABSENT else "The spec of this branch is valid."
    return (
        f"The spec of the base is not valid for this version of gpucluster, so nothing is compared. {rest} "
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
