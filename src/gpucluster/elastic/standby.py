"""A daemon that waits for the lease: it reads the control object, and has neither the journal nor a socket open."""

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

from gpucluster.cloud.port import CloudError, ControlPort
from gpucluster.elastic import lease_holder
from gpucluster.elastic.journal import fence_of
from gpucluster.elastic.lease import Lease, LocalHolders
from gpucluster.elastic.notifier import STANDBY, Notifier

log = logging.getLogger("gpucluster.elastic")


def lease_of(
    control: ControlPort,
    ttl_s: float,
    journal: Path,
    wall: Callable[[], float],
    *,
    on_standby: bool = False,
    two_heads: bool = False,
) -> Lease:
    """Return this process's side of the lease."""
    return Lease(
        control,
        lease_holder.me(),
        ttl_s,
        clock=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        wall=wall,
        local_holders=LocalHolders(has_ended=lease_holder.is_over, kill=lease_holder.end),
        known_epoch=lambda: fence_of(journal),
        on_standby=on_standby,
        two_heads=two_heads,
    )


class Standby:
    """Waits until this process holds the lease, and ticks in each round."""

    def __init__(self, lease: Lease, notifier: Notifier) -> None:
        self._lease, self._notifier = lease, notifier
        self._ends: SimpleQueue[None] = SimpleQueue()  # its `put` is reentrant: signal handlers call it
        self._logged = ""
        self.stopped = False

    def stop(self) -> None:
        """End `wait`; a signal handler may call this."""
        self.stopped = True
        self._ends.put(None)

    def wait(self) -> bool:
        """Wait, and return True with the lease; False after `stop`."""
        while not self.stopped:
            self._notifier.tick()
            self._lease.tick()
            try:
                holder = self._lease.watch()
                if not holder:
                    return True
                self._tell(f"{holder} holds the lease")
            except CloudError as error:
                self._tell(f"the control object: {error}")
            with contextlib.suppress(Empty):
                self._ends.get(timeout=self._lease.watch_every_s)
        return False

    def _tell(self, words: str) -> None:
        self._notifier.status(f"{STANDBY}{words}")
        if words != self._logged:
            log.info("%s%s", STANDBY, words)
        self._logged = words
