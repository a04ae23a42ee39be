"""`python -m gpucluster.elastic.daemon`: the edge of the loop: clock, threads, sockets, signals.

One thread owns all state and runs what is put in its inbox; a small pool speaks to the cloud, one serial lane to
slurmctld, and the registration server's threads only read a snapshot.
"""

import argparse
import contextlib
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty

from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import CloudPort, ControlPort
from gpucluster.elastic import registration
from gpucluster.elastic.act import Hands
from gpucluster.elastic.decide import decide
from gpucluster.elastic.journal import Journal, read_only
from gpucluster.elastic.keeper import Keeper
from gpucluster.elastic.lanes import Inbox, Threads
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import CloudView, Observation
from gpucluster.elastic.scontrol import Scontrol, SlurmPort
from gpucluster.elastic.words import describe
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.plan import codec, names
from gpucluster.plan.messages import NodeReport
from gpucluster.plan.model import Bindings, ClusterPlan, there

SCAN_S = 1.0  # the spool is looked at so often, when no datagram comes
CLOUD_THREADS = 4  # launches of several gangs at once; EC2's own bucket is 5
log = logging.getLogger("gpucluster.elastic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Where everything stands on the head."""

    bundle: Path = Path(names.BUNDLE_DIR)
    journal: Path = Path(names.JOURNAL)
    spool: Path = Path(names.SPOOL)
    wake: Path = Path(names.WAKE_SOCKET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What the daemon speaks to."""

    cloud: CloudPort
    slurm: SlurmPort
    control: ControlPort


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; `--dry-run` only says what would be done now."""
    parser = argparse.ArgumentParser(prog="gpucluster.elastic.daemon")
    parser.add_argument("--dry-run", action="store_true", help="print what would be done now, and end")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    try:
        plan, bindings = load(Paths().bundle)
        if options.dry_run:
            return _dry_run(plan, bindings, Paths(), real_ports(bindings))
        daemon = Daemon(plan, bindings, Paths(), real_ports(bindings))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: daemon.stop())
        daemon.run()
    except GpuclusterError as error:
        log.critical("%s", error)
        return error.exit_code
    return 0


def load(bundle: Path) -> tuple[ClusterPlan, Bindings]:
    """Plan and bindings as the agent put them."""
    try:
        plan = codec.loads(ClusterPlan, (bundle / names.PLAN_FILE).read_bytes())
        bindings = codec.loads(Bindings, (bundle / names.BINDINGS_FILE).read_bytes())
    except (OSError, ValueError) as error:
        raise StateError(f"the bundle cannot be read: {error}", next_step="see gpucluster-agent") from error
    return plan, bindings


def real_ports(bindings: Bindings) -> Ports:
    """AWS (or what stands in for it at the endpoint of the environment) and the head's own slurmctld."""
    return Ports(
        cloud=AwsCloud(bindings.region),
        slurm=Scontrol(),
        control=S3Control(bindings.region, bindings.bucket),
    )


class Daemon:
    """Owns the inbox, and gives every other thread a way into it."""

    def __init__(self, plan: ClusterPlan, bindings: Bindings, paths: Paths, ports: Ports) -> None:
        self._plan, self._paths = plan, paths
        self._inbox: Inbox = Inbox()
        self._stop = self._rung = self._looking = False
        self._look_at = self._scan_at = 0.0  # monotonic
        self._told: str | None = None
        self._clouds = Threads("cloud", CLOUD_THREADS, self._inbox)
        self._slurms = Threads("scontrol", 1, self._inbox)
        self._journal = Journal.open(paths.journal, time.time())
        self._desk = registration.Desk(
            registration.unmunge,
            heard=lambda report: self._inbox.put(lambda: self._hear(report)),
            nudge=lambda: self._inbox.put(self._ring),
        )
        self._keeper = Keeper(
            plan,
            bindings,
            self._hands(ports),
            paths.spool,
            published=self._publish,
            complain=self._complain,
        )

    def run(self) -> None:
        """Until `stop`; what is under way is finished, or repeated by the next start."""
        head = there(self._plan.head)
        server = registration.serve(head.address, head.registration_port, self._desk)
        bell = listen(self._paths.wake, lambda: self._inbox.put(self._ring))
        log.info(
            "ready: cluster %s, registration on %s:%d", self._plan.name, head.address, head.registration_port
        )
        try:
            while not self._stop:
                self._turn()
        finally:
            server.shutdown()
            server.server_close()
            bell.shutdown(socket.SHUT_RDWR)  # wakes its thread, which then meets a closed socket
            bell.close()
            self._clouds.close()
            self._slurms.close()
            self._journal.close()
            log.info("ended")

    def stop(self) -> None:
        """End `run`. Any thread or signal may call: SimpleQueue.put can be entered again."""
        self._inbox.put(self._end)

    def _turn(self) -> None:
        """Run one thing from the inbox, then what is due."""
        wait = min(self._scan_at, self._look_at) - time.monotonic()
        before = self._journal.memory
        with contextlib.suppress(Empty):
            self._inbox.get(timeout=max(0.0, min(wait, SCAN_S)))()
        now = time.monotonic()
        if now >= self._scan_at or self._rung:
            self._scan_at = now + SCAN_S
            self._rung = self._keeper.take_hooks() or self._rung
        self._look(now)
        if self._journal.memory is not before:
            self._keeper.publish()

    def _look(self, now: float) -> None:
        if self._looking and not self._keeper.looking:
            self._looking, self._look_at = False, now + self._keeper.next_look_s
        if not self._looking and (self._rung or now >= self._look_at):
            self._rung, self._looking = False, True
            self._look_at = now + SCAN_S  # only bounds the wait; the look's own end sets it
            self._keeper.look()

    def _ring(self) -> None:
        self._rung = True

    def _end(self) -> None:
        self._stop = True

    def _hear(self, report: NodeReport) -> None:
        if self._keeper.hear(report):
            self._rung = True

    def _publish(self, snapshot: registration.Snapshot) -> None:
        self._desk.snapshot = snapshot

    def _complain(self, words: str) -> None:
        """Say a trouble once, not at each look."""
        if words != self._told:
            log.warning("%s", words)
        self._told = words

    def _hands(self, ports: Ports) -> Hands:
        return Hands(
            cluster=self._plan.name,
            times=self._plan.times,
            cloud=ports.cloud,
            slurm=ports.slurm,
            control=ports.control,
            journal=self._journal,
            clouds=self._clouds,
            slurms=self._slurms,
            clock=time.time,
            ring=self._ring,
            trip=lambda _: None,
        )


def listen(path: Path, ring: Callable[[], object]) -> socket.socket:
    """The hooks' bell: a datagram socket that a thread reads. It ends with the socket."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    bell.bind(str(path))

    def hear() -> None:
        while True:
            try:
                bell.recv(64)
            except OSError:
                return
            ring()

    threading.Thread(target=hear, name="bell", daemon=True).start()
    return bell


def _dry_run(plan: ClusterPlan, bindings: Bindings, paths: Paths, ports: Ports) -> int:
    memory = fold(Memory(), read_only(paths.journal))
    now = time.time()
    listed = ports.cloud.instances(plan.name)
    cloud = CloudView(at=now, instances={i.id: i for i in listed})
    seen = Observation(slurm=ports.slurm.look(now), cloud=cloud)
    for action in decide(plan, bindings, seen, memory, now):
        log.info("%s", describe(action))
    return 0


if __name__ == "__main__":
    sys.exit(main())
