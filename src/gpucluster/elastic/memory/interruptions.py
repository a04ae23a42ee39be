"""Folds of interruptions and of stalled jobs."""

from collections.abc import Callable
from dataclasses import replace

from gpucluster.elastic.events import (
    GpuFaulted,
    HeartbeatResumed,
    HeartbeatStopped,
    Interrupted,
    InterruptionKind,
    InterruptionOver,
    JobForgotten,
    JobsRequeued,
    JobsSignalled,
)
from gpucluster.elastic.memory.draft import Draft, folds
from gpucluster.elastic.memory.values import Incarnation, Interruption, Placement, StalledJob

STORM_S = 600.0  # longer than the storm time of any plan: older times are dropped
FAULTS = 128  # remembered faults of one instance; normally there are far fewer
_MOST = 64


@folds(Interrupted)
def _interrupted(draft: Draft, at: float, event: Interrupted) -> None:
    incarnation = draft.incarnations.get(event.slot)
    if incarnation is None or incarnation.instance != event.instance:
        return
    old = incarnation.interruption
    if event.kind is InterruptionKind.SPOT and (old is None or old.kind is not InterruptionKind.SPOT):
        _count(draft, incarnation, at)
    new = Interruption(
        kind=event.kind, since=at, words=event.words, ends_at=event.ends_at, source=event.source
    )
    if old is not None:  # a worse or a nearer interruption replaces it; finished steps stay recorded
        done = (old.signalled, old.signalled_at, old.sent_back)
        since = old.since if old.kind is new.kind else at
        new = replace(new, since=since, signalled=done[0], signalled_at=done[1], sent_back=done[2])
    draft.change(event.slot, interruption=new)


@folds(JobsSignalled)
def _signalled(draft: Draft, at: float, event: JobsSignalled) -> None:
    _done(draft, event.instance, at, signalled=event.jobs)
    if _is_broken(draft, event.instance):
        for job in event.jobs:
            draft.breaks[str(job)] = draft.breaks.get(str(job), 0) + 1
    _mark(draft, event.jobs, lambda run: replace(run, signalled=True, signalled_at=at))


@folds(JobsRequeued)
def _jobs_requeued(draft: Draft, at: float, event: JobsRequeued) -> None:
    _done(draft, event.instance, at, sent_back=event.jobs)
    _mark(draft, event.jobs, lambda run: replace(run, sent_back=True))


@folds(InterruptionOver)
def _interruption_over(draft: Draft, at: float, event: InterruptionOver) -> None:
    for slot, incarnation in tuple(draft.incarnations.items()):
        if incarnation.instance == event.instance:
            draft.change(slot, interruption=None)


@folds(GpuFaulted)
def _gpu_faulted(draft: Draft, at: float, event: GpuFaulted) -> None:
    incarnation = draft.incarnations.get(event.slot)
    if (
        incarnation is not None
        and incarnation.instance == event.instance
        and len(incarnation.faults) < FAULTS
    ):
        draft.change(event.slot, faults=(*incarnation.faults, f"{event.xid} {event.device} {event.severity}"))


@folds(JobForgotten)
def _job_forgotten(draft: Draft, at: float, event: JobForgotten) -> None:
    draft.breaks.pop(str(event.job), None)
    draft.unbegun.pop(str(event.job), None)


@folds(HeartbeatStopped)
def _heartbeat_stopped(draft: Draft, at: float, event: HeartbeatStopped) -> None:
    draft.stalled[str(event.job)] = StalledJob(since=event.since, words=event.words)


@folds(HeartbeatResumed)
def _heartbeat_resumed(draft: Draft, at: float, event: HeartbeatResumed) -> None:
    draft.stalled.pop(str(event.job), None)


def _is_broken(draft: Draft, instance: str) -> bool:
    interruptions = (
        incarnation.interruption
        for incarnation in draft.incarnations.values()
        if incarnation.instance == instance
    )
    return any(
        interruption is not None and interruption.kind is InterruptionKind.FAULT
        for interruption in interruptions
    )


def _mark(draft: Draft, jobs: tuple[int, ...], done: Callable[[Placement], Placement]) -> None:
    """Record it with the job's run, which may outlive the instance."""
    for job in jobs:
        if (placement := draft.jobs.get(str(job))) is not None:
            draft.jobs[str(job)] = done(placement)


def _count(draft: Draft, incarnation: Incarnation, at: float) -> None:
    """Count a reclaimed instance of the offer. Times of all offers before the storm time are dropped."""
    recent = {
        offer: tuple(then for then in times if at - STORM_S < then) for offer, times in draft.taken.items()
    }
    draft.taken = {offer: times for offer, times in recent.items() if times}
    draft.taken[incarnation.offer_key] = (*draft.taken.get(incarnation.offer_key, ()), at)[-_MOST:]


def _done(
    draft: Draft,
    instance: str,
    at: float,
    *,
    signalled: tuple[int, ...] = (),
    sent_back: tuple[int, ...] = (),
) -> None:
    for slot, incarnation in tuple(draft.incarnations.items()):
        interruption = incarnation.interruption
        if incarnation.instance != instance or interruption is None:
            continue
        all_signalled = tuple(dict.fromkeys((*interruption.signalled, *signalled)))
        back = tuple(dict.fromkeys((*interruption.sent_back, *sent_back)))
        first = interruption.signalled_at if interruption.signalled_at is not None or not signalled else at
        draft.change(
            slot,
            interruption=replace(interruption, signalled=all_signalled, signalled_at=first, sent_back=back),
        )
