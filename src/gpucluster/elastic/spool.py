"""The maildir of hooks and operators: new -> read -> removed; a broken file goes aside and never blocks."""

import contextlib
import errno
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from gpucluster.elastic.events import HookCalled, Ordered, Verb
from gpucluster.plan import codec

ORDER = "order"  # the kind of an operator's request; all others are hooks'
MAX_BYTES = 80 * 1024 * 1024  # above the hook's own bound
LEFT_OVER_S = 3600.0  # a draft older than this belongs to a hook that was killed
_PASSING = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR, errno.EAGAIN}
)  # ours, not the file's


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request; `hostlist` as Slurm gave it, unexpanded, or what an order is about."""

    path: Path
    kind: str
    hostlist: str
    called_at: float
    jobs: tuple[int, ...] = ()
    order: Ordered | None = None

    @property
    def event(self) -> HookCalled | Ordered:
        """What the journal takes."""
        if self.order is not None:
            return self.order
        return HookCalled(kind=self.kind, hostlist=self.hostlist, called_at=self.called_at, jobs=self.jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What `order.py` writes."""

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
    """What `hook.py` writes."""

    kind: str
    hostlist: str
    resume_file: str | None
    pid: int
    time: float


def read(spool: Path) -> tuple[Call, ...]:
    """Every readable request, oldest first. Broken ones are moved to `broken/` on the way."""
    calls: list[Call] = []
    for path in sorted((spool / "new").glob("*")):
        try:
            calls.append(_parse(path))
        except (OSError, ValueError, RecursionError) as error:
            if getattr(error, "errno", None) not in _PASSING:  # else it waits for the next look
                _aside(spool, path)
    return tuple(calls)


def done(calls: tuple[Call, ...]) -> None:
    """Remove requests that the journal has; a second removal is no fault."""
    for call in calls:
        call.path.unlink(missing_ok=True)


def put(spool: Path, order: Order, name: str) -> Path:
    """Give an order: whole and on disk, or not there at all; the spool's owner can read it, whoever we are."""
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
    """Make the folders and sweep drafts of hooks that were killed."""
    for name in ("tmp", "new", "broken"):
        (spool / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    for draft in (spool / "tmp").glob("*"):
        with contextlib.suppress(FileNotFoundError):  # delivered this very moment
            if draft.stat().st_mtime + LEFT_OVER_S < now:
                draft.unlink()


def _parse(path: Path) -> Call:
    if path.stat().st_size > MAX_BYTES:
        raise ValueError("too large")
    value: Any = json.loads(path.read_bytes())
    if isinstance(value, dict) and cast(dict[str, Any], value).get("kind") == ORDER:
        return _order(path, codec.from_json(Order, cast(object, value)))
    body = codec.from_json(_Request, cast(object, value))
    return Call(
        path=path,
        kind=body.kind,
        hostlist=body.hostlist,
        called_at=body.time,
        jobs=_jobs(body.resume_file),
    )


def _order(path: Path, body: Order) -> Call:
    given = Ordered(
        verb=body.verb, target=body.target, by=body.by, words=body.words, until=body.until, now=body.now
    )
    return Call(path=path, kind=ORDER, hostlist=body.target, called_at=body.time, order=given)


def _jobs(text: str | None) -> tuple[int, ...]:
    """The job ids of a resume file; what it cannot tell is read from Slurm anyway."""
    try:
        body: Any = json.loads(text) if text else {}
        return tuple(int(job["job_id"]) for job in body.get("jobs", ()))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return ()


def _aside(spool: Path, path: Path) -> None:
    try:
        (spool / "broken").mkdir(exist_ok=True)
        path.rename(spool / "broken" / path.name)
    except OSError:
        with contextlib.suppress(OSError):  # what cannot even be removed is passed by each time
            path.unlink(missing_ok=True)
