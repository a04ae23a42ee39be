"""`gpucluster comment`: post review comments on GitHub or GitLab. A later run updates the same comments, or withdraws them."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gpucluster.cli.comment_api import Post, Posts, RefusedError
from gpucluster.cli.github_comments import github_comments
from gpucluster.cli.gitlab_notes import gitlab_notes
from gpucluster.cli.output import Output, OutputOption, answer, print_result, reporting
from gpucluster.cli.review import NAMED, REVIEW
from gpucluster.errors import GpuclusterError
from gpucluster.gitops.report.comments import marker, withdrawn
from gpucluster.json_text import parse_json

_MARKER = re.compile(r"<!-- gpucluster:[a-z]+:[a-z0-9-]+ -->")
_OF_REVIEW = re.compile(re.escape(marker("NAME")).replace("NAME", "([a-z0-9-]+)"))
_READ_ONLY = "the token of a pull request from a fork or of Dependabot may only read"
_FORKS = {401, 403, 404}  # answers to a token of a fork: none, one that reads, one of another project
_WRONG_TEXT = 422
Done = dict[str, str]


def comment(  # noqa: PLR0917  each is an option
    given: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR|FILE...",
            help="Folder that `gpucluster review` wrote: what it no longer has is withdrawn. Or single comments.",
        ),
    ],
    pull_request: Annotated[
        int | None, typer.Option("--pull-request", min=1, help="Number of a pull request of GitHub.")
    ] = None,
    merge_request: Annotated[
        int | None, typer.Option("--merge-request", min=1, help="Number of a merge request of GitLab.")
    ] = None,
    repository: Annotated[
        str, typer.Option("--repository", envvar="GITHUB_REPOSITORY", help="OWNER/NAME on GitHub.")
    ] = "",
    project: Annotated[
        str,
        typer.Option(
            "--project",
            envvar=["CI_MERGE_REQUEST_PROJECT_ID", "CI_PROJECT_ID"],
            help="Number or path of the project on GitLab.",
        ),
    ] = "",
    author: Annotated[
        str,
        typer.Option("--author", help="Account of the token on GitHub. Only its comments are updated."),
    ] = "github-actions[bot]",
    from_fork: Annotated[
        bool, typer.Option("--from-fork", help="The token may only read: say so, and exit 0.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Create or update one comment for each file. The token is in the variable GITHUB_TOKEN or GITLAB_TOKEN."""
    with reporting(output):
        texts = _texts(given)
        done, failed, refused = [], None, None
        try:
            posts = _posts(pull_request, merge_request, (repository, author), project)
            done, failed = _written(posts, texts, withdraw=any(one.is_dir() for one in given))
        except RefusedError as error:
            if not from_fork or error.code not in _FORKS:
                raise
            refused = f"{error.message.partition(': ')[2] or error.message}: {_READ_ONLY}"
        if output is Output.JSON and failed is None:
            answer(ok=True, comments=done, refused=refused)
        for one in done if output is Output.TEXT else ():
            print_result(f"{one['did']} {one['url']}")
        if refused is not None and output is Output.TEXT:
            print_result(f"not posted: {refused}")
        if failed is not None:
            raise failed


def _written(posts: Posts, texts: Sequence[str], *, withdraw: bool) -> tuple[list[Done], RefusedError | None]:
    """Write every comment. Return what was done, and the first refusal of a single text, which stops no other one."""
    mine, done = list(posts.mine()), list[Done]()
    failed: RefusedError | None = None
    for text in texts:
        try:
            done.append(_put(posts, mine, text))
        except RefusedError as error:
            if error.code != _WRONG_TEXT:
                raise
            failed = failed or error
    if withdraw:
        done += _withdrawn(posts, mine, {_first_line(text) for text in texts})
    return done, failed


def _withdrawn(posts: Posts, mine: Sequence[Post], kept: set[str]) -> Iterator[Done]:
    """Replace each comment of an earlier review about a stack that this one does not have."""
    for post in mine:
        found = _OF_REVIEW.fullmatch(_first_line(post.text))
        if found is not None and found[0] not in kept and not _is(post, text := withdrawn(found[1])):
            yield {"did": "withdrawn", "url": posts.update(post.id, f"{text}\n").url}


def _posts(
    pull_request: int | None, merge_request: int | None, on_github: tuple[str, str], project: str
) -> Posts:
    if pull_request is not None and merge_request is None:
        if not on_github[0]:
            raise GpuclusterError("--repository is missing, and GITHUB_REPOSITORY is not set")
        return github_comments(pull_request, *on_github)
    if merge_request is not None and pull_request is None:
        if not project:
            raise GpuclusterError("--project is missing, and CI_PROJECT_ID is not set")
        return gitlab_notes(merge_request, project)
    raise GpuclusterError("give one of --pull-request and --merge-request")


def _put(posts: Posts, mine: Sequence[Post], text: str) -> Done:
    """Update the first post with the same marker, or create one."""
    same = next((one for one in mine if _first_line(one.text) == _first_line(text)), None)
    if same is not None and _is(same, text):
        return {"did": "unchanged", "url": same.url}
    made = posts.create(text) if same is None else posts.update(same.id, text)
    return {"did": "created" if same is None else "updated", "url": made.url}


def _is(post: Post, text: str) -> bool:
    return post.text.replace("\r\n", "\n").strip() == text.strip()


def _first_line(text: str) -> str:
    return text.partition("\n")[0].strip()


def _texts(given: Sequence[Path]) -> list[str]:
    """Read the comments. Two for one post are refused: the later one would replace the earlier one."""
    texts: dict[Path, str] = {}
    first: dict[str, Path] = {}
    for file in (one for path in given for one in _files(path)):
        text = texts[file] = _text(file)
        if (line := _first_line(text)) in first:
            raise GpuclusterError(
                f"{file}: its first line is that of {first[line]}, expected one file for each comment",
                next_step="delete the one that `gpucluster review` did not write",
            )
        first[line] = file
    return list(texts.values())


def _files(given: Path) -> Iterator[Path]:
    """Yield a file, or the comments that `review` lists in its folder. Each begins with the marker of its stack."""
    if not given.is_dir():
        yield given
        return
    for name in _listed(given / REVIEW):
        file = given / f"{name}.md"
        if _first_line(_text(file)) != marker(name):
            raise GpuclusterError(f"{file}: its first line is not the marker of {name}")
        yield file


def _listed(file: Path) -> list[str]:
    step = "run `gpucluster review --base REVISION --to DIR` to its end"
    names: list[Any]
    try:
        found = parse_json(file.read_bytes())
        names = [one["name"] for one in found["reviews"] if one["comment"] is not None]
    except FileNotFoundError:
        raise GpuclusterError(f"{file}: there is no such file", next_step=step) from None
    except (OSError, ValueError, LookupError, TypeError):
        names = [None]
    if not all(isinstance(one, str) and NAMED.fullmatch(one) for one in names):
        raise GpuclusterError(f"{file}: it is not what `gpucluster review` writes", next_step=step)
    return names


def _text(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GpuclusterError(f"{file}: cannot be read: {error}") from error
    if not _MARKER.fullmatch(text.partition("\n")[0]):
        raise GpuclusterError(
            f"{file}: its first line is no marker of gpucluster, so a later run could not find the comment",
            next_step="write it by `gpucluster review --base REVISION --to DIR`, or by `diff --output markdown`",
        )
    return text
