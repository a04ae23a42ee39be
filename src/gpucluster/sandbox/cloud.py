"""The stand-in for AWS, assembled: state, moto, keys, front end and metadata service, on sockets that the caller binds.

The capsule binds the sockets on the host's loopback and on addresses of its own namespace. This module does not use namespaces.
"""

import importlib
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any

from gpucluster.sandbox.aws.credentials import Key, KeyRing
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.events import delivery
from gpucluster.sandbox.aws.front_end import make_app
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.scenario import Scenario
from gpucluster.sandbox.aws.ssm.state import Agents, no_machines
from gpucluster.sandbox.metadata.service import Lookup, MetadataService, serve


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound, listening socket; the operator's socket also takes scenario commands."""

    socket: socket.socket
    operator: bool = False


@dataclass(slots=True)
class Api:
    """The running stand-in; `close` ends its threads and leaves the sockets to their owner."""

    model: CloudModel
    moto: Moto
    ring: KeyRing
    metadata: ThreadingHTTPServer | None = None
    servers: list[Any] = field(default_factory=list[Any])

    @property
    def operator(self) -> Key:
        """The key with which tools of this machine call the API."""
        return self.ring.operator

    def deliver(self, now: float) -> None:
        """Deliver events about instances to the queues of the account."""
        delivery.deliver(self.model, self.moto, now)

    def close(self) -> None:
        """Stop serving; idempotent."""
        for server in self.servers:
            server.shutdown()
            server.server_close()
        self.servers.clear()


def start(
    model: CloudModel,
    listeners: Sequence[Listener],
    metadata_address: tuple[str, int] | None,
    *,
    clock: Callable[[], float],
    images: Sequence[str] = (),
    operator: tuple[str, str] | None = None,
    session_s: float = 6 * 3600.0,
    console: Callable[[str], bytes] = lambda _: b"",
    lookup: Lookup | None = None,
    wall: Callable[[], float] | None = None,
    agents: Agents = no_machines,
) -> Api:
    """Start the API on `listeners` and the metadata service on `metadata_address`; ready on return.

    `images` are names of machine images; each becomes an AMI. `operator` is (access key, secret), random by default.
    `console` gives an instance's console; `lookup` finds the instance at an address, by default in the state.
    `agents` gives the shell of an instance's machine to Systems Manager; by default no machine has an agent.
    """
    moto = Moto(model.region)
    model.set_zones(moto.zones())
    model.events.reports_states = True
    for name in images:
        moto.register_image(name)
    ring = KeyRing(ACCOUNT, operator=operator, session_s=session_s)
    user = ring.operator.principal
    moto.register_operator(user.arn, user.user_id, ring.operator.access_key)
    front_end = make_app(model, moto, ring, clock=clock, wall=wall, console=console, agents=agents)
    orders = front_end.for_operator(Scenario(model, moto))
    servers = [_serve(listener.socket, orders if listener.operator else front_end) for listener in listeners]
    api = Api(model=model, moto=moto, ring=ring, servers=servers)
    if metadata_address is not None:
        service = MetadataService(model, moto, ring, clock=clock, lookup=lookup)
        api.metadata = serve(service, metadata_address)
        servers.append(api.metadata)
    return api


def _serve(bound: socket.socket, app: Any) -> Any:
    handler: Any = importlib.import_module(
        "moto.moto_server.werkzeug_app"
    ).MotoRequestHandler  # it has no types
    from werkzeug.serving import make_server  # noqa: PLC0415

    class _Quiet(handler):
        protocol_version = "HTTP/1.1"  # `Expect: 100-continue` of S3 clients

        def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - werkzeug's name
            """Log nothing: the call log of the state has every call."""

    host, port = _name(bound)
    server: Any = make_server(host, port, app, threaded=True, request_handler=_Quiet, fd=bound.fileno())
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.1,), name=f"api-{port}", daemon=True).start()
    return server


def _name(bound: socket.socket) -> tuple[str, int]:
    name: Any = bound.getsockname()
    return (f"unix://{name}", 0) if bound.family is socket.AF_UNIX else (str(name[0]), int(name[1]))
