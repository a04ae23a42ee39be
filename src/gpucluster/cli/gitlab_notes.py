"""The notes of a merge request, over GitLab's REST API. Its words: a note is a comment."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from gpucluster.cli.comment_api import PAGE, Answer, Api, Post, api_of, token_of, too_many
from gpucluster.errors import GpuclusterError

_QUICK_ACTION = re.compile(r"^/[a-z]\S*", re.MULTILINE)
_HOW_TO_POST = (
    "set the variable GITLAB_TOKEN to a project access token with the scope `api`; CI_JOB_TOKEN cannot post"
)
_NEXT_STEPS = {
    **dict.fromkeys((301, 302, 307, 308), "name the project by its number: --project ID"),
    401: _HOW_TO_POST,
    403: "give the token the scope `api` and a role that may comment on the merge request",
    404: "name a merge request that the token may read",
}


def gitlab_notes(number: int, project: str) -> "GitlabNotes":
    """Return the notes of merge request `number`. The token is in the variable GITLAB_TOKEN."""
    address = api_of("CI_API_V4_URL", "https://gitlab.com/api/v4")
    headers = {"PRIVATE-TOKEN": token_of("GITLAB_TOKEN", _HOW_TO_POST)}
    return GitlabNotes(Api("GitLab", address, headers, _NEXT_STEPS), quote(project, safe=""), number)


@dataclass(frozen=True, slots=True)
class GitlabNotes:
    """The notes of one merge request. `project`: its number, or its path in the form of a URL."""

    api: Api
    project: str
    number: int

    def mine(self) -> Iterator[Post]:
        """Yield each note of the token's account. Its name has random letters, so GitLab is asked for it."""
        me = int(self.api.call("GET", f"{self.api.address}/user")[0]["id"])
        first = f"{self._merge_request}/notes?per_page={PAGE}&order_by=created_at&sort=asc"
        for one in self.api.pages(first, too_many(f"merge request {self.number}")):
            if not one["system"] and one["author"]["id"] == me:
                yield self._post(one)

    def create(self, text: str) -> Post:
        """Post the text, and return the new note."""
        return self._post(self.api.call("POST", f"{self._merge_request}/notes", _body(text))[0])

    def update(self, post_id: int, text: str) -> Post:
        """Give a note of ours this text."""
        url = f"{self._merge_request}/notes/{post_id}"
        return self._post(self.api.call("PUT", url, _body(text))[0])

    @property
    def _merge_request(self) -> str:
        return f"{self.api.address}/projects/{self.project}/merge_requests/{self.number}"

    def _post(self, found: Answer) -> Post:
        """Return the note. GitLab's answer has no address of its page."""
        return Post(int(found["id"]), str(found["body"]), f"{self._merge_request}/notes/{found['id']}")


def _body(text: str) -> Answer:
    """Return the body of a call. GitLab would run a quick action with the rights of the token."""
    if found := _QUICK_ACTION.search(text):
        raise GpuclusterError(f"a line begins with {found[0]!r}, which GitLab would run as a quick action")
    return {"body": text}
