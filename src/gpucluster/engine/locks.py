"""What a killed run left in the file backend: its lock, removed only when its owner is provably gone, and cut-off files."""

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gpucluster.engine.target import PROJECT, Target
from gpucluster.errors import StateError


@dataclass(frozen=True, slots=True)
class Lock:
    """One lock file, and who wrote it."""

    path: Path
    host: str
    pid: int


def break_stale(target: Target) -> tuple[Path, ...]:
    """Remove what dead runs on this host left half done; StateError while another run holds a lock."""
    stale = locks(target)
    for lock in stale:
        if lock.host != socket.gethostname():
            raise StateError(
                f"the state of {target.stack!r} is locked by process {lock.pid} on {lock.host!r}",
                next_step=f"if that run is over, remove {lock.path}",
            )
        if _is_pulumi(lock.pid):
            raise StateError(
                f"another run (process {lock.pid}) is working on {target.stack!r}",
                next_step="wait for its end, or interrupt it with Ctrl-C",
            )
    for lock in stale:
        lock.path.unlink(missing_ok=True)
    return (*(lock.path for lock in stale), *_drop_cut_off(target))


def locks(target: Target) -> tuple[Lock, ...]:
    """The lock files of the stack; an unreadable one counts as nobody's."""
    folder = target.backend / ".pulumi" / "locks" / "organization" / PROJECT / target.stack
    return tuple(_parse(path) for path in sorted(folder.glob("*.json")))


def _drop_cut_off(target: Target) -> tuple[Path, ...]:
    """The backend swaps a checkpoint in one rename, but not the attributes beside it: cut off, they are `EOF` for ever.

    They hold only a content type and a checksum of the file, and are not needed to read it.
    """
    folder = target.backend / ".pulumi" / "stacks" / PROJECT
    broken = tuple(path for path in sorted(folder.glob(f"{target.stack}.json*.attrs")) if not _is_json(path))
    for path in broken:
        path.unlink()
    return broken


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


def _parse(path: Path) -> Lock:
    try:
        content = cast(Mapping[str, Any], json.loads(path.read_text()))
        return Lock(path, str(content["hostname"]), int(content["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Lock(path, socket.gethostname(), 0)  # cut off while it was written


def _is_pulumi(pid: int) -> bool:
    """A process id is used again; only the program's name says whether it is still that run."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.startswith("pulumi")
    except OSError:
        return False
