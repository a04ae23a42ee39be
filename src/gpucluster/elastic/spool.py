"""The maildir of hooks and operators: new -> read -> removed. A broken file is moved away and blocks no other file."""

import contextlib
import errno
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from gpucluster.elastic.events import HookCalled, OrderGiven, Verb
from gpucluster.json_text import parse_json
from gpucluster.plan import codec

ORDER = "order"  # the kind of an operator's request; all other kinds are hooks
MAX_BYTES = 80 * 1024 * 1024  # above the hook's own limit
LEFT_OVER_S = 3600.0  # seconds: an older draft belongs to a hook that was killed
_PASSING = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR, errno.EAGAIN}
)  # ours, not the file's


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request: `hostlist` as Slurm gave it, not expanded, or the target of an order."""

    path: Path
    kind: str
    hostlist: str
    called_at: float
    jobs: tuple[int, ...] = ()
    order: OrderGiven | None = None

    @property
    def event(self) -> HookCalled | OrderGiven:
        """Return the event for the journal."""
        if self.order is not None:
            return self.order
        return HookCalled(kind=self.kind, hostlist=self.hostlist, called_at=self.called_at, jobs=self.jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledOrder:
    """Parse a file of `order.py`."""

    kind: str
    verb: Verb
    target: str
    by: str
    words: str
    until: float | None
    now: bool
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """Parse a file of `hook.py`."""

    kind: str
    hostlist: str
    resume_file: str | None
    pid: int
    time: float


def read(spool: Path) -> tuple[Call, ...]:
    """Return every readable request, oldest first. Broken files are moved to `broken/`."""
    calls: list[Call] = []
    for path in _listed(spool / "new"):
        try:
            calls.append(_parse(path))
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) not in _PASSING:  # the next pass reads the others
                _aside(spool, path)
    return tuple(calls)


def _listed(folder: Path) -> list[Path]:
    """Return the files in order of their names. `Path.glob` costs ten times as much, and each pass calls this."""
    try:
        return [folder / name for name in sorted(os.listdir(folder))]  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def done(calls: tuple[Call, ...]) -> None:
    """Remove requests that are in the journal. A missing file is not an error."""
    for call in calls:
        call.path.unlink(missing_ok=True)


def put(spool: Path, order: SpooledOrder, name: str) -> Path:
    """Write an order: complete and on disk, or not at all. The owner of the spool can read it."""
    draft, ready = spool / "tmp" / name, spool / "new" / name
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(json.dumps(codec.to_json(asdict(order))).encode())
        stream.flush()
        if os.geteuid() == 0:
            owner = (spool / "new").stat()
            os.fchown(stream.fileno(), owner.st_uid, owner.st_gid)
        os.fsync(stream.fileno())
    draft.rename(ready)
    folder = os.open(ready.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return ready


def prepare(spool: Path, now: float) -> None:
    """Create the folders and remove drafts of hooks that were killed."""
    for name in ("tmp", "new", "broken"):
        (spool / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    for draft in (spool / "tmp").glob("*"):
        with contextlib.suppress(FileNotFoundError):  # delivered at this moment
            if draft.stat().st_mtime + LEFT_OVER_S < now:
                draft.unlink()


def _parse(path: Path) -> Call:
    if path.stat().st_size > MAX_BYTES:
        raise ValueError("too large")
    value: Any = parse_json(path.read_bytes())
    if isinstance(value, dict) and cast(dict[str, Any], value).get("kind") == ORDER:
        return _order(path, codec.from_json(SpooledOrder, cast(object, value)))
    body = codec.from_json(_Request, cast(object, value))
    return Call(
        path=path,
        kind=body.kind,
        hostlist=body.hostlist,
        called_at=body.time,
        jobs=_jobs(body.resume_file),
    )


def _order(path: Path, body: SpooledOrder) -> Call:
    given = OrderGiven(
        verb=body.verb, target=body.target, by=body.by, words=body.words, until=body.until, now=body.now
    )
    return Call(path=path, kind=ORDER, hostlist=body.target, called_at=body.time, order=given)


def _jobs(text: str | None) -> tuple[int, ...]:
    """Return the job ids of a resume file; empty if it is unreadable, as Slurm is read anyway."""
    try:
        body: Any = parse_json(text) if text else {}
        return tuple(int(job["job_id"]) for job in body.get("jobs", ()))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return ()


def _aside(spool: Path, path: Path) -> None:
    try:
        (spool / "broken").mkdir(exist_ok=True)
        path.rename(spool / "broken" / path.name)
    except OSError:
        with contextlib.suppress(OSError):  # a file that cannot be removed is skipped in each pass
            path.unlink(missing_ok=True)
