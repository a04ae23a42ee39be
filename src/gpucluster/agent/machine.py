"""The effects of the agent's steps: files, commands, network, clock. Tests pass a fake machine.

A step raises `NotYetError` if a later try may succeed. It raises `StepError` if no try can succeed.
"""

import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gpucluster.errors import GpuclusterError
from gpucluster.plan.messages import GpuFault, Notice
from gpucluster.shell import Result


class NotYetError(GpuclusterError):
    """A later try may succeed. After `limit_s` seconds the step fails with this reason; None: only the boot's deadline ends it."""

    def __init__(self, reason: str, *, limit_s: float | None = None) -> None:
        super().__init__(reason)
        self.limit_s = limit_s


class StepError(GpuclusterError):
    """No later try can succeed. The message is one line for the operator."""


class BundleRefusedError(StepError):
    """The bundle with this digest cannot be applied, and there is no earlier one to go on with."""

    def __init__(self, reason: str, digest: str) -> None:
        super().__init__(reason)
        self.digest = digest


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
class StoredObject:
    """An object of the bucket, with the ETag of its version."""

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryCredentials:
    """Credentials of an assumed role. `until` is the end in seconds of Unix time, `expiration` is the same in ISO 8601."""

    access_key: str
    secret: str = field(repr=False)
    token: str = field(repr=False)
    expiration: str
    until: float


class Services(Protocol):
    """The calls to AWS that the role of the machine allows. Each call may raise NotYetError."""

    def get_object(self, bucket: str, key: str, *, if_none_match: str | None) -> StoredObject | None:
        """Return the object; None if its ETag equals `if_none_match`."""
        ...

    def put_object(self, bucket: str, key: str, body: bytes) -> None: ...

    def get_secret(self, arn: str) -> bytes | None:
        """Return the secret's current value; None while it has none."""
        ...

    def get_secret_version(self, arn: str) -> tuple[bytes | None, str]:
        """Return the secret's current value and the id of its version; None and empty while it has none."""
        ...

    def put_secret(self, arn: str, value: bytes, *, token: str) -> None:
        """Set the value with the client request token `token`. A second call with the same token changes nothing."""
        ...

    def assume_role(self, role: str, session: str, seconds: int) -> TemporaryCredentials:
        """Assume the role with this ARN. CloudTrail records `session` as the session name."""
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
class HealthReport:
    """Interruption notices and GPU faults of this machine. `watched`: every metadata path has answered at least once."""

    notices: tuple[Notice, ...] = ()
    faults: tuple[GpuFault, ...] = ()
    watched: bool = False


def serve_no_jobs(_: Callable[[str, tuple[str, int]], Reply]) -> None:
    """Serve no credentials: the default of machines that run no jobs."""


@dataclass(slots=True, kw_only=True)
class UnsavedState:
    """The agent's state in memory, while no disk has room for its file. `boot_state` writes and reads it."""

    text: str = ""  # empty: the file has the state
    reported: bool = False  # the log has the failed write


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The effects. All paths are below `root`, which is `/` except in tests."""

    root: Path
    run: Run
    metadata: Callable[[str], str]  # a path below /latest/; raises NotYetError
    services: Callable[[str], Services]  # by region
    post: Post
    listening: Callable[[str, int], bool]  # whether a TCP port accepts a connection
    chown: Callable[[int, str], None]  # set owner and group of an open file or folder to this user
    now: Callable[[], float]  # monotonic seconds; the same clock after a restart of the agent
    pause: Callable[[float], None]
    health: Callable[[], HealthReport] = HealthReport
    clock: Callable[[], float] = time.time  # Unix time
    serve_jobs: Callable[[Callable[[str, tuple[str, int]], Reply]], None] = serve_no_jobs  # `JobServer.serve`
    diag: Callable[[tuple[str, int], tuple[str, int]], int | None] = lambda _local, _remote: (
        None
    )  # `socket_diag.owner`
    unsaved: UnsavedState = field(default_factory=UnsavedState)

    def path(self, path: str) -> Path:
        """Return the absolute `path` below the root."""
        return self.root / path.removeprefix("/")

    def read(self, path: str) -> str:
        """Return the file's text; empty if the file does not exist."""
        try:
            return self.path(path).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def write(self, path: str, content: str | bytes, *, mode: int = 0o644, owner: str | None = None) -> bool:
        """Replace the file in one rename. Return False if content and mode were already the same. No link is followed.

        Mode and owner are set on the open file: by its path, another user of the folder could put a link there in between.
        """
        target, wanted = self.path(path), content.encode() if isinstance(content, str) else content
        if _content(target, mode) == wanted:
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.new")
        fresh.unlink(missing_ok=True)
        # 0600 before the content is written, so that others can never read a key
        descriptor = os.open(
            fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(wanted)
                file.flush()
                os.fchmod(descriptor, mode)
                if owner is not None:
                    self.chown(descriptor, owner)
            fresh.replace(target)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        return True

    def make_folder(self, path: str, *, mode: int, owner: str) -> None:
        """Create a folder with this mode and owner, unless it exists."""
        place = self.path(path)
        if place.is_dir():
            return
        place.mkdir(parents=True)
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, mode)
            self.chown(descriptor, owner)
        finally:
            os.close(descriptor)


def _content(target: Path, mode: int) -> bytes | None:
    """Return the content of a plain file with this mode; None for anything else, also for a link."""
    try:
        descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        same = stat.S_ISREG(found.st_mode) and found.st_mode & 0o777 == mode
        return file.read() if same else None
