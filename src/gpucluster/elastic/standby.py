"""A daemon that waits for its turn: it reads the control object, and has neither journal nor socket open."""

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

from gpucluster.cloud.port import CloudError, ControlPort
from gpucluster.elastic import process
from gpucluster.elastic.journal import fence_of
from gpucluster.elastic.lease import Lease, Neighbours

log = logging.getLogger("gpucluster.elastic")


def lease_of(
    control: ControlPort, ttl_s: float, journal: Path, wall: Callable[[], float], *, patient: bool = False
) -> Lease:
    """This process's side of the lease."""
    return Lease(
        control,
        process.me(),
        ttl_s,
        clock=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        wall=wall,
        neighbours=Neighbours(over=process.is_over, end=process.end),
        known_epoch=lambda: fence_of(journal),
        patient=patient,
    )


class Standby:
    """Waits for the lease."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._ends: SimpleQueue[None] = SimpleQueue()  # its `put` can be entered again, by a signal
        self._said = ""
        self.told_to_end = False

    def stop(self) -> None:
        """End `wait`; a signal may call."""
        self.told_to_end = True
        self._ends.put(None)

    def wait(self) -> bool:
        """Until the lease is ours; False: told to end."""
        while not self.told_to_end:
            try:
                holder = self._lease.watch()
                if not holder:
                    return True
                self._say(f"standby: {holder} may act")
            except CloudError as error:
                self._say(f"standby: the control object: {error}")
            with contextlib.suppress(Empty):
                self._ends.get(timeout=self._lease.watch_every_s)
        return False

    def _say(self, words: str) -> None:
        if words != self._said:
            log.info("%s", words)
        self._said = words
