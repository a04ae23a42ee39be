"""`python -m gpucluster.elastic.daemon`: the edge of the loop: clock, threads, sockets, signals.

One thread owns all state and runs what is put in its inbox; a small pool speaks to the cloud, one serial lane to
slurmctld, one renews the lease, one waits at the queue, and the registration server's threads only read a snapshot.
A daemon that does not hold the lease waits for it, and has neither journal nor socket open.
"""

import argparse
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING

from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import CloudError, CloudPort, ControlPort, NoticePort, Told
from gpucluster.cloud.queue import SqsNotices
from gpucluster.elastic import registration, shown
from gpucluster.elastic.act import Failpoint, Hands
from gpucluster.elastic.ears import listen, listen_to_queue
from gpucluster.elastic.journal import Journal
from gpucluster.elastic.keeper import Keeper, News
from gpucluster.elastic.lanes import Inbox, Threads
from gpucluster.elastic.lease import Alone, Lease, LeaseLostError
from gpucluster.elastic.scontrol import Scontrol, SlurmPort
from gpucluster.elastic.sight import Sight
from gpucluster.elastic.standby import Standby, lease_of
from gpucluster.elastic.trips import trip_of
from gpucluster.elastic.words import OneLine
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.plan import codec, names
from gpucluster.plan.messages import NodeReport
from gpucluster.plan.model import Bindings, ClusterPlan, there

if TYPE_CHECKING:
    from gpucluster.elastic.metrics import Meter

