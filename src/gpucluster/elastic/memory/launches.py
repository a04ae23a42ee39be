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
    return tuple(slot for gang in shared_out(ask, count)[0] for slot in gang)


def shared_out(ask: Ask, count: int) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]]:
    """The request's gangs that `count` instances serve, and those that they do not."""
    full: list[tuple[str, ...]] = []
    lacking: list[tuple[str, ...]] = []
    start = 0
    for size in ask.gangs or (len(ask.slots),):
        gang = ask.slots[start : start + size]
        start += size
        (full if size <= count else lacking).append(gang)
        count -= size if size <= count else 0
    return tuple(full), tuple(lacking)


def smaller(old: Refusal | None, size: int, now: float) -> bool:
    """Whether `old` stands, and only against gangs larger than `size`."""
    return old is not None and old.until > now and 0 < size < old.size


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
    _charge(draft, "RunInstances", 1.0, at)
    if known is None or known.throttled:
        _charge(draft, "RunInstances#instances", float(len(ask.slots)), at)
    if known is not None:  # the identical call once more
        doubtful = known.doubtful or not known.throttled
        draft.launches[ask.request] = replace(
            known, tries=known.tries + 1, throttled=False, doubtful=doubtful
        )
        return
    draft.requests += 1
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
    _had(draft, at, ask, event)
    machines = event.machines or (ask.machine,) * len(event.instances)
    prices = {ask.machine: ask.price, **{other.machine: other.price for other in ask.alternatives}}
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
            price=prices.get(machine, 0),
            trouble=None,
            faults=(),
        )


@folds(LaunchRefused)
def _launch_refused(draft: Draft, at: float, event: LaunchRefused) -> None:
    draft.release(event.request)
    if event.key is not None:
        _refuse(draft, at, event.key, event, for_this_run=event.for_this_run)


@folds(LaunchDeferred)
def _launch_deferred(draft: Draft, at: float, event: LaunchDeferred) -> None:
    if (launch := draft.launches.get(event.request)) is not None:
        draft.launches[event.request] = replace(launch, retry_at=event.retry_at, throttled=event.pace_all)
    if event.pace_all:  # the account's buckets are emptier than our model of them
        draft.paced_until = event.retry_at
        draft.levels = {name: Level(tokens=0.0, at=at) for name in RATES}


@folds(LaunchDropped)
def _launch_dropped(draft: Draft, at: float, event: LaunchDropped) -> None:
    draft.release(event.request)


@folds(Refused)
def _refused(draft: Draft, at: float, event: Refused) -> None:
    _refuse(draft, at, event.key, event)


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


def _refuse(
    draft: Draft, at: float, key: str, event: LaunchRefused | Refused, *, for_this_run: bool = False
) -> None:
    """A smaller gang that is refused while a larger one's refusal stands is no further time in a row."""
    old = draft.refusals.get(key)
    times = 1 if old is None else old.times + (not smaller(old, event.size, at))
    draft.refusals[key] = Refusal(
        until=event.until, times=times, words=event.words, for_this_run=for_this_run, size=event.size
    )


def _had(draft: Draft, at: float, ask: Ask, event: LaunchDone) -> None:
    """A success forgets what was refused, but for gangs larger than it while their refusal stands."""
    size = max((len(gang) for gang in shared_out(ask, len(event.instances))[0]), default=0)
    keys = {f(machine) for machine in event.machines or (ask.machine,) for f in (ask.offer_of, ask.priced)}
    for key in sorted(keys | {source_key(ask.pool, ask.source)}):
        old = draft.refusals.get(key)
        if old is not None and not smaller(old, size, at):
            del draft.refusals[key]


def _charge(draft: Draft, bucket: str, tokens: float, at: float) -> None:
    rate = RATES[bucket]
    old = draft.levels.get(bucket)
    now = left(rate, old.tokens, at - old.at) if old else rate[0]
    draft.levels[bucket] = Level(tokens=now - tokens, at=at)
