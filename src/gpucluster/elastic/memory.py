"""What the daemon remembers: a fold of the journal's events, and nothing that is not in them.

An event is a fact that was seen or a step that was taken. The journal stores it before (an intent) or right after
(a result); `fold` is the only place that changes what is remembered, and it is pure.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from gpucluster.elastic.events import (
    Adopted,
    Ask,
    BecameBusy,
    BecameIdle,
    Booted,
    BootFailed,
    Born,
    CameUp,
    EndAsked,
    EndSeen,
    Entry,
    Forgot,
    HookCalled,
    InstanceGone,
    JobLeft,
    JobPlaced,
    JobRunning,
    LaunchAsked,
    LaunchDeferred,
    LaunchDone,
    LaunchDropped,
    LaunchRefused,
    LifeOver,
    Needed,
    Refused,
    Registered,
    Renewed,
    Started,
    Unneeded,
    offer,
    source_key,
)
from gpucluster.plan.model import Market


# --- what is remembered ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """The last life of a slot."""

    number: int
    since: float
    open: bool = True  # wanted, or with an instance
    jobs: tuple[int, ...] = ()
    generation: int = 0  # launches made for the slot, over all lives
    failed_boots: int = 0  # in this life
    request: str | None = None  # a launch without an outcome
    instance: str | None = None
    machine: str = ""
    market: Market = Market.ON_DEMAND
    source: int = 0
    zone: str = ""
    launched_at: float = 0.0
    booted_at: float | None = None
    registered_at: float | None = None
    up_at: float | None = None
    idle_at: float | None = None
    unneeded_at: float | None = None
    failed: str | None = None  # why this instance's boot failed

    @property
    def offer(self) -> str:
        return offer(self.market, self.machine, self.zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A request whose outcome is unknown."""

    ask: Ask
    asked_at: float
    retry_at: float = 0.0
    tries: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """After `until` the next gang may try; a success forgets it, another refusal doubles it."""

    until: float
    times: int
    words: str
    for_this_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A job on our slots."""

    slots: tuple[str, ...]
    running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The fold. Never changed in place."""

    epoch: str = ""
    requests: int = 0  # how many launches were ever asked
    paced_until: float = 0.0
    lives: Mapping[str, Life] = field(default_factory=dict[str, Life])
    launches: Mapping[str, Launch] = field(default_factory=dict[str, Launch])
    refusals: Mapping[str, Refusal] = field(default_factory=dict[str, Refusal])
    endings: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # instance -> when its end was asked
    jobs: Mapping[str, Placement] = field(default_factory=dict[str, Placement])  # job id as text -> where


def fold(memory: Memory, entries: Iterable[Entry]) -> Memory:
    """Return what is remembered after `entries`."""
    draft = _Draft(memory)
    for entry in entries:
        _FOLDS[type(entry.event)](draft, entry.at, entry.event)
    return draft.done()


class _Draft:
    """The one mutable copy while a batch is folded: copies cost once, not per event."""

    def __init__(self, memory: Memory) -> None:
        self.epoch, self.requests, self.paced_until = memory.epoch, memory.requests, memory.paced_until
        self.lives, self.launches = dict(memory.lives), dict(memory.launches)
        self.refusals, self.endings, self.jobs = (
            dict(memory.refusals),
            dict(memory.endings),
            dict(memory.jobs),
        )

    def done(self) -> Memory:
        return Memory(
            epoch=self.epoch,
            requests=self.requests,
            paced_until=self.paced_until,
            lives=self.lives,
            launches=self.launches,
            refusals=self.refusals,
            endings=self.endings,
            jobs=self.jobs,
        )

    def change(self, slot: str, **changes: Any) -> None:
        """Change a slot's life; a slot without one (never asked) is left alone."""
        life = self.lives.get(slot)
        if life is not None:
            self.lives[slot] = replace(life, **changes)

    def release(self, request: str) -> Launch | None:
        """Take a request off the list of unknown outcomes."""
        launch = self.launches.pop(request, None)
        for slot in launch.ask.slots if launch else ():
            if (life := self.lives.get(slot)) is not None and life.request == request:
                self.change(slot, request=None)
        return launch


E = TypeVar("E")
_FOLDS: dict[type[Any], Callable[[_Draft, float, Any], None]] = {}


def _folds(
    kind: type[E],
) -> Callable[[Callable[[_Draft, float, E], None]], Callable[[_Draft, float, E], None]]:
    def note(function: Callable[[_Draft, float, E], None]) -> Callable[[_Draft, float, E], None]:
        _FOLDS[kind] = function
        return function

    return note


@_folds(Born)
def _born(draft: _Draft, at: float, event: Born) -> None:
    draft.epoch = event.epoch


@_folds(Started)
def _started(draft: _Draft, at: float, event: Started) -> None:
    draft.refusals = {k: r for k, r in draft.refusals.items() if not r.for_this_run}


@_folds(HookCalled)
def _hook_called(draft: _Draft, at: float, event: HookCalled) -> None:
    """A hint only; kept for the timeline."""


@_folds(JobPlaced)
def _job_placed(draft: _Draft, at: float, event: JobPlaced) -> None:
    draft.jobs[str(event.job)] = Placement(slots=event.slots)


@_folds(JobRunning)
def _job_running(draft: _Draft, at: float, event: JobRunning) -> None:
    if (placement := draft.jobs.get(str(event.job))) is not None:
        draft.jobs[str(event.job)] = replace(placement, running=True)


@_folds(JobLeft)
def _job_left(draft: _Draft, at: float, event: JobLeft) -> None:
    draft.jobs.pop(str(event.job), None)


