"""A sandbox's name held while it is brought up; whatever fails leaves nothing of the try."""

import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from gpucluster.sandbox import ledger
from gpucluster.sandbox.host import CgroupTree
from gpucluster.sandbox.ledger import Home


@contextmanager
def claimed(home: Home, trees: Iterable[CgroupTree], progress: Callable[[str], None]) -> Generator[int]:
    """Hold the lock, whose descriptor the capsule inherits; on any exception remove every file and group."""
    held = tuple(trees)
    lock = ledger.claim(home)
    try:
        ledger.empty(home, held)
        yield lock
    except BaseException:
        with _undisturbed():
            ledger.clean(home, held)
        progress(f"the sandbox '{home.name}' is not up; nothing of this try is left running or on disk")
        raise
    finally:
        os.close(lock)


@contextmanager
def _undisturbed() -> Generator[None]:
    """A second Ctrl-C must not stop the cleaning after the first; it takes a second at most."""
    if (
        threading.current_thread() is not threading.main_thread()
    ):  # Python takes signals in the main one alone
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
