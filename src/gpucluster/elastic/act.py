"""Carry out what was decided. Intent to the journal, synced, before the cloud is called; the result right after.

A kill at any border leaves either nothing, or an intent whose identical call is repeated (T01). `trip` is called at
each border with its Failpoint, and a test raises there. The lease is looked at again right before each call, in the
call's own thread: a process may sleep between any two lines.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from gpucluster.elastic import asking
from gpucluster.elastic.asking import Got
from gpucluster.elastic.decide import nothing, outcome, shortfall
from gpucluster.elastic.events import (
    Ask,
    EndAsked,
    Entry,
    Event,
    LaunchAsked,
    LaunchDone,
    LaunchRefused,
    Refused,
    SentBack,
    Signalled,
)
from gpucluster.elastic.journal import Journal
from gpucluster.elastic.lanes import Lane
from gpucluster.elastic.lease import Alone, Hold
from gpucluster.elastic.model import (
    Action,
    Block,
    CloseWindow,
    Comment,
    Drain,
    Forget,
    LaunchGang,
    MarkDown,
    OpenWindow,
    PowerDown,
    PowerUp,
    Remember,
    Requeue,
    ResetDown,
    Signal,
    Terminate,
    Unblock,
)
from gpucluster.elastic.recent import UNDER_WAY, Recent
from gpucluster.elastic.scontrol import SlurmPort
from gpucluster.elastic.words import describe, told
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import Times

log = logging.getLogger("gpucluster.elastic")
T = TypeVar("T")
Nodes = Block | Unblock | Drain | MarkDown | PowerDown | PowerUp | ResetDown
# Nothing was called: whoever holds the lease repeats what is in the journal.
_NOT_OURS = CloudError(Fault.LOST, "NotOurs", "this daemon may not act now: its lease ran out")
# `undrain` lifts only the drain. `power_down` waits for jobs; nothing here ever forces.
_UPDATES: dict[
    type[Nodes], tuple[str, bool]
] = {  # action -> (scontrol's state, whether a reason goes with it)
    Block: ("drain", True),
    Drain: ("drain", True),
    Unblock: ("undrain", False),
    MarkDown: ("down", True),
    PowerDown: ("power_down", False),
    PowerUp: ("power_up", False),
    ResetDown: ("resume", False),
}


class Failpoint(StrEnum):
    """The borders at which a kill must do no harm."""

    BEFORE_REMEMBER = "before-remember"
    AFTER_REMEMBER = "after-remember"
    BEFORE_INTENT = "before-intent"
    AFTER_INTENT = "after-intent"  # on disk, the cloud not called
    BEFORE_RESULT = "before-result"  # the cloud answered, not on disk
    AFTER_RESULT = "after-result"
    BEFORE_END = "before-end"
    AFTER_END = "after-end"  # the cloud was told, not on disk
    AFTER_END_WRITTEN = "after-end-written"
    BEFORE_UPDATE = "before-update"
    AFTER_UPDATE = "after-update"
    BEFORE_SIGNAL = "before-signal"
    AFTER_SIGNAL = "after-signal"  # the job was told, not on disk
    AFTER_SIGNAL_WRITTEN = "after-signal-written"
    BEFORE_REQUEUE = "before-requeue"
    AFTER_REQUEUE = "after-requeue"  # Slurm was told, not on disk
    AFTER_REQUEUE_WRITTEN = "after-requeue-written"
    BEFORE_FORGET = "before-forget"  # the news is on disk, the queue still holds it
    AFTER_FORGET = "after-forget"
    AFTER_LEASE = "after-lease"  # taken; the journal is not open yet
    BEFORE_RENEWAL = "before-renewal"
    AFTER_RENEWAL = "after-renewal"


@dataclass(frozen=True, slots=True)
class Borders:
    """The failpoints around one update of Slurm."""

    before: Failpoint
    after: Failpoint
    written: Failpoint


_UPDATE_BORDERS = Borders(Failpoint.BEFORE_UPDATE, Failpoint.AFTER_UPDATE, Failpoint.AFTER_UPDATE)
_SIGNAL_BORDERS = Borders(Failpoint.BEFORE_SIGNAL, Failpoint.AFTER_SIGNAL, Failpoint.AFTER_SIGNAL_WRITTEN)
_REQUEUE_BORDERS = Borders(Failpoint.BEFORE_REQUEUE, Failpoint.AFTER_REQUEUE, Failpoint.AFTER_REQUEUE_WRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """All that acting reaches. `clock` is read when something is written."""

    cluster: str
    times: Times
    cloud: CloudPort
    slurm: SlurmPort
    control: ControlPort
    journal: Journal
    clouds: Lane
    slurms: Lane  # serial, so that a later look sees every earlier update
    clock: Callable[[], float]
    ring: Callable[[], object]  # look again now: a refusal has a next candidate
    trip: Callable[[Failpoint], None]
    notices: NoticePort | None = None
    lease: Hold = field(default_factory=Alone)


class Actor:
    """Acts, and knows what is still under way."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._busy: set[str] = set()  # requests being asked and instances being ended right now
        self._hindrance = ""
        self._recent = Recent()
        self._does: Mapping[type[Action], Callable[[Any], None]] = {
            Remember: self._remember,
            LaunchGang: self._launch,
            Terminate: self._terminate,
            Comment: self._comment,
            Signal: self._signal,
            Requeue: self._requeue,
            OpenWindow: self._open_window,
            CloseWindow: self._close_window,
            Forget: self._forget,
            **dict.fromkeys(_UPDATES, self._update),
        }

    @property
    def busy(self) -> bool:
        return bool(self._busy)

    def act(self, actions: Sequence[Action], seen_at: float = UNDER_WAY) -> None:
        """Carry out `actions`, decided on a look at Slurm at `seen_at`, in order; what is under way is skipped."""
        self._recent.forget(seen_at)
        for action in grouped(actions):
            left = self._recent.left(action, seen_at, self._hands.clock())
            if left is not None and self._hands.lease.held():
                self._does[type(left)](left)

    def _remember(self, action: Remember) -> None:
        hands = self._hands
        hands.trip(Failpoint.BEFORE_REMEMBER)
        hands.journal.append(action.entries)
        hands.trip(Failpoint.AFTER_REMEMBER)
        for line in told(tuple(entry.event for entry in action.entries)):
            log.info("%s", line)

    def _launch(self, action: LaunchGang) -> None:
        """First the control object, then the intent, then the call; each in its own thread's turn."""
        ask = action.ask
        if ask.request in self._busy:
            return
        self._busy.add(ask.request)

        def allowed(control: Control | None) -> None:
            if not self._may_launch(control) or self._overtaken(action):
                self._busy.discard(ask.request)
                return
            self._intend(action)
            self._hands.clouds.submit(lambda: self._ask(ask), lambda answer: self._answered(ask, answer))

        self._hands.clouds.submit(lambda: _read(self._hands.control), allowed)

    def _may_launch(self, control: Control | None) -> bool:
        """Stop, another's lease, and an object that cannot be read are one answer."""
        hindrance = _hindrance(self._hands.lease, control)
        if hindrance != self._hindrance:
            log.info("control object: %s", f"{hindrance}; launches wait" if hindrance else "launches go on")
        self._hindrance = hindrance
        return not hindrance

    def _overtaken(self, action: LaunchGang) -> bool:
        """Since it was decided it was given up, or another request for one of its slots was written."""
        memory, ask = self._hands.journal.memory, action.ask
        if action.repeat:
            return ask.request not in memory.launches
        lives = (memory.lives.get(slot) for slot in ask.slots)
        return ask.request in memory.launches or any(x and (x.request or x.instance) for x in lives)

    def _intend(self, action: LaunchGang) -> None:
        self._hands.trip(Failpoint.BEFORE_INTENT)
        self._write(LaunchAsked(ask=action.ask))
        self._hands.trip(Failpoint.AFTER_INTENT)
        log.info("%s", describe(action))

    def _ask(self, ask: Ask) -> Got | CloudError:
        hands = self._hands
        if not hands.lease.held():
            return _NOT_OURS
        try:
            got = asking.call(hands.cloud, hands.cluster, ask)
        except CloudError as error:
            return error
        used = asking.serving(ask, got)
        if spare := tuple(i for i, _ in got.instances[len(used) :]):
            _end(hands, spare)  # part of a gang is of no use (T05); what stays is a stray
        return replace(got, instances=used)

    def _answered(self, ask: Ask, answer: Got | CloudError) -> None:
        hands = self._hands
        self._busy.discard(ask.request)
        hands.trip(Failpoint.BEFORE_RESULT)
        events = self._meaning(ask, answer)
        self._write(*events)
        hands.trip(Failpoint.AFTER_RESULT)
        for event in events:
            log.info("%s", describe(event))
        if any(isinstance(event, LaunchRefused | Refused) for event in events):
            hands.ring()

    def _meaning(self, ask: Ask, answer: Got | CloudError) -> tuple[Event, ...]:
        now, memory, times = self._hands.clock(), self._hands.journal.memory, self._hands.times
        if isinstance(answer, CloudError):
            return (outcome(times, memory, ask, answer, now),)
        if not answer.instances:
            return tuple(nothing(times, memory, ask, answer.errors, now))
        ids, machines = zip(*answer.instances, strict=True)
        done = LaunchDone(request=ask.request, instances=ids, machines=machines if ask.alternatives else ())
        return (done, *shortfall(times, memory, ask, len(ids), answer.errors, now=now))

    def _terminate(self, action: Terminate) -> None:
        ids = tuple(i for i in action.instances if i not in self._busy)
        if not ids:
            return
        self._hands.journal.check()  # a stray is judged without a word written: to a daemon that slept, another's are strays
        self._busy.update(ids)
        self._hands.trip(Failpoint.BEFORE_END)

        def ended(error: CloudError | None) -> None:
            self._busy.difference_update(ids)
            self._hands.trip(Failpoint.AFTER_END)
            if error is not None:
                log.warning("end %s: %s; asked again later", " ".join(ids), error)
                return
            self._write(EndAsked(instances=ids, words=action.reason))
            self._hands.trip(Failpoint.AFTER_END_WRITTEN)
            log.info("%s", describe(replace(action, instances=ids)))

        self._hands.clouds.submit(lambda: _end(self._hands, ids), ended)

    def _update(self, action: Nodes) -> None:
        state, with_reason = _UPDATES[type(action)]
        reason = action.reason if with_reason else None
        self._slurm(lambda: self._hands.slurm.update_nodes(action.slots, state, reason), action)

    def _comment(self, action: Comment) -> None:
        self._slurm(lambda: self._hands.slurm.comment(action.jobs, action.reason), action)

    def _signal(self, action: Signal) -> None:
        """At least once: a kill between the signal and its record signals again."""
        done = Signalled(instance=action.instance, jobs=action.jobs, signal=action.signal)
        self._slurm(
            lambda: self._hands.slurm.signal(action.jobs, action.signal), action, _SIGNAL_BORDERS, done
        )

    def _requeue(self, action: Requeue) -> None:
        done = SentBack(instance=action.instance, jobs=action.jobs)
        self._slurm(
            lambda: self._hands.slurm.requeue(action.jobs, action.reason, held=action.held),
            action,
            _REQUEUE_BORDERS,
            done,
        )

    def _open_window(self, action: OpenWindow) -> None:
        self._slurm(lambda: self._hands.slurm.open_window(action.window), action)

    def _close_window(self, action: CloseWindow) -> None:
        self._slurm(lambda: self._hands.slurm.close_window(action.name), action)

    def _forget(self, action: Forget) -> None:
        """A message that stays is delivered again, and is no news then."""
        notices, hands = self._hands.notices, self._hands
        if notices is not None:
            hands.trip(Failpoint.BEFORE_FORGET)
            hands.clouds.submit(
                lambda: _deleted(notices, action.handles), lambda _: hands.trip(Failpoint.AFTER_FORGET)
            )

    def _slurm(
        self,
        call: Callable[[], None],
        action: Action,
        borders: "Borders | None" = None,
        done: Event | None = None,
    ) -> None:
        """Idempotent, and what did not work is seen at the next look: so an error is only told."""
        hands, at = self._hands, borders or _UPDATE_BORDERS
        hands.trip(at.before)
        self._recent.note(action, UNDER_WAY)

        def updated(error: GpuclusterError | None) -> None:
            hands.trip(at.after)
            self._recent.note(action, None if error else hands.clock())
            if error is not None:
                log.warning("%s: %s", describe(action), error.message)
                return
            if done is not None:
                self._write(done)
                hands.trip(at.written)
            log.info("%s", describe(action))

        hands.slurms.submit(lambda: _error_of(hands.lease, call), updated)

    def _write(self, *events: Event) -> None:
        at = self._hands.clock()
        self._hands.journal.append(tuple(Entry(at=at, event=event) for event in events))


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


def _hindrance(lease: Hold, control: Control | None) -> str:
    """Why nothing may be launched, in words; '' when it may."""
    if control is None:
        return "cannot be read"
    if not lease.mine(control):
        return f"held by {control.holder or 'nobody'}"
    return f"stop, by {control.by or 'nobody'}" if control.scaling is Scaling.STOP else ""


def _end(hands: Hands, ids: Sequence[str]) -> CloudError | None:
    if not hands.lease.held():
        return _NOT_OURS
    try:
        hands.cloud.terminate(ids)
    except CloudError as error:
        return None if error.fault is Fault.GONE else error
    return None


def _deleted(notices: NoticePort, handles: Sequence[str]) -> None:
    with contextlib.suppress(CloudError):
        notices.forget(handles)


def _error_of(lease: Hold, call: Callable[[], None]) -> GpuclusterError | None:
    if not lease.held():
        return GpuclusterError(_NOT_OURS.message)
    try:
        call()
    except GpuclusterError as error:
        return error
    return None
