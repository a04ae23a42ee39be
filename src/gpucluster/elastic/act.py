"""Carry out the decided actions. The intent is synced to the journal before each cloud call, the result right after.

A kill between two steps leaves either nothing, or an intent, and the identical call is repeated (T01). `hit` is called
with its Failpoint between all steps; a test raises there. The lease is checked again right before each call, in the
thread of the call: the process may be suspended between any two lines.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar

from gpucluster.cloud.port import (
    CloudError,
    CloudPort,
    Control,
    ControlPort,
    Fault,
    NoticePort,
    Scaling,
)
from gpucluster.elastic import launch_calls
from gpucluster.elastic.decide import (
    event_of_error,
    event_of_refused_end,
    events_of_nothing,
    events_of_shortfall,
)
from gpucluster.elastic.events import (
    Entry,
    Event,
    JobsRequeued,
    JobsSignalled,
    LaunchDone,
    LaunchRefused,
    LaunchRequest,
    LaunchRequested,
    OfferRefused,
    SparesLaunched,
    TerminationRequested,
)
from gpucluster.elastic.executors import Executor
from gpucluster.elastic.journal import Journal
from gpucluster.elastic.launch_calls import Launched
from gpucluster.elastic.lease import AlwaysHeld, LeaseCheck
from gpucluster.elastic.log_lines import Lines, describe, event_lines
from gpucluster.elastic.model import (
    WITHOUT_CONTROL,
    Action,
    Block,
    Comment,
    DeleteMessages,
    DeleteReservation,
    Drain,
    JobRun,
    LaunchGang,
    MarkDown,
    PowerDown,
    PowerUp,
    RecordEvents,
    Repeat,
    Requeue,
    ResetDown,
    SetReservation,
    Signal,
    Terminate,
    Undrain,
)
from gpucluster.elastic.repeats import Repeats
from gpucluster.elastic.sent_updates import UNDER_WAY, Recent
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import Times
from gpucluster.slurm.client import SlurmPort

log = logging.getLogger("gpucluster.elastic")
T = TypeVar("T")
Nodes = Block | Undrain | Drain | MarkDown | PowerDown | PowerUp | ResetDown
# For a call that was not made. With LOST, the holder of the lease repeats the request of the journal.
_NOT_OURS = CloudError(Fault.LOST, "NotOurs", "this daemon may not act now: its lease ran out")
# `undrain` removes only the drain. `power_down` waits for jobs, `down` ends them.
_UPDATES: dict[type[Nodes], tuple[str, bool]] = {  # action -> (scontrol's state, whether a reason is set)
    Block: ("drain", True),
    Drain: ("drain", True),
    Undrain: ("undrain", False),
    MarkDown: ("down", True),
    PowerDown: ("power_down", False),
    PowerUp: ("power_up", False),
    ResetDown: ("resume", False),
}


class Failpoint(StrEnum):
    """The points between steps at which a kill must cause no harm."""

    BEFORE_REMEMBER = "before-remember"
    AFTER_REMEMBER = "after-remember"
    BEFORE_INTENT = "before-intent"
    AFTER_INTENT = "after-intent"  # in the journal, the cloud not called
    BEFORE_RESULT = "before-result"  # the cloud answered, not in the journal
    AFTER_RESULT = "after-result"
    BEFORE_END = "before-end"
    AFTER_END = "after-end"  # the termination was requested, not in the journal
    AFTER_END_WRITTEN = "after-end-written"
    BEFORE_UPDATE = "before-update"
    AFTER_UPDATE = "after-update"
    BEFORE_SIGNAL = "before-signal"
    AFTER_SIGNAL = "after-signal"  # the job was signalled, not in the journal
    AFTER_SIGNAL_WRITTEN = "after-signal-written"
    BEFORE_REQUEUE = "before-requeue"
    AFTER_REQUEUE = "after-requeue"  # Slurm was updated, not in the journal
    AFTER_REQUEUE_WRITTEN = "after-requeue-written"
    BEFORE_FORGET = "before-forget"  # the notice is in the journal, its message still in the queue
    AFTER_FORGET = "after-forget"
    AFTER_LEASE = "after-lease"  # the lease is taken; the journal is not open yet
    BEFORE_RENEWAL = "before-renewal"
    AFTER_RENEWAL = "after-renewal"


@dataclass(frozen=True, slots=True)
class UpdateFailpoints:
    """The failpoints around one update of Slurm."""

    before: Failpoint
    after: Failpoint
    written: Failpoint


_UPDATE_FAILPOINTS = UpdateFailpoints(Failpoint.BEFORE_UPDATE, Failpoint.AFTER_UPDATE, Failpoint.AFTER_UPDATE)
_SIGNAL_FAILPOINTS = UpdateFailpoints(
    Failpoint.BEFORE_SIGNAL, Failpoint.AFTER_SIGNAL, Failpoint.AFTER_SIGNAL_WRITTEN
)
_REQUEUE_FAILPOINTS = UpdateFailpoints(
    Failpoint.BEFORE_REQUEUE, Failpoint.AFTER_REQUEUE, Failpoint.AFTER_REQUEUE_WRITTEN
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The clients of all effects. `clock` is read when an event is written."""

    cluster: str
    times: Times
    cloud: CloudPort
    slurm: SlurmPort
    control: ControlPort
    journal: Journal
    cloud_executor: Executor
    slurm_executor: Executor  # serial, so that a later list shows every earlier update
    clock: Callable[[], float]
    start_pass: Callable[[], object]  # start the next pass now: after a refusal there is a next candidate
    hit: Callable[[Failpoint], None]
    notices: NoticePort | None = None
    lease: LeaseCheck = field(default_factory=AlwaysHeld)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer of a launch. `spares` fill no whole gang and could not be terminated at once; `refused`: by this error."""

    launched: Launched
    spares: tuple[str, ...] = ()
    refused: CloudError | None = None


class Actor:
    """Carries out actions, and knows which calls are in progress."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._busy: set[str] = set()  # requests that are being called and instances that are being terminated
        self._preparing: set[str] = set()  # requests whose call waits for the control object
        self._after: list[Callable[[], None]] = []
        self._why_halted = ""
        self._recent = Recent()
        self._repeats = Repeats(2 * clients.times.reconcile_s)
        self._does: Mapping[type[Action], Callable[[Any], None]] = {
            RecordEvents: self._record_events,
            LaunchGang: self._launch,
            Terminate: self._terminate,
            Comment: self._comment,
            Signal: self._signal,
            Requeue: self._requeue,
            SetReservation: self._set_reservation,
            DeleteReservation: self._delete_reservation,
            DeleteMessages: self._delete_queue_messages,
            **dict.fromkeys(_UPDATES, self._update),
        }

    @property
    def busy(self) -> bool:
        return bool(self._busy)

    def repeats(self) -> tuple[Repeat, ...]:
        """Return the acts that fail, and those that passes decide again and again."""
        return self._repeats.shown()

    def when_prepared(self, work: Callable[[], None]) -> None:
        """Run `work` now, or as soon as all launches that were decided are being called."""
        if self._preparing:
            self._after.append(work)
        else:
            work()

    def act(self, actions: Sequence[Action], seen_at: float = UNDER_WAY, *, whole: bool = True) -> None:
        """Carry out `actions`, decided on a list of Slurm of `seen_at`, in order. Calls in progress are skipped.

        `whole`: they were decided with the views of Slurm and of EC2.
        """
        self._recent.forget(seen_at)
        self._repeats.decided(actions, self._clients.clock(), whole=whole)
        for action in grouped(actions):
            left = self._recent.left(action, seen_at, self._clients.clock())
            if left is None:
                continue
            if self._clients.lease.held():
                self._does[type(left)](left)
            elif _may(self._clients.lease, left):
                self._clients.journal.check()  # no write may come before this action
                self._does[type(left)](left)

    def _record_events(self, action: RecordEvents) -> None:
        clients = self._clients
        clients.hit(Failpoint.BEFORE_REMEMBER)
        clients.journal.append(action.entries)
        clients.hit(Failpoint.AFTER_REMEMBER)
        if lines := event_lines(tuple(entry.event for entry in action.entries)):
            log.info("%s", Lines(lines))

    def _launch(self, action: LaunchGang) -> None:
        """Read the control object, write the intent, then call; each in its own thread."""
        request = action.request
        if request.id in self._busy:
            return
        self._busy.add(request.id)
        self._preparing.add(request.id)

        def allowed(control: Control | None) -> None:
            self._preparing.discard(request.id)
            if not self._may_launch(action, control) or self._is_outdated(action):
                self._busy.discard(request.id)
            else:
                self._write_intent(action)
                self._clients.cloud_executor.submit(
                    lambda: self._call_launch(request), lambda answer: self._record_answer(request, answer)
                )
            if not self._preparing:
                waiting, self._after = self._after, []
                for work in waiting:
                    work()

        self._clients.cloud_executor.submit(lambda: _read(self._clients.control), allowed)

    def _may_launch(self, action: LaunchGang, control: Control | None) -> bool:
        """Return whether launches are permitted: no stop, our lease, and a readable control object."""
        why_halted = _why_halted(self._clients.lease, control)
        if why_halted != self._why_halted:
            log.info("control object: %s", f"{why_halted}; launches wait" if why_halted else "launches go on")
        self._why_halted = why_halted
        self._repeats.tried(action, f"the control object: {why_halted}" if why_halted else "")
        return not why_halted

    def _is_outdated(self, action: LaunchGang) -> bool:
        """Return whether, since the decision, the request was given up or another one for its slots was written."""
        memory, request = self._clients.journal.memory, action.request
        if action.repeat:
            return request.id not in memory.launches
        incarnations = (memory.incarnations.get(slot) for slot in request.slots)
        return request.id in memory.launches or any(x and (x.request or x.instance) for x in incarnations)

    def _write_intent(self, action: LaunchGang) -> None:
        self._clients.hit(Failpoint.BEFORE_INTENT)
        self._write(LaunchRequested(request=action.request))
        self._clients.hit(Failpoint.AFTER_INTENT)
        log.info("%s", describe(action))

    def _call_launch(self, request: LaunchRequest) -> _Answer | CloudError:
        clients = self._clients
        if not clients.lease.held():
            return _NOT_OURS
        try:
            got = launch_calls.call(clients.cloud, clients.cluster, request)
        except CloudError as error:
            return error
        used = launch_calls.serving(request, got)
        spares = tuple(i for i, _ in got.instances[len(used) :])  # a part of a gang is not usable (T05)
        living, error = _end(clients, spares)
        return _Answer(replace(got, instances=used), living, error)

    def _record_answer(self, request: LaunchRequest, answer: _Answer | CloudError) -> None:
        clients = self._clients
        self._busy.discard(request.id)
        clients.hit(Failpoint.BEFORE_RESULT)
        events = self._events_of_answer(request, answer)
        self._write(*events)
        clients.hit(Failpoint.AFTER_RESULT)
        for event in events:
            log.info("%s", describe(event))
        if any(isinstance(event, LaunchRefused | OfferRefused) for event in events):
            clients.start_pass()

    def _events_of_answer(self, request: LaunchRequest, answer: _Answer | CloudError) -> tuple[Event, ...]:
        now, memory, times = self._clients.clock(), self._clients.journal.memory, self._clients.times
        if isinstance(answer, CloudError):
            return (event_of_error(times, memory, request, answer, now),)
        return (*self._spares(request, answer), *self._events_of_launch(request, answer.launched))

    def _spares(self, request: LaunchRequest, answer: "_Answer") -> Iterator[Event]:
        """Return the events of the instances that fill no whole gang and live on, before those of the launch."""
        if answer.spares:
            yield SparesLaunched(pool=request.pool, source=request.source, instances=answer.spares)
        if answer.refused is not None and answer.refused is not _NOT_OURS:
            memory, now = self._clients.journal.memory, self._clients.clock()
            yield event_of_refused_end(memory, answer.spares, answer.refused, now)

    def _events_of_launch(self, request: LaunchRequest, answer: Launched) -> tuple[Event, ...]:
        now, memory, times = self._clients.clock(), self._clients.journal.memory, self._clients.times
        if not answer.instances:
            return tuple(events_of_nothing(times, memory, request, answer.errors, now))
        done = LaunchDone(
            request=request.id,
            instances=tuple(one for one, _ in answer.instances),
            machines=tuple(machine for _, machine in answer.instances) if request.alternatives else (),
        )
        count = len(answer.instances)
        return (done, *events_of_shortfall(times, memory, request, count, answer.errors, now=now))

    def _terminate(self, action: Terminate) -> None:
        ids = tuple(i for i in action.instances if i not in self._busy)
        if not ids:
            return
        # No event is written before this call, so the fence is checked here: after a suspension, the instances of the new
        # daemon would look like strays.
        self._clients.journal.check()
        self._busy.update(ids)
        self._clients.hit(Failpoint.BEFORE_END)

        def ended(result: tuple[tuple[str, ...], CloudError | None]) -> None:
            _, error = result  # an instance that the cloud does not know has ended, or is listed later
            self._busy.difference_update(ids)
            self._clients.hit(Failpoint.AFTER_END)
            if error is _NOT_OURS:
                return
            if error is not None:
                memory, now = self._clients.journal.memory, self._clients.clock()
                failed = event_of_refused_end(memory, ids, error, now)
                self._write(failed)
                log.warning("%s; repeated in %g s", describe(failed), max(0.0, failed.until - now))
                return
            self._write(TerminationRequested(instances=ids, words=action.reason))
            self._clients.hit(Failpoint.AFTER_END_WRITTEN)
            log.info("%s", describe(replace(action, instances=ids)))

        self._clients.cloud_executor.submit(lambda: _end(self._clients, ids), ended)

    def _update(self, action: Nodes) -> None:
        state, with_reason = _UPDATES[type(action)]
        reason = action.reason if with_reason else None
        self._slurm(lambda: self._clients.slurm.update_nodes(action.slots, state, reason), action)

    def _comment(self, action: Comment) -> None:
        self._slurm(lambda: self._clients.slurm.set_admin_comment(action.jobs, action.reason), action)

    def _signal(self, action: Signal) -> None:
        """Signal the batch scripts. They get a second signal if the daemon is killed before it records the first."""

        self._slurm(
            lambda: self._clients.slurm.signal(action.jobs, action.signal), action, _SIGNAL_FAILPOINTS
        )

    def _requeue(self, action: Requeue) -> None:
        def requeue() -> Requeue:
            due = action if self._clients.lease.held() else self._still_in_these_runs(action)
            if due.runs:
                self._clients.slurm.requeue(due.jobs, due.reason, held=due.held)
            return due

        self._slurm(requeue, action, _REQUEUE_FAILPOINTS)

    def _still_in_these_runs(self, action: Requeue) -> Requeue:
        """Return it for the jobs that still are in the run that was decided on: no other daemon, and no person, requeued them."""
        runs = {JobRun.of(job) for job in self._clients.slurm.read(self._clients.clock()).jobs}
        return replace(action, runs=tuple(run for run in action.runs if run in runs))

    def _set_reservation(self, action: SetReservation) -> None:
        self._slurm(lambda: self._clients.slurm.set_reservation(action.reservation), action)

    def _delete_reservation(self, action: DeleteReservation) -> None:
        self._slurm(lambda: self._clients.slurm.delete_reservation(action.name), action)

    def _delete_queue_messages(self, action: DeleteMessages) -> None:
        """Delete messages of the queue. A message that could not be deleted comes again, and adds no event then."""
        notices, clients = self._clients.notices, self._clients
        if notices is not None:
            clients.hit(Failpoint.BEFORE_FORGET)
            clients.cloud_executor.submit(
                lambda: _delete_messages(notices, action.handles),
                lambda _: clients.hit(Failpoint.AFTER_FORGET),
            )

    def _slurm(
        self,
        call: Callable[[], Requeue | None],
        action: Action,
        failpoints: "UpdateFailpoints | None" = None,
    ) -> None:
        """Update Slurm. `call` returns the part of the action that it carried out; None: all of it.

        The update is idempotent and the next list shows a failure, so an error is only logged.
        """
        clients, at = self._clients, failpoints or _UPDATE_FAILPOINTS
        clients.hit(at.before)
        self._recent.note(action, UNDER_WAY)

        def updated(result: Requeue | GpuclusterError | None) -> None:
            clients.hit(at.after)
            error = result if isinstance(result, GpuclusterError) else None
            self._recent.note(action, None if error else clients.clock())
            self._repeats.tried(action, error.message if error else "")
            if error is not None:
                log.warning("%s: %s", describe(action), error.message)
                return
            done = result if isinstance(result, Requeue) else action
            if (event := _record_of(done)) is not None:
                self._write(event)
                clients.hit(at.written)
            log.info("%s", describe(done))

        clients.slurm_executor.submit(lambda: _result_of(clients.lease, action, call), updated)

    def _write(self, *events: Event) -> None:
        at = self._clients.clock()
        self._clients.journal.append(tuple(Entry(at=at, event=event) for event in events))


