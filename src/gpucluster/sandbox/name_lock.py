"""A lock on a sandbox's name while it is created. A failed creation leaves nothing."""

import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from gpucluster.sandbox import state_dir
from gpucluster.sandbox.host_checks import CgroupTree
from gpucluster.sandbox.state_dir import SandboxDir


@contextmanager
def claimed(home: SandboxDir, trees: Iterable[CgroupTree], progress: Callable[[str], None]) -> Generator[int]:
    """Hold the lock; the capsule inherits its descriptor. After an exception remove every file and group."""
    groups = tuple(trees)
    lock = state_dir.claim(home)
    try:
        state_dir.empty(home, groups)
        yield lock
    except BaseException:
        with _undisturbed():
            state_dir.clean(home, groups)
        progress(f"the sandbox '{home.name}' is not up; nothing of this try is left running or on disk")
        raise
    finally:
        os.close(lock)


@contextmanager
def _undisturbed() -> Generator[None]:
    """Ignore further Ctrl-C during the cleaning, which takes a second at most."""
    if (
        threading.current_thread() is not threading.main_thread()
    ):  # Python handles signals only in the main thread
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
