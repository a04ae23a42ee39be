"""Where effects run: their results always come back to the one thread that owns the state."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Protocol, TypeVar

T = TypeVar("T")
Inbox = SimpleQueue[Callable[[], None]]  # what the owner's thread is to run


class Lane(Protocol):
    """Run `work` somewhere, then `done` with its answer in the owner's thread."""

    def submit(self, work: Callable[[], T], done: Callable[[T], None]) -> None: ...


class Inline:
    """At once, in the caller's thread: what tests use."""

    def submit(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        done(work())


class Threads:
    """A pool of `width` threads; 1 makes a serial lane. An unforeseen error is raised in the owner's thread."""

    def __init__(self, name: str, width: int, inbox: Inbox) -> None:
        self._pool = ThreadPoolExecutor(max_workers=width, thread_name_prefix=name)
        self._inbox = inbox

    def submit(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        def deliver(future: "Future[T]") -> None:
            self._inbox.put(lambda: done(future.result()))

        self._pool.submit(work).add_done_callback(deliver)

    def close(self) -> None:
        """Wait for what is under way; start nothing more."""
        self._pool.shutdown(wait=True, cancel_futures=True)
