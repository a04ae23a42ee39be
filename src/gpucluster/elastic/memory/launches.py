"""Folds of requests, refusals and terminations."""

from dataclasses import replace

from gpucluster.cloud.limits import INSTANCES, OWN, left
from gpucluster.elastic.events import (
    DaemonStarted,
    JournalCreated,
    JournalOutdated,
    LaunchDeferred,
    LaunchDone,
    LaunchDropped,
    LaunchRefused,
    LaunchRequest,
    LaunchRequested,
    OfferRefused,
    RefusalsForgotten,
    SparesLaunched,
    StraysSeen,
    TerminationRefused,
    TerminationRequested,
    TerminationSeen,
    source_key,
)
from gpucluster.elastic.memory.draft import Draft, folds
from gpucluster.elastic.memory.values import BucketLevel, Incarnation, Launch, Refusal, RefusedEnd, Spare

# bucket -> (size, refill a second): of calls, and of instances
RATES = {
    **{name: OWN[name] for name in ("RunInstances", "TerminateInstances")},
    **{f"{name}#instances": INSTANCES[name] for name in ("RunInstances", "TerminateInstances")},
}


def served(request: LaunchRequest, count: int) -> tuple[str, ...]:
    """Return the slots that `count` instances fill: whole gangs, first to last. No gang is filled in part."""
    return tuple(slot for gang in shared_out(request, count)[0] for slot in gang)


def shared_out(
    request: LaunchRequest, count: int
) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]]:
    """Return the gangs that `count` instances serve, and the other gangs."""
    full: list[tuple[str, ...]] = []
    lacking: list[tuple[str, ...]] = []
    start = 0
    for size in request.gangs or (len(request.slots),):
        gang = request.slots[start : start + size]
        start += size
        (full if size <= count else lacking).append(gang)
        count -= size if size <= count else 0
    return tuple(full), tuple(lacking)


def smaller(old: Refusal | None, size: int, now: float) -> bool:
    """Return whether `old` is in force, and only against gangs larger than `size`."""
    return old is not None and old.until > now and 0 < size < old.size


@folds(JournalCreated)
def _journal_created(draft: Draft, at: float, event: JournalCreated) -> None:
    draft.epoch = event.epoch
    draft.unrestored_since = draft.lost_at = None if event.first else at


@folds(JournalOutdated)
def _journal_outdated(draft: Draft, at: float, event: JournalOutdated) -> None:
    """It lacks the instances since, too. Its open launches are long over: a repeat could be a new one."""
    draft.unrestored_since = draft.lost_at = at
    for request in tuple(draft.launches):
        draft.release(request)


@folds(DaemonStarted)
def _daemon_started(draft: Draft, at: float, event: DaemonStarted) -> None:
    draft.refusals = {k: r for k, r in draft.refusals.items() if not r.for_this_run}
    draft.jobs = {k: p if p.running else replace(p, unwatched=True) for k, p in draft.jobs.items()}
    draft.lease = max(draft.lease, event.epoch)


@folds(LaunchRequested)
def _launch_requested(draft: Draft, at: float, event: LaunchRequested) -> None:
    request = event.request
    known = draft.launches.get(request.id)
    _charge(draft, "RunInstances", 1.0, at)
    if known is None or known.throttled:
        _charge(draft, "RunInstances#instances", float(len(request.slots)), at)
    if known is not None:  # the identical call again
        doubtful = known.doubtful or not known.throttled
        draft.launches[request.id] = replace(known, tries=known.tries + 1, throttled=False, doubtful=doubtful)
        return
    draft.requests += 1
    draft.launches[request.id] = Launch(request=request, asked_at=at)
    for slot in request.slots:
        incarnation = draft.incarnations.get(slot, Incarnation(number=1, since=at))
        draft.incarnations[slot] = replace(
            incarnation, request=request.id, generation=incarnation.generation + 1
        )


@folds(LaunchDone)
def _launch_done(draft: Draft, at: float, event: LaunchDone) -> None:
    launch = draft.release(event.request)
    if launch is None:
        return
    request = launch.request
    _remove_refusals(draft, at, request, event)
    machines = event.machines or (request.spec.machine,) * len(event.instances)
    prices = {
        request.spec.machine: request.price,
        **{other.spec.machine: other.price for other in request.alternatives},
    }
    for slot, instance, machine in zip(
        served(request, len(event.instances)), event.instances, machines, strict=False
    ):
        draft.change(
            slot,
            open=True,
            instance=instance,
            machine=machine,
            market=request.spec.market,
            source=request.source,
            zone=request.spec.zone,
            launched_at=at,
            adopted_at=None,
            booted_at=None,
            registered_at=None,
            up_at=None,
            idle_at=None,
            unneeded_at=None,
            failed=None,
            price=prices.get(machine, 0),
            interruption=None,
            faults=(),
        )


