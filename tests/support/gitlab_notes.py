"""A stand-in for GitLab's API of notes of one merge request. It refuses what GitLab refuses, and each query and header that it does not know.

Source: docs.gitlab.com, "Notes API": list, create and modify merge request notes; "REST API": pagination, namespaced paths, redirects;
"GitLab CI/CD job token", job token access: of the Notes API a job token can only read; "GitLab quick actions";
"User and IP rate limits": 429 with `Retry-After`, and a text instead of JSON.
"""

import json
import re
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlparse

from support.served import served

TOKEN = "glpat-0123456789"
READ_TOKEN = "glpat-read-9876"  # its scope is read_api
JOB_TOKEN = "glcbt-64-0123"
BOT = 71  # the account of the project access token
LONGEST = 1_000_000  # characters of a note
PROJECT = "42"
_PATH = "/api/v4/projects/(?:42|example%2Fclusters)/merge_requests/7/notes"
_ONE = re.compile(rf"{_PATH}/(\d+)")
_RENAMED = "/api/v4/projects/example%2Fold-name/"
_QUERIES = {"per_page": r"\d+", "page": r"\d+", "order_by": "created_at|updated_at", "sort": "asc|desc"}
Found = tuple[int, Any, str]  # code, answer, Link header


class Notes(ThreadingHTTPServer):
    """The server, with the notes of merge request 7 and a list of the calls."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.found: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.limits: list[str] = []  # `Retry-After` of the answers to the next calls that write
        self.moved_to = self.host  # the host in the address of a renamed project

    @property
    def host(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def address(self) -> str:
        return f"{self.host}/api/v4"

    def add(self, body: str, author: int = BOT, *, system: bool = False) -> dict[str, Any]:
        number = 300 + len(self.found)
        one = {"id": number, "body": body, "author": {"id": author, "username": "x"}, "system": system}
        self.found.append(one)
        return one


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answered("GET")

    def do_POST(self) -> None:
        self._answered("POST")

    def do_PUT(self) -> None:
        self._answered("PUT")

    def _answered(self, method: str) -> None:
        server = cast(Notes, self.server)
        server.calls.append(f"{method} {self.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        limited = server.limits.pop(0) if method != "GET" and server.limits else ""
        code, answer, link = (429, None, "") if limited else self._result(server, method, body)
        text = b"Retry later\n" if limited else json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if limited else "application/json")
        if limited:
            self.send_header("Retry-After", limited)
        self.send_header("Content-Length", str(len(text)))
        if code == 301:
            self.send_header("Location", link)
        elif link:
            self.send_header("Link", link)
        self.end_headers()
        self.wfile.write(text)

    def _result(self, server: Notes, method: str, body: bytes) -> Found:
        url, token = urlparse(self.path), self.headers.get("PRIVATE-TOKEN")
        if url.path.startswith(_RENAMED):
            return 301, {}, f"{server.moved_to}/api/v4/projects/42/merge_requests/7/notes"
        if token not in {TOKEN, READ_TOKEN} or {"Authorization", "JOB-TOKEN"} & set(self.headers):
            return 401, {"message": "401 Unauthorized"}, ""
        if (method, url.path, url.query) == ("GET", "/api/v4/user", ""):
            return 200, {"id": BOT, "username": "project_42_bot_4ffca233d8298ea1"}, ""
        if method == "GET" and re.fullmatch(_PATH, url.path):
            return self._page(server, url.path, url.query)
        return self._change(server, method, body)

    def _change(self, server: Notes, method: str, body: bytes) -> Found:
        listed, one = re.fullmatch(_PATH, self.path), _ONE.fullmatch(self.path)
        if not ((method == "POST" and listed) or (method == "PUT" and one)):
            return 404, {"error": "404 Not Found"}, ""
        if self.headers.get("PRIVATE-TOKEN") == READ_TOKEN:
            return 403, {"error": "insufficient_scope"}, ""
        return self._written(server, self._text(body), one)

    def _written(self, server: Notes, text: str | None, one: re.Match[str] | None) -> Found:
        if text is None:
            return 400, {"message": "400 Bad request"}, ""
        if one is None:
            return 201, server.add(text), ""
        found = next((note for note in server.found if note["id"] == int(one[1])), None)
        if found is None:
            return 404, {"message": "404 Not found"}, ""
        if found["author"]["id"] != BOT:
            return 403, {"message": "403 Forbidden"}, ""
        found["body"] = text
        return 200, found, ""

    def _text(self, body: bytes) -> str | None:
        """Return the note's text. None for another body, and for a quick action, which GitLab would run."""
        if self.headers.get("Content-Type") != "application/json":
            return None
        found = json.loads(body)
        if not isinstance(found, dict) or found.keys() != {"body"}:
            return None
        text = found["body"]
        wrong = not isinstance(text, str) or not text.strip() or len(text) > LONGEST
        return None if wrong or re.search(r"(?m)^/[a-z]", text) else text

    def _page(self, server: Notes, path: str, query: str) -> Found:
        """Return a page: 20 notes if not told otherwise, at most 100, the newest first."""
        words = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
        if any(not re.fullmatch(_QUERIES.get(name, "(?!)"), value) for name, value in words.items()):
            return 400, {"error": "a parameter is invalid"}, ""
        size, page = min(int(words.get("per_page", "20")), 100), int(words.get("page", "1"))
        notes = server.found if words.get("sort") == "asc" else server.found[::-1]
        last = max(1, -(-len(notes) // size))
        rest = "".join(f"&{name}={words[name]}" for name in ("order_by", "sort") if name in words)
        rels = {"prev": page - 1, "next": page + 1, "first": 1, "last": last}
        link = ", ".join(
            f'<{server.host}{path}?page={number}&per_page={size}{rest}>; rel="{rel}"'
            for rel, number in rels.items()
            if 1 <= number <= last
        )
        return 200, notes[(page - 1) * size : page * size], link

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name of the standard library
        """Print nothing."""


def notes_of_a_merge_request() -> AbstractContextManager[Notes]:
    return served(Notes())
