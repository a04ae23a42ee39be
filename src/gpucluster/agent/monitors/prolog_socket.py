"""The Prolog's socket: before a job starts, the Prolog sends the job and waits until the names of its nodes resolve here.

Request and reply are one Unix datagram each. The request has three lines: the hostlist, the job's id, and Slurm's count
of its requeues. The reply is `ok`, with the number of runs that began before this one where Slurm's count is not that.
"""

import contextlib
import select
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Self

LONGEST = 65536


@dataclass(frozen=True, slots=True)
class PrologRequest:
    """A hostlist, the address for the reply, the job, and Slurm's count of its requeues."""

    hostlist: str
    caller: str | bytes  # bytes: an address that the kernel assigned
    job: int = 0
    restarts: int = 0


class PrologSocket:
    """A socket that only root can use."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        path.chmod(0o600)
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_sender.setblocking(False)  # a full buffer already wakes the reader

    def wait(self, seconds: float) -> PrologRequest | None:
        """Return the next request; None after `seconds`, or after `wake`."""
        ready = select.select([self._socket, self._wake_receiver], [], [], seconds)[0]
        if self._wake_receiver in ready:
            self._wake_receiver.recv(LONGEST)
        if self._socket not in ready:
            return None
        text, caller = self._socket.recvfrom(LONGEST)
        hostlist, *numbers = text.decode(errors="replace").split("\n")
        job, restarts = (int(one) if one.isascii() and one.isdigit() else 0 for one in (*numbers, "", "")[:2])
        return PrologRequest(hostlist, caller or b"", job, restarts)

    def wake(self) -> None:
        """End `wait` from any thread."""
        with contextlib.suppress(OSError):
            self._wake_sender.send(b"!")

    def reply(self, request: PrologRequest, text: str) -> None:
        """Send the reply. The Prolog may have ended already."""
        try:
            self._socket.sendto(text.encode(), request.caller)
        except OSError:
            return

    def close(self) -> None:
        for endpoint in (self._socket, self._wake_receiver, self._wake_sender):
            endpoint.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
