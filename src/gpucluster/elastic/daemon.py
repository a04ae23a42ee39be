"""`python -m gpucluster.elastic.daemon`: the daemon's process: clock, threads, sockets, signals.

One thread owns all state and runs the calls in its inbox. A small pool of threads calls the cloud, one thread calls
scontrol, one renews the lease, one polls the queue. The threads of the registration server only read a snapshot.
A daemon without the lease waits for it, with neither the journal nor a socket open. The thread that owns the state ticks for
systemd's watchdog, so nothing that it calls may wait long: `notifier.WATCHDOG_S`.
"""

import argparse
import contextlib
import errno
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING

from gpucluster import gc_control
from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.bucket_object import BucketObject
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import (
    CloudError,
    CloudPort,
    ControlPort,
    NoticePort,
    ObjectPort,
    QueueNotice,
    TopologyPort,
    TrialPort,
)
from gpucluster.cloud.queue import SqsNotices
from gpucluster.elastic import registration, status_endpoint
from gpucluster.elastic.act import Clients, Failpoint
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.executors import Inbox, ThreadExecutor
from gpucluster.elastic.failpoints import failpoint_hits
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.intent_copy import IntentCopy
from gpucluster.elastic.journal import Journal
from gpucluster.elastic.launch_trials import LaunchTrials
from gpucluster.elastic.lease import AlwaysHeld, Lease, LeaseLostError
from gpucluster.elastic.listeners import listen_to_hooks, listen_to_queue
from gpucluster.elastic.log_lines import OneLine
from gpucluster.elastic.model import LaunchTrial
from gpucluster.elastic.notifier import ACTS, NO_LEASE, Notifier
from gpucluster.elastic.reconciler import Reaction, Reconciler
from gpucluster.elastic.standby import Standby, lease_of
from gpucluster.elastic.topology_observer import TopologyObserver
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.plan import codec, names, plan_json
from gpucluster.plan.messages import NodeReport
from gpucluster.plan.model import Bindings, SlurmPlan
from gpucluster.slurm.client import Scontrol, SlurmPort

if TYPE_CHECKING:
    from gpucluster.elastic.inspect.metrics import Meter

