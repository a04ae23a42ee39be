"""The loop's body: look, decide, act. It owns the state and knows no thread, clock or socket of its own.

An event is decided before a whole look has come back: on the last look where that is young, and on Slurm's half of the
next one as soon as it is there. Both views may lag anyway (T20), what was asked of Slurm since is not asked again
(`recent`), and what was asked of the cloud is in the journal; so an older view can only leave something undone.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from gpucluster.cloud.port import CloudError, Control, Reservation, Scaling, Told
from gpucluster.elastic import spool
from gpucluster.elastic.act import Actor, Hands
from gpucluster.elastic.decide import decide, next_look
from gpucluster.elastic.decide.notices import severity_of
from gpucluster.elastic.events import Entry, Started
from gpucluster.elastic.model import CloudView, Heard, Observation, SlurmView
from gpucluster.elastic.registration import Snapshot
from gpucluster.elastic.shown import Overheard
from gpucluster.errors import GpuclusterError
from gpucluster.plan.messages import NodeReport
from gpucluster.plan.model import Bindings, ClusterPlan, Market

UNREAD_S = 60.0  # a control object that cannot be read for so long is told to those who wait
AWAY_LOOKS = 2  # a pass that comes so many of the longest pauses late: nobody was heard meanwhile
SILENT_S = 3600.0  # the last word of an instance is kept so long
YOUNG_S = 5.0  # a look so old still serves an event; some seconds are what both views may lag in any case
RESERVATIONS_S = (
    10.0  # what a reservation has left changes with our own launches, and those are in the journal
)
MAX_TOLD = 10_000  # messages that wait for a look; what is over is delivered again


class News(StrEnum):
    """What a node's report calls for; '' = nothing."""

    NONE = ""
    BOOT = "boot"  # a look
    TROUBLE = "trouble"  # a decision at once


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a look came back with; None = it failed."""

    slurm: SlurmView | None = None
    cloud: CloudView | None = None
    control: Control | None = None
    errors: tuple[str, ...] = ()


class Keeper:
    """One per cluster. `published` is given each new snapshot; `complain` hears what could not be observed."""

    def __init__(
        self,
        plan: ClusterPlan,
        bindings: Bindings,
        hands: Hands,
        spool_dir: Path,
        *,
        published: Callable[[Snapshot], None],
        complain: Callable[[str], None],
    ) -> None:
        self._plan, self._bindings, self._hands, self._spool = plan, bindings, hands, spool_dir
        self._published, self._complain = published, complain
        self._blocks = any(s.market is Market.CAPACITY_BLOCK for pool in plan.pools for s in pool.sources)
        self._actor = Actor(hands)
        self._heard: dict[str, Heard] = {}
        self._absent: dict[str, float] = {}
        self._told: dict[
            tuple[str, str], Told
        ] = {}  # by handle and instance: one message may tell of several
        self._listed: CloudView | None = None  # the last list that was had, for the registration desk
        self._slurm: SlurmView | None = None  # the last look, if it was answered
        self._cloud: CloudView | None = None
        self._halted = ""
        self._reservations: Mapping[str, Reservation] = {}
        self._reserved_at = float("-inf")
        self._halves: list[_Seen] = []
        self._urgent = False
        self._read_at = hands.clock()  # the control object, last
        self._listening_since = self._passed_at = hands.clock()
        self.looking = False
        self.next_look_s = 0.0
        spool.prepare(spool_dir, hands.clock())
        hands.journal.append((Entry(at=hands.clock(), event=Started()),))
        self.publish()

    def take_hooks(self) -> bool:
        """Move the spool's requests, hooks' and operators', to the journal; whether there were any."""
        calls = spool.read(self._spool)
        at = self._hands.clock()
        self._hands.journal.append(tuple(Entry(at=at, event=call.event) for call in calls))
        spool.done(calls)
        return bool(calls)

    def hear(self, report: NodeReport) -> News:
        """Take a node's word."""
        now = self._hands.clock()
        old = self._heard.get(report.instance_id)
        same = old is not None and (old.report.phase, old.report.life) == (report.phase, report.life)
        since = old.since if old is not None and same else now
        self._heard[report.instance_id] = Heard(report=report, at=now, since=since)
        if _troubles(report) != (_troubles(old.report) if old else ((), ())):
            return News.TROUBLE
        return News.NONE if same else News.BOOT

    def tell(self, messages: Iterable[Told]) -> None:
        """Take the queue's; each waits here until a pass has it in the journal."""
        for message in messages:
            if len(self._told) < MAX_TOLD:
                self._told[message.handle, message.instance] = message

    def react(self) -> bool:
        """Decide at once on what was seen last; whether that was young enough."""
        young = _is_young(self._slurm, self._hands.clock()) and _is_young(self._cloud, self._hands.clock())
        if young:
            self._pass()
        return young

    def look(self, *, urgent: bool = False) -> None:
        """Ask Slurm and the cloud; when both have answered, decide and act. Urgent: a first time on Slurm's half."""
        if self.looking:
            return
        self.looking, self._urgent, self._halves = True, urgent, []
        self._hands.slurms.submit(self._look_at_slurm, self._half)
        self._hands.clouds.submit(self._look_at_cloud, self._half)

    @property
    def overheard(self) -> Overheard:
        """What only this process knows."""
        return Overheard(reports=dict(self._heard), absent_since=dict(self._absent), halted=self._halted)

    @property
    def seen(self) -> Observation:
        """What was seen last; any thread may ask, for each part is replaced whole."""
        return Observation(
            slurm=self._slurm,
            cloud=self._cloud,
            reports=dict(self._heard),
            halted=self._halted,
            listening_since=self._listening_since,
        )

    def publish(self) -> None:
        """Give the registration desk what is known now."""
        self._published(Snapshot.of(self._plan, self._hands.journal.memory, self._listed))

    def _look_at_slurm(self) -> _Seen:
        try:
            return _Seen(slurm=self._hands.slurm.look(self._hands.clock(), windows=self._blocks))
        except GpuclusterError as error:
            return _Seen(errors=(f"slurmctld: {error.message}",))

    def _look_at_cloud(self) -> _Seen:
        at = self._hands.clock()
        try:
            listed = self._hands.cloud.instances(self._plan.name)
        except CloudError as error:
            return _Seen(errors=(f"the cloud: {error}",))
        reservations, errors = self._look_at_reservations(at)
        view = CloudView(
            at=at,
            instances={i.id: i for i in listed},
            reservations=reservations,
            reservations_at=self._reserved_at,
        )
        try:
            return _Seen(cloud=view, control=self._hands.control.read(), errors=errors)
        except CloudError as error:
            return _Seen(cloud=view, errors=(*errors, f"the control object: {error}"))

    def _look_at_reservations(self, at: float) -> tuple[Mapping[str, Reservation], tuple[str, ...]]:
        """Of those in the plan; where no answer is had, what was known stands."""
        sources = (source for pool in self._plan.pools for source in pool.sources)
        ids = sorted({source.reservation for source in sources if source.reservation})
        if not ids or at - self._reserved_at < RESERVATIONS_S:
            return self._reservations, ()
        try:
            self._reservations = {r.id: r for r in self._hands.cloud.reservations(ids)}
        except CloudError as error:
            return self._reservations, (f"the reservations: {error}",)
        self._reserved_at = at
        return self._reservations, ()

    def _half(self, seen: _Seen) -> None:
        self._halves.append(seen)
        if len(self._halves) < 2:
            if self._urgent and seen.slurm is not None and _is_young(self._cloud, self._hands.clock()):
                self._slurm = seen.slurm
                self._pass()
            return
        for error in (error for half in self._halves for error in half.errors):
            self._complain(error)
        self._slurm = next((h.slurm for h in self._halves if h.slurm), None)
        cloud = next((h.cloud for h in self._halves if h.cloud), None)
        self._cloud = self._remembering_absent(cloud) if cloud else None
        self._listed = self._cloud or self._listed
        self._halted = self._hindrance(next((h.control for h in self._halves if h.control), None))
        self._pass()
        self.looking = False

    def _hindrance(self, control: Control | None) -> str:
        """Stop is stop at once; an object that could not be read only now may be read the next time."""
        now = self._hands.clock()
        if control is not None:
            self._read_at = now
            stopped = control.scaling is Scaling.STOP
            return f"launches are stopped, by {control.by or 'nobody'}" if stopped else ""
        return "the control object cannot be read" if self._read_at + UNREAD_S <= now else ""

    def _pass(self) -> None:
        """Decide and act, if this daemon may; what was told is dropped once it is decided on."""
        now, hands = self._hands.clock(), self._hands
        if (
            now - self._passed_at > AWAY_LOOKS * self._plan.times.reconcile_s
        ):  # stopped, or a machine that slept
            self._listening_since = now
        self._passed_at = now
        self._heard = {k: h for k, h in self._heard.items() if h.at + SILENT_S > now}
        self.next_look_s = self._plan.times.poll_s
        if hands.lease.held():
            told = tuple(self._told.values())
            seen = Observation(
                slurm=self._slurm,
                cloud=self._cloud,
                reports=dict(self._heard),
                told=told,
                halted=self._halted,
                listening_since=self._listening_since,
            )
            actions = decide(self._plan, self._bindings, seen, hands.journal.memory, now)
            self._actor.act(actions, self._slurm.at if self._slurm else now)
            if self._slurm and self._cloud:
                for message in told:
                    self._told.pop((message.handle, message.instance), None)
            self.next_look_s = next_look(self._plan, self._bindings, seen, hands.journal.memory, now)
            if actions:
                self.next_look_s = min(self.next_look_s, self._plan.times.poll_s)
        self.publish()

    def _remembering_absent(self, cloud: CloudView) -> CloudView:
        """Since when the list misses ids that we know; only a list that was had counts (T21)."""
        known = {life.instance for life in self._hands.journal.memory.lives.values() if life.instance}
        missing = known - cloud.instances.keys()
        self._absent = {i: self._absent.get(i, cloud.at) for i in missing}
        return replace(cloud, absent_since=dict(self._absent))


def _is_young(view: SlurmView | CloudView | None, now: float) -> bool:
    return view is not None and abs(now - view.at) <= YOUNG_S


def _troubles(report: NodeReport) -> tuple[object, object]:
    """A user's own fault that comes again and again must not make each heartbeat a look at everything."""
    return report.notices, tuple((f.xid, f.device, severity_of(f)) for f in report.faults)
