"""Two whole daemons except their edges, with one journal, Slurm, cloud and control object, in virtual time.

A daemon can be put to sleep at any failpoint and at any call of the bucket. The world and the other daemon continue, and
then it resumes at the same place. Each daemon has its own clock, with another offset and rate.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpucluster.cloud.port import CloudError, Control, ControlPort, Instance, Scaling, Stamped
from gpucluster.elastic.act import Clients, Failpoint
from gpucluster.elastic.events import LaunchRequested
from gpucluster.elastic.executors import InlineExecutor
from gpucluster.elastic.journal import FencedError, Journal, fence_of, read_only
from gpucluster.elastic.lease import Lease, LeaseLostError, LocalHolders
from gpucluster.elastic.reconciler import Reconciler
from gpucluster.elastic.registration import RegistrationService
from gpucluster.plan.model import SlurmOnAws
from support.fleet import START, Fleet

TTL_S = 30.0
EVACUATES = ("update_nodes", "requeue", "signal")  # of update_nodes only `drain`: test_lost_dependencies.py


@dataclass(frozen=True)
class Nap:
    """The daemon sleeps for this time at its n-th point."""

    daemon: int
    at: int
    seconds: float


@dataclass
class Watched:
    """A port that checks each change: only the holder of the lease may act at that moment.

    The daemon may sleep in the call itself, after the check. Then only the client token prevents a second launch.
    """

    port: Any
    acts: Callable[[str], None]
    rest: Callable[[], None]
    changes: Sequence[str]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.port, name)
        if name not in self.changes:
            return found

        def checked(*arguments: Any, **named: Any) -> Any:
            self.acts(name)
            self.rest()
            return found(*arguments, **named)

        return checked


@dataclass
class Bucket(ControlPort):
    """The control object from one daemon: it may sleep before the call, and before it has the answer."""

    port: ControlPort
    rest: Callable[[], None]

    def read(self) -> Control:
        self.rest()
        return self.port.read()

    def last_readable(self) -> Control | None:
        self.rest()
        return self.port.last_readable()

    def scale(self, scaling: Scaling, by: str) -> Control:
        return self.port.scale(scaling, by)

    def stamped(self) -> Stamped:
        self.rest()
        seen = self.port.stamped()
        self.rest()
        return seen

    def write(self, control: Control, etag: str | None) -> str | None:
        self.rest()
        try:
            return self.port.write(control, etag)
        finally:
            self.rest()


@dataclass
class Side:
    """One of the two daemons."""

    number: int
    offset: float
    rate: float
    lease: Lease = field(init=False)
    reconciler: Reconciler | None = None
    journal: Journal | None = None
    points: int = 0
    lives: int = 0
    renewed_at: float = 0.0


class Pair(Fleet):
    """As a Fleet; `naps` are the sleeps of each daemon, `offsets` and `rates` belong to the two clocks."""

    def __init__(
        self,
        plan: SlurmOnAws,
        folder: Path,
        *,
        naps: Sequence[Nap] = (),
        offsets: tuple[float, float] = (0.0, 0.0),
        rates: tuple[float, float] = (1.0, 1.0),
        version: str = "24.11",
    ) -> None:
        self.sides = [Side(n, offsets[n], rates[n]) for n in range(2)]
        self.naps = {(nap.daemon, nap.at): nap.seconds for nap in naps}
        self.asleep: set[int] = set()
        self.dead: set[str] = set()  # identities whose process is known to be gone
        self.slept = self.stolen = 0
        self.asks: dict[str, tuple[str, ...]] = {}
        super().__init__(plan, folder, version=version)

    def start(self) -> None:
        self.registration = RegistrationService(
            lambda body: (0, body), receive=self._said, observe=self._ring
        )
        for side in self.sides:
            self.start_daemon(side)

    def start_daemon(self, side: Side) -> None:
        """Start a new process, which holds no lease."""
        if side.journal is not None:
            side.journal.close()
        side.lives, side.reconciler, side.journal = side.lives + 1, None, None
        side.lease = Lease(
            Bucket(self.control, lambda: self.rest(side)),
            f"head-{side.number}/boot/{side.lives}/n",
            TTL_S,
            clock=lambda: side.offset + (self.now - START) * side.rate,
            wall=lambda: self.now + side.offset,
            local_holders=LocalHolders(has_ended=lambda holder: holder in self.dead, kill=lambda _: None),
            known_epoch=lambda: fence_of(self.folder / "journal.sqlite"),
        )

    def kill(self, side: Side) -> None:
        """End the process, as kill -9 does. Only for a daemon that is not inside a call."""
        if side.number not in self.asleep:
            self.dead.add(f"head-{side.number}/boot/{side.lives}/n")
            self.start_daemon(side)

    def end(self) -> None:
        """Close the journals."""
        for side in self.sides:
            if side.journal is not None:
                side.journal.close()

    # --- one turn of both -------------------------------------------------------------------------
    def look(self) -> None:
        for side in self.sides:
            if side.number not in self.asleep:
                with contextlib.suppress(CloudError):
                    self._turn(side)
        self._look_at = self.now + 2.0

    def _hear(self) -> None:
        """The daemon that has or had the lease listens to the queue."""
        for side in self.sides:
            if side.reconciler is not None and side.number not in self.asleep:
                if events := self.queue.receive(0.0):
                    side.reconciler.receive_events(events)
                    self._ring()
                return

    def _turn(self, side: Side) -> None:
        lives = side.lives
        self.asleep.add(side.number)  # inside a call: not entered again
        try:
            self._acts(side)
        except (FencedError, LeaseLostError):
            self.stolen += 1
            if lives == side.lives:
                self.start_daemon(side)
        finally:
            self.asleep.discard(side.number)

    def _acts(self, side: Side) -> None:
        side.lease.tick()
        if side.reconciler is None:
            if side.lease.watch():
                return
            self.rest(side)  # the lease is taken, and the journal is not open yet
            side.journal = Journal.open(self.folder / "journal.sqlite", self.now, side.lease.epoch)
            side.reconciler = self._reconciler(side, side.journal)
            side.renewed_at = self.now
        if self.now - side.renewed_at >= side.lease.renew_every_s:
            try:
                side.lease.renew()
                side.reconciler.note_renewal(None)
            except CloudError as error:
                side.reconciler.note_renewal(str(error))
            side.renewed_at = self.now
        side.reconciler.read_spool()
        side.reconciler.observe()

    def _reconciler(self, side: Side, journal: Journal) -> Reconciler:
        executor = InlineExecutor()
        clients = Clients(
            cluster=self.plan.name,
            times=self.plan.times,
            cloud=self._watched(side, self.cloud, "launch", "fleet", "terminate"),
            slurm=self._watched(side, self.slurm, "update_nodes", "requeue", "signal"),
            control=Bucket(self.control, lambda: self.rest(side)),
            journal=journal,
            cloud_executor=executor,
            slurm_executor=executor,
            clock=lambda: self.now,
            start_pass=self._ring,
            hit=lambda point: self._trips(side, point),
            notices=self.queue,
            lease=side.lease,
        )
        return Reconciler(
            self.plan, self.bindings, clients, self.folder / "spool",
            publish_nodes=lambda snapshot: setattr(self.registration, "snapshot", snapshot), warn=self.complaints.append,
        )  # fmt: skip

    def _watched(self, side: Side, port: object, *changes: str) -> Any:
        return Watched(port, lambda name: self._acting(side, name), lambda: self.rest(side), changes)

    # --- sleep ------------------------------------------------------------------------------------
    def _trips(self, side: Side, point: Failpoint) -> None:
        self.rest(side)

    def rest(self, side: Side) -> None:
        """Sleep here, if the schedule says so; the rest of the world continues."""
        side.points += 1
        seconds = self.naps.pop((side.number, side.points), 0.0)
        if seconds:
            self.slept += 1
            self.run(seconds)

    # --- what must hold ---------------------------------------------------------------------------
    def _acting(self, side: Side, name: str) -> None:
        """Only the holder acts. A last holder that is cut off from the bucket may evacuate while nobody else is the holder."""
        evacuates = name in EVACUATES and side.lease.cut_off()
        assert side.lease.held() or evacuates, f"{name} by daemon {side.number}, which may not"
        self._one_holder()
        assert side.lease.held() or not any(other.lease.held() for other in self.sides), (
            f"{name} beside a holder"
        )

    def _one_holder(self) -> None:
        assert not all(side.lease.held() for side in self.sides), "two daemons may act"

    def check(self) -> None:
        self._one_holder()
        holder = next((s for s in self.sides if s.journal is not None and s.lease.held()), None)
        if holder is not None and holder.journal is not None:
            self.journal = holder.journal
            super().check()
        self._one_each()

    def _one_each(self) -> None:
        """Assert that no slot has two living instances, whichever daemon launched them."""
        served: dict[str, str] = {}
        for instance in self.living():
            slot = self._slot_of(instance)
            assert served.setdefault(slot, instance.id) == instance.id, f"{slot} has two: {self.report()}"

    def _slot_of(self, instance: Instance) -> str:
        """Return the slot of an instance, by the order of ids in its request from the journal."""
        token = instance.token or ""
        if token not in self.asks:
            entries = read_only(self.folder / "journal.sqlite")
            events = [e.event for e in entries if isinstance(e.event, LaunchRequested)]
            self.asks |= {e.request.token: e.request.slots for e in events}
        made = sorted(i.id for i in self.model.describe((), self.now) if i.spec.token == token)
        return self.asks[token][made.index(instance.id)]

    def _said(self, report: Any) -> None:
        for side in self.sides:
            if side.reconciler is not None:
                side.reconciler.receive_report(report)
        self._ring()
