"""Tell systemd that the daemon lives, and what it does: sd_notify(3), with the standard library alone."""

import contextlib
import socket
import threading
import time
from collections.abc import MutableMapping

from gpucluster.text import short

# WatchdogSec= of the unit: systemd kills a daemon that has not ticked for so long, and starts it again. It is above the
# longest wait between two ticks, which `tests/unit/elastic/test_notifier.py` adds up from the limits of the code:
# - A turn of the daemon: SCAN_S for the inbox, and six writes of the journal (the result of a call, the spool, and for two
#   passes the facts and a snapshot), each with two statements that may wait BUSY_S for a lock: 61 s. A longer wait for one
#   lock ends the daemon. A pass writes once more for each gang that fails. scontrol, EC2, S3 and SQS have other threads.
# - A waiting daemon ticks before each call of S3 (83 s, `cloud/control.py`) and pauses for 2 s.
# A disk, or an NFS server, that does not end a write for longer counts as a frozen daemon. The journal has the intents, so
# a kill loses no launch.
WATCHDOG_S = 120
TICK_S = 1.0  # pause between two ticks: a burst has a thousand turns a second, and each tick wakes systemd
SEND_S = 1.0  # the longest wait for systemd; a lost tick is followed by the next
LONGEST = 300  # characters of a status
ACTS, STANDBY, NO_LEASE, ENDS = "acts", "standby: ", "no lease: ", "ends"  # how a status begins


class Notifier:
    """Sends to systemd. Only the thread that creates it ticks: a daemon whose own thread is frozen must not look alive."""

    def __init__(self, address: str = "") -> None:
        """`address`: a path, or `@NAME` in the abstract namespace; empty: systemd does not watch this process."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._owner = threading.get_ident()
        self._ticked_at = float("-inf")
        self._status = ""

    @classmethod
    def from_environ(cls, environ: MutableMapping[str, str]) -> "Notifier":
        """Return the notifier of this process. The programs that it starts must not send, so they do not get the address."""
        for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
            environ.pop(name, None)
        return cls(environ.pop("NOTIFY_SOCKET", ""))

    def ready(self) -> None:
        """End the start of the unit: from now on systemd waits for ticks."""
        self._send("READY=1")

    def tick(self) -> None:
        """Tell systemd that the owner's thread goes on. A call of another thread does nothing."""
        now = time.monotonic()
        if threading.get_ident() == self._owner and now - self._ticked_at >= TICK_S:
            self._ticked_at = now
            self._send("WATCHDOG=1")

    def status(self, words: str) -> None:
        """Show what the daemon does in `systemctl status`. One line, so that no text of others becomes a command."""
        line = short(words, LONGEST)
        if line != self._status:
            self._status = line
            self._send(f"STATUS={line}")

    def stopping(self) -> None:
        """Tell systemd that the daemon ends by itself: from now on TimeoutStopSec= counts, not the watchdog."""
        self.status(ENDS)
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(SEND_S)
            sender.sendto(message.encode(), self._address)
