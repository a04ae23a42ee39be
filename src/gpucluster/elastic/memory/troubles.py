"""Folds of machines that are to be left, and of jobs that hang."""

from dataclasses import replace

from gpucluster.elastic.events import (
    Beats,
    GpuFaulted,
    Hangs,
    JobForgotten,
    SentBack,
    Signalled,
    Troubled,
    TroubleKind,
    TroubleOver,
)
from gpucluster.elastic.memory.draft import Draft, folds
from gpucluster.elastic.memory.values import Hanging, Life, Trouble

STORM_S = 600.0  # longer than a storm lasts by any plan: what is older is forgotten
FAULTS = 128  # of a machine that are remembered, and so told: an honest one has far fewer
_MOST = 64


@folds(Troubled)
def _troubled(draft: Draft, at: float, event: Troubled) -> None:
    life = draft.lives.get(event.slot)
    if life is None or life.instance != event.instance:
        return
    old = life.trouble
    if event.kind is TroubleKind.SPOT and (old is None or old.kind is not TroubleKind.SPOT):
        _count(draft, life, at)
    new = Trouble(kind=event.kind, since=at, words=event.words, ends_at=event.ends_at, source=event.source)
    if old is not None:  # a worse or a nearer one takes over; what was done stays done
        done = (old.signalled, old.signalled_at, old.sent_back)
        since = old.since if old.kind is new.kind else at
        new = replace(new, since=since, signalled=done[0], signalled_at=done[1], sent_back=done[2])
    draft.change(event.slot, trouble=new)


@folds(Signalled)
def _signalled(draft: Draft, at: float, event: Signalled) -> None:
    _done(draft, event.instance, at, signalled=event.jobs)
    if _is_broken(draft, event.instance):
        for job in event.jobs:
            draft.breaks[str(job)] = draft.breaks.get(str(job), 0) + 1
    _mark(draft, event.jobs, signalled=True)


@folds(SentBack)
def _sent_back(draft: Draft, at: float, event: SentBack) -> None:
    _done(draft, event.instance, at, sent_back=event.jobs)
    _mark(draft, event.jobs, sent_back=True)


@folds(TroubleOver)
def _over(draft: Draft, at: float, event: TroubleOver) -> None:
    for slot, life in tuple(draft.lives.items()):
        if life.instance == event.instance:
            draft.change(slot, trouble=None)


@folds(GpuFaulted)
def _faulted(draft: Draft, at: float, event: GpuFaulted) -> None:
    life = draft.lives.get(event.slot)
    if life is not None and life.instance == event.instance and len(life.faults) < FAULTS:
        draft.change(event.slot, faults=(*life.faults, f"{event.xid} {event.device} {event.severity}"))


@folds(JobForgotten)
def _job_forgotten(draft: Draft, at: float, event: JobForgotten) -> None:
    draft.breaks.pop(str(event.job), None)


@folds(Hangs)
def _hangs(draft: Draft, at: float, event: Hangs) -> None:
    draft.hanging[str(event.job)] = Hanging(since=event.since, words=event.words)


@folds(Beats)
def _beats(draft: Draft, at: float, event: Beats) -> None:
    draft.hanging.pop(str(event.job), None)


def _is_broken(draft: Draft, instance: str) -> bool:
    troubles = (life.trouble for life in draft.lives.values() if life.instance == instance)
    return any(trouble is not None and trouble.kind is TroubleKind.FAULT for trouble in troubles)


def _mark(draft: Draft, jobs: tuple[int, ...], **done: bool) -> None:
    """With the job's run, which may outlive the machine for which it was done."""
    for job in jobs:
        if (placement := draft.jobs.get(str(job))) is not None:
            draft.jobs[str(job)] = replace(placement, **done)


def _count(draft: Draft, life: Life, at: float) -> None:
    recent = tuple(then for then in draft.taken.get(life.offer, ()) if at - STORM_S < then)
    draft.taken[life.offer] = (*recent, at)[-_MOST:]


def _done(
    draft: Draft,
    instance: str,
    at: float,
    *,
    signalled: tuple[int, ...] = (),
    sent_back: tuple[int, ...] = (),
) -> None:
    for slot, life in tuple(draft.lives.items()):
        trouble = life.trouble
        if life.instance != instance or trouble is None:
            continue
        told = tuple(dict.fromkeys((*trouble.signalled, *signalled)))
        back = tuple(dict.fromkeys((*trouble.sent_back, *sent_back)))
        first = trouble.signalled_at if trouble.signalled_at is not None or not signalled else at
        draft.change(slot, trouble=replace(trouble, signalled=told, signalled_at=first, sent_back=back))