SCAN_S = 1.0  # the spool is looked at so often, when no datagram comes
CLOUD_THREADS = 4  # launches of several gangs at once; EC2's own bucket is 5
RENEW_AGAIN_S = 1.0  # after a renewal that had no answer
QUIET_S = 300.0  # a trouble that was not heard of for so long is a new one; a look is due each minute
log = logging.getLogger("gpucluster.elastic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Where everything stands on the head."""

    bundle: Path = Path(names.BUNDLE_DIR)
    journal: Path = Path(names.JOURNAL)
    spool: Path = Path(names.SPOOL)
    wake: Path = Path(names.WAKE_SOCKET)
    metrics_port: int = names.METRICS_PORT


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What the daemon speaks to."""

    cloud: CloudPort
    slurm: SlurmPort
    control: ControlPort
    notices: NoticePort | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """How it may act, and what a rehearsal does at its failpoints."""

    lease: Lease | Alone = field(default_factory=Alone)
    trip: Callable[[Failpoint], None] = lambda _: None


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; `--dry-run` only says what would be done now."""
    parser = argparse.ArgumentParser(prog="gpucluster.elastic.daemon")
    parser.add_argument("--dry-run", action="store_true", help="print what would be done now, and end")
    options = parser.parse_args(argv)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(OneLine("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        if options.dry_run:
            from gpucluster.elastic import reconcile  # noqa: PLC0415  it reads what this module need not

            return reconcile.main(["--dry-run"])
        _run(Paths())
    except GpuclusterError as error:
        log.critical("%s", error)
        return error.exit_code
    return 0


def _run(paths: Paths) -> None:
    """Wait for the lease, then be the daemon, until told to end."""
    plan, bindings = load(paths.bundle)
    trip = trip_of(os.environ, Path(names.ENDPOINT_FILE), paths.journal.parent)
    second = socket.gethostname() == names.standby_name(plan.name)
    lease = lease_of(
        real_ports(bindings).control, plan.times.lease_s, paths.journal, time.time, patient=second
    )
    standby = Standby(lease)
    _end_with(standby.stop)
    if not standby.wait():
        return
    trip(Failpoint.AFTER_LEASE)
    plan, bindings = load(paths.bundle)  # it may have changed in a long wait
    daemon = Daemon(plan, bindings, paths, real_ports(bindings), Means(lease=lease, trip=trip))
    _end_with(daemon.stop)
    if standby.told_to_end:  # between the two
        daemon.stop()
    daemon.run()


def _end_with(stop: Callable[[], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stop())


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
        notices=SqsNotices(bindings.region, bindings.queue) if bindings.queue else None,
    )


class Daemon:
    """Owns the inbox, and gives every other thread a way into it."""

    def __init__(
        self,
        plan: ClusterPlan,
        bindings: Bindings,
        paths: Paths,
        ports: Ports,
        means: Means | None = None,
    ) -> None:
        self._plan, self._paths, self._means = plan, paths, means or Means()
        self._notices = ports.notices
        self._inbox: Inbox = Inbox()
        self._stop = self._rung = self._hot = self._looking = self._renewing = False
        self._look_at = self._scan_at = self._renew_at = 0.0  # monotonic
        self._ended = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._window: ThreadingHTTPServer | None = None
        self._told: dict[
            str, tuple[str, float]
        ] = {}  # by whose it is: the words, and when they were heard last
        self._clouds = Threads("cloud", CLOUD_THREADS, self._inbox)
        self._slurms = Threads("scontrol", 1, self._inbox)
        self._leases = Threads("lease", 1, self._inbox)
        lease = self._means.lease
        epoch = lease.epoch if isinstance(lease, Lease) else None
        shared = plan.head is not None and plan.head.standby is not None
        self._journal = Journal.open(paths.journal, time.time(), epoch, shared=shared)
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
        self._meter = self._metered(bindings)

    def run(self) -> None:
        """Until `stop`; what is under way is finished, or repeated by the next start."""
        bell = listen(self._paths.wake, lambda: self._inbox.put(self._ring))
        self._listen_to_queue()
        try:
            while not self._stop:
                self._turn()
        finally:
            self._ended.set()
            self._close_desk()
            bell.shutdown(socket.SHUT_RDWR)  # wakes its thread, which then meets a closed socket
            bell.close()
            for lane in (self._clouds, self._slurms, self._leases):
                lane.close()
            self._journal.close()
            self._release()
            log.info("ended")

    def stop(self) -> None:
        """End `run`. Any thread or signal may call: SimpleQueue.put can be entered again."""
        self._inbox.put(self._end)

    def _turn(self) -> None:
        """Run one thing from the inbox, then what is due."""
        wait = min(self._scan_at, self._look_at) - time.monotonic()
        before = self._journal.memory
        work: Callable[[], None] = lambda: None  # noqa: E731
        with contextlib.suppress(Empty):
            work = self._inbox.get(timeout=max(0.0, min(wait, SCAN_S)))
        began = time.monotonic()
        work()
        now = time.monotonic()
        self._renew(now)
        if now >= self._scan_at or self._rung:
            self._scan_at = now + SCAN_S
            self._open_desk()
            self._open_window()
            self._rung = self._keeper.take_hooks() or self._rung
        if self._hot:
            self._hot, self._rung = False, True
            self._keeper.react()
        self._look(now)
        if self._journal.memory is not before:
            self._keeper.publish()
        if self._meter is not None:
            self._meter.turned(time.monotonic() - began)

    def _renew(self, now: float) -> None:
        lease = self._means.lease
        if isinstance(lease, Lease) and not self._renewing and now >= self._renew_at:
            self._renewing, self._renew_at = True, now + lease.renew_every_s
            self._means.trip(Failpoint.BEFORE_RENEWAL)
            self._leases.submit(lambda: _error_of(lease), self._renewed)

    def _renewed(self, error: CloudError | LeaseLostError | None) -> None:
        self._means.trip(Failpoint.AFTER_RENEWAL)
        self._renewing = False
        if isinstance(error, LeaseLostError):
            raise error
        if error is not None:
            self._renew_at = time.monotonic() + RENEW_AGAIN_S
            self._complain(f"the lease: {error}")

    def _release(self) -> None:
        """What is under way has ended; whoever waits need not wait longer."""
        lease = self._means.lease
        if isinstance(lease, Lease):
            with contextlib.suppress(CloudError):
                lease.release()

    def _open_desk(self) -> None:
        """A frozen daemon of another user may still have the port: then nodes ask again, and so do we."""
        if self._server is not None:
            return
        head = there(self._plan.head)
        try:
            self._server = registration.serve_here(head.addresses, head.registration_port, self._desk)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            self._complain(f"registration: port {head.registration_port} is taken; asked again")
            return
        address, port = self._server.server_address[:2]
        log.info("ready: cluster %s, registration on %s:%d", self._plan.name, address, port)

    def _close_desk(self) -> None:
        for server in (self._server, self._window):
            if server is not None:
                server.shutdown()
                server.server_close()

    def _metered(self, bindings: Bindings) -> "Meter | None":
        """An image of before metrics lacks the library: it is said, and nothing else."""
        try:
            from gpucluster.elastic.metrics import Meter, Office  # noqa: PLC0415  only the daemon has metrics
        except ModuleNotFoundError as error:
            log.warning("no metrics: %s", error)
            return None
        lease = self._means.lease
        meter = Meter(
            lambda: Sight(
                plan=self._plan,
                bindings=bindings,
                seen=self._keeper.seen,
                memory=self._journal.memory,
                now=time.time(),
            ),
            lambda: Office(held=lease.held(), holder=lease.me),
        )
        self._journal.watch = meter.count
        return meter

    def _open_window(self) -> None:
        """Metrics, and what `why` asks. Where the port is taken the daemon goes on without, and tries again."""
        if self._window is None:
            meter = self._meter
            metrics = meter.text if meter is not None else lambda: b""
            try:
                self._window = shown.serve(self._paths.metrics_port, metrics, lambda: self._keeper.overheard)
            except OSError as error:
                self._complain(f"metrics: port {self._paths.metrics_port}: {error.strerror}")

    def _listen_to_queue(self) -> None:
        if self._notices is not None:
            listen_to_queue(
                self._notices,
                self._ended,
                told=lambda messages: self._inbox.put(lambda: self._tell(messages)),
                complain=lambda words: self._inbox.put(lambda: self._complain(words)),
            )

    def _look(self, now: float) -> None:
        if self._looking and not self._keeper.looking:
            self._looking, self._look_at = False, now + self._keeper.next_look_s
        if not self._looking and (self._rung or now >= self._look_at):
            urgent, self._rung, self._looking = self._rung, False, True
            self._look_at = now + SCAN_S  # only bounds the wait; the look's own end sets it
            self._keeper.look(urgent=urgent)

    def _ring(self) -> None:
        self._rung = True

    def _react(self) -> None:
        """Decide on what is known, then look: what happened is in no view."""
        self._hot = True

    def _end(self) -> None:
        self._stop = True

    def _hear(self, report: NodeReport) -> None:
        news = self._keeper.hear(report)
        self._rung = self._rung or bool(news)
        self._hot = self._hot or news is News.TROUBLE

    def _tell(self, told: tuple[Told, ...]) -> None:
        self._keeper.tell(told)
        self._react()

    def _publish(self, snapshot: registration.Snapshot) -> None:
        self._desk.snapshot = snapshot

    def _complain(self, words: str) -> None:
        """Say a trouble once, not at each look; one that comes back is said again."""
        whose, now = words.partition(":")[0], time.monotonic()
        said, at = self._told.get(whose, ("", 0.0))
        if words != said or at + QUIET_S < now:
            log.warning("%s", words)
        self._told[whose] = (words, now)

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
            ring=self._react,
            trip=self._means.trip,
            notices=ports.notices,
            lease=self._means.lease,
        )


def _error_of(lease: Lease) -> CloudError | LeaseLostError | None:
    try:
        lease.renew()
    except (CloudError, LeaseLostError) as error:
        return error
    return None


if __name__ == "__main__":
    sys.exit(main())
