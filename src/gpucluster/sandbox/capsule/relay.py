"""Forward connections from this machine's loopback to a server of the capsule.

The listening socket was made outside. A socket keeps the network in which it was made, whoever accepts from it.
"""

import errno
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

Target = Callable[[], tuple[str, int] | None]  # where connections go; None: nowhere yet, so they are closed
_CHUNK = 64 * 1024


def serve(listener: socket.socket, target: Target) -> threading.Thread:
    """Accept connections in a thread, until the listener is shut down or the process ends."""
    thread = threading.Thread(target=_accept, args=(listener, target), name="relay", daemon=True)
    thread.start()
    return thread


def _accept(listener: socket.socket, target: Target) -> None:
    while True:
        try:
            outside, _ = listener.accept()
        except OSError as error:
            if error.errno == errno.EINVAL:  # shut down, accept(2)
                return
            raise
        threading.Thread(target=_join, args=(outside, target), daemon=True).start()


def _join(outside: socket.socket, target: Target) -> None:
    with outside:
        where = target()
        if where is None:
            return
        with suppress(OSError), socket.create_connection(where) as inside:
            back = threading.Thread(target=_copy, args=(inside, outside), daemon=True)
            back.start()
            _copy(outside, inside)
            back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy until the source ends; then end the sink, so that the other direction can go on."""
    with suppress(OSError):
        while chunk := source.recv(_CHUNK):
            sink.sendall(chunk)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
