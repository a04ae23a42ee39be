"""What GitHub's comments and GitLab's notes share: a call of a REST API without redirects, its waits, and its pages."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING, Any, Protocol

from gpucluster.cli.output import progress
from gpucluster.errors import GpuclusterError
from gpucluster.json_text import parse_json
from gpucluster.text import printable

if TYPE_CHECKING:
    from urllib.error import HTTPError

PAGE = 100  # posts in one page: the most that GitHub and GitLab give
_MOST_PAGES = 50
_NEXT = re.compile(r'<([^<>]+)>; rel="next"')
_TIMEOUT_S = 30.0
_MOST_WAITS = 3
_MINUTE_S = 60  # the longest wait, and that without `Retry-After`: what GitHub asks for
_LIMITED = 429
Answer = dict[str, Any]  # one object of the API's JSON


class RefusedError(GpuclusterError):
    """The API refuses a call, or there is no token for it. `code` is that of HTTP; 429: too many calls."""

    def __init__(self, code: int, message: str, *, next_step: str | None) -> None:
        super().__init__(message, next_step=next_step)
        self.code = code


@dataclass(frozen=True, slots=True)
class Post:
    """A comment of GitHub, or a note of GitLab."""

    id: int
    text: str
    url: str


class Posts(Protocol):
    """The posts of one pull request or merge request."""

    def mine(self) -> Iterator[Post]:
        """Yield each post of the token's account."""
        ...

    def create(self, text: str) -> Post:
        """Post the text, and return the new post."""
        ...

    def update(self, post_id: int, text: str) -> Post:
        """Give a post of ours this text."""
        ...


def api_of(variable: str, default: str) -> str:
    """Return the address of the API. The runners of GitHub and GitLab set the variable, also those of a company's own server."""
    found = os.environ.get(variable, default).rstrip("/")
    if not found.startswith(("https://", "http://127.0.0.1:", "http://localhost:")):
        raise GpuclusterError(
            f"{variable} does not begin with https://", next_step="a token must not travel in plain text"
        )
    return found


def token_of(variable: str, next_step: str) -> str:
    """Return the token of the variable. RefusedError with `next_step` if it is not set."""
    found = os.environ.get(variable, "")
    if not found:
        raise RefusedError(401, f"{variable} is not set", next_step=next_step)
    return found


@dataclass(frozen=True, slots=True)
class Api:
    """A REST API. `headers` have the token; `next_steps` say what helps against a refusal, by its code."""

    name: str
    address: str
    headers: Mapping[str, str]
    next_steps: Mapping[int, str]

    def call(self, method: str, url: str, body: Answer | None = None) -> tuple[Any, str]:
        """Return the answer, and its Link header. Where the API limits its calls, wait as it asks for."""
        from urllib.error import HTTPError

        for waits in range(_MOST_WAITS + 1):
            try:
                return self._answered(method, url, body)
            except HTTPError as error:
                seconds = _wait(error)
                if seconds is None or seconds > _MINUTE_S or waits == _MOST_WAITS:
                    raise self._refused(f"{method} {url}", error, limited=seconds is not None) from None
                progress(f"{self.name} takes no more calls now: {seconds} s")
                sleep(seconds)
            except (OSError, ValueError) as error:
                raise GpuclusterError(f"{method} {url}: {error}") from None
        raise RuntimeError("the last try returns or raises")

    def _answered(self, method: str, url: str, body: Answer | None) -> tuple[Any, str]:
        import urllib.request

        headers = {"User-Agent": "gpucluster", **self.headers}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310  api_of allows https
        opener = urllib.request.OpenerDirector()  # without redirects: urllib sends the token to any new host
        for handler in (
            urllib.request.ProxyHandler,
            urllib.request.HTTPHandler,
            urllib.request.HTTPSHandler,
            urllib.request.HTTPDefaultErrorHandler,
            urllib.request.HTTPErrorProcessor,
        ):
            opener.add_handler(handler())
        with opener.open(request, timeout=_TIMEOUT_S) as response:
            return parse_json(response.read()), response.headers.get("Link", "")

    def _refused(self, call: str, error: "HTTPError", *, limited: bool) -> RefusedError:
        reason = _reason(error.read(10_000))
        said = f"{call}: {self.name} answers {error.code}{f' ({reason})' if reason else ''}"
        if limited:
            return RefusedError(_LIMITED, said, next_step="run the job again later")
        return RefusedError(error.code, said, next_step=self.next_steps.get(error.code))

    def pages(self, first: str, too_many: GpuclusterError) -> Iterator[Answer]:
        """Yield the objects of all pages. Raise `too_many` after 5,000 of them."""
        url: str | None = first
        for _ in range(_MOST_PAGES):
            if url is None:
                return
            found, link = self.call("GET", url)
            yield from found
            match = _NEXT.search(link)
            url = match[1] if match else None
            if url is not None and not url.startswith(f"{self.address}/"):
                raise GpuclusterError(
                    "the API names a next page on another host; the token is not sent there"
                )
        if url is not None:
            raise too_many


def _wait(error: "HTTPError") -> int | None:
    """Return for how many seconds the API wants no call; None if that is not why it refuses.

    docs.github.com, "Rate limits for the REST API"; docs.gitlab.com, "User and IP rate limits".
    """
    asked = error.headers.get("Retry-After", "")
    if error.code not in {403, _LIMITED}:
        return None
    if asked.isdecimal():
        return int(asked)
    if error.headers.get("X-RateLimit-Remaining") == "0":
        return 60 * _MINUTE_S  # until the hour ends
    return _MINUTE_S if error.code == _LIMITED else None


def _reason(body: bytes) -> str:
    """Return what an answer says of its refusal: `message` of GitHub, `message` or `error` of GitLab."""
    try:
        found: Any = parse_json(body)
    except ValueError:
        return ""
    parts = list[str]()
    match found:
        case {"message": str(message)} | {"error": str(message)}:
            parts.append(message)
        case _:
            pass
    match found:
        case {"errors": [{"message": str(first)}, *_]}:
            parts.append(first)
        case _:
            pass
    return printable(": ".join(parts), 300)


def too_many(what: str) -> GpuclusterError:
    """Return the refusal to post where our own post may be among those that were not read."""
    return GpuclusterError(
        f"{what} has more than {_MOST_PAGES * PAGE} comments: ours may be among the later ones",
        next_step=f"open another {what.rpartition(' ')[0]}, so that no second comment is posted",
    )
