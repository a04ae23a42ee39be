"""Two whole daemons but their edges, over one journal, one Slurm, one cloud and one control object, on virtual time.

A daemon can be put to sleep at any failpoint and at any call of the bucket: the world and the other one go on, and then
it wakes in the middle of what it did. Each has a clock of its own, set differently and of another speed.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet import START, Fleet

from gpucluster.cloud.port import CloudError, Control, ControlPort, Instance, Stamped
from gpucluster.elastic.act import Failpoint, Hands
from gpucluster.elastic.events import LaunchAsked
from gpucluster.elastic.journal import FencedError, Journal, fence_of, read_only
from gpucluster.elastic.keeper import Keeper
from gpucluster.elastic.lanes import Inline
from gpucluster.elastic.lease import Lease, LeaseLostError, Neighbours
from gpucluster.elastic.registration import Desk
from gpucluster.plan.model import ClusterPlan

TTL_S = 30.0


@dataclass(frozen=True)
class Nap:
    """The daemon sleeps so long at its n-th point."""

    daemon: int
    at: int
    seconds: float


@dataclass
class Watched:
    """A port whose every change is checked: nobody else may act at that moment, and whoever acts may.

    It may fall asleep in the call itself, where nothing can be asked any more: only the token helps then.
    """

    port: Any
    acts: Callable[[str], None]
    rest: Callable[[], None]
    changes: Sequence[str]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.port, name)
        if name not in self.changes:
            return found

        def checked(*arguments: Any) -> Any:
            self.acts(name)
            self.rest()
            return found(*arguments)

        return checked


@dataclass
class Bucket(ControlPort):
    """The control object as one daemon reaches it: it may fall asleep before the call, and before it has the answer."""

    port: ControlPort
    rest: Callable[[], None]

    def read(self) -> Control:
        return self.stamped().control

    def stop(self, by: str) -> None:
        self.port.stop(by)

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
    """One of the two."""

    number: int
    offset: float
    rate: float
    lease: Lease = field(init=False)
    keeper: Keeper | None = None
    journal: Journal | None = None
    points: int = 0
    lives: int = 0
    renewed_at: float = 0.0


class Pair(Fleet):
    """As a Fleet; `naps` say who sleeps when, `offsets` and `rates` are of the two clocks."""

    def __init__(
        self,
        plan: ClusterPlan,
        folder: Path,
        *,
        naps: Sequence[Nap] = (),
        offsets: tuple[float, float] = (0.0, 0.0),
        rates: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        self.sides = [Side(n, offsets[n], rates[n]) for n in range(2)]
        self.naps = {(nap.daemon, nap.at): nap.seconds for nap in naps}
        self.asleep: set[int] = set()
        self.dead: set[str] = set()  # identities whose process is known to be gone
        self.slept = self.stolen = 0
        self.asks: dict[str, tuple[str, ...]] = {}
        super().__init__(plan, folder)

    def start(self) -> None:
        self.desk = Desk(lambda body: (0, body), heard=self._said, nudge=self._ring)
        for side in self.sides:
            self.born(side)

    def born(self, side: Side) -> None:
        """A new process, which holds nothing."""
        if side.journal is not None:
            side.journal.close()
        side.lives, side.keeper, side.journal = side.lives + 1, None, None
        side.lease = Lease(
            Bucket(self.control, lambda: self.rest(side)),
            f"head-{side.number}/boot/{side.lives}/n",
            TTL_S,
            clock=lambda: side.offset + (self.now - START) * side.rate,
            wall=lambda: self.now + side.offset,
            neighbours=Neighbours(over=lambda holder: holder in self.dead, end=lambda _: None),
            known_epoch=lambda: fence_of(self.folder / "journal.sqlite"),
        )

    def kill(self, side: Side) -> None:
        """As kill -9, seen by the other; only of one that is not in the middle of something."""
        if side.number not in self.asleep:
            self.dead.add(f"head-{side.number}/boot/{side.lives}/n")
            self.born(side)

    def end(self) -> None:
        """Close what is open."""
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

    def _turn(self, side: Side) -> None:
        lives = side.lives
        self.asleep.add(side.number)  # in the middle of something: not entered again
        try:
            self._acts(side)
        except (FencedError, LeaseLostError):
            self.stolen += 1
            if lives == side.lives:
                self.born(side)
        finally:
            self.asleep.discard(side.number)

    def _acts(self, side: Side) -> None:
        if side.keeper is None:
            if side.lease.watch():
                return
            self.rest(side)  # taken, and the journal is not open yet
            side.journal = Journal.open(self.folder / "journal.sqlite", self.now, side.lease.epoch)
            side.keeper = self._keeper(side, side.journal)
            side.renewed_at = self.now
        if self.now - side.renewed_at >= side.lease.renew_every_s:
            with contextlib.suppress(CloudError):
                side.lease.renew()
            side.renewed_at = self.now
        side.keeper.take_hooks()
        side.keeper.look()

    def _keeper(self, side: Side, journal: Journal) -> Keeper:
        lane = Inline()
        hands = Hands(
            cluster=self.plan.name,
            times=self.plan.times,
            cloud=self._watched(side, self.cloud, "launch", "fleet", "terminate"),
            slurm=self._watched(side, self.slurm, "update_nodes", "requeue", "signal"),
            control=Bucket(self.control, lambda: self.rest(side)),
            journal=journal,
            clouds=lane,
            slurms=lane,
            clock=lambda: self.now,
            ring=self._ring,
            trip=lambda point: self._trips(side, point),
            lease=side.lease,
        )
        return Keeper(
            self.plan, self.bindings, hands, self.folder / "spool",
            published=lambda snapshot: setattr(self.desk, "snapshot", snapshot), complain=self.complaints.append,
        )  # fmt: skip

    def _watched(self, side: Side, port: object, *changes: str) -> Any:
        return Watched(port, lambda name: self._acting(side, name), lambda: self.rest(side), changes)

    # --- sleep ------------------------------------------------------------------------------------
    def _trips(self, side: Side, point: Failpoint) -> None:
        self.rest(side)

    def rest(self, side: Side) -> None:
        """Sleep here, if the schedule says so: the rest of the world goes on."""
        side.points += 1
        seconds = self.naps.pop((side.number, side.points), 0.0)
        if seconds:
            self.slept += 1
            self.run(seconds)

    # --- what must hold ---------------------------------------------------------------------------
    def _acting(self, side: Side, name: str) -> None:
        assert side.lease.held(), f"{name} by daemon {side.number}, which may not"
        self._one_holder()

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
        """No slot ever has two living instances, whoever launched them."""
        served: dict[str, str] = {}
        for instance in self.living():
            slot = self._slot_of(instance)
            assert served.setdefault(slot, instance.id) == instance.id, f"{slot} has two: {self.story()}"

    def _slot_of(self, instance: Instance) -> str:
        """By the order of the ids of its request, as the journal has it."""
        token = instance.token or ""
        if token not in self.asks:
            entries = read_only(self.folder / "journal.sqlite")
            events = [e.event for e in entries if isinstance(e.event, LaunchAsked)]
            self.asks |= {e.ask.token: e.ask.slots for e in events}
        made = sorted(i.id for i in self.model.describe((), self.now) if i.spec.token == token)
        return self.asks[token][made.index(instance.id)]

    def _said(self, report: Any) -> None:
        for side in self.sides:
            if side.keeper is not None:
                side.keeper.hear(report)
        self._ring()
