"""Where nodes ask who they are: a threading HTTP server over an immutable snapshot; it owns no state.

A credential is believed if munge decodes it, uid 0 made it, this daemon launched its instance, and the peer has the
address that the cloud lists for it. What was said goes to the daemon's inbox.
"""

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gpucluster import shell
from gpucluster.elastic.decide.leaving import farewell_of
from gpucluster.elastic.memory import Memory
from gpucluster.elastic.model import CloudView
from gpucluster.plan import codec
from gpucluster.plan.messages import NodeAnswer, NodePhase, NodeReport
from gpucluster.plan.model import ClusterPlan, there

MAX_BODY = 64 * 1024  # a credential of a report is about 2 KiB
READ_S = 10.0  # for the whole of a connection, however slowly its peer speaks
PER_PEER = 4  # connections of one address at once; an agent needs one
DECODERS = 8  # unmunge processes at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What one of our instances is."""

    slot: str
    life: int
    address: str | None
    registered: bool
    awaited: bool = False  # these two as in NodeAnswer
    leaving: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that the server may say."""

    controller: str = ""
    heartbeat_s: float = 30.0
    places: Mapping[str, Place] = field(default_factory=dict[str, Place])  # by instance
    hosts: tuple[str, ...] = ()
    unsettled: bool = True  # a launch has no outcome yet: an unknown instance may be ours

    @classmethod
    def of(cls, plan: ClusterPlan, memory: Memory, cloud: CloudView | None) -> "Snapshot":
        places = {
            life.instance: Place(
                slot=slot,
                life=life.number,
                address=_address(cloud, life.instance),
                registered=life.registered_at is not None,
                awaited=life.up_at is None,
                leaving=farewell_of(life.trouble) if life.trouble is not None else "",
            )
            for slot, life in memory.lives.items()
            if life.instance and life.failed is None
        }
        here = sorted((p.slot, p.address) for p in places.values() if p.registered and p.address)
        head = there(plan.head)
        return cls(
            controller=f"{head.address}:{head.controller_port}",
            heartbeat_s=plan.times.heartbeat_s,
            places=places,
            hosts=tuple(f"{address} {slot}" for slot, address in here),
            unsettled=bool(memory.launches),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Status and body."""

    status: int
    body: str = ""


class Desk:
    """The rules, without HTTP. `unmunge` turns a credential into (uid, payload) or raises."""

    def __init__(
        self,
        unmunge: "Callable[[str], tuple[int, str]]",
        *,
        heard: Callable[[NodeReport], object],
        nudge: Callable[[], object],
    ) -> None:
        self._unmunge, self._heard, self._nudge = unmunge, heard, nudge
        self._decoders = threading.BoundedSemaphore(DECODERS)
        self.snapshot = Snapshot()  # replaced whole by the daemon's thread

    def node(self, peer: str, body: str) -> Reply:
        """POST /v1/node."""
        try:
            with self._decoders:
                uid, payload = self._unmunge(body)
        except shell.CommandError:
            return _no("munge does not accept the credential")
        if uid != 0:
            return _no(f"made by uid {uid}, not by root")
        return self._believed(peer, payload)

    def failed(self, peer: str, body: str) -> Reply:
        """POST /v1/failed: from a machine that has no key yet."""
        report = _report(body)
        place = self.snapshot.places.get(report.instance_id) if report else None
        if report is None or place is None or place.address != peer or place.registered:
            return _no("not one of ours, or registered already")
        if report.phase is NodePhase.FAILED:
            self._heard(report)
        return Reply(status=204)

    def _believed(self, peer: str, payload: str) -> Reply:
        snapshot, report = self.snapshot, _report(payload)
        if report is None:
            return _no("not a report")
        place = snapshot.places.get(report.instance_id)
        if place is None:
            return _later("a launch has no outcome yet") if snapshot.unsettled else _no("not launched by us")
        if place.address is None:
            self._nudge()
            return _later("the cloud does not list its address yet")
        if place.address != peer:
            return _no("the cloud lists another address for it")
        self._heard(report)
        answer = NodeAnswer(
            node=place.slot,
            life=place.life,
            controller=snapshot.controller,
            heartbeat_s=snapshot.heartbeat_s,
            hosts=snapshot.hosts,
            awaited=place.awaited,
            leaving=place.leaving,
        )
        return Reply(status=200, body=codec.dumps(answer))


def unmunge(credential: str) -> tuple[int, str]:
    """Decode with the local munged, which also refuses replays and old ones."""
    argv = ("unmunge", "--keys=UID", "--numeric")
    text = shell.run(argv, stdin=credential, timeout_s=5).stdout
    head, _, payload = text.partition("\n\n")
    key, _, uid = head.strip().partition(":")
    if key != "UID" or not uid.strip().isdigit():
        return -1, ""
    return int(uid.strip()), payload


def serve(address: str, port: int, desk: Desk) -> ThreadingHTTPServer:
    """Listen; the caller ends it with `shutdown`."""

    class Handler(BaseHTTPRequestHandler):
        timeout = READ_S
        protocol_version = "HTTP/1.0"  # one question a connection
        server_version, sys_version = "gpucluster", ""

        def do_POST(self) -> None:
            routes = {"/v1/node": desk.node, "/v1/failed": desk.failed}
            route = routes.get(self.path)
            length = self.headers.get("Content-Length", "")
            if route is None:
                self._send(Reply(status=404))
            elif not length.isdecimal() or int(length) > MAX_BODY:
                self._send(Reply(status=413))
            else:
                body = self.rfile.read(int(length)).decode("utf-8", "replace")
                self._send(route(str(self.client_address[0]), body))

        def _send(self, reply: Reply) -> None:
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(reply.body.encode())))
            self.end_headers()
            self.wfile.write(reply.body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- http.server's name
            """Heartbeats are no news."""

    server = _Server((address, port), Handler)
    threading.Thread(target=server.serve_forever, name="registration", daemon=True).start()
    return server


def serve_here(addresses: Sequence[str], port: int, desk: Desk) -> ThreadingHTTPServer:
    """Serve on the one of the controllers' addresses that is this machine's; OSError if none can be had."""
    for address in addresses[:-1]:
        try:
            return serve(address, port, desk)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
    return serve(addresses[-1], port, desk)


class _Server(ThreadingHTTPServer):
    """A thread a connection, few of them for each peer, none for long: whoever reaches the port may be hostile."""

    daemon_threads = True
    request_queue_size = 1024  # a whole burst registers at once

    def __init__(self, *arguments: Any) -> None:
        self._open: dict[int, tuple[socket.socket, str, float]] = {}  # by descriptor: who, until when
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        peer = str(client_address[0])
        with self._lock:
            if sum(other == peer for _, other, _ in self._open.values()) >= PER_PEER:
                return False
            self._open[request.fileno()] = (request, peer, time.monotonic() + READ_S)
        return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request.fileno(), None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Twice a second: hang up on whoever is over the time; the thread then ends by itself."""
        now = time.monotonic()
        with self._lock:
            for one, _, until in self._open.values():
                if until <= now:
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A peer that hangs up is no news."""


def _address(cloud: CloudView | None, instance: str) -> str | None:
    listed = cloud.instances.get(instance) if cloud else None
    return listed.address if listed else None


def _report(text: str) -> NodeReport | None:
    try:
        return codec.loads(NodeReport, text)
    except (ValueError, RecursionError):
        return None


def _no(words: str) -> Reply:
    return Reply(status=403, body=codec.dumps({"error": words}))


def _later(words: str) -> Reply:
    return Reply(status=503, body=codec.dumps({"error": words}))
