"""What the agent may do to its machine and to the world. Steps reach neither in another way; tests hand in a fake.

A step that cannot be done now raises `NotYetError` and is tried again; one that never will be raises `StepError`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gpucluster.errors import GpuclusterError
from gpucluster.plan.messages import GpuFault, Notice
from gpucluster.shell import Result


class NotYetError(GpuclusterError):
    """Try again later; after `limit_s` (None: as long as the walk may take) the reason stands as the failure."""

    def __init__(self, reason: str, *, limit_s: float | None = None) -> None:
        super().__init__(reason)
        self.limit_s = limit_s


class StepError(GpuclusterError):
    """No repetition helps; the message is the one line that a person reads."""


class Run(Protocol):
    """`gpucluster.shell.run`."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Result: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """An object of the bucket and the mark of its version."""

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """Keys of a role that was taken on, until `until` of the wall's clock, which `expiration` says in ISO 8601."""

    access_key: str
    secret: str = field(repr=False)
    token: str = field(repr=False)
    expiration: str
    until: float


class Store(Protocol):
    """The AWS services that a machine's own role reaches. Each call may raise NotYetError."""

    def get(self, bucket: str, key: str, *, unless: str | None) -> Fetched | None:
        """Return the object; None if its etag is still `unless`."""
        ...

    def put(self, bucket: str, key: str, body: bytes) -> None: ...

    def secret(self, arn: str) -> bytes | None:
        """Return the secret's current value; None while it has none."""
        ...

    def offer_secret(self, arn: str, value: bytes, *, token: str) -> None:
        """Set the value under `token`; if the token was used before, nothing happens."""
        ...

    def assume(self, role: str, session: str, seconds: int) -> Lent:
        """Take on a role by its ARN, under a name that the cloud's log keeps."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    body: bytes


class Post(Protocol):
    """POST to http://address:port/path; raises OSError."""

    def __call__(self, address: str, port: int, path: str, body: bytes) -> Reply: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What the machine heard of itself; `watched` once the metadata service has answered all questions."""

    notices: tuple[Notice, ...] = ()
    faults: tuple[GpuFault, ...] = ()
    watched: bool = False


def serve_nobody(_: Callable[[str, tuple[str, int]], Reply]) -> None:
    """Of a machine without jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The effects, and `root`, below which every file stands (`/` but for tests)."""

    root: Path
    run: Run
    metadata: Callable[[str], str]  # a path below /latest/; raises NotYetError
    store: Callable[[str], Store]  # by region
    post: Post
    listening: Callable[[str, int], bool]  # does a TCP port answer?
    own: Callable[[Path, str], None]  # give a file to `user`, and its group
    now: Callable[[], float]  # seconds on a clock that only runs forward, through restarts of the agent
    pause: Callable[[float], None]
    heard: Callable[[], Heard] = Heard
    clock: Callable[[], float] = time.time  # the wall's
    serve_jobs: Callable[[Callable[[str, tuple[str, int]], Reply]], None] = serve_nobody  # `JobServer.serve`

    def place(self, path: str) -> Path:
        """Where the absolute `path` stands."""
        return self.root / path.removeprefix("/")

    def read(self, path: str) -> str:
        """The file's text; empty if there is none."""
        try:
            return self.place(path).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def write(self, path: str, content: str | bytes, *, mode: int = 0o644, owner: str | None = None) -> bool:
        """Make the file so, in one rename; False if it was so before."""
        target, wanted = self.place(path), content.encode() if isinstance(content, str) else content
        if target.is_file() and target.read_bytes() == wanted and target.stat().st_mode & 0o777 == mode:
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.new")
        fresh.unlink(missing_ok=True)
        fresh.touch(mode=0o600)  # before the content: a key is never readable by others, not for a moment
        fresh.write_bytes(wanted)
        fresh.chmod(mode)
        if owner is not None:
            self.own(fresh, owner)
        fresh.replace(target)
        return True
