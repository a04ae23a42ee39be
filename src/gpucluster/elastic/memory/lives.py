"""Folds of slots and jobs."""

from dataclasses import replace

from gpucluster.elastic import ledger
from gpucluster.elastic.events import (
    Adopted,
    BecameBusy,
    BecameIdle,
    Booted,
    BootFailed,
    CameUp,
    HookCalled,
    InstanceGone,
    JobLeft,
    JobPlaced,
    JobRunning,
    LifeOver,
    Needed,
    PowerUpStays,
    Registered,
    Renewed,
    Unneeded,
)
from gpucluster.elastic.memory.draft import Draft, folds
from gpucluster.elastic.memory.values import Life, Placement


@folds(HookCalled)
def _hook_called(draft: Draft, at: float, event: HookCalled) -> None:
    """A hint only; kept for the timeline."""


@folds(JobPlaced)
def _job_placed(draft: Draft, at: float, event: JobPlaced) -> None:
    draft.jobs[str(event.job)] = Placement(slots=event.slots)


@folds(JobRunning)
def _job_running(draft: Draft, at: float, event: JobRunning) -> None:
    if (placement := draft.jobs.get(str(event.job))) is not None:
        draft.jobs[str(event.job)] = replace(placement, running=True)


@folds(JobLeft)
def _job_left(draft: Draft, at: float, event: JobLeft) -> None:
    draft.jobs.pop(str(event.job), None)


@folds(Needed)
def _needed(draft: Draft, at: float, event: Needed) -> None:
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


@folds(Renewed)
def _renewed(draft: Draft, at: float, event: Renewed) -> None:
    draft.change(event.slot, number=event.life, registered_at=None, up_at=None)


@folds(Booted)
def _booted(draft: Draft, at: float, event: Booted) -> None:
    draft.change(event.slot, booted_at=at)


@folds(Registered)
def _registered(draft: Draft, at: float, event: Registered) -> None:
    draft.change(event.slot, registered_at=at)


@folds(CameUp)
def _came_up(draft: Draft, at: float, event: CameUp) -> None:
    draft.change(event.slot, up_at=at, unneeded_at=None, failed_boots=0, failed=None)
    draft.boots.pop(event.pool, None)


@folds(BecameIdle)
def _became_idle(draft: Draft, at: float, event: BecameIdle) -> None:
    draft.change(event.slot, idle_at=at)


@folds(BecameBusy)
def _became_busy(draft: Draft, at: float, event: BecameBusy) -> None:
    draft.change(event.slot, idle_at=None)


@folds(Unneeded)
def _unneeded(draft: Draft, at: float, event: Unneeded) -> None:
    draft.change(event.slot, unneeded_at=at)


@folds(BootFailed)
def _boot_failed(draft: Draft, at: float, event: BootFailed) -> None:
    life = draft.lives.get(event.slot)
    if life is not None and life.instance == event.instance and life.failed is None:
        draft.change(event.slot, failed=event.words, failed_boots=life.failed_boots + 1)
        if event.pool:
            draft.boots[event.pool] = draft.boots.get(event.pool, 0) + 1


@folds(InstanceGone)
def _instance_gone(draft: Draft, at: float, event: InstanceGone) -> None:
    life = draft.lives.get(event.slot)
    if life is None or life.instance != event.instance:
        return
    for month, amount in ledger.split(life.price, life.launched_at, at):
        draft.spent[month] = draft.spent.get(month, 0) + amount
    draft.change(
        event.slot,
        instance=None,
        up_at=None,
        idle_at=None,
        unneeded_at=None,
        registered_at=None,
        trouble=None,
        faults=(),
    )


@folds(LifeOver)
def _life_over(draft: Draft, at: float, event: LifeOver) -> None:
    draft.change(event.slot, open=False, failed=None)


@folds(PowerUpStays)
def _power_up_stays(draft: Draft, at: float, event: PowerUpStays) -> None:
    draft.change(event.slot, relapses=event.stays)


@folds(Adopted)
def _adopted(draft: Draft, at: float, event: Adopted) -> None:
    old = draft.lives.get(event.slot, Life(number=0, since=at))
    draft.lives[event.slot] = replace(
        old,
        number=old.number + 1,
        since=at,
        open=True,
        instance=event.instance,
        machine=event.machine,
        market=event.market,
        price=event.price,
        zone=event.zone,
        source=event.source,
        trouble=None,
        faults=(),
        launched_at=at,
        booted_at=at,
        registered_at=at,
        up_at=at,
        idle_at=None,
        unneeded_at=None,
        failed=None,
    )
