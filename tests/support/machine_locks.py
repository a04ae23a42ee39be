"""Test runs beside each other on one machine: who may use a name, and how many clusters run at once.

Each lock is a file that its process holds with flock, so it ends with the process, however that ends. Beside the lock of
a test file stands the ledger of the sandboxes that the file brings up: the next run of the file takes down what a killed
run left. The folder belongs to root, as the sandboxes do.
"""

import fcntl
import os
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from gpucluster.sandbox.requirements import INOTIFY_EACH, LEAST_MACHINES, inotify_used
from support.waiting import eventually

FOLDER = Path("/var/lib/gpucluster-tests")
LEAST = LEAST_MACHINES * INOTIFY_EACH  # inotify instances without which no sandbox starts
MOST = 6  # clusters at once, whatever the limit of inotify
POLL_S, LONGEST_S = 0.5, 7200.0  # two whole runs side by side take turns
Say = Callable[[str], None]


def inotify_limit() -> int:
    return int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())


def inotify_free() -> int:
    return inotify_limit() - inotify_used()


def say(words: str) -> None:
    """Past pytest's capture, so that a run that waits says so."""
    sys.__stderr__.write(f"{words}\n")  # pyright: ignore[reportOptionalMemberAccess]


@contextmanager
def one_of(names: Iterable[str], what: str, *, folder: Path = FOLDER, say: Say = say) -> Generator[str]:
    """Hold one of these locks during the block; wait, and say so, if other processes hold them all."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = [folder / f"{name}.lock" for name in names]
    with _turn(folder / f"{paths[0].stem}.turn", what, say):
        if (held := _free(paths)) is None:
            say(f"waiting for {what}: another run of the tests on this machine has it")
            held = eventually(what, lambda: _free(paths), within=LONGEST_S, poll=POLL_S, later=0)
    path, descriptor = held
    try:
        yield path.stem
    finally:
        os.close(descriptor)


@contextmanager
def room(
    what: str, *, folder: Path = FOLDER, free: Callable[[], int] = inotify_free, say: Say = say
) -> Generator[None]:
    """Hold the room of a cluster during the block. Others on the machine, or larger clusters, may leave too little."""
    with one_of(slots(), f"room for {what}", folder=folder, say=say):
        if free() < LEAST:
            say(f"waiting for {LEAST} inotify instances for {what}: {free()} are free")
            eventually("inotify instances", lambda: free() >= LEAST, within=LONGEST_S, poll=POLL_S, later=0)
        yield


def slots() -> list[str]:
    """The names of the clusters that may run at once: each machine needs inotify instances of root's."""
    limit = inotify_limit()
    return [f"slot-{n}" for n in range(max(1, min(MOST, limit // LEAST)))]


class Ledger:
    """The sandboxes that a test file may have brought up."""

    def __init__(self, name: str, folder: Path = FOLDER) -> None:
        self._file = folder / f"{name}.sandboxes"

    def names(self) -> list[str]:
        return self._file.read_text().split() if self._file.exists() else []

    def add(self, sandbox: str) -> None:
        """Before its `up`."""
        if sandbox not in self.names():
            with self._file.open("a") as file:
                file.write(f"{sandbox}\n")

    def clear(self) -> None:
        self._file.unlink(missing_ok=True)


@contextmanager
def _turn(path: Path, what: str, say: Say) -> Generator[None]:
    """Hold the only place from which a lock is taken. The kernel gives it in the order of arrival, so nobody waits for ever."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for {what}: others wait for it, too")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _free(paths: Iterable[Path]) -> tuple[Path, int] | None:
    for path in paths:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        return path, descriptor
    return None