@_folds(Needed)
def _needed(draft: _Draft, at: float, event: Needed) -> None:
    old = draft.lives.get(event.slot, Life(number=0, since=at))
    draft.lives[event.slot] = replace(
        old,
        number=event.life,
        since=at,
        open=True,
        jobs=event.jobs,
        failed_boots=0,
        registered_at=None,
        up_at=None,
        idle_at=None,
        unneeded_at=None,
    )


@_folds(Renewed)
def _renewed(draft: _Draft, at: float, event: Renewed) -> None:
    draft.change(event.slot, number=event.life, registered_at=None, up_at=None)


@_folds(LaunchAsked)
def _launch_asked(draft: _Draft, at: float, event: LaunchAsked) -> None:
    ask = event.ask
    known = draft.launches.get(ask.request)
    if known is not None:  # the identical call once more
        draft.launches[ask.request] = replace(known, tries=known.tries + 1)
        return
    draft.requests += 1
    draft.launches[ask.request] = Launch(ask=ask, asked_at=at)
    for slot in ask.slots:
        life = draft.lives.get(slot, Life(number=1, since=at))
        draft.lives[slot] = replace(life, request=ask.request, generation=life.generation + 1)


@_folds(LaunchDone)
def _launch_done(draft: _Draft, at: float, event: LaunchDone) -> None:
    launch = draft.release(event.request)
    if launch is None:
        return
    ask = launch.ask
    for key in (ask.offer, source_key(ask.pool, ask.source)):
        draft.refusals.pop(key, None)
    for slot, instance in zip(ask.slots, event.instances, strict=False):
        draft.change(
            slot,
            open=True,
            instance=instance,
            machine=ask.machine,
            market=ask.market,
            source=ask.source,
            zone=ask.zone,
            launched_at=at,
            booted_at=None,
            registered_at=None,
            up_at=None,
            idle_at=None,
            unneeded_at=None,
            failed=None,
        )


@_folds(LaunchRefused)
def _launch_refused(draft: _Draft, at: float, event: LaunchRefused) -> None:
    draft.release(event.request)
    if event.key is not None:
        old = draft.refusals.get(event.key)
        draft.refusals[event.key] = Refusal(
            until=event.until,
            times=old.times + 1 if old else 1,
            words=event.words,
            for_this_run=event.for_this_run,
        )


@_folds(LaunchDeferred)
def _launch_deferred(draft: _Draft, at: float, event: LaunchDeferred) -> None:
    if (launch := draft.launches.get(event.request)) is not None:
        draft.launches[event.request] = replace(launch, retry_at=event.retry_at)
    if event.pace_all:
        draft.paced_until = event.retry_at


@_folds(LaunchDropped)
def _launch_dropped(draft: _Draft, at: float, event: LaunchDropped) -> None:
    draft.release(event.request)


@_folds(Refused)
def _refused(draft: _Draft, at: float, event: Refused) -> None:
    old = draft.refusals.get(event.key)
    draft.refusals[event.key] = Refusal(
        until=event.until, times=old.times + 1 if old else 1, words=event.words
    )


@_folds(Forgot)
def _forgot(draft: _Draft, at: float, event: Forgot) -> None:
    for key in event.keys:
        draft.refusals.pop(key, None)


@_folds(Booted)
def _booted(draft: _Draft, at: float, event: Booted) -> None:
    draft.change(event.slot, booted_at=at)


@_folds(Registered)
def _registered(draft: _Draft, at: float, event: Registered) -> None:
    draft.change(event.slot, registered_at=at)


@_folds(CameUp)
def _came_up(draft: _Draft, at: float, event: CameUp) -> None:
    draft.change(event.slot, up_at=at, unneeded_at=None, failed_boots=0)


@_folds(BecameIdle)
def _became_idle(draft: _Draft, at: float, event: BecameIdle) -> None:
    draft.change(event.slot, idle_at=at)


@_folds(BecameBusy)
def _became_busy(draft: _Draft, at: float, event: BecameBusy) -> None:
    draft.change(event.slot, idle_at=None)


@_folds(Unneeded)
def _unneeded(draft: _Draft, at: float, event: Unneeded) -> None:
    draft.change(event.slot, unneeded_at=at)


@_folds(BootFailed)
def _boot_failed(draft: _Draft, at: float, event: BootFailed) -> None:
    life = draft.lives.get(event.slot)
    if life is not None and life.instance == event.instance and life.failed is None:
        draft.change(event.slot, failed=event.words, failed_boots=life.failed_boots + 1)


@_folds(EndAsked)
def _end_asked(draft: _Draft, at: float, event: EndAsked) -> None:
    draft.endings.update(dict.fromkeys(event.instances, at))


@_folds(InstanceGone)
def _instance_gone(draft: _Draft, at: float, event: InstanceGone) -> None:
    life = draft.lives.get(event.slot)
    if life is not None and life.instance == event.instance:
        draft.change(
            event.slot, instance=None, up_at=None, idle_at=None, unneeded_at=None, registered_at=None
        )


@_folds(LifeOver)
def _life_over(draft: _Draft, at: float, event: LifeOver) -> None:
    draft.change(event.slot, open=False, failed=None)


@_folds(EndSeen)
def _end_seen(draft: _Draft, at: float, event: EndSeen) -> None:
    for instance in event.instances:
        draft.endings.pop(instance, None)


@_folds(Adopted)
def _adopted(draft: _Draft, at: float, event: Adopted) -> None:
    old = draft.lives.get(event.slot, Life(number=0, since=at))
    draft.lives[event.slot] = replace(
        old,
        number=old.number + 1,
        since=at,
        open=True,
        instance=event.instance,
        machine=event.machine,
        market=event.market,
        launched_at=at,
        booted_at=at,
        registered_at=at,
        up_at=at,
        idle_at=None,
        unneeded_at=None,
        failed=None,
    )
