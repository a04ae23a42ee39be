"""Folds of requests, refusals and ends."""

from dataclasses import replace

from gpucluster.cloud.limits import INSTANCES, OWN, left
from gpucluster.elastic.events import (
    Ask,
    Born,
    EndAsked,
    EndSeen,
    Forgot,
    LaunchAsked,
    LaunchDeferred,
    LaunchDone,
    LaunchDropped,
    LaunchRefused,
    Refused,
    Started,
    source_key,
)
from gpucluster.elastic.memory.draft import Draft, folds
from gpucluster.elastic.memory.values import Launch, Level, Life, Refusal

# bucket -> (size, refill a second): of calls, and of instances
RATES = {
    **{name: OWN[name] for name in ("RunInstances", "TerminateInstances")},
    **{f"{name}#instances": INSTANCES[name] for name in ("RunInstances", "TerminateInstances")},
}


def served(ask: Ask, count: int) -> tuple[str, ...]:
    """The slots that `count` instances fill: whole gangs, first to last; what fits no gang whole fills none."""
    if count >= len(ask.slots):
        return ask.slots
    slots: list[str] = []
    start = 0
    for size in ask.gangs or (len(ask.slots),):
        if len(slots) + size <= count:
            slots.extend(ask.slots[start : start + size])
        start += size
    return tuple(slots)


@folds(Born)
def _born(draft: Draft, at: float, event: Born) -> None:
    draft.epoch = event.epoch


@folds(Started)
def _started(draft: Draft, at: float, event: Started) -> None:
    draft.refusals = {k: r for k, r in draft.refusals.items() if not r.for_this_run}


@folds(LaunchAsked)
def _launch_asked(draft: Draft, at: float, event: LaunchAsked) -> None:
    ask = event.ask
    known = draft.launches.get(ask.request)
    if known is not None:  # the identical call once more
        draft.launches[ask.request] = replace(known, tries=known.tries + 1)
        return
    draft.requests += 1
    _charge(draft, "RunInstances", 1.0, at)
    _charge(draft, "RunInstances#instances", float(len(ask.slots)), at)
    draft.launches[ask.request] = Launch(ask=ask, asked_at=at)
    for slot in ask.slots:
        life = draft.lives.get(slot, Life(number=1, since=at))
        draft.lives[slot] = replace(life, request=ask.request, generation=life.generation + 1)


@folds(LaunchDone)
def _launch_done(draft: Draft, at: float, event: LaunchDone) -> None:
    launch = draft.release(event.request)
    if launch is None:
        return
    ask = launch.ask
    for key in (ask.offer, source_key(ask.pool, ask.source)):
        draft.refusals.pop(key, None)
    machines = event.machines or (ask.machine,) * len(event.instances)
    for slot, instance, machine in zip(
        served(ask, len(event.instances)), event.instances, machines, strict=False
    ):
        draft.change(
            slot,
            open=True,
            instance=instance,
            machine=machine,
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
            price=ask.price,
            trouble=None,
            faults=(),
        )


@folds(LaunchRefused)
def _launch_refused(draft: Draft, at: float, event: LaunchRefused) -> None:
    draft.release(event.request)
    if event.key is not None:
        old = draft.refusals.get(event.key)
        draft.refusals[event.key] = Refusal(
            until=event.until,
            times=old.times + 1 if old else 1,
            words=event.words,
            for_this_run=event.for_this_run,
        )


@folds(LaunchDeferred)
def _launch_deferred(draft: Draft, at: float, event: LaunchDeferred) -> None:
    if (launch := draft.launches.get(event.request)) is not None:
        draft.launches[event.request] = replace(launch, retry_at=event.retry_at)
    if event.pace_all:  # the account's buckets are emptier than our model of them
        draft.paced_until = event.retry_at
        draft.levels = {name: Level(tokens=0.0, at=at) for name in RATES}


@folds(LaunchDropped)
def _launch_dropped(draft: Draft, at: float, event: LaunchDropped) -> None:
    draft.release(event.request)


@folds(Refused)
def _refused(draft: Draft, at: float, event: Refused) -> None:
    old = draft.refusals.get(event.key)
    draft.refusals[event.key] = Refusal(
        until=event.until, times=old.times + 1 if old else 1, words=event.words
    )


@folds(Forgot)
def _forgot(draft: Draft, at: float, event: Forgot) -> None:
    for key in event.keys:
        draft.refusals.pop(key, None)


@folds(EndAsked)
def _end_asked(draft: Draft, at: float, event: EndAsked) -> None:
    draft.endings.update(dict.fromkeys(event.instances, at))
    _charge(draft, "TerminateInstances", 1.0, at)
    _charge(draft, "TerminateInstances#instances", float(len(event.instances)), at)


@folds(EndSeen)
def _end_seen(draft: Draft, at: float, event: EndSeen) -> None:
    for instance in event.instances:
        draft.endings.pop(instance, None)


def _charge(draft: Draft, bucket: str, tokens: float, at: float) -> None:
    rate = RATES[bucket]
    old = draft.levels.get(bucket)
    now = left(rate, old.tokens, at - old.at) if old else rate[0]
    draft.levels[bucket] = Level(tokens=now - tokens, at=at)