@folds(SparesLaunched)
def _spares_launched(draft: Draft, at: float, event: SparesLaunched) -> None:
    one = Spare(pool=event.pool, source=event.source, launched_at=at)
    draft.spares.update(dict.fromkeys(event.instances, one))


@folds(StraysSeen)
def _strays_seen(draft: Draft, at: float, event: StraysSeen) -> None:
    draft.strays.update(dict.fromkeys(event.instances, at))
    for instance in event.over:
        draft.strays.pop(instance, None)


@folds(LaunchRefused)
def _launch_refused(draft: Draft, at: float, event: LaunchRefused) -> None:
    draft.release(event.request)
    if event.key is not None:
        _refuse(draft, at, event.key, event, for_this_run=event.for_this_run)


@folds(LaunchDeferred)
def _launch_deferred(draft: Draft, at: float, event: LaunchDeferred) -> None:
    if (launch := draft.launches.get(event.request)) is not None:
        draft.launches[event.request] = replace(launch, retry_at=event.retry_at, throttled=event.pace_all)
    if event.pace_all:  # the account's buckets are emptier than our model
        draft.paced_until = event.retry_at
        draft.levels = {name: BucketLevel(tokens=0.0, at=at) for name in RATES}


@folds(LaunchDropped)
def _launch_dropped(draft: Draft, at: float, event: LaunchDropped) -> None:
    draft.release(event.request)


@folds(OfferRefused)
def _offer_refused(draft: Draft, at: float, event: OfferRefused) -> None:
    _refuse(draft, at, event.key, event)


@folds(RefusalsForgotten)
def _refusals_forgotten(draft: Draft, at: float, event: RefusalsForgotten) -> None:
    for key in event.keys:
        draft.refusals.pop(key, None)


@folds(TerminationRequested)
def _termination_requested(draft: Draft, at: float, event: TerminationRequested) -> None:
    draft.endings.update(dict.fromkeys(event.instances, at))
    for instance in event.instances:
        draft.refused_ends.pop(instance, None)
    _charge_end(draft, at, event)


@folds(TerminationRefused)
def _termination_refused(draft: Draft, at: float, event: TerminationRefused) -> None:
    for instance in event.instances:
        old = draft.refused_ends.get(instance)
        draft.refused_ends[instance] = RefusedEnd(
            since=old.since if old is not None else at,
            at=at,
            until=event.until,
            times=old.times + 1 if old is not None else 1,
            words=event.words,
            refused=event.refused,
        )
    _charge_end(draft, at, event)


@folds(TerminationSeen)
def _termination_seen(draft: Draft, at: float, event: TerminationSeen) -> None:
    for instance in event.instances:
        draft.endings.pop(instance, None)
        draft.refused_ends.pop(instance, None)
        draft.spares.pop(instance, None)


def _refuse(
    draft: Draft, at: float, key: str, event: LaunchRefused | OfferRefused, *, for_this_run: bool = False
) -> None:
    """Store a refusal. It is not a further one in a row if the standing refusal is of larger gangs only."""
    old = draft.refusals.get(key)
    times = 1 if old is None else old.times + (not smaller(old, event.size, at))
    draft.refusals[key] = Refusal(
        until=event.until,
        times=times,
        words=event.words,
        at=at,
        for_this_run=for_this_run,
        size=event.size,
    )


def _remove_refusals(draft: Draft, at: float, request: LaunchRequest, event: LaunchDone) -> None:
    """Remove the refusals of a launched offer, except those of larger gangs that are still in force."""
    size = max((len(gang) for gang in shared_out(request, len(event.instances))[0]), default=0)
    keys = {
        f(machine)
        for machine in event.machines or (request.spec.machine,)
        for f in (request.offer_key_of, request.price_key_of)
    }
    for key in sorted(keys | {source_key(request.pool, request.source)}):
        old = draft.refusals.get(key)
        if old is not None and not smaller(old, size, at):
            del draft.refusals[key]


def _charge_end(draft: Draft, at: float, event: TerminationRequested | TerminationRefused) -> None:
    _charge(draft, "TerminateInstances", 1.0, at)
    _charge(draft, "TerminateInstances#instances", float(len(event.instances)), at)


def _charge(draft: Draft, bucket: str, tokens: float, at: float) -> None:
    rate = RATES[bucket]
    old = draft.levels.get(bucket)
    now = left(rate, old.tokens, at - old.at) if old else rate[0]
    draft.levels[bucket] = BucketLevel(tokens=now - tokens, at=at)
