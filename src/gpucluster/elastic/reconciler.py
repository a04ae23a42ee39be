"""The reconciler: observe, decide, act. It owns the state and has no thread, clock or socket of its own.

A pass for an event does not wait for two new views. It uses the last views while they are young, and then Slurm's half
of the next observation as soon as that is there. While the cloud hangs, Slurm is read again for an event, or for an
instance that ends. Without a young view of the cloud a pass only evacuates. This is safe: both views may lag in any case
(T20: a new instance may be unlisted for minutes), updates that Slurm was sent since are not sent again (`sent_updates`),
and each launch is in the journal. An older view can only leave something undone.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from gpucluster.cloud.port import CloudError, Control, InstanceState, QueueNotice, Reservation
from gpucluster.elastic import spool
from gpucluster.elastic.abilities import Dependency, Loss
from gpucluster.elastic.act import Actor, Clients
from gpucluster.elastic.decide import decide, next_look
from gpucluster.elastic.decide.interruptions import severity_of
from gpucluster.elastic.decide.terminations import left_alone
from gpucluster.elastic.decide.world import World, owned
from gpucluster.elastic.events import DaemonStarted, Entry
from gpucluster.elastic.model import (
    Action,
    CloudView,
    DeleteMessages,
    LaunchTrial,
    Observation,
    ReceivedReport,
)
from gpucluster.elastic.registration import RegistrationSnapshot
from gpucluster.elastic.status_endpoint import CopyState, StatusSnapshot, halted_by, unread
from gpucluster.errors import GpuclusterError
from gpucluster.plan.messages import HeldBundle, NodeReport
from gpucluster.plan.model import Bindings, SlurmPlan
from gpucluster.slurm.values import SlurmView

UNREAD_S = 60.0  # launches stop when the control object could not be read for so long
ABSENT_PASSES = (
    2  # a pass this many reconcile periods late: the daemon was stopped, and no agent could report
)
REPORT_KEPT_S = 3600.0  # how long the last report of an instance is kept
YOUNG_S = 5.0  # a view this old still serves an event; both views may lag some seconds in any case
RESERVATIONS_S = 10.0  # our own launches change a reservation's free count, and the journal has those
MAX_EVENTS = 10_000  # events that wait for a pass; the queue delivers the others again


class Reaction(StrEnum):
    """What the daemon does after a report of a node. An empty value is false."""

    NONE = ""
    OBSERVE = "observe"
    DECIDE = "decide"  # decide at once, on the last views


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """One half of an observation: Slurm or the cloud. None: the query failed."""

    slurm: SlurmView | None = None
    cloud: CloudView | None = None
    reservations: Mapping[str, Reservation] = field(default_factory=dict[str, Reservation])  # with `cloud`
    reservations_at: float | None = None
    control: Control | None = None
    silent: str = ""  # why there is no `slurm`
    unlisted: str = ""  # why there is no `cloud`
    unread: str = ""  # why there is no `control`
    errors: tuple[str, ...] = ()


class Reconciler:
    """One per cluster.

    `publish_nodes` gets each new RegistrationSnapshot; `warn` gets each failed query; `read_held` is called in each pass;
    `look_at_topology` gets the running instances by slot at each look at the cloud; `try_launches` gets the time and
    a function that makes the world, after each pass of the holder of the lease over both views.
    """

    def __init__(
        self,
        plan: SlurmPlan,
        bindings: Bindings,
        clients: Clients,
        spool_dir: Path,
        *,
        publish_nodes: Callable[[RegistrationSnapshot], None],
        warn: Callable[[str], None],
        read_held: Callable[[], HeldBundle | None] = HeldBundle,
        look_at_topology: Callable[[Mapping[str, str]], None] = lambda _: None,
        try_launches: Callable[[float, Callable[[], World | None]], None] = lambda _now, _world: None,
    ) -> None:
        self._plan, self._bindings, self._clients, self._spool = plan, bindings, clients, spool_dir
        self._publish_nodes, self._warn, self._read_held = publish_nodes, warn, read_held
        self._look_at_topology, self._try_launches = look_at_topology, try_launches
        self._actor = Actor(clients)
        self._slurm: SlurmView | None = None  # the view of the last observation; None: no answer
        self._cloud: CloudView | None = None
        self._listed: CloudView | None = None  # the last answered list, for registration
        self._answers: list[_Answer] = []
        self._urgent = self._looking = False
        self._looked: SlurmView | None = None  # a later view than the observation's own
        self._passed_at = clients.clock()
        self._unread_since: float | None = None  # the first failed read of the control object in a row
        self._control_error = ""
        self._unrenewed: Loss | None = None  # since when no renewal of the lease succeeds
        self.status = StatusSnapshot(
            listening_since=clients.clock()
        )  # each new value replaces it, so any thread may read it
        self.observing = False
        self.next_pass_s = 0.0
        spool.prepare(spool_dir, clients.clock())
        clients.journal.append((Entry(at=clients.clock(), event=DaemonStarted(epoch=clients.journal.epoch)),))
        self.publish()

    @property
    def observation(self) -> Observation:
        """The last views of Slurm and the cloud, with what only this daemon knows."""
        return self.status.observation(self._slurm, self._cloud)

    def show_copy(self, state: CopyState) -> None:
        """Publish the state of the copy of orders and spend."""
        self.status = replace(self.status, copy=state)

    def show_trials(self, trials: Mapping[str, LaunchTrial]) -> None:
        """Publish the answers to dry runs."""
        self.status = replace(self.status, trials=trials)

    def read_spool(self) -> bool:
        """Move the requests of hooks and operators from the spool to the journal; return whether there were any."""
        calls = spool.read(self._spool)
        at = self._clients.clock()
        self._clients.journal.append(tuple(Entry(at=at, event=call.event) for call in calls))
        spool.done(calls)
        return bool(calls)

    def receive_report(self, report: NodeReport) -> Reaction:
        """Store an agent's report, and return what the daemon does after it."""
        now = self._clients.clock()
        old = self.status.reports.get(report.instance_id)
        same = old is not None and (old.report.phase, old.report.incarnation) == (
            report.phase,
            report.incarnation,
        )
        since = old.since if old is not None and same else now
        kept = ReceivedReport(report=report, at=now, since=since)
        self.status = replace(self.status, reports={**self.status.reports, report.instance_id: kept})
        if _warnings(report) != (_warnings(old.report) if old else ((), ())):
            return Reaction.DECIDE
        return Reaction.NONE if same else Reaction.OBSERVE

    def receive_events(self, messages: Iterable[QueueNotice]) -> None:
        """Store messages of the queue until a pass deletes them. A message that is delivered again has a new handle."""
        new = {
            (message.handle, message.instance): message for message in messages
        }  # one may name several instances
        again = {_notice(message) for message in new.values()}
        old = (event for event in self.status.events if _notice(event) not in again)
        self.status = replace(self.status, events=(*old, *new.values())[:MAX_EVENTS])

    def note_queue(self, error: str) -> None:
        """Note that the queue answers, or its error."""
        self._note_loss(Dependency.QUEUE, error or None)

    def note_renewal(self, error: str | None) -> None:
        """Note that the lease was renewed (None), or why not: S3 may answer each read and refuse each write."""
        since = self._clients.clock() if self._unrenewed is None else self._unrenewed.since
        self._unrenewed = None if error is None else Loss(since=since, words=error)
        self.note_standing()

    def _note_loss(self, dependency: Dependency, error: str | None, since: float | None = None) -> None:
        """Note why a dependency cannot be read, and since when: its first failure in a row. None: it answers."""
        lost, old = dict(self.status.lost), self.status.lost.get(dependency)
        lost.pop(dependency, None)
        if error is not None:
            began = since if since is not None else self._clients.clock()
            lost[dependency] = Loss(since=began if old is None else old.since, words=error)
        if lost != self.status.lost:
            self.status = replace(self.status, lost={d: lost[d] for d in Dependency if d in lost})

    def decide_now(self) -> bool:
        """Make a pass if the last view of Slurm is young enough, and return whether it was."""
        young = _is_young(self._slurm, self._clients.clock())
        if young:
            self._urgent_pass()
        return young

    def observe(self, *, urgent: bool = False) -> None:
        """Query Slurm and the cloud; when both have answered, decide and act. If urgent, also when only Slurm has answered."""
        if self.observing:
            return
        self.observing, self._urgent, self._answers = True, urgent, []
        self._looked = None
        self._clients.slurm_executor.submit(self._query_slurm, self._receive_answer)
        self._clients.cloud_executor.submit(self._query_cloud, self._receive_answer)

    def look_at_slurm(self, *, urgent: bool) -> None:
        """Query Slurm again while the cloud of the last observation has not answered, if urgent or while an instance ends.

        Then make a pass without that answer: EC2 may hang for a minute, and a notice may not wait for it.
        """
        if self._looking or not (self.observing and self._slurm_answered):
            return
        known = self._looked or next((one.slurm for one in self._answers if one.slurm), None)
        if _is_young(known, self._clients.clock()):
            return
        incarnations = self._clients.journal.memory.incarnations.values()
        if urgent or any(one.interruption is not None and one.instance for one in incarnations):
            self._looking = True
            self._clients.slurm_executor.submit(self._query_slurm, self._receive_look)

    @property
    def _slurm_answered(self) -> bool:
        """Whether Slurm's half of this observation is there, or has failed."""
        return any(one.slurm is not None or one.silent for one in self._answers)

    def publish(self) -> None:
        """Publish the node of each instance for the registration server."""
        memory = self._clients.journal.memory
        alone = self._left_alone() if Dependency.CONTROL in self.status.lost else frozenset[str]()
        self._publish_nodes(RegistrationSnapshot.of(self._plan, memory, self._listed, self._slurm, alone))

    def decide(self) -> tuple[Action, ...]:
        """Return the actions that the daemon would take now, without taking them."""
        now, memory = self._clients.clock(), self._clients.journal.memory
        return decide(self._plan, self._bindings, self.observation, memory, now)

    def _left_alone(self) -> frozenset[str]:
        world = self._world()
        return frozenset() if world is None else left_alone(world)

    def _world(self) -> World | None:
        memory, now = self._clients.journal.memory, self._clients.clock()
        return World.of(self._plan, self._bindings, self.observation, memory, now)

    def _query_slurm(self) -> _Answer:
        try:
            return _Answer(slurm=self._clients.slurm.read(self._clients.clock()))
        except GpuclusterError as error:
            return _Answer(silent=error.message, errors=(f"slurmctld: {error.message}",))

    def _query_cloud(self) -> _Answer:
        at = self._clients.clock()
        try:
            listed = self._clients.cloud.instances(self._plan.name, owned(self._clients.journal.memory, at))
        except CloudError as error:
            return self._with_control(_Answer(unlisted=str(error), errors=(f"the cloud: {error}",)))
        reservations, read_at, errors = self._query_reservations(at)
        view = CloudView(at=at, instances={i.id: i for i in listed})
        errors += self._query_topology(view)
        answer = _Answer(cloud=view, reservations=reservations, reservations_at=read_at, errors=errors)
        return self._with_control(answer)

    def _with_control(self, answer: _Answer) -> _Answer:
        try:
            return replace(answer, control=self._clients.control.read())
        except CloudError as error:
            errors = (*answer.errors, f"the control object: {error}")
            return replace(answer, unread=str(error), errors=errors)

    def _query_topology(self, view: CloudView) -> tuple[str, ...]:
        """Let the observer of the topology see the running instance of each slot; return errors."""
        incarnations = self._clients.journal.memory.incarnations.items()
        up = {i for i, one in view.instances.items() if one.state is InstanceState.RUNNING}
        running = {
            slot: one.instance
            for slot, one in incarnations
            if one.instance is not None and one.instance in up
        }
        try:
            self._look_at_topology(running)
        except (CloudError, OSError) as error:
            return (f"the topology: {error}",)
        return ()

    def _query_reservations(
        self, at: float
    ) -> tuple[Mapping[str, Reservation], float | None, tuple[str, ...]]:
        """Return the plan's reservations, the time of the read, and errors. Without an answer the last ones are returned."""
        sources = (source for pool in self._plan.pools for source in pool.sources)
        ids = sorted({source.reservation for source in sources if source.reservation})
        known, read_at = self.status.reservations, self.status.reservations_at
        if not ids or (read_at is not None and at - read_at < RESERVATIONS_S):
            return known, read_at, ()
        try:
            return {r.id: r for r in self._clients.cloud.reservations(ids)}, at, ()
        except CloudError as error:
            return known, read_at, (f"the reservations: {error}",)

    def _receive_answer(self, answer: _Answer) -> None:
        self._answers.append(answer)
        if len(self._answers) < 2:
            if self._urgent and answer.slurm is not None:
                self._slurm = answer.slurm
                self._note_loss(Dependency.SLURMCTLD, None)
                self._urgent_pass()
            return
        # A launch that the first pass decided goes first: with a thousand jobs, a pass takes longer than its call to S3.
        self._actor.when_prepared(self._conclude)

    def _receive_look(self, answer: _Answer) -> None:
        self._looking = False
        if answer.slurm is None:
            self._warn(f"slurmctld: {answer.silent}")
            return
        if self._slurm_answered:  # else the observation's own query comes later
            self._looked = answer.slurm
        self._slurm = answer.slurm
        self._note_loss(Dependency.SLURMCTLD, None)
        self._urgent_pass()

    def _urgent_pass(self) -> None:
        """Make a pass before the cloud answers. If its last view is not young, only what needs no view of it is done."""
        if not _is_young(self._cloud, self._clients.clock()):
            self._cloud = None
        self._pass()

    def _conclude(self) -> None:
        """Take over both answers, and make the observation's last pass."""
        for error in (error for one in self._answers for error in one.errors):
            self._warn(error)
        self._slurm = self._looked or next((one.slurm for one in self._answers if one.slurm), None)
        listed = next((one for one in self._answers if one.cloud), _Answer())
        self._cloud = listed.cloud
        self._note_answer(Dependency.SLURMCTLD, self._slurm, (one.silent for one in self._answers))
        self._note_answer(Dependency.EC2, self._cloud, (one.unlisted for one in self._answers))
        self._listed = self._cloud or self._listed
        control = next((one.control for one in self._answers if one.control), None)
        error = next((one.unread for one in self._answers if one.unread), "")
        self.status = replace(self.status, halted=self._why_halted(control, error))
        if listed.cloud is not None:
            self._keep_of(listed, listed.cloud)
        self._pass()
        self.observing = False

    def _note_answer(self, dependency: Dependency, view: object, errors: Iterable[str]) -> None:
        self._note_loss(dependency, next((error for error in errors if error), "") if view is None else None)

    def note_standing(self) -> None:
        """Note what this daemon is if it does not hold the lease: its last holder, which does what needs none, or nobody."""
        lease = self._clients.lease
        held, cut_off = lease.held(), lease.cut_off()
        why = self._unrenewed or Loss(since=self._unread_since, words=self._control_error)
        self._note_loss(Dependency.CONTROL, why.words if cut_off else None, why.since)
        self._note_loss(Dependency.LEASE, None if held or cut_off else why.words, why.since)

    def _keep_of(self, answer: _Answer, cloud: CloudView) -> None:
        """Store the reservations, and the times since when the list lacks instances in memory (T21: it may lack a running one)."""
        incarnations = self._clients.journal.memory.incarnations.values()
        missing = {
            incarnation.instance for incarnation in incarnations if incarnation.instance
        } - cloud.instances.keys()
        self.status = replace(
            self.status,
            absent_since={i: self.status.absent_since.get(i, cloud.at) for i in missing},
            reservations=answer.reservations,
            reservations_at=answer.reservations_at,
        )

    def _why_halted(self, control: Control | None, error: str) -> str:
        """Return why launches stop. A stop in the object counts at once; a failed read counts only after a time."""
        now = self._clients.clock()
        self._control_error = error
        if control is not None:
            self._unread_since = None
            return halted_by(control)
        self._unread_since = now if self._unread_since is None else self._unread_since
        return unread(error) if self._unread_since + UNREAD_S <= now else ""

    def _held_now(self) -> HeldBundle | None:
        held = self._read_held()
        if held is None:
            self._warn("the held bundle: its file cannot be read; drains for it stay as they are")
        return held

    def _pass(self) -> None:
        """Decide and act if this daemon holds the lease. Then drop the messages that the pass used."""
        now, clients = self._clients.clock(), self._clients
        late = now - self._passed_at > ABSENT_PASSES * self._plan.times.reconcile_s
        self._passed_at = now
        self.status = replace(
            self.status,
            listening_since=now if late else self.status.listening_since,
            held=self._held_now(),
            reports={k: r for k, r in self.status.reports.items() if r.at + REPORT_KEPT_S > now},
        )
        self.next_pass_s = self._plan.times.poll_s
        self.note_standing()
        if clients.lease.held() or clients.lease.cut_off():
            observation, actions = self.observation, self.decide()
            whole = observation.slurm is not None and observation.cloud is not None
            self._actor.act(actions, self._slurm.at if self._slurm else now, whole=whole)
            self.status = replace(self.status, repeats=self._actor.repeats())
            done = {handle for one in actions if isinstance(one, DeleteMessages) for handle in one.handles}
            rest = tuple(event for event in self.status.events if event.handle not in done)
            self.status = replace(self.status, events=rest)
            self.next_pass_s = next_look(self._plan, self._bindings, observation, clients.journal.memory, now)
            if actions:
                self.next_pass_s = min(self.next_pass_s, self._plan.times.poll_s)
            if whole and clients.lease.held():
                self._try_launches(now, self._world)
            if not self._actor.busy:
                clients.journal.tidy(now)
        self.publish()


def _notice(event: QueueNotice) -> QueueNotice:
    return replace(event, handle="")


def _is_young(view: SlurmView | CloudView | None, now: float) -> bool:
    return view is not None and abs(now - view.at) <= YOUNG_S


def _warnings(report: NodeReport) -> tuple[object, object]:
    """Return notices and faults without their counts, so that a repeated fault does not cause a pass at each heartbeat."""
    return report.notices, tuple((f.xid, f.device, severity_of(f)) for f in report.faults)
