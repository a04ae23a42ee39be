"""A stand-in for GitHub's API of comments of one pull request. It refuses what GitHub refuses.

Source: docs.github.com, REST API, "Issue comments": list, create, update; "Using pagination in the REST API"; "Rate limits for
the REST API": 403 or 429 with `retry-after` or `x-ratelimit-remaining: 0`; "GITHUB_TOKEN": a fork's token may only read.
"""

import json
import re
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlparse

from support.served import served

TOKEN = "ghs_0123456789"
READ_TOKEN = "ghs_read98765"  # of a workflow that a fork's pull request starts
BOT = "github-actions[bot]"
REPOSITORY = "example/clusters"
LONGEST = 65_536  # characters of a comment
_RENAMED = "/repos/example/old-name/"  # GitHub answers 301 for a repository that has another name now
_READ_ONLY = "Resource not accessible by integration"
_TOO_LONG = {
    "resource": "IssueComment",
    "code": "unprocessable",
    "field": "data",
    "message": f"Body is too long (maximum is {LONGEST} characters)",
}
_LIST = re.compile(rf"/repos/{REPOSITORY}/issues/(\d+)/comments")
_ONE = re.compile(rf"/repos/{REPOSITORY}/issues/comments/(\d+)")


class Comments(ThreadingHTTPServer):
    """The server, with the comments of pull request 7 and a list of the calls."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.found: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.limits: list[tuple[int, dict[str, str]]] = []  # the answers to the next calls that write
        self.moved_to = self.address  # the host in the address of a renamed repository

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, body: str, login: str = BOT) -> dict[str, Any]:
        number = len(self.found) + 1
        url = f"https://github.example/{REPOSITORY}/pull/7#issuecomment-{number}"
        one = {"id": number, "body": body, "user": {"login": login}, "html_url": url}
        self.found.append(one)
        return one


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answered("GET")

    def do_POST(self) -> None:
        self._answered("POST")

    def do_PATCH(self) -> None:
        self._answered("PATCH")

    def _answered(self, method: str) -> None:
        server, url = cast(Comments, self.server), urlparse(self.path)
        server.calls.append(f"{method} {self.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if url.path.startswith(_RENAMED):
            self.send_response(301)
            self.send_header("Location", f"{server.moved_to}/repos/{REPOSITORY}/issues/7/comments")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        limited: dict[str, str] = {}
        if method != "GET" and server.limits:
            code, limited = server.limits.pop(0)
            answer, link = {"message": "You have exceeded a secondary rate limit."}, ""
        else:
            code, answer, link = self._result(server, method, url.path, url.query, body)
        text = json.dumps(answer).encode()
        self.send_response(code)
        for name, value in limited.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        if link:
            self.send_header("Link", link)
        self.end_headers()
        self.wfile.write(text)

    def _result(
        self, server: Comments, method: str, path: str, query: str, body: bytes
    ) -> tuple[int, Any, str]:
        if refused := self._refused(method):
            return refused[0], {"message": refused[1]}, ""
        listed, one = _LIST.fullmatch(path), _ONE.fullmatch(path)
        if method == "GET" and listed and listed[1] == "7":
            return self._page(server, query)
        if method not in {"POST", "PATCH"} or not ((listed and listed[1] == "7") or one):
            return 404, {"message": "Not Found"}, ""
        text = _body(body)
        if text is None:
            return 422, {"message": "Validation Failed", "errors": [_TOO_LONG]}, ""
        if method == "POST" and listed:
            return 201, server.add(text), ""
        return self._updated(server, int(one[1]) if one else 0, text)

    def _refused(self, method: str) -> tuple[int, str] | None:
        token = self.headers.get("Authorization")
        if token not in {f"Bearer {TOKEN}", f"Bearer {READ_TOKEN}"}:
            return 401, "Bad credentials"
        if not self.headers.get("User-Agent"):
            return 403, "Request forbidden by administrative rules"
        if self.headers.get("X-GitHub-Api-Version") != "2022-11-28":
            return 400, "Bad Request"
        return (403, _READ_ONLY) if method != "GET" and token == f"Bearer {READ_TOKEN}" else None

    def _updated(self, server: Comments, number: int, text: str) -> tuple[int, Any, str]:
        found = next((one for one in server.found if one["id"] == number), None)
        if found is None:
            return 404, {"message": "Not Found"}, ""
        if found["user"]["login"] != BOT:
            return 403, {"message": _READ_ONLY}, ""
        found["body"] = text
        return 200, found, ""

    def _page(self, server: Comments, query: str) -> tuple[int, Any, str]:
        words = parse_qs(query)
        size, page = int(words.get("per_page", ["30"])[0]), int(words.get("page", ["1"])[0])
        size = min(size, 100)
        first, last = (page - 1) * size, page * size
        more = last < len(server.found)
        url = f"{server.address}/repos/{REPOSITORY}/issues/7/comments?per_page={size}&page={page + 1}"
        return 200, server.found[first:last], f'<{url}>; rel="next"' if more else ""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name of the standard library
        """Print nothing."""


def _body(body: bytes) -> str | None:
    try:
        found = json.loads(body)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.keys() != {"body"}:
        return None
    text = found["body"]
    return text if isinstance(text, str) and text.strip() and len(text) <= LONGEST else None


def comments_of_a_pull_request() -> AbstractContextManager[Comments]:
    return served(Comments())
