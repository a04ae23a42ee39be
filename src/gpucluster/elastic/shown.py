"""What the daemon shows on the head's loopback: its metrics for Prometheus, and for `why` what no other program knows.

A threading HTTP server over values that the daemon's thread replaces whole; it owns no state, and nothing can be asked of it.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gpucluster.elastic.model import Heard
from gpucluster.plan import codec

LOOPBACK = "127.0.0.1"
READ_S = 10.0
TEXT, JSON = "text/plain; version=0.0.4; charset=utf-8", "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheard:
    """The words of the nodes' agents, and why nothing may be launched; neither is in the journal."""

    reports: Mapping[str, Heard] = field(default_factory=dict[str, Heard])
    absent_since: Mapping[str, float] = field(default_factory=dict[str, float])
    halted: str = ""


def serve(port: int, metrics: Callable[[], bytes], seen: Callable[[], Overheard]) -> ThreadingHTTPServer:
    """Listen on loopback; the caller ends it with `shutdown`."""
    routes: Mapping[str, tuple[str, Callable[[], bytes]]] = {
        "/metrics": (TEXT, metrics),
        "/seen": (JSON, lambda: codec.dumps(seen()).encode()),
    }

    class Handler(BaseHTTPRequestHandler):
        timeout = READ_S
        protocol_version = "HTTP/1.0"  # one question a connection
        server_version, sys_version = "gpucluster", ""

        def do_GET(self) -> None:
            kind, make = routes.get(self.path, (TEXT, None))
            body = make() if make else b"/metrics, /seen\n"
            self.send_response(200 if make else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- http.server's name
            """A scrape is no news."""

    server = _Server((LOOPBACK, port), Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A peer that hangs up is no news."""
