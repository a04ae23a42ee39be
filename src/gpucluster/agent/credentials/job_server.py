"""The HTTP server of job credentials on loopback: the protocol of the SDKs' container credential provider.

The kernel's table of sockets shows which user owns the client's end of a connection.
"""

import io
import socket
import socketserver
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from gpucluster.agent.machine import Machine, Reply

MAX_CONNECTIONS, MAX_OF_USER = 256, 64  # an SDK repeats a refused connection
REQUEST_S = 3.0  # limit for a whole request
MAX_REQUEST = 16 * 1024  # bytes
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
ESTABLISHED = "01"  # a closing socket shows uid 0 (net/ipv4/tcp_ipv4.c)
NO_OWNER = -1
LOCAL, REMOTE, STATE, UID = 1, 2, 3, 7

Address = tuple[str, int]  # of a connection
Answer = Callable[[str, Address], Reply]  # token and the client's address -> reply
Owner = Callable[[Address, Address], int]  # (the client's address, our address) -> uid; `socket_owner`


class JobServer:
    """Binds at the first `serve`, and answers in its own threads until the process ends."""

    def __init__(self, address: Address, owner: Owner) -> None:
        self._address, self._owner = address, owner
        self._server: _CredentialServer | None = None

    def serve(self, answer: Answer) -> None:
        """Answer requests with `answer` from now on. OSError if another process has the port."""
        if self._server is None:
            self._server = _CredentialServer(self._address, answer, self._owner)
            threading.Thread(target=self._server.serve_forever, name="jobs", daemon=True).start()
        self._server.answer = answer

    @property
    def port(self) -> int:
        """Return the port; 0 before it listens."""
        return 0 if self._server is None else int(self._server.server_address[1])

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


class _CredentialServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a job's ranks start together

    def __init__(self, address: Address, answer: Answer, owner: Owner) -> None:
        self.answer = answer
        self._owner = owner
        self._open: Counter[int] = Counter()  # open connections by uid, so that no user can take all
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer would query DNS for the name of the address
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        uid = self._owner(client_address, (self.server_name, self.server_port))
        if not self._admit(uid):
            self.shutdown_request(request)
            return
        try:
            threading.Thread(target=self._serve, args=(uid, request, client_address), daemon=True).start()
        except RuntimeError:  # no thread is left; socketserver closes the connection
            self._release(uid)
            raise

    def _admit(self, uid: int) -> bool:
        with self._lock:
            free = uid >= 0 and self._open[uid] < MAX_OF_USER and self._open.total() < MAX_CONNECTIONS
            self._open[uid] += free
            return free

    def _serve(self, uid: int, request: Any, client_address: Any) -> None:
        try:
            self.process_request_thread(request, client_address)
        finally:
            self._release(uid)

    def _release(self, uid: int) -> None:
        with self._lock:
            self._open[uid] -= 1
            self._open += Counter()  # removes entries with 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a user could fill the log with broken connections."""


class _LimitedReader(io.RawIOBase):
    """Read a request within limits of time and size. A socket's own timeout starts again with each byte."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._left, self._until = connection, MAX_REQUEST, time.monotonic() + REQUEST_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._until - time.monotonic()
        if left_s <= 0 or not self._left:
            raise TimeoutError("the request is too large or too slow")
        self._connection.settimeout(left_s)
        got = self._connection.recv_into(buffer, min(len(buffer), self._left))
        self._left -= got
        return got


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "gpucluster", ""
    timeout = REQUEST_S

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_LimitedReader(self.connection))

    def do_GET(self) -> None:
        client: Address = (str(self.client_address[0]), int(self.client_address[1]))
        reply = cast(_CredentialServer, self.server).answer(self.headers.get("Authorization", ""), client)
        self.send_response(reply.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Log nothing: a user could fill the log with requests."""


def socket_owner(machine: Machine, client: tuple[str, int], server: tuple[str, int]) -> int:
    """Return the uid of the client's socket; NO_OWNER if there is no established one. Tables are for kernels without sock_diag."""
    try:
        found = machine.diag(client, server)
    except OSError:
        return NO_OWNER
    if found is not None:
        return found
    return next(
        (uid for table in TABLES for uid in socket_owners(machine.read(table), client, server)), NO_OWNER
    )


def socket_owners(table: str, client: tuple[str, int], server: tuple[str, int]) -> Iterator[int]:
    """Yield the uids from one table. The IPv6 table has IPv4 addresses as mapped addresses."""
    mine, theirs = _hexadecimal(client), _hexadecimal(server)
    for line in table.splitlines()[1:]:
        row = line.split()
        if len(row) > UID and row[LOCAL] in mine and row[REMOTE] in theirs and row[STATE] == ESTABLISHED:
            yield int(row[UID])


def _hexadecimal(address: tuple[str, int]) -> tuple[str, str]:
    """Return the address as the kernel writes it: hexadecimal words in the machine's byte order, plain and IPv6-mapped."""
    packed = socket.inet_aton(address[0])
    plain, mapped = _words(packed), _words(bytes(10) + b"\xff\xff" + packed)
    return f"{plain}:{address[1]:04X}", f"{mapped}:{address[1]:04X}"


def _words(packed: bytes) -> str:
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
