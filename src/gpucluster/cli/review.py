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
            answer(ok=True, reviews=reviews)
            return
        for one in reviews:
            print_result(f"{one['name']}: {one['worst'] or 'no change'}: {one['comment']}")
        if not reviews:
            print_result(f"no stack differs between {base} and {head}")


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
    from gpucluster.cli.diff import as_markdown, compared_files

    found, problems = compared_files(one.old, one.new, prices_from(prices), with_resources=with_resources)
    for problem in problems:
        progress(str(problem))
    comment = to / f"{one.name}.md"
    _write(comment, as_markdown(found, with_resources=with_resources, prices=prices))
    return {"name": one.name, "worst": _worst(found), "comment": os.fspath(comment)}


def _worst(found: "Diff") -> str | None:
    return found.worst.value if found.worst else None


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise GpuclusterError(f"{file}: cannot be written: {error.strerror}") from error
