"""The Prolog's question before a job starts here: do the names of its nodes resolve? One Unix datagram each way."""

import contextlib
import select
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Self

LONGEST = 65536


@dataclass(frozen=True, slots=True)
class Ring:
    """A hostlist, and whom to answer."""

    hostlist: str
    caller: str | bytes  # bytes: an address that the kernel gave


class Doorbell:
    """Root's own socket; without one (a path that cannot be bound) the agent only beats."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        path.chmod(0o600)
        self._nudged, self._nudge = socket.socketpair()
        self._nudge.setblocking(False)  # a full one is a nudge already

    def wait(self, seconds: float) -> Ring | None:
        """The next ring; None if none came in time, or somebody nudged."""
        ready = select.select([self._socket, self._nudged], [], [], seconds)[0]
        if self._nudged in ready:
            self._nudged.recv(LONGEST)
        if self._socket not in ready:
            return None
        said, caller = self._socket.recvfrom(LONGEST)
        return Ring(said.decode(errors="replace"), caller or b"")

    def nudge(self) -> None:
        """End a wait, from any thread: there is something to tell."""
        with contextlib.suppress(OSError):
            self._nudge.send(b"!")

    def answer(self, ring: Ring, text: str) -> None:
        """Let the caller go on; it may have gone by itself."""
        try:
            self._socket.sendto(text.encode(), ring.caller)
        except OSError:
            return

    def close(self) -> None:
        for one in (self._socket, self._nudged, self._nudge):
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
