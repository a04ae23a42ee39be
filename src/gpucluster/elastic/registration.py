"""The registration server of the nodes: a threading HTTP server over an immutable snapshot, without state of its own.

A credential is valid if munge decodes it, uid 0 made it, this daemon launched its instance, and the peer has the address
that the cloud lists for the instance. Valid reports go to the daemon's inbox.
"""

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from gpucluster import shell
from gpucluster.elastic.decide.evacuation import interruption_notice
from gpucluster.elastic.decide.jobs import BATCH_SCRIPT_S
from gpucluster.elastic.decide.world import positions_of
from gpucluster.elastic.listeners import Server
from gpucluster.elastic.memory import Memory
from gpucluster.elastic.model import CloudView, SlurmView
from gpucluster.plan import codec
from gpucluster.plan.messages import NodeAnswer, NodePhase, NodeReport, RunAnswer, RunQuestion
from gpucluster.plan.model import SlurmPlan

T = TypeVar("T")
MAX_BODY = 64 * 1024  # a report's credential is about 2 KiB
READ_S = 10.0  # seconds for a whole connection, also with a slow peer
PER_PEER = (
    4  # connections of one address at a time, for root's source ports and for all others; an agent needs one
)
ROOT_PORTS = 1024  # a source port below it proves CAP_NET_BIND_SERVICE on the peer; the agent uses one
DECODERS = 8  # unmunge processes at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredNode:
    """The slot and address of one of our instances."""

    slot: str
    incarnation: int
    address: str | None
    registered: bool
    awaited: bool = False  # this and the next as in NodeAnswer
    interruption: str = ""
    batch_jobs: tuple[int, ...] = ()
    ends: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationSnapshot:
    """All values that the server may answer with."""

    controller: str = ""
    heartbeat_s: float = 30.0
    nodes: Mapping[str, RegisteredNode] = field(default_factory=dict[str, RegisteredNode])  # by instance
    hosts: tuple[str, ...] = ()
    unsettled: bool = True  # a launch has no outcome yet: an unknown instance may be ours
    runs_begun: Callable[[int, int], int] = (
        Memory().runs_begun
    )  # of a job id and Slurm's count of its requeues

    @classmethod
    def of(
        cls,
        plan: SlurmPlan,
        memory: Memory,
        cloud: CloudView | None,
        slurm: SlurmView | None = None,
        alone: frozenset[str] = frozenset(),
    ) -> "RegistrationSnapshot":
        """`alone`: the instances that end themselves."""
        batch_jobs = _batch_jobs(plan, slurm)
        nodes = {
            incarnation.instance: RegisteredNode(
                slot=slot,
                incarnation=incarnation.number,
                address=_address(cloud, incarnation.instance),
                registered=incarnation.registered_at is not None,
                awaited=incarnation.up_at is None,
                interruption=interruption_notice(incarnation.interruption)
                if incarnation.interruption is not None
                else "",
                batch_jobs=batch_jobs.get(slot, ()),
                ends=incarnation.instance in alone,
            )
            for slot, incarnation in memory.incarnations.items()
            if incarnation.instance and incarnation.failed is None
        }
        here = sorted((p.slot, p.address) for p in nodes.values() if p.registered and p.address)
        head = plan.head
        return cls(
            controller=f"{head.address}:{head.controller_port}",
            heartbeat_s=plan.times.heartbeat_s,
            nodes=nodes,
            hosts=tuple(f"{address} {slot}" for slot, address in here),
            unsettled=bool(memory.launches),
            runs_begun=memory.runs_begun,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Status and body of an answer."""

    status: int
    body: str = ""


class RegistrationService:
    """The rules of registration, without HTTP. `unmunge` turns a credential into (uid, payload) or raises."""

    def __init__(
        self,
        unmunge: "Callable[[str], tuple[int, str]]",
        *,
        receive: Callable[[NodeReport], object],
        observe: Callable[[], object],
    ) -> None:
        self._unmunge, self._receive, self._observe = unmunge, receive, observe
        self._decoders = threading.BoundedSemaphore(DECODERS)
        self.snapshot = RegistrationSnapshot()  # replaced as a whole by the daemon's thread

    def node(self, peer: str, body: str) -> Reply:
        """POST /v1/node."""
        payload = self._of_root(body)
        return payload if isinstance(payload, Reply) else self._believed(peer, payload)

    def run(self, peer: str, body: str) -> Reply:
        """POST /v1/run."""
        payload = self._of_root(body)
        if isinstance(payload, Reply):
            return payload
        snapshot, question = self.snapshot, _parsed(RunQuestion, payload)
        node = snapshot.nodes.get(question.instance_id) if question else None
        if question is None or node is None or node.address != peer:
            return _no("not a question of one of ours")
        begun = snapshot.runs_begun(question.job, question.restarts)
        return Reply(status=200, body=codec.message(RunAnswer(begun=begun)))

    def failed(self, peer: str, body: str) -> Reply:
        """POST /v1/failed: from an instance that has no key yet."""
        report = _parsed(NodeReport, body)
        node = self.snapshot.nodes.get(report.instance_id) if report else None
        if report is None or node is None or node.address != peer or node.registered:
            return _no("not one of ours, or registered already")
        if report.phase is NodePhase.FAILED:
            self._receive(report)
        return Reply(status=204)

    def _of_root(self, credential: str) -> str | Reply:
        """Return the payload of a credential that root made; else the refusal."""
        try:
            with self._decoders:
                uid, payload = self._unmunge(credential)
        except shell.CommandError:
            return _no("munge does not accept the credential")
        return payload if uid == 0 else _no(f"made by uid {uid}, not by root")

    def _believed(self, peer: str, payload: str) -> Reply:
        snapshot, report = self.snapshot, _parsed(NodeReport, payload)
        if report is None:
            return _no("not a report")
        node = snapshot.nodes.get(report.instance_id)
        if node is None:
            return _later("a launch has no outcome yet") if snapshot.unsettled else _no("not launched by us")
        if node.address is None:
            self._observe()
            return _later("the cloud does not list its address yet")
        if node.address != peer:
            return _no("the cloud lists another address for it")
        self._receive(report)
        answer = NodeAnswer(
            node=node.slot,
            # A higher one is of a journal that is lost. Another number would start slurmd again, and end its jobs.
            incarnation=max(node.incarnation, report.incarnation),
            controller=snapshot.controller,
            heartbeat_s=snapshot.heartbeat_s,
            hosts=snapshot.hosts,
            awaited=node.awaited,
            interruption=node.interruption,
            batch_jobs=node.batch_jobs,
            ends=node.ends,
        )
        return Reply(status=200, body=codec.message(answer))


def unmunge(credential: str) -> tuple[int, str]:
    """Decode with the local munged, which also refuses replayed and old credentials."""
    argv = ("unmunge", "--keys=UID", "--numeric")
    text = shell.run(argv, stdin=credential, timeout_s=5).stdout
    head, _, payload = text.partition("\n\n")
    key, _, uid = head.strip().partition(":")
    if key != "UID" or not uid.strip().isdigit():
        return -1, ""
    return int(uid.strip()), payload


def serve(address: str, port: int, service: RegistrationService) -> ThreadingHTTPServer:
    """Listen; the caller stops it with `shutdown`."""

    class Handler(BaseHTTPRequestHandler):
        timeout = READ_S
        protocol_version = "HTTP/1.0"  # one request per connection
        server_version, sys_version = "gpucluster", ""

        def do_POST(self) -> None:
            routes = {"/v1/node": service.node, "/v1/failed": service.failed, "/v1/run": service.run}
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
            """Heartbeats are not logged."""

    server = _RegistrationServer((address, port), Handler)
    threading.Thread(target=server.serve_forever, name="registration", daemon=True).start()
    return server


def serve_here(addresses: Sequence[str], port: int, service: RegistrationService) -> ThreadingHTTPServer:
    """Serve on the controllers' address that this host has; OSError if none can be bound."""
    for address in addresses[:-1]:
        try:
            return serve(address, port, service)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
    return serve(addresses[-1], port, service)


class _RegistrationServer(Server):
    """One thread per connection; each peer has few, each for a short time, because any host may reach the port.

    Connections from root's source ports are counted apart, so that a user of a shared node cannot take its agent's places.
    """

    request_queue_size = 1024  # a whole burst of nodes registers at once

    def __init__(self, *arguments: Any) -> None:
        self._open: dict[
            int, tuple[socket.socket, tuple[str, bool], float]
        ] = {}  # descriptor -> peer, deadline
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        peer = str(client_address[0]), int(client_address[1]) < ROOT_PORTS
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
        """Twice a second: close connections past their deadline; their threads then end by themselves."""
        now = time.monotonic()
        with self._lock:
            for one, _, until in self._open.values():
                if until <= now:
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A peer that closes the connection is not logged."""


def _batch_jobs(plan: SlurmPlan, slurm: SlurmView | None) -> Mapping[str, tuple[int, ...]]:
    """Return the slots where slurmctld has batch scripts running for BATCH_SCRIPT_S, and the jobs there.

    The batch host is the first node of the job in the order of slurm.conf (bit_ffs of the node bitmap, job_mgr.c).
    """
    if slurm is None:
        return {}
    order = positions_of(plan)
    found: dict[str, list[int]] = {}
    for job in slurm.jobs:
        old = job.started_at and slurm.at - job.started_at > BATCH_SCRIPT_S
        if old and job.batch and job.running and job.nodes and all(node in order for node in job.nodes):
            found.setdefault(min(job.nodes, key=order.__getitem__), []).append(job.id)
    return {slot: tuple(sorted(jobs)) for slot, jobs in found.items()}


def _address(cloud: CloudView | None, instance: str) -> str | None:
    listed = cloud.instances.get(instance) if cloud else None
    return listed.address if listed else None


def _parsed(kind: type[T], text: str) -> T | None:
    try:
        return codec.loads_known(kind, text)
    except ValueError:
        return None


def _no(words: str) -> Reply:
    return Reply(status=403, body=codec.message({"error": words}))


def _later(words: str) -> Reply:
    return Reply(status=503, body=codec.message({"error": words}))
