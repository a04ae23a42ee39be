"""The instance metadata service, IMDSv2 only. The address of the caller identifies the instance (T33)."""

import secrets
import socketserver
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from gpucluster.sandbox.aws.credentials import Key, KeyRing
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance, Refusal
from gpucluster.sandbox.aws.moto_state import Moto, Profile
from gpucluster.sandbox.metadata.tree import VERSIONS, Tree, read, tree

TTL_HEADER, TOKEN_HEADER = "X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token"
_TTL_MAX = 21600  # six hours in seconds: the limit of AWS
_TOKENS_MAX = 4096  # the most tokens; repeated requests must not fill the memory
_HANG_S, _HANG_STEP_S = 60.0, 0.1

Lookup = Callable[[str], Ec2Instance | None]


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP reply."""

    status: int
    body: bytes = b""
    ttl: str = ""


class MetadataService:
    """The service as a function of caller, path and time; `serve` binds it to a socket."""

    def __init__(
        self,
        model: CloudModel,
        moto: Moto,
        ring: KeyRing,
        *,
        clock: Callable[[], float],
        lookup: Lookup | None = None,
    ) -> None:
        self._model, self._moto, self._ring, self._clock = model, moto, ring, clock
        self._lookup: Lookup = lookup or self._at_address
        self._tokens: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def token(self, caller: str, ttl: str | None, *, forwarded: bool) -> Reply:
        """PUT /latest/api/token."""
        instance = self._instance(caller)
        if instance is None:
            return Reply(404)
        if forwarded:
            return Reply(403)  # a proxy on the instance must not fetch a token for others
        if ttl is None or not ttl.isascii() or not ttl.isdecimal() or not 1 <= int(ttl) <= _TTL_MAX:
            return Reply(400)
        token = secrets.token_urlsafe(42)
        with self._lock:
            self._drop_old()
            self._tokens[token] = (instance.id, self._clock() + int(ttl))
        return Reply(200, token.encode(), ttl)

    def get(self, caller: str, path: str, token: str | None) -> Reply:
        """GET of another path."""
        instance = self._instance(caller)
        if instance is None:
            return Reply(404)
        if token is None or not self._valid(token, instance.id):
            return Reply(401)
        version, _, rest = path.lstrip("/").partition("/")
        if not version:
            return Reply(200, "\n".join(VERSIONS).encode())
        if version not in VERSIONS:
            return Reply(404)
        body = read(self._tree(instance), rest)
        return Reply(404) if body is None else Reply(200, body)

    def hangs(self, caller: str) -> bool:
        """Whether a scenario lets the service hang for the caller."""
        hanging = self._model.switches.hanging_metadata
        if not hanging:
            return False
        instance = self._lookup(caller)
        return instance is not None and instance.id in hanging

    def _at_address(self, address: str) -> Ec2Instance | None:
        return self._model.at_address(address, self._clock())

    def _tree(self, instance: Ec2Instance) -> Tree:
        return tree(
            instance, self._model.region, self._profile(instance), lambda p: self._session(instance, p)
        )

    def _profile(self, instance: Ec2Instance) -> Profile | None:
        if instance.spec.profile is None:
            return None
        try:
            return self._moto.profile(None, instance.spec.profile)
        except Refusal:
            return None  # the profile was deleted while the instance runs

    def _session(self, instance: Ec2Instance, profile: Profile) -> Key:
        return self._ring.session(profile.role or "", profile.role_id or "", instance.id, self._clock())

    def _instance(self, caller: str) -> Ec2Instance | None:
        instance = self._lookup(caller)
        if instance is None or instance.spec.metadata.get("HttpEndpoint") == "disabled":
            return None
        return instance

    def _valid(self, token: str, instance_id: str) -> bool:
        with self._lock:
            whose, until = self._tokens.get(token, ("", 0.0))
        return whose == instance_id and self._clock() < until

    def _drop_old(self) -> None:
        if len(self._tokens) < _TOKENS_MAX:
            return
        now = self._clock()
        self._tokens = {t: v for t, v in self._tokens.items() if v[1] > now}
        while len(self._tokens) >= _TOKENS_MAX:
            del self._tokens[next(iter(self._tokens))]


def serve(service: MetadataService, address: tuple[str, int]) -> ThreadingHTTPServer:
    """Bind `address` and answer in threads; the caller shuts the server down."""
    server = _Server(address, service)
    threading.Thread(target=server.serve_forever, args=(0.1,), name="metadata", daemon=True).start()
    return server


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], service: MetadataService) -> None:
        self.service = service
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own asks DNS for the name of the address
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "EC2ws", ""
    timeout = 30  # seconds; an idle connection frees its thread
    disable_nagle_algorithm = True

    def do_PUT(self) -> None:
        self._skip_body()
        if self._hung():
            return
        if self._path() != "/latest/api/token":
            self._send(Reply(404))
            return
        forwarded = self.headers.get("X-Forwarded-For") is not None
        self._send(self._service().token(self._caller(), self.headers.get(TTL_HEADER), forwarded=forwarded))

    def do_GET(self) -> None:
        if self._hung():
            return
        self._send(self._service().get(self._caller(), self._path(), self.headers.get(TOKEN_HEADER)))

    def do_HEAD(self) -> None:
        self.do_GET()

    def _hung(self) -> bool:
        """Hold the connection while a scenario says so, then close it."""
        if not self._service().hangs(self._caller()):
            return False
        until = time.monotonic() + _HANG_S
        while time.monotonic() < until and self._service().hangs(self._caller()):
            time.sleep(_HANG_STEP_S)
        self.close_connection = True
        return True

    def _service(self) -> MetadataService:
        return cast(_Server, self.server).service

    def _caller(self) -> str:
        return str(self.client_address[0])

    def _path(self) -> str:
        return self.path.partition("?")[0]

    def _skip_body(self) -> None:
        length = self.headers.get("Content-Length", "0")
        self.rfile.read(min(int(length), 65536) if length.isdecimal() else 0)

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(reply.body)))
        if reply.ttl:
            self.send_header(TTL_HEADER, reply.ttl)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Log nothing: paths of credentials must not be in a log."""
