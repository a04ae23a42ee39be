"""The leftovers of an engine run: processes of its state, and locks."""

import os
from pathlib import Path

from support.engine_stack import Cluster
from support.waiting import eventually


def pulumis_of(cluster: Cluster) -> list[int]:
    """Processes of this state: their environment contains its folder."""
    mark = str(cluster.target.state_dir).encode()
    living: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if int(entry.parent.name) != os.getpid() and mark in entry.read_bytes():
                living.append(int(entry.parent.name))
        except OSError:
            continue
    return living


def await_none(cluster: Cluster) -> None:
    """Wait until all of them have ended; AssertionError with the state and command of those that still run."""

    def left() -> str:
        return "\n".join(_told(Path("/proc", str(pid))) for pid in pulumis_of(cluster))

    eventually("no process of the engine is left", lambda: not pulumis_of(cluster), picture=left)


def _told(process: Path) -> str:
    try:
        state = process.joinpath("stat").read_text().rpartition(")")[2].split()[0]
        return f"{process.name} {state} {process.joinpath('cmdline').read_text().replace(chr(0), ' ')}"
    except OSError:
        return f"{process.name} has ended since"


def locks_of(cluster: Cluster) -> list[Path]:
    """The lock files of its backend."""
    return list(cluster.target.backend.rglob("locks/**/*.json"))
