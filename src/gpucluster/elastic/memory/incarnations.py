"""Folds of slots and jobs."""

from dataclasses import replace

from gpucluster.elastic import ledger
from gpucluster.elastic.events import (
    BootFailed,
    HookCalled,
    IncarnationOver,
    IncarnationRenewed,
    InstanceAdopted,
    InstanceGone,
    InstanceRunning,
    JobPlaced,
    JobReleased,
    JobRunning,
    NodeBusy,
    NodeIdle,
    NodeNeeded,
    NodeRegistered,
    NodeUnneeded,
    NodeUp,
    PowerUpMarkStays,
)
from gpucluster.elastic.memory.draft import Draft, folds
from gpucluster.elastic.memory.values import Incarnation, Placement, UnbegunStarts

MONTHS = 12  # of spend that are remembered; the budget needs the present one


@folds(HookCalled)
def _hook_called(draft: Draft, at: float, event: HookCalled) -> None:
    """Change nothing: a hook's call is only a hint. The timeline reads the event."""


@folds(JobPlaced)
def _job_placed(draft: Draft, at: float, event: JobPlaced) -> None:
    draft.jobs[str(event.job)] = Placement(slots=event.slots, restarts=event.restarts)


@folds(JobRunning)
def _job_running(draft: Draft, at: float, event: JobRunning) -> None:
    if (placement := draft.jobs.get(str(event.job))) is not None:
        draft.jobs[str(event.job)] = replace(placement, running=True)


@folds(JobReleased)
def _job_released(draft: Draft, at: float, event: JobReleased) -> None:
    placement = draft.jobs.pop(str(event.job), None)
    if placement is not None and not event.began:
        known = draft.unbegun.get(str(event.job))
        times = 1 if known is None else known.times + 1
        draft.unbegun[str(event.job)] = UnbegunStarts(times=times, last=placement.restarts)


@folds(NodeNeeded)
def _node_needed(draft: Draft, at: float, event: NodeNeeded) -> None:
    old = draft.incarnations.get(event.slot, Incarnation(number=0, since=at))
    draft.incarnations[event.slot] = replace(
        old,
        number=event.incarnation,
        since=at,
        open=True,
        jobs=event.jobs,
        failed_boots=0,
        registered_at=None,
        up_at=None,
        idle_at=None,
        unneeded_at=None,
    )


@folds(IncarnationRenewed)
def _incarnation_renewed(draft: Draft, at: float, event: IncarnationRenewed) -> None:
    draft.change(event.slot, number=event.incarnation, registered_at=None, up_at=None)


@folds(InstanceRunning)
def _instance_running(draft: Draft, at: float, event: InstanceRunning) -> None:
    draft.change(event.slot, booted_at=at)


@folds(NodeRegistered)
def _node_registered(draft: Draft, at: float, event: NodeRegistered) -> None:
    incarnation = draft.incarnations.get(event.slot)
    if incarnation is None:
        return
    first = at if incarnation.registered_at is None else incarnation.registered_at
    draft.change(event.slot, registered_at=first, number=max(incarnation.number, event.incarnation))


@folds(NodeUp)
def _node_up(draft: Draft, at: float, event: NodeUp) -> None:
    draft.change(event.slot, up_at=at, unneeded_at=None, failed_boots=0, failed=None)
    draft.boots.pop(event.pool, None)


@folds(NodeIdle)
def _node_idle(draft: Draft, at: float, event: NodeIdle) -> None:
    draft.change(event.slot, idle_at=at)


@folds(NodeBusy)
def _node_busy(draft: Draft, at: float, event: NodeBusy) -> None:
    draft.change(event.slot, idle_at=None)


@folds(NodeUnneeded)
def _node_unneeded(draft: Draft, at: float, event: NodeUnneeded) -> None:
    draft.change(event.slot, unneeded_at=at)


@folds(BootFailed)
def _boot_failed(draft: Draft, at: float, event: BootFailed) -> None:
    incarnation = draft.incarnations.get(event.slot)
    if incarnation is not None and incarnation.instance == event.instance and incarnation.failed is None:
        draft.change(event.slot, failed=event.words, failed_boots=incarnation.failed_boots + 1)
        if event.pool:
            draft.boots[event.pool] = draft.boots.get(event.pool, 0) + 1


@folds(InstanceGone)
def _instance_gone(draft: Draft, at: float, event: InstanceGone) -> None:
    incarnation = draft.incarnations.get(event.slot)
    if incarnation is None or incarnation.instance != event.instance:
        return
    draft.refused_ends.pop(event.instance, None)
    for month, amount in ledger.split(incarnation.price, incarnation.counts_from, at):
        draft.spent[month] = draft.spent.get(month, 0) + amount
    draft.spent = dict(sorted(draft.spent.items())[-MONTHS:])
    draft.change(
        event.slot,
        instance=None,
        up_at=None,
        idle_at=None,
        unneeded_at=None,
        registered_at=None,
        interruption=None,
        replaced_at=None,
        faults=(),
    )


@folds(IncarnationOver)
def _incarnation_over(draft: Draft, at: float, event: IncarnationOver) -> None:
    draft.change(event.slot, open=False, failed=None)


@folds(PowerUpMarkStays)
def _power_up_mark_stays(draft: Draft, at: float, event: PowerUpMarkStays) -> None:
    draft.change(event.slot, relapses=event.stays)


@folds(InstanceAdopted)
def _instance_adopted(draft: Draft, at: float, event: InstanceAdopted) -> None:
    old = draft.incarnations.get(event.slot, Incarnation(number=1, since=at))
    up_at = at if event.up else None
    draft.incarnations[event.slot] = replace(
        old,
        since=at,
        open=True,
        instance=event.instance,
        machine=event.machine,
        market=event.market,
        price=event.price,
        zone=event.zone,
        source=event.source,
        interruption=None,
        replaced_at=None,
        faults=(),
        launched_at=event.launched_at or at,
        adopted_at=at,
        booted_at=up_at,
        registered_at=up_at,
        up_at=up_at,
        idle_at=None,
        unneeded_at=None,
        failed=None,
    )
