"""Who may act: one daemon at a time, by one object in the bucket that is written only over what was read.

Rules. *Holder*: acts from a write of its own until `ttl - margin` after the moment at which it sent that write, by its
own clock. *Standby*: takes over once it has itself seen one and the same version for `ttl + margin`, by its own clock,
and only over that version. So no two clocks are ever compared, and a pause in either only makes it later. A holder on
the same machine whose process is gone is taken over at once; one that froze there is ended first.
The clock must go on while the machine sleeps (CLOCK_BOOTTIME).
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from gpucluster.cloud.port import CloudError, Control, ControlPort, Stamped
from gpucluster.errors import StateError

MARGIN = 0.1  # of the ttl, on both sides: far above what two clocks part in so short a time
TRIES = 4  # writes in a row that another writer may spoil


class LeaseLostError(StateError):
    """Another daemon holds the lease: this one must end, and may start again as a standby."""


class Hold(Protocol):
    """What whoever acts asks, right before it acts."""

    def held(self) -> bool: ...

    def mine(self, control: Control) -> bool:
        """Whether the object, as it was read just now, names us."""
        ...


class Alone:
    """Always held: a dry run's, and of tests with one daemon."""

    me = "alone"

    def held(self) -> bool:
        return True

    def mine(self, control: Control) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """What can be known of another holder on this machine."""

    over: Callable[[str], bool]  # its process was here, and is gone
    end: Callable[[str], None]  # end it, if it is here and frozen


class Lease:
    """One daemon's side of it. `held` may be asked from any thread; all else from one at a time."""

    def __init__(
        self,
        control: ControlPort,
        me: str,
        ttl_s: float,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        neighbours: Neighbours,
        known_epoch: Callable[[], int],
        patient: bool = False,
    ) -> None:
        """`patient`: on the second head, where a lease that was given back is left to the first's for a while."""
        self._patient = patient
        self._port, self._me, self._ttl_s, self._margin_s = control, me, ttl_s, ttl_s * MARGIN
        self._clock, self._wall = clock, wall
        self._neighbours, self._known_epoch = neighbours, known_epoch
        self._seen: Stamped | None = None
        self._since = self._seen_at = 0.0  # when the version in `_seen` was seen first, and last
        self._until = float("-inf")
        self._over = threading.Event()
        self.epoch = 0

    @property
    def me(self) -> str:
        """Our name in the object."""
        return self._me

    def held(self) -> bool:
        """Whether we may act at this moment."""
        return not self._over.is_set() and self._clock() < self._until

    def mine(self, control: Control) -> bool:
        return bool(self.epoch) and (control.holder, control.epoch) == (self._me, self.epoch)

    @property
    def renew_every_s(self) -> float:
        return self._ttl_s / 3

    @property
    def watch_every_s(self) -> float:
        return min(2.0, self._ttl_s / 10)

    def watch(self) -> str:
        """A standby's look: take the lease if nobody has it. Return who has it, '' when it is ours now."""
        seen = self._look()
        if not self._is_free(seen):
            return seen.control.holder or _nobody(seen)
        self._neighbours.end(seen.control.holder)
        epoch = max(seen.control.epoch, self._known_epoch()) + 1
        if not self._write(replace(seen.control, holder=self._me, epoch=epoch, beat=0), seen.etag):
            return "another standby, which was faster"
        self.epoch = epoch
        return ""

    def renew(self) -> None:
        """Keep it. A CloudError lets it run on towards its end; LeaseLostError: it is another's."""
        for _ in range(TRIES):
            seen = self._seen
            if seen is None or not self.mine(seen.control):
                break
            if self._write(replace(seen.control, beat=seen.control.beat + 1), seen.etag):
                return
        else:
            return  # the object is ours, and others write into it all the time; the next renewal may come through
        self._over.set()
        holder = seen.control.holder if seen else ""
        raise LeaseLostError(
            f"the lease is held by {holder or 'nobody'}", next_step="it starts again as a standby"
        )

    def release(self) -> None:
        """Give it back, so that the next one need not wait. Act no more after this."""
        self._over.set()
        seen = self._seen
        if seen is not None and self.mine(seen.control):
            self._port.write(replace(seen.control, holder="", held_until=0.0), seen.etag)

    def _look(self) -> Stamped:
        """Read it, and note since when it stands so."""
        seen = self._port.stamped()
        now = self._clock()  # after the answer: whatever it shows was sent before
        if self._seen is None or seen.etag != self._seen.etag:
            self._since = now
        self._seen, self._seen_at = seen, now
        return seen

    def _is_free(self, seen: Stamped) -> bool:
        """A missing object is free at once only for a cluster's first daemon: else somebody may have deleted it."""
        if self._seen_at - self._since >= self._ttl_s + self._margin_s:
            return True
        if seen.etag is None:
            return not self._known_epoch()
        holder = seen.control.holder
        if not holder:
            return not self._patient
        return holder == self._me or self._neighbours.over(holder)  # ours: the answer to our write was lost

    def _write(self, control: Control, etag: str | None) -> bool:
        """Whether our write is what stands there; else `_seen` is what does."""
        sent = self._clock()
        control = replace(control, held_until=self._wall() + self._ttl_s)
        lost: CloudError | None = None
        try:
            written = self._port.write(control, etag)
        except CloudError as error:
            written, lost = None, error
        if written is None:
            seen = self._look()
            if seen.control != control:  # not ours with its answer lost
                if lost is not None and seen.etag == etag:
                    raise lost  # not written; it may be tried again
                return False
            written = seen.etag
        self._seen = Stamped(control=control, etag=written)
        self._until = sent + self._ttl_s - self._margin_s
        return True


def _nobody(seen: Stamped) -> str:
    """Who may act where no name stands: a head that comes, or whoever held it until the object went."""
    return "the head, if it comes," if seen.etag is not None else "the holder of an object that was deleted"
