"""What the daemon serves on the head's loopback: `/metrics` for Prometheus, `/status` for `why` and the dry run.

A threading HTTP server over values that the daemon's thread replaces whole. It owns no state and takes no request but GET.
"""

import threading
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gpucluster.cloud.port import Control, QueueNotice, Reservation, Scaling
from gpucluster.elastic.abilities import Dependency, Loss
from gpucluster.elastic.listeners import Server
from gpucluster.elastic.model import CloudView, LaunchTrial, Observation, ReceivedReport, Repeat
from gpucluster.plan import codec
from gpucluster.plan.messages import ControllerWatch, HeldBundle
from gpucluster.slurm.values import SlurmView

LOOPBACK = "127.0.0.1"
READ_S = 10.0
ANSWER_S = 2.0  # the daemon answers from memory
MAX_STATUS = 64 * 1024 * 1024
TEXT, JSON = "text/plain; version=0.0.4; charset=utf-8", "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyState:
    """The copy of orders, budget and spend. `waits_since`: the journal has orders that the copy lacks."""

    waits_since: float | None = None
    error: str = ""  # why it cannot be read or written


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSnapshot:
    """What only the daemon knows: it is not in the journal, and neither Slurm nor the cloud shows it.

    The daemon itself decides on this value, so a reader that has it, the journal, Slurm and the cloud decides the same.
    """

    listening_since: float = 0.0  # no agent could report before
    reports: Mapping[str, ReceivedReport] = field(
        default_factory=dict[str, ReceivedReport]
    )  # the last one of each instance
    absent_since: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # instances of ours, not listed
    events: tuple[QueueNotice, ...] = ()  # of the queue, not yet in the journal
    lost: Mapping[Dependency, Loss] = field(default_factory=dict[Dependency, Loss])  # what it cannot read
    halted: str = ""  # why nothing may be launched; empty: launches are allowed
    copy: CopyState = field(default_factory=CopyState)  # of orders and spend, in the bucket
    reservations: Mapping[str, Reservation] = field(default_factory=dict[str, Reservation])  # by id
    reservations_at: float | None = None  # when they were read; None: never
    held: HeldBundle | None = field(
        default_factory=HeldBundle
    )  # the bundle that the agent holds; None: its file cannot be read
    repeats: tuple[Repeat, ...] = ()  # acts that fail or show no effect
    trials: Mapping[str, LaunchTrial] = field(
        default_factory=dict[str, LaunchTrial]
    )  # of offers, by `decide.launch_trials.trial_key`

    def observation(self, slurm: SlurmView | None, cloud: CloudView | None) -> Observation:
        """Return what `decide` reads. This is the only place that makes it, for the daemon and for readers.

        A reader may see EC2 while the daemon does not: what the daemon may do counts.
        """
        if Dependency.EC2 in self.lost:
            cloud = None
        if cloud is not None:
            absent = {i: at for i, at in self.absent_since.items() if i not in cloud.instances}
            cloud = replace(cloud, absent_since=absent)
        return Observation(
            slurm=slurm,
            cloud=cloud,
            reports=self.reports,
            queue_notices=self.events,
            reservations=self.reservations,
            reservations_at=self.reservations_at,
            lost=self.lost,
            halted=self.halted,
            unrestored=self.copy.error,
            listening_since=self.listening_since,
            held=self.held,
            repeats=self.repeats,
        )


def read_held(path: Path) -> HeldBundle | None:
    """Return the bundle that the head's agent holds. None: the file cannot be read, so no drain is set or lifted."""
    try:
        return codec.loads(HeldBundle, path.read_bytes())
    except FileNotFoundError:
        return HeldBundle()
    except (OSError, ValueError):
        return None


def read_controller(path: Path) -> ControllerWatch:
    """Return what the agent's watchdog saw of slurmctld; empty if its file is missing or cannot be read."""
    try:
        return codec.loads(ControllerWatch, path.read_bytes())
    except (OSError, ValueError):
        return ControllerWatch()


UNREAD = "the control object cannot be read"


def unread(error: str) -> str:
    """Why a control object that cannot be read allows no launch."""
    return f"{UNREAD}: {error}" if error else UNREAD


def halted_by(control: Control) -> str:
    """Why the control object allows no launch; empty: it allows them."""
    return f"launches are stopped, by {control.by or 'nobody'}" if control.scaling is Scaling.STOP else ""


def serve(
    port: int, metrics: Callable[[], bytes], status: Callable[[], StatusSnapshot]
) -> ThreadingHTTPServer:
    """Listen on loopback; the caller ends it with `shutdown`."""
    routes: Mapping[str, tuple[str, Callable[[], bytes]]] = {
        "/metrics": (TEXT, metrics),
        "/status": (JSON, lambda: to_json(status())),
    }

    class Handler(BaseHTTPRequestHandler):
        timeout = READ_S
        protocol_version = "HTTP/1.0"  # one request a connection
        server_version, sys_version = "gpucluster", ""

        def do_GET(self) -> None:
            kind, make = routes.get(self.path, (TEXT, None))
            body = make() if make else b"/metrics, /status\n"
            self.send_response(200 if make else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- http.server's name
            """Log no scrape."""

    server = _StatusServer((LOOPBACK, port), Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def read(port: int) -> StatusSnapshot | None:
    """Return what the daemon publishes; None if it does not answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{LOOPBACK}:{port}/status", timeout=ANSWER_S) as answer:
            return from_json(answer.read(MAX_STATUS))
    except (OSError, ValueError):
        return None


def to_json(status: StatusSnapshot) -> bytes:
    """The body of `/status`."""
    return codec.dumps(status).encode()


def from_json(body: bytes) -> StatusSnapshot:
    """Parse the body of `/status`; ValueError: another version of the daemon wrote it."""
    return codec.loads(StatusSnapshot, body)


class _StatusServer(Server):
    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing of a client that hangs up."""
