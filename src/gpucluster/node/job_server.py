"""The SDKs' container credentials over HTTP, on loopback alone."""

import io
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from gpucluster.node.machine import Reply

AT_ONCE, A_USER = 256, 64  # connections; an SDK that is turned away tries again
SLOW_S = 3.0  # a caller has so long for his whole question, and then gives his place back
LARGEST = 16 * 1024  # bytes of a question

End = tuple[str, int]  # of a connection
Answer = Callable[[str, End], Reply]  # token and the client's end -> what he is told
Owner = Callable[[End, End], int]  # the client's end, ours -> his uid; `peers.owner`


class JobServer:
    """Binds at the first `serve`, and answers in threads of its own until the process ends."""

    def __init__(self, address: End, owner: Owner) -> None:
        self._address, self._owner = address, owner
        self._server: _Server | None = None

    def serve(self, answer: Answer) -> None:
        """Answer so from now on. OSError if somebody else has the port."""
        if self._server is None:
            self._server = _Server(self._address, answer, self._owner)
            threading.Thread(target=self._server.serve_forever, name="jobs", daemon=True).start()
        self._server.answer = answer

    @property
    def port(self) -> int:
        """Where it listens; 0 before it does."""
        return 0 if self._server is None else int(self._server.server_address[1])

    def close(self) -> None:
        """Give the port back."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a job's ranks start together

    def __init__(self, address: End, answer: Answer, owner: Owner) -> None:
        self.answer = answer
        self._owner = owner
        self._taken: Counter[int] = Counter()  # places, by uid: no user takes them all
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # not HTTPServer's, which asks DNS for the address's name
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        uid = self._owner(client_address, (self.server_name, self.server_port))
        if not self._seated(uid):
            self.shutdown_request(request)
            return
        try:
            threading.Thread(target=self._answered, args=(uid, request, client_address), daemon=True).start()
        except RuntimeError:  # the machine has no thread left: socketserver closes the connection
            self._left(uid)
            raise

    def _seated(self, uid: int) -> bool:
        with self._lock:
            free = uid >= 0 and self._taken[uid] < A_USER and self._taken.total() < AT_ONCE
            self._taken[uid] += free
            return free

    def _answered(self, uid: int, request: Any, client_address: Any) -> None:
        try:
            self.process_request_thread(request, client_address)
        finally:
            self._left(uid)

    def _left(self, uid: int) -> None:
        with self._lock:
            self._taken[uid] -= 1
            self._taken += Counter()  # who has none is forgotten

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a caller that went away is not worth a line that he could repeat."""


class _Question(io.RawIOBase):
    """What a caller says, as long as he keeps within time and size; a timeout of a socket is of one byte."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._left, self._until = connection, LARGEST, time.monotonic() + SLOW_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._until - time.monotonic()
        if left_s <= 0 or not self._left:
            raise TimeoutError("the question is too long")
        self._connection.settimeout(left_s)
        got = self._connection.recv_into(buffer, min(len(buffer), self._left))
        self._left -= got
        return got


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "gpucluster", ""
    timeout = SLOW_S

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Question(self.connection))

    def do_GET(self) -> None:
        client: End = (str(self.client_address[0]), int(self.client_address[1]))
        reply = cast(_Server, self.server).answer(self.headers.get("Authorization", ""), client)
        self.send_response(reply.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Nothing: who asks may ask as often as he likes."""
