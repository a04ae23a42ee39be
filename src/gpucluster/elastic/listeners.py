"""What listens: at the socket of the hooks, at the queue of EC2's interruption notices, and over HTTP."""

import socket
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer

from gpucluster.cloud.port import NoticePort, QueueNotice
from gpucluster.text import short

QUEUE_WAIT_S = 20.0  # the longest that SQS allows
QUEUE_PAUSE_S = 5.0  # after a failed read; the nodes report notices, too


class Server(ThreadingHTTPServer):
    """A server that looks up no name when it starts: http.server asks DNS for the name of its address, in our thread."""

    daemon_threads = True

    def server_bind(self) -> None:
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


def listen_to_hooks(path: Path, wake: Callable[[], object]) -> socket.socket:
    """Call `wake` for each datagram at the Unix socket `path`, in a thread that ends with the socket."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(path))

    def read() -> None:
        while True:
            try:
                listener.recv(64)
            except OSError:
                return
            wake()

    threading.Thread(target=read, name="hooks", daemon=True).start()
    return listener


def listen_to_queue(
    notices: NoticePort,
    ended: threading.Event,
    *,
    receive: Callable[[tuple[QueueNotice, ...]], object],
    note: Callable[[str], object],
) -> None:
    """Poll the queue until `ended`. A message that is not deleted is delivered again. `note` gets the error of each read, or an empty text."""

    def read() -> None:
        while not ended.is_set():
            try:
                messages = notices.receive(QUEUE_WAIT_S)
            except Exception as error:  # noqa: BLE001 -- a thread that ended would read no more
                note(short(str(error)) or type(error).__name__)
                ended.wait(QUEUE_PAUSE_S)
                continue
            note("")
            if messages:
                receive(messages)

    threading.Thread(target=read, name="queue", daemon=True).start()
