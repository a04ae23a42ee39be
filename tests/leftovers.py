"""What a run of the engine left behind: processes of its state, and locks."""

import os
import threading
import time
from pathlib import Path

from stacked import Cluster


def pulumis_of(cluster: Cluster) -> list[int]:
    """Processes of this state: its folder stands in their environment."""
    mark = str(cluster.target.state_dir).encode()
    living: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if int(entry.parent.name) != os.getpid() and mark in entry.read_bytes():
                living.append(int(entry.parent.name))
        except OSError:
            continue
    return living


def await_none(cluster: Cluster, seconds: float = 20) -> list[int]:
    """What still lives after that long."""
    deadline, left = time.monotonic() + seconds, pulumis_of(cluster)
    while left and time.monotonic() < deadline:
        threading.Event().wait(0.1)
        left = pulumis_of(cluster)
    return left


def locks_of(cluster: Cluster) -> list[Path]:
    """The lock files of its backend."""
    return list(cluster.target.backend.rglob("locks/**/*.json"))