SCAN_S = 1.0  # between two reads of the spool, when no datagram comes
CLOUD_THREADS = 4  # launches of several gangs at once; the token bucket of RunInstances holds 5
RENEW_AGAIN_S = 1.0  # after a renewal without an answer
QUIET_S = 300.0  # the same warning is logged again after a pause this long; a pass is due each minute
log = logging.getLogger("gpucluster.elastic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Files and ports of the daemon on the head."""

    bundle: Path = Path(names.BUNDLE_DIR)
    journal: Path = Path(names.JOURNAL)
    spool: Path = Path(names.SPOOL)
    wake: Path = Path(names.WAKE_SOCKET)
    held: Path = Path(names.HELD_BUNDLE)
    topology: Path = Path(names.SEEN_TOPOLOGY)
    controller: Path = Path(names.CONTROLLER_WATCH)
    metrics_port: int = names.METRICS_PORT


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The services that the daemon calls."""

    cloud: CloudPort
    slurm: SlurmPort
    control: ControlPort
    notices: NoticePort | None = None
    topology: TopologyPort | None = None
    trials: TrialPort | None = None
    orders: ObjectPort | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The daemon's lease, how it tells systemd that it lives, and the function that is called at each failpoint."""

    lease: Lease | AlwaysHeld = field(default_factory=AlwaysHeld)
    notifier: Notifier = field(default_factory=Notifier)
    hit: Callable[[Failpoint], None] = lambda _: None


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM. With `--dry-run`: print what the daemon would do now, and end."""
    parser = argparse.ArgumentParser(
        prog="gpucluster.elastic.daemon",
        description="Launch, watch and terminate the instances of this cluster's Slurm nodes, until SIGTERM.",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what the daemon would do now, do nothing, and end"
    )
    options = parser.parse_args(argv)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(OneLine("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        if options.dry_run:
            from gpucluster.elastic.inspect import reconcile  # noqa: PLC0415  only the dry run needs it

            return reconcile.main(["--dry-run"])
        faulthandler.enable()  # the watchdog's SIGABRT writes into the log where each thread is
        _run(Paths(), Notifier.from_environ(os.environ))
    except GpuclusterError as error:
        log.critical("%s", error)
        return error.exit_code
    return 0


def _run(paths: Paths, notifier: Notifier) -> None:
    """Wait for the lease, then run the daemon until a signal stops it."""
    plan, bindings = load(paths.bundle)
    notifier.ready()  # before the lease: the agent does not wait for that
    hit = failpoint_hits(os.environ, Path(names.ENDPOINT_FILE), paths.journal.parent)
    on_standby = socket.gethostname() == names.standby_name(plan.name)
    # Who waits for the lease, and who renews it, calls again within two seconds.
    control = S3Control(bindings.region, bindings.bucket, attempts=1, before=notifier.tick)
    lease = lease_of(
        control,
        plan.times.lease_s,
        paths.journal,
        time.time,
        on_standby=on_standby,
        two_heads=plan.head.standby is not None,
    )
    standby = Standby(lease, notifier)
    _end_with(standby.stop)
    if not standby.wait():
        return
    hit(Failpoint.AFTER_LEASE)
    plan, bindings = load(paths.bundle)  # the bundle may have changed during the wait
    options = RunOptions(lease=lease, notifier=notifier, hit=hit)
    daemon = Daemon(plan, bindings, paths, real_ports(bindings), options)
    gc_control.freeze_loaded()  # else a collection in a burst looks at all models of boto3: 0.1 s
    _end_with(daemon.stop)
    if standby.stopped:  # a signal came before `daemon.stop` was its handler
        daemon.stop()
    daemon.run()


def _end_with(stop: Callable[[], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stop())


def load(bundle: Path) -> tuple[SlurmPlan, Bindings]:
    """Return the plan and the bindings of the applied bundle. StateError: they cannot be read."""
    try:
        plan = plan_json.load_slurm((bundle / names.PLAN_FILE).read_bytes())
        bindings = codec.loads(Bindings, (bundle / names.BINDINGS_FILE).read_bytes())
    except (OSError, ValueError) as error:
        raise StateError(f"the bundle cannot be read: {error}", next_step="see gpucluster-agent") from error
    return plan, bindings


def real_ports(bindings: Bindings) -> Ports:
    """Return clients of AWS (or of the endpoint that the environment names) and of the head's slurmctld."""
    cloud = AwsCloud(bindings.region)
    return Ports(
        cloud=cloud,
        topology=cloud,
        trials=cloud,
        slurm=Scontrol(),
        control=S3Control(bindings.region, bindings.bucket),
        notices=SqsNotices(bindings.region, bindings.queue) if bindings.queue else None,
        # One attempt: the daemon's start waits for the first read.
        orders=BucketObject(bindings.region, bindings.bucket, names.ORDERS_KEY, attempts=1),
    )


class Daemon:
    """Owns the inbox. All other threads reach the state only through it."""

    def __init__(
        self,
        plan: SlurmPlan,
        bindings: Bindings,
        paths: Paths,
        ports: Ports,
        options: RunOptions | None = None,
    ) -> None:
        self._plan, self._paths, self._options = plan, paths, options or RunOptions()
        self._notices, self._notifier = ports.notices, self._options.notifier
        self._inbox: Inbox = Inbox()
        self._stop = self._observe_due = self._decide_due = self._observing = self._renewing = False
        self._observe_at = self._scan_at = self._renew_at = 0.0  # monotonic
        self._ended = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._status_server: ThreadingHTTPServer | None = None
        self._warned: dict[str, tuple[str, float]] = {}  # subject -> the last warning and its time
        self._clouds = ThreadExecutor("cloud", CLOUD_THREADS, self._inbox)
        self._slurms = ThreadExecutor("scontrol", 1, self._inbox)
        self._leases = ThreadExecutor("lease", 1, self._inbox)
        lease = self._options.lease
        self._journal = Journal.open(
            paths.journal,
            time.time(),
            lease.epoch,
            shared=plan.head.standby is not None,
            first=lease.first and ports.orders is None,  # else the copy tells whether orders are lost
            last_epoch=lease.last_epoch,
            each_page=self._notifier.tick,
        )
        self._registration = registration.RegistrationService(
            registration.unmunge,
            receive=lambda report: self._inbox.put(lambda: self._receive_report(report)),
            observe=lambda: self._inbox.put(self._request_observation),
        )
        self._reconciler = Reconciler(
            plan,
            bindings,
            self._clients(ports),
            paths.spool,
            publish_nodes=self._publish,
            warn=self._warn,
            read_held=lambda: status_endpoint.read_held(paths.held),
            look_at_topology=self._observer(ports),
            try_launches=self._trials(ports),
        )
        self._copies = ThreadExecutor("copy", 1, self._inbox)
        self._copy = self._copied(ports.orders)
        self._meter = self._metered(bindings)

    def _copied(self, orders: ObjectPort | None) -> IntentCopy | None:
        """Return the copy of orders and spend after its first read."""
        if orders is None:
            return None
        copy = IntentCopy(
            orders,
            self._copies,
            self._journal,
            self._options.lease,
            clock=time.time,
            publish=self._reconciler.show_copy,
            first=self._options.lease.first,
        )
        self._notifier.tick()  # one attempt of S3 is below the watchdog's limit (notifier.WATCHDOG_S)
        copy.start()
        return copy

    def _observer(self, ports: Ports) -> Callable[[Mapping[str, str]], None]:
        if ports.topology is None:
            return lambda _: None
        return TopologyObserver(self._plan, ports.topology, self._paths.topology, time.time).look

    def _trials(self, ports: Ports) -> Callable[[float, Callable[[], World | None]], None]:
        if ports.trials is None:
            return lambda _now, _world: None

        def publish(answers: Mapping[str, LaunchTrial]) -> None:
            self._reconciler.show_trials(answers)

        return LaunchTrials(self._plan.name, ports.trials, self._clouds, publish).look

    def run(self) -> None:
        """Run until `stop`, then finish running calls. The next start repeats calls without an outcome."""
        hooks = listen_to_hooks(self._paths.wake, lambda: self._inbox.put(self._request_observation))
        self._listen_to_queue()
        self._tell_lease()
        try:
            while not self._stop:
                self._turn()
        finally:
            self._notifier.stopping()
            self._ended.set()
            self._close_servers()
            hooks.shutdown(socket.SHUT_RDWR)  # wakes the thread, which then ends because the socket is closed
            hooks.close()
            for executor in (self._clouds, self._slurms, self._leases, self._copies):
                executor.close()
            self._journal.close()
            self._release()
            log.info("ended")

    def stop(self) -> None:
        """End `run`. Any thread and any signal handler may call this: SimpleQueue.put is reentrant."""
        self._inbox.put(self._end)

    def _turn(self) -> None:
        """Run one call from the inbox, then all that is due."""
        self._notifier.tick()
        wait = min(self._scan_at, self._observe_at) - time.monotonic()
        before = self._journal.memory
        work: Callable[[], None] = lambda: None  # noqa: E731
        with contextlib.suppress(Empty):
            work = self._inbox.get(timeout=max(0.0, min(wait, SCAN_S)))
        began = time.monotonic()
        work()
        now = time.monotonic()
        self._renew(now)
        if now >= self._scan_at or self._observe_due:
            self._scan_at = now + SCAN_S
            self._open_registration()
            self._open_status_endpoint()
            self._observe_due = self._reconciler.read_spool() or self._observe_due
        if self._decide_due:
            self._decide_due, self._observe_due = False, True
            self._reconciler.decide_now()
        self._observe_if_due(now)
        if self._copy is not None:
            self._copy.step()
        if self._journal.memory is not before:
            self._reconciler.publish()
        if self._meter is not None:
            self._meter.turned(time.monotonic() - began)

    def _renew(self, now: float) -> None:
        lease = self._options.lease
        if not isinstance(lease, Lease):
            return
        lease.tick()
        self._reconciler.note_standing()
        if not self._renewing and now >= self._renew_at:
            self._renewing, self._renew_at = True, now + lease.renew_every_s
            self._options.hit(Failpoint.BEFORE_RENEWAL)
            self._leases.submit(lambda: _error_of(lease), self._renewed)

    def _renewed(self, error: CloudError | LeaseLostError | None) -> None:
        self._options.hit(Failpoint.AFTER_RENEWAL)
        self._renewing = False
        if isinstance(error, LeaseLostError):
            raise error
        if error is not None:
            self._renew_at = time.monotonic() + RENEW_AGAIN_S
            self._warn(f"the lease: {error}")
        self._reconciler.note_renewal(None if error is None else str(error))
        self._tell_lease(error)

    def _tell_lease(self, error: CloudError | None = None) -> None:
        """Tell systemd whether this daemon may act. A renewal may fail for some time before the lease is over."""
        lease = self._options.lease
        if lease.held():
            self._notifier.status(f"{ACTS}, as {lease.me}")
        elif error is not None:
            self._notifier.status(f"{NO_LEASE}the control object: {error}")

    def _release(self) -> None:
        """Release the lease, so that a waiting daemon need not wait for its end."""
        lease = self._options.lease
        if isinstance(lease, Lease):
            with contextlib.suppress(CloudError):
                lease.release()

    def _open_registration(self) -> None:
        """Listen for agents. If a frozen daemon still has the port, the next pass tries again, and the agents retry, too."""
        if self._server is not None:
            return
        head = self._plan.head
        try:
            self._server = registration.serve_here(head.addresses, head.registration_port, self._registration)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            self._warn(f"registration: port {head.registration_port} is taken; tried again")
            return
        address, port = self._server.server_address[:2]
        log.info("ready: cluster %s, registration on %s:%d", self._plan.name, address, port)

    def _close_servers(self) -> None:
        for server in (self._server, self._status_server):
            if server is not None:
                server.shutdown()
                server.server_close()

    def _metered(self, bindings: Bindings) -> "Meter | None":
        """Return the metrics; None with a warning where the image lacks the library."""
        try:
            from gpucluster.elastic.inspect.metrics import LeaseStatus, Meter  # noqa: PLC0415  only the daemon has metrics
        except ModuleNotFoundError as error:
            log.warning("no metrics: %s", error)
            return None
        lease = self._options.lease
        meter = Meter(
            lambda: ClusterSnapshot(
                plan=self._plan,
                bindings=bindings,
                observation=self._reconciler.observation,
                memory=self._journal.memory,
                now=time.time(),
                controller=status_endpoint.read_controller(self._paths.controller),
            ),
            lambda: LeaseStatus(held=lease.held(), holder=lease.me),
        )
        self._journal.watch = meter.count
        return meter

    def _open_status_endpoint(self) -> None:
        """Serve metrics and status. If the port is in use the daemon continues, and the next pass tries again."""
        if self._status_server is None:
            meter = self._meter
            metrics = meter.text if meter is not None else lambda: b""
            try:
                self._status_server = status_endpoint.serve(
                    self._paths.metrics_port, metrics, lambda: self._reconciler.status
                )
            except OSError as error:
                self._warn(f"metrics: port {self._paths.metrics_port}: {error.strerror}")

    def _listen_to_queue(self) -> None:
        if self._notices is not None:
            listen_to_queue(
                self._notices,
                self._ended,
                receive=lambda messages: self._inbox.put(lambda: self._receive_events(messages)),
                note=lambda error: self._inbox.put(lambda: self._note_queue(error)),
            )

    def _observe_if_due(self, now: float) -> None:
        if self._observing and not self._reconciler.observing:
            self._observing, self._observe_at = False, now + self._reconciler.next_pass_s
        if not self._observing and (self._observe_due or now >= self._observe_at):
            urgent, self._observe_due, self._observing = self._observe_due, False, True
            self._observe_at = now + SCAN_S  # until the observation ends and sets the time
            self._reconciler.observe(urgent=urgent)
        elif self._observing and (self._observe_due or now >= self._observe_at):
            self._observe_at = now + SCAN_S
            self._reconciler.look_at_slurm(urgent=self._observe_due)

    def _request_observation(self) -> None:
        self._observe_due = True

    def _decide_next(self) -> None:
        """Make the next turn decide on the last views, and then observe, because no view shows the event yet."""
        self._decide_due = True

    def _end(self) -> None:
        self._stop = True

    def _receive_report(self, report: NodeReport) -> None:
        reaction = self._reconciler.receive_report(report)
        self._observe_due = self._observe_due or bool(reaction)
        self._decide_due = self._decide_due or reaction is Reaction.DECIDE

    def _receive_events(self, events: tuple[QueueNotice, ...]) -> None:
        self._reconciler.receive_events(events)
        self._decide_next()

    def _note_queue(self, error: str) -> None:
        self._reconciler.note_queue(error)
        if error:
            self._warn(f"the queue: {error}")

    def _publish(self, snapshot: registration.RegistrationSnapshot) -> None:
        self._registration.snapshot = snapshot

    def _warn(self, words: str) -> None:
        """Log a problem once, not in each pass. It is logged again if it changes, or comes back after a pause."""
        subject, now = words.partition(":")[0], time.monotonic()
        last, at = self._warned.get(subject, ("", 0.0))
        if words != last or at + QUIET_S < now:
            log.warning("%s", words)
        self._warned[subject] = (words, now)

    def _clients(self, ports: Ports) -> Clients:
        return Clients(
            cluster=self._plan.name,
            times=self._plan.times,
            cloud=ports.cloud,
            slurm=ports.slurm,
            control=ports.control,
            journal=self._journal,
            cloud_executor=self._clouds,
            slurm_executor=self._slurms,
            clock=time.time,
            start_pass=self._decide_next,
            hit=self._options.hit,
            notices=ports.notices,
            lease=self._options.lease,
        )


def _error_of(lease: Lease) -> CloudError | LeaseLostError | None:
    try:
        lease.renew()
    except (CloudError, LeaseLostError) as error:
        return error
    return None


if __name__ == "__main__":
    sys.exit(main())
