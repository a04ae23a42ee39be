"""Remove the lock files that a killed run leaves in the file backend."""

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
    """One lock file, its host and its process id."""

    path: Path
    host: str
    pid: int


def break_stale(target: Target) -> tuple[Path, ...]:
    """Remove and return the locks of dead runs on this host. Raise StateError while another run holds a lock."""
    stale = locks(target)
    for lock in stale:
        if lock.host != socket.gethostname():
            raise StateError(
                f"the state of {target.stack!r} is locked by process {lock.pid} on {lock.host!r}",
                next_step=f"if that run is over, remove {lock.path}",
            )
        if _is_pulumi(lock.pid):
            raise StateError(
                f"another run (process {lock.pid}) uses {target.stack!r}",
                next_step="wait for its end, or interrupt it with Ctrl-C",
            )
    for lock in stale:
        lock.path.unlink(missing_ok=True)
    return tuple(lock.path for lock in stale)


def locks(target: Target) -> tuple[Lock, ...]:
    """Return the lock files of the stack. An unreadable file has process id 0, so it counts as stale."""
    folder = target.backend / ".pulumi" / "locks" / "organization" / PROJECT / target.stack
    return tuple(_parse(path) for path in sorted(folder.glob("*.json")))


def _parse(path: Path) -> Lock:
    try:
        content = cast(Mapping[str, Any], json.loads(path.read_text()))
        return Lock(path, str(content["hostname"]), int(content["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Lock(path, socket.gethostname(), 0)  # the writer was killed while it wrote the file


def _is_pulumi(pid: int) -> bool:
    """Return whether the process is Pulumi. Linux reuses process ids, so the program's name is checked, too."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.startswith("pulumi")
    except OSError:
        return False
