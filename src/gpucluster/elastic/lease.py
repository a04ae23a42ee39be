"""The lease: only one daemon acts at a time. It is an object in the bucket; each write names the version that was read.

*Holder*: it acts until `ttl - margin` after it sent its last write, by its own clock. *Standby*: it takes the
lease after it has read one version for `ttl + margin`, by its own clock, and its write replaces only that version.
So two clocks are never compared, and a pause of either machine only delays a takeover. On the same machine, a standby
takes the lease of a process that has ended at once; a frozen process is killed first.
*Cut off*: the last holder while its time is over and it has seen no other holder. A process that slept looks first.
The clock must go on while the machine sleeps (CLOCK_BOOTTIME).
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Never, Protocol

from gpucluster.cloud.port import CloudError, Control, ControlPort, Stamped, malformed
from gpucluster.errors import StateError

MARGIN = 0.1  # of the ttl, on both sides: far more than two clocks differ in that time
TRIES = 4  # writes in a row that may lose against another writer


class LeaseLostError(StateError):
    """Another daemon holds the lease: this one must end, and may start again as a standby."""


class LeaseCheck(Protocol):
    """The check that comes right before each action."""

    def held(self) -> bool: ...

    def cut_off(self) -> bool:
        """Return whether this daemon was the last holder, and no answer and no epoch of the journal told of another."""
        ...

    def mine(self, control: Control) -> bool:
        """Return whether the object, as it was just read, names this daemon."""
        ...


class AlwaysHeld:
    """A lease that is always held: for a dry run, and for tests with one daemon."""

    me = "alone"
    epoch, last_epoch, first = None, 0, True  # as Lease; no epoch: the journal counts its own

    def held(self) -> bool:
        return True

    def cut_off(self) -> bool:
        return False

    def mine(self, control: Control) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalHolders:
    """Checks of a holder that runs, or ran, on this machine."""

    has_ended: Callable[[str], bool]  # whether its process ran on this machine and has ended
    kill: Callable[[str], None]  # kills its process if it is frozen on this machine


class Lease:
    """The lease as one daemon uses it.

    Any thread may call `held` and `cut_off`, the thread that owns the state calls `tick`, and one thread at a time the others.
    """

    def __init__(
        self,
        control: ControlPort,
        me: str,
        ttl_s: float,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        local_holders: LocalHolders,
        known_epoch: Callable[[], int],
        on_standby: bool = False,
        two_heads: bool = False,
    ) -> None:
        """`on_standby`: on the second head, which leaves a released lease to the first head for a while."""
        self._on_standby, self._two_heads = on_standby, two_heads
        self._port, self._me, self._ttl_s, self._margin_s = control, me, ttl_s, ttl_s * MARGIN
        self._clock, self._wall = clock, wall
        self._local_holders, self._known_epoch = local_holders, known_epoch
        self._seen: Stamped | None = None
        self._since = self._seen_at = (
            0.0  # the times of the first and the last read of the version in `_seen`
        )
        self._until = float("-inf")
        self._ticked_at = float("inf")
        self._woke_at = float("-inf")  # the end of the last pause of this process
        self._looked_at = float("-inf")  # the begin of the last renewal that has ended
        self._over = threading.Event()
        self._mine = Control()  # our last write
        self.epoch = 0
        self.last_epoch = (
            0  # of the last daemon that certainly opened the journal; one that never renewed may not have
        )
        self.first = False  # no daemon of this cluster has acted before

    @property
    def me(self) -> str:
        """This daemon's name in the object."""
        return self._me

    def held(self) -> bool:
        """Return whether this daemon may act now."""
        return not self._over.is_set() and self._clock() < self._until

    def cut_off(self) -> bool:
        """See LeaseCheck. With two heads it is never so: the other one may have taken over, with the other slurmctld."""
        now, ticked_at = self._clock(), self._ticked_at
        last_holder = bool(self.epoch) and not self._over.is_set() and not self._two_heads
        if not last_holder or now < self._until:
            return False
        slept = now - ticked_at > self.renew_every_s or self._looked_at < self._woke_at
        return not slept and self._known_epoch() <= self.epoch

    def tick(self) -> None:
        """Note that this process goes on. After a pause in which a renewal was due, another daemon may be the holder."""
        now = self._clock()
        if now - self._ticked_at > self.renew_every_s:
            self._woke_at = now
        self._ticked_at = now

    def mine(self, control: Control) -> bool:
        return bool(self.epoch) and (control.holder, control.epoch) == (self._me, self.epoch)

    @property
    def renew_every_s(self) -> float:
        return self._ttl_s / 3

    @property
    def watch_every_s(self) -> float:
        return min(2.0, self._ttl_s / 10)

    def watch(self) -> str:
        """Take the lease if it is free. Return its holder; empty: this daemon."""
        seen = self._read()
        lost = seen.malformed or seen.etag is None
        last = (self._port.last_readable() or Control()) if lost else seen.control
        if not self._is_free(seen, last):
            return seen.control.holder or _nobody(seen)
        self._local_holders.kill(seen.control.holder)
        epoch = max(last.epoch, self._known_epoch()) + 1
        renewed = last.epoch if last.beat else last.renewed
        mine = replace(last, holder=self._me, epoch=epoch, beat=0, renewed=renewed)
        if not self._write(mine, seen.etag):
            return "another standby, which was faster"
        self.epoch, self.last_epoch = epoch, renewed
        self.first = not seen.malformed and not renewed
        return ""

    def renew(self) -> None:
        """Renew the lease. CloudError: not renewed, and still held until its end. LeaseLostError: another daemon holds it."""
        began = self._clock()
        try:
            self._renew()
        finally:
            self._looked_at = began

    def _renew(self) -> None:
        for _ in range(TRIES):
            seen = self._seen
            if seen is not None and seen.malformed:
                self._replace_malformed(self._read())
                continue
            if seen is None or not self.mine(seen.control):
                break
            if self._write(replace(seen.control, beat=seen.control.beat + 1), seen.etag):
                return
        else:
            return  # the object is ours, and others keep writing into it; the next renewal may succeed
        self._end(seen.control.holder if seen else "")

    def _end(self, holder: str) -> Never:
        self._over.set()
        raise LeaseLostError(
            f"the lease is held by {holder or 'nobody'}", next_step="systemd starts it again as a standby"
        )

    def _replace_malformed(self, seen: Stamped) -> None:
        """Write the object anew if nobody else did so in the lease's time. CloudError: it is too early, or not written.

        LeaseLostError: another daemon took the lease before the damage.
        """
        if not seen.malformed:
            return
        last = self._port.last_readable() or self._mine
        if last.epoch > self.epoch or last.holder not in ("", self._me):
            self._end(last.holder)
        if not self._is_free(seen, last):
            raise malformed(seen.malformed)
        mine = replace(self._mine, scaling=last.scaling, by=last.by, beat=self._mine.beat + 1)
        self._write(mine, seen.etag)

    def release(self) -> None:
        """Release the lease, so that the next daemon need not wait. This daemon must not act after it."""
        self._over.set()
        seen = self._seen
        if seen is not None and self.mine(seen.control):
            self._port.write(replace(seen.control, holder="", held_until=0.0), seen.etag)

    def _read(self) -> Stamped:
        """Read the object, and record the time of the first read of this version."""
        seen = self._port.stamped()
        now = self._clock()  # the time after the answer: the write happened earlier
        if self._seen is None or seen.etag != self._seen.etag:
            self._since = now
        self._seen, self._seen_at = seen, now
        return seen

    def _is_free(self, seen: Stamped, last: Control) -> bool:
        """A missing object is free at once only for the first daemon of a cluster. Later, a person may have deleted it.

        `last`: the last content that can be read.
        """
        if self._seen_at - self._since >= self._ttl_s + self._margin_s:
            return True
        if seen.malformed:
            return False
        if seen.etag is None:
            return not (last.epoch or self._known_epoch())
        holder = seen.control.holder
        if not holder:
            return not self._on_standby
        return holder == self._me or self._local_holders.has_ended(
            holder
        )  # our own name: the answer to our write was lost

    def _write(self, control: Control, etag: str | None) -> bool:
        """Return whether the object has our write; if not, `_seen` has the object's content."""
        sent = self._clock()
        control = replace(control, held_until=self._wall() + self._ttl_s)
        lost: CloudError | None = None
        try:
            written = self._port.write(control, etag)
        except CloudError as error:
            written, lost = None, error
        if written is None:
            seen = self._read()
            if seen.control != control:  # equal: our write succeeded, and only its answer was lost
                if lost is not None and seen.etag == etag:
                    raise lost  # not written; the caller may try again
                return False
            written = seen.etag
        self._mine = control
        self._seen = Stamped(control=control, etag=written)
        self._until = sent + self._ttl_s - self._margin_s
        return True


def _nobody(seen: Stamped) -> str:
    """Describe the lease if the object names no holder: it was released for the first head, or the object was deleted."""
    if seen.malformed:
        return "the holder of a damaged object"
    return "the first head, if it starts," if seen.etag is not None else "the holder of a deleted object"
