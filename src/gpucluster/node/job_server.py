"""The SDKs' container credentials over HTTP, on loopback alone."""

import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from gpucluster.node.machine import Reply

AT_ONCE = 64  # connections; an SDK that is turned away tries again
SLOW_S = 3.0  # a caller that says nothing gives his place back

Answer = Callable[[str, tuple[str, int]], Reply]  # token and the client's end -> what he is told


class JobServer:
    """Binds at the first `serve`, and answers in threads of its own until the process ends."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._server: _Server | None = None

    def serve(self, answer: Answer) -> None:
        """Answer so from now on. OSError if somebody else has the port."""
        if self._server is None:
            self._server = _Server(self._address, answer)
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

    def __init__(self, address: tuple[str, int], answer: Answer) -> None:
        self.answer = answer
        self._places = threading.BoundedSemaphore(AT_ONCE)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # not HTTPServer's, which asks DNS for the address's name
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a caller that went away is not worth a line that he could repeat."""


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "gpucluster", ""
    timeout = SLOW_S

    def do_GET(self) -> None:
        client = (str(self.client_address[0]), int(self.client_address[1]))
        reply = cast(_Server, self.server).answer(self.headers.get("Authorization", ""), client)
        self.send_response(reply.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Nothing: who asks may ask as often as he likes."""
