"""`gpucluster comment`: post review comments on GitHub or GitLab. A later run updates the same comments."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpucluster.cli.comment_api import Post, Posts
from gpucluster.cli.github_comments import github_comments
from gpucluster.cli.gitlab_notes import gitlab_notes
from gpucluster.cli.output import Output, OutputOption, answer, print_result, reporting
from gpucluster.errors import GpuclusterError

_MARKER = re.compile(r"<!-- gpucluster:[a-z]+:[a-z0-9-]+ -->")


def comment(  # noqa: PLR0917  each is an option
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Comments, as `gpucluster review` writes them.")
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
    output: OutputOption = Output.TEXT,
) -> None:
    """Create or update one comment for each file. The token is in the variable GITHUB_TOKEN or GITLAB_TOKEN."""
    with reporting(output):
        posts = _posts(pull_request, merge_request, (repository, author), project)
        texts = [_text(file) for file in files]
        _require_one_each(files, texts)
        mine = list(posts.mine())
        done = [_put(posts, mine, text) for text in texts]
        if output is Output.JSON:
            answer(ok=True, comments=done)
        for one in done if output is Output.TEXT else ():
            print_result(f"{one['did']} {one['url']}")


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


def _put(posts: Posts, mine: Sequence[Post], text: str) -> dict[str, str]:
    """Update the first post with the same marker, or create one."""
    marker = text.partition("\n")[0]
    same = next((one for one in mine if one.text.partition("\n")[0].strip() == marker), None)
    if same is not None and same.text.replace("\r\n", "\n").strip() == text.strip():
        return {"did": "unchanged", "url": same.url}
    made = posts.create(text) if same is None else posts.update(same.id, text)
    return {"did": "created" if same is None else "updated", "url": made.url}


def _require_one_each(files: Sequence[Path], texts: Sequence[str]) -> None:
    """Refuse two files for one comment: the later one would replace the earlier one."""
    first: dict[str, Path] = {}
    for file, text in zip(files, texts, strict=True):
        marker = text.partition("\n")[0]
        if marker in first:
            raise GpuclusterError(
                f"{file}: its first line is that of {first[marker]}, expected one file for each comment",
                next_step="delete the one that `gpucluster review` did not write",
            )
        first[marker] = file


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
