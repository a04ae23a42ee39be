"""The copy of orders, budget and spend in the bucket: who reads and writes it, and when.

The journal has each change first. The copy is written after it, in another thread, so that no launch waits for it. At its
start the daemon reads the copy before its first pass: a journal of yesterday may lack the pause of today.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from gpucluster.cloud.port import CloudError, ObjectPort, StampedBody
from gpucluster.elastic import intent
from gpucluster.elastic.events import Entry
from gpucluster.elastic.executors import Executor
from gpucluster.elastic.intent import Intent
from gpucluster.elastic.journal import Journal
from gpucluster.elastic.lease import LeaseCheck
from gpucluster.elastic.log_lines import describe
from gpucluster.elastic.status_endpoint import CopyState

SPEND_S = 600.0  # between two copies of the spend alone; an order is copied at once
AGAIN_S = 10.0  # after a call that failed
NO_COPY = "there is no copy"
log = logging.getLogger("gpucluster.elastic")


class IntentCopy:
    """Owned by the daemon's thread; only the calls of the port run elsewhere."""

    def __init__(
        self,
        port: ObjectPort,
        executor: Executor,
        journal: Journal,
        lease: LeaseCheck,
        *,
        clock: Callable[[], float],
        publish: Callable[[CopyState], None],
        first: bool = False,
    ) -> None:
        """`first`: no daemon has acted before, as far as the control object tells: without a copy, nothing is lost."""
        self._port, self._executor, self._journal, self._lease = port, executor, journal, lease
        self._clock, self._publish, self._first = clock, publish, first
        self._known = False  # whether `_etag` is that of the last version
        self._etag: str | None = None
        self._copied: Intent | None = None
        self._copied_at = self._next_at = 0.0
        self._busy = False
        self._state = CopyState()

    def start(self) -> None:
        """Read the copy now, and wait for it. Without an answer `step` tries again."""
        self._received(self._read())

    def step(self) -> None:
        """Read or write the copy if that is due. For each turn of the daemon."""
        now = self._clock()
        current = intent.intent_of(self._journal.memory, now)
        self._show_waiting(current, now)
        if self._busy or (now < self._next_at and self._next_at - now <= AGAIN_S) or not self._lease.held():
            return
        if not self._known:
            self._submit(self._read, self._received)
        elif self._journal.memory.unrestored_since is None and self._is_due(current, now):
            self._write(current, now)

    def _is_due(self, current: Intent, now: float) -> bool:
        if self._copied is None or current.without_spend != self._copied.without_spend:
            return True
        return current.spent != self._copied.spent and not 0 <= now - self._copied_at < SPEND_S

    def _write(self, current: Intent, now: float) -> None:
        try:
            body = intent.encode(current)
        except ValueError as error:
            self._failed(f"it cannot be written: {error}")
            return
        etag = self._etag

        def written() -> str | CloudError | None:
            if not self._lease.held():
                return None
            try:
                return self._port.write(body, etag)
            except CloudError as error:
                return error

        def done(answer: str | CloudError | None) -> None:
            if isinstance(answer, str):
                self._etag, self._copied, self._copied_at = answer, current, now
                self._show(replace(self._state, error=""))
                self._show_waiting(intent.intent_of(self._journal.memory, now), now)
                return
            self._known = False  # another daemon wrote it, or the answer was lost: it is read first
            if answer is not None:
                self._failed(f"it cannot be written: {answer}")

        self._submit(written, done)

    def _read(self) -> StampedBody | CloudError:
        try:
            return self._port.read()
        except CloudError as error:
            return error

    def _received(self, answer: StampedBody | CloudError) -> None:
        if isinstance(answer, CloudError):
            self._failed(f"it cannot be read: {answer}")
            return
        self._known, self._etag, self._copied = True, answer.etag, None
        if answer.body is None and not self._first:
            self._useless(NO_COPY)
            return
        try:
            copied = intent.decode(answer.body) if answer.body is not None else Intent()
        except ValueError as error:
            self._useless(f"it cannot be read: {error}")
            return
        now = self._clock()
        news = intent.restored(self._journal.memory, copied, now)
        if news is not None:
            self._journal.append((Entry(at=now, event=news),))
            log.info("%s", describe(news))
        self._copied, self._copied_at = copied, now
        self._show(replace(self._state, error=""))

    def _useless(self, words: str) -> None:
        """A daemon with a journal writes the copy anew. Another one reads it again: a person may restore an old version."""
        self._known = self._journal.memory.unrestored_since is None
        if self._known:
            self._show(replace(self._state, error=""))
        else:
            self._failed(words)

    def _submit(self, work: Callable[[], object], done: Callable[..., None]) -> None:
        def ended(answer: object) -> None:
            self._busy = False
            done(answer)

        self._busy = True
        self._executor.submit(work, ended)

    def _failed(self, words: str) -> None:
        self._next_at = self._clock() + AGAIN_S
        self._show(replace(self._state, error=words))

    def _show_waiting(self, current: Intent, now: float) -> None:
        """Publish since when the journal has orders that the copy lacks."""
        copied = self._copied.without_spend if self._copied is not None else Intent()
        waits = current.without_spend != copied
        since = self._state.waits_since
        if waits is (since is None):
            self._show(replace(self._state, waits_since=now if waits else None))

    def _show(self, state: CopyState) -> None:
        if state != self._state:
            self._state = state
            self._publish(state)
