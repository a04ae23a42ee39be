"""The reader's side of the hooks' maildir: new -> read -> removed; a broken file goes aside and never blocks."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpucluster.plan import codec

MAX_BYTES = 80 * 1024 * 1024  # above the hook's own bound
LEFT_OVER_S = 3600.0  # a draft older than this belongs to a hook that was killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One hook's request; `hostlist` as Slurm gave it, unexpanded."""

    path: Path
    kind: str
    hostlist: str
    called_at: float
    jobs: tuple[int, ...]


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
        except (OSError, ValueError):
            _aside(spool, path)
    return tuple(calls)


def done(calls: tuple[Call, ...]) -> None:
    """Remove requests that the journal has; a second removal is no fault."""
    for call in calls:
        call.path.unlink(missing_ok=True)


def prepare(spool: Path, now: float) -> None:
    """Make the folders and sweep drafts of hooks that were killed."""
    for name in ("tmp", "new", "broken"):
        (spool / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    for draft in (spool / "tmp").glob("*"):
        if draft.stat().st_mtime + LEFT_OVER_S < now:
            draft.unlink(missing_ok=True)


def _parse(path: Path) -> Call:
    if path.stat().st_size > MAX_BYTES:
        raise ValueError("too large")
    body = codec.loads(_Request, path.read_bytes())
    return Call(
        path=path,
        kind=body.kind,
        hostlist=body.hostlist,
        called_at=body.time,
        jobs=_jobs(body.resume_file),
    )


def _jobs(text: str | None) -> tuple[int, ...]:
    """The job ids of a resume file; what it cannot tell is read from Slurm anyway."""
    try:
        body: Any = json.loads(text) if text else {}
        return tuple(int(job["job_id"]) for job in body.get("jobs", ()))
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()


def _aside(spool: Path, path: Path) -> None:
    try:
        (spool / "broken").mkdir(exist_ok=True)
        path.rename(spool / "broken" / path.name)
    except OSError:
        with contextlib.suppress(OSError):  # what cannot even be removed is passed by each time
            path.unlink(missing_ok=True)