def grouped(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Join actions of one kind and reason at the place of the first: one scontrol call for many nodes."""
    found: dict[object, Action] = {}
    for number, action in enumerate(actions):
        if not isinstance(action, Nodes):
            found[number] = action
            continue
        key = (type(action), action.reason)
        old = found.get(key)
        slots = (*old.slots, *action.slots) if isinstance(old, Nodes) else action.slots
        found[key] = replace(action, slots=tuple(dict.fromkeys(slots)))
    return tuple(found.values())


def _read(control: ControlPort) -> Control | None:
    try:
        return control.read()
    except CloudError:
        return None


def _why_halted(lease: LeaseCheck, control: Control | None) -> str:
    """Return why no launch is permitted; '' if launches are permitted."""
    if control is None:
        return "cannot be read"
    if not lease.mine(control):
        return f"held by {control.holder or 'nobody'}"
    return f"stop, by {control.by or 'nobody'}" if control.scaling is Scaling.STOP else ""


def _end(clients: Clients, ids: Sequence[str]) -> tuple[tuple[str, ...], CloudError | None]:
    """Terminate instances. Return those that live on, because the cloud does not know them yet or refuses, and its error."""
    if not ids:
        return (), None
    if not clients.lease.held():
        return tuple(ids), _NOT_OURS
    try:
        return clients.cloud.terminate(ids), None
    except CloudError as error:
        return tuple(ids), error


def _delete_messages(notices: NoticePort, handles: Sequence[str]) -> None:
    with contextlib.suppress(CloudError):
        notices.forget(handles)


def _may(lease: LeaseCheck, action: Action) -> bool:
    """Return whether this daemon may act so now: as the holder, or because it is cut off and this needs no holder."""
    return lease.held() or (isinstance(action, WITHOUT_CONTROL) and lease.cut_off())


def _record_of(done: Action) -> Event | None:
    """Return what the journal must know of an update of Slurm; None: the next list of Slurm shows it."""
    match done:
        case Signal(instance=instance, jobs=jobs, signal=signal):
            return JobsSignalled(instance=instance, jobs=jobs, signal=signal)
        case Requeue(instance=instance, jobs=jobs) if jobs:
            return JobsRequeued(instance=instance, jobs=jobs)
        case _:
            return None


def _result_of(
    lease: LeaseCheck, action: Action, call: Callable[[], Requeue | None]
) -> Requeue | GpuclusterError | None:
    if not _may(lease, action):
        return GpuclusterError(_NOT_OURS.message)
    try:
        return call()
    except GpuclusterError as error:
        return error
