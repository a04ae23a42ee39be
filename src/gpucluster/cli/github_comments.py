"""The comments of a pull request, over GitHub's REST API."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.cli.comment_api import PAGE, Answer, Api, Post, api_of, token_of, too_many
from gpucluster.errors import GpuclusterError

_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
_NEXT_STEPS = {
    **dict.fromkeys((301, 302, 307, 308), "name the repository as it is called now: --repository OWNER/NAME"),
    401: "give a valid token in GITHUB_TOKEN",
    403: "give the job the right `pull-requests: write`",
    404: "name a pull request that the token may read",
    422: "post a shorter text",
}


def github_comments(number: int, repository: str, author: str) -> "GithubComments":
    """Return the comments of pull request `number`. The token is in the variable GITHUB_TOKEN."""
    api = api_of("GITHUB_API_URL", "https://api.github.com")
    token = token_of("GITHUB_TOKEN", "in a workflow: env: {GITHUB_TOKEN: ${{ github.token }}}")
    if not _REPOSITORY.fullmatch(repository):
        raise GpuclusterError(f"{repository!r} is not OWNER/NAME")
    headers = {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {token}",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    return GithubComments(Api("GitHub", api, headers, _NEXT_STEPS), repository, number, author)


@dataclass(frozen=True, slots=True)
class GithubComments:
    """The comments of one pull request. GitHub has them below `issues`."""

    api: Api
    repository: str
    number: int
    author: str

    def mine(self) -> Iterator[Post]:
        """Yield each comment of the token's account."""
        for one in self.api.pages(f"{self._all}?per_page={PAGE}", too_many(f"pull request {self.number}")):
            if one.get("user", {}).get("login") == self.author:
                yield _post(one)

    def create(self, text: str) -> Post:
        """Post the text, and return the new comment."""
        return _post(self.api.call("POST", self._all, {"body": text})[0])

    def update(self, post_id: int, text: str) -> Post:
        """Give a comment of ours this text."""
        url = f"{self.api.address}/repos/{self.repository}/issues/comments/{post_id}"
        return _post(self.api.call("PATCH", url, {"body": text})[0])

    @property
    def _all(self) -> str:
        return f"{self.api.address}/repos/{self.repository}/issues/{self.number}/comments"


def _post(found: Answer) -> Post:
    return Post(int(found["id"]), str(found["body"]), str(found["html_url"]))
