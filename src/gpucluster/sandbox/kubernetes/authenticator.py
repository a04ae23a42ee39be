"""The webhook that tells an API server whose a bearer token is (TokenReview of authentication.k8s.io/v1)."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Identity = tuple[str, list[str]]  # user name, groups
Identify = Callable[[str, str], Identity | None]  # cluster, token
_LARGEST = 64 * 1024  # bytes of a review; a token of EKS has about one KiB


class Authenticator:
    """Serves `/CLUSTER` on 127.0.0.1 until `close`."""

    def __init__(self, identify: Identify) -> None:
        handler = type("Handler", (_Handler,), {"identify": staticmethod(identify)})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def url(self, cluster: str) -> str:
        """Return the address for the API server of a cluster."""
        return f"http://127.0.0.1:{self._server.server_port}/{cluster}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    identify: Identify

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        review: Any = json.loads(self.rfile.read(min(length, _LARGEST)))
        token = str(review["spec"]["token"])
        found = type(self).identify(self.path.split("?")[0].strip("/"), token)
        status: dict[str, Any] = {"authenticated": False}
        if found is not None:
            status = {"authenticated": True, "user": {"username": found[0], "groups": found[1]}}
        answer = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  http.server's name
        """Log nothing: a request holds a token."""
