"""Executors of calls with effects. The results come back to the one thread that owns the state."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Protocol, TypeVar

T = TypeVar("T")
Inbox = SimpleQueue[Callable[[], None]]  # calls for the owner's thread


class Executor(Protocol):
    """Runs `work` in some thread, then `done` with its result in the owner's thread."""

    def submit(self, work: Callable[[], T], done: Callable[[T], None]) -> None: ...


class InlineExecutor:
    """Runs at once in the caller's thread, for tests."""

    def submit(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        done(work())


class ThreadExecutor:
    """A pool of `width` threads; with 1 it is serial. An error of `work` is raised in the owner's thread."""

    def __init__(self, name: str, width: int, inbox: Inbox) -> None:
        self._pool = ThreadPoolExecutor(max_workers=width, thread_name_prefix=name)
        self._inbox = inbox

    def submit(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        def deliver(future: "Future[T]") -> None:
            self._inbox.put(lambda: done(future.result()))

        self._pool.submit(work).add_done_callback(deliver)

    def close(self) -> None:
        """Start no more calls, and wait for the running ones."""
        self._pool.shutdown(wait=True, cancel_futures=True)
