"""Actions on jobs that do not change their nodes: stalled jobs, half-started jobs, holds after GPU faults, state saves.

A job has a heartbeat if it touches a file on one of its nodes (opt-in). Only a file of the job's user counts, and only
a touch after the job's start. A job without a heartbeat never counts as stalled, nor does a job with a node whose agent
does not report. The node computes the age of the file: its clock and the daemon's may differ.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from signal import Signals

from gpucluster.elastic.decide.gangs import comment_jobs
from gpucluster.elastic.decide.interruptions import interruption_reason
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import (
    Entry,
    Event,
    HeartbeatResumed,
    HeartbeatStopped,
    InterruptionKind,
    JobForgotten,
    JobRunning,
)
from gpucluster.elastic.memory import Interruption, Placement, StalledJob
from gpucluster.elastic.model import Action, Comment, JobRun, ReceivedReport, Requeue
from gpucluster.plan.model import JobHeartbeat
from gpucluster.plan.names import REASON_PREFIX
from gpucluster.slurm import drains, hostlist
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.values import SlurmJob
from gpucluster.text import format_duration

SILENT_BEATS = 3  # an agent that missed this many heartbeats is silent
SILENT_LEAST_S = 10.0
BATCH_SCRIPT_S = (
    60.0  # slurmd has the script by then: slurmctld itself waits BatchStartTimeout + MessageTimeout, 20 s
)


def heartbeat_events(world: World) -> Iterator[Event]:
    """Return events: heartbeats that stopped, heartbeats that started again, and stalled jobs that are gone."""
    if not world.memory.stalled and not any(pool.job_heartbeat for pool in world.plan.pools):
        return
    seen: set[str] = set()
    for job in world.slurm.jobs:
        key, rule = str(job.id), _watchdog(world, job)
        if rule is None or not job.running:
            continue
        seen.add(key)
        last = _last_beat(world, job)
        known = world.memory.stalled.get(key)
        if last is None:
            continue
        quiet = last + rule.after_s <= world.now
        if quiet and known is None:
            yield HeartbeatStopped(
                job=job.id, since=last, words=f"no progress for {rule.after_s} s by its own heartbeat file"
            )
        elif not quiet and known is not None:
            yield HeartbeatResumed(job=job.id)
    for key in sorted(world.memory.stalled.keys() - seen):
        yield HeartbeatResumed(job=int(key))


def act_on_stalled(world: World) -> Iterator[Action]:
    """Comment or requeue stalled jobs. If a job's instance is interrupted, that comment comes first."""
    hanging = world.memory.stalled
    for job in world.slurm.jobs if hanging else ():
        known = hanging.get(str(job.id))
        if known is None or _watchdog(world, job) is None or not job.running or _is_evacuated(world, job):
            continue
        reason = stalled_reason(known)
        if requeues_stalled(world, job):
            yield Requeue(runs=(JobRun.of(job),), instance="", reason=reason)
        else:
            yield from comment_jobs((job,), reason)


def requeues_stalled(world: World, job: SlurmJob) -> bool:
    """Return whether a stalled job is requeued: the spec permits it, and few runs of the job have begun."""
    rule = _watchdog(world, job)
    return rule is not None and rule.requeue and job.requeues_on_failure and _may_restart(world, job)


def next_heartbeat_due(world: World) -> float:
    """Return the time at which the first job with a heartbeat would count as stalled."""
    found = (
        last + rule.after_s
        for job in world.slurm.jobs
        if job.running
        and str(job.id) not in world.memory.stalled
        and (rule := _watchdog(world, job)) is not None
        and (last := _last_beat(world, job)) is not None
    )
    return min(found, default=float("inf"))


def stalled_reason(hanging: StalledJob) -> str:
    """Return the comment of the job."""
    return drains.reason(DrainOwner.EVACUATION, hanging.words)


def _watchdog(world: World, job: SlurmJob) -> JobHeartbeat | None:
    place = next((world.slots[node] for node in job.nodes if node in world.slots), None)
    return place.pool.job_heartbeat if place is not None else None


def _last_beat(world: World, job: SlurmJob) -> float | None:
    """Return the job's last heartbeat by the daemon's clock; None without one in this run, or if an agent is silent."""
    last: float | None = None
    for node in job.nodes:
        incarnation = world.incarnation(node)
        received = world.reports.get(incarnation.instance or "") if incarnation is not None else None
        if received is None or is_silent(world, received):
            return None
        for beat in received.report.heartbeats:
            at = received.at - max(0.0, received.report.clock - beat.at)
            if beat.job == job.id and beat.uid == job.user_id and at >= job.started_at:
                last = at if last is None else max(last, at)
    return last


def is_silent(world: World, received: ReceivedReport) -> bool:
    """Return whether the agent has missed its last heartbeats."""
    return received.at + max(SILENT_BEATS * world.plan.times.heartbeat_s, SILENT_LEAST_S) < world.now


def _is_evacuated(world: World, job: SlurmJob) -> bool:
    return any(
        (incarnation := world.incarnation(node)) is not None and incarnation.interruption is not None
        for node in job.nodes
    )


def act_on_half_started(world: World) -> Iterator[Action]:
    """Requeue half-started jobs. A job that may not be requeued, or was requeued too often, gets a comment."""
    lacking = frozenset(job for one in world.reports.values() for job in one.report.without_script)
    for job in world.slurm.jobs:
        named = job.reason == "Prolog" or job.id in lacking  # a look at the nodes of each job is slow
        half = half_started(world, job) if named else None
        if half is None:
            continue
        if half.requeues(world, job):
            yield Requeue(runs=(JobRun.of(job),), instance="", reason=half.reason("it is queued again"))
        elif job.requeues_on_failure:
            then = f"it came back {runs_begun(world, job)} times, so it is left to run: look at its Prolog"
            yield from comment_jobs((job,), half.reason(then))
        else:
            yield from comment_jobs((job,), half.reason("cancel it, and submit it again"))


@dataclass(frozen=True, slots=True)
class HalfStart:
    """Why a RUNNING job has only half started. `useless`: it runs nothing, so it cannot end by itself."""

    words: str
    useless: bool

    def reason(self, then: str) -> str:
        """Return the comment of the job."""
        return f"{REASON_PREFIX} {self.words}, so it only half started: {then}"

    def requeues(self, world: World, job: SlurmJob) -> bool:
        """Return whether the job is requeued. After many restarts it is not: with a slow Prolog it would never run."""
        return requeues_without_prolog(world, job) or (self.useless and job.requeues_on_failure)


def requeues_without_prolog(world: World, job: SlurmJob) -> bool:
    """Return whether the job is requeued if its Prolog does not report."""
    return job.requeues_on_failure and _may_restart(world, job)


def runs_begun(world: World, job: SlurmJob) -> int:
    """Return how many runs of the job began before this one. Slurm's count also has the starts that never began."""
    return world.memory.runs_begun(job.id, job.restarts)


def _may_restart(world: World, job: SlurmJob) -> bool:
    return runs_begun(world, job) < MAX_RESTARTS


def half_started(world: World, job: SlurmJob) -> HalfStart | None:
    """Return why the job has only half started: no report of its Prolog for a long time, or no batch script on its node."""
    if not (job.running and job.started_at and any(node in world.slots for node in job.nodes)):
        return None
    prolog_s = world.plan.times.prolog_s
    if job.reason == "Prolog" and job.started_at + prolog_s <= world.slurm.at:
        return HalfStart(f"its Prolog has not reported for {prolog_s:g} s", useless=False)
    if any(_without_script(world, job, node) for node in job.nodes):
        return HalfStart("its node has no batch script of it", useless=True)
    return None


def _without_script(world: World, job: SlurmJob, node: str) -> bool:
    """Return whether the node reported, before Slurm was read and in this run of the job, that it lacks the batch script (S40)."""
    incarnation = world.incarnation(node)
    received = world.reports.get(incarnation.instance or "") if incarnation is not None else None
    return (
        received is not None
        and job.id in received.report.without_script
        and job.started_at + BATCH_SCRIPT_S < received.at < world.slurm.at
    )


def act_on_split(world: World) -> Iterator[Action]:
    """Requeue a het job whose leader waits while its other components hold nodes, for longer than the orphan grace (S20).

    slurmctld requeues only the leader when its node fails, and starts it again alone. The others keep their nodes, on
    which nothing runs without the leader. A requeue of the leader requeues all components that have nodes.
    """
    parts: dict[int, list[SlurmJob]] = {}
    for job in world.slurm.jobs:
        if job.het_id:
            parts.setdefault(job.het_id, []).append(job)
    for leader_id, components in sorted(parts.items()):
        leader = next((job for job in components if job.id == leader_id), None)
        if leader is None or not leader.pending or not leader.requeues_on_failure:
            continue
        since = max(leader.begins_at, leader.submitted_at)
        on = {node for job in components if job.running or job.configuring for node in job.nodes}
        if not on.isdisjoint(world.slots) and since + world.plan.times.orphan_grace_s <= world.now:
            yield Requeue(runs=(JobRun.of(leader),), instance="", reason=_split_reason(world, on))


def _split_reason(world: World, on: Iterable[str]) -> str:
    waited = format_duration(world.plan.times.orphan_grace_s)
    return f"{REASON_PREFIX} its first component has waited for {waited} while the others held {hostlist.fold(sorted(on))}: all of it is queued again"


MAX_RESTARTS = 5
_NO_PLACEMENT = Placement(slots=())


def is_held_for(world: World, job: SlurmJob, interruption: Interruption) -> bool:
    """Return whether the job is held when it is requeued: a job after many GPU faults could damage more instances."""
    return interruption.kind is InterruptionKind.FAULT and _broken_runs(world, job) > MAX_RESTARTS


def is_held(world: World, job: SlurmJob) -> bool:
    """Return whether GPUs broke in too many runs of the job. A het job counts for its leader."""
    return world.memory.breaks.get(_job_key(job), 0) > MAX_RESTARTS


def held_reason(interruption: Interruption) -> str:
    """Return the comment of a job that is held for GPU faults."""
    return f"{interruption_reason(interruption)}; {HELD_REASON}"


def forgotten_jobs(world: World) -> Iterator[Event]:
    """Return events for jobs that Slurm no longer lists."""
    known = world.memory.breaks.keys() | world.memory.unbegun.keys()
    if known:
        listed = {key for job in world.slurm.jobs for key in (_job_key(job), str(job.id))}
        for key in sorted(known - listed):
            yield JobForgotten(job=int(key))


HELD_REASON = (
    f"GPUs failed in more than {MAX_RESTARTS} runs of this job, so it is held: "
    "look at its program, then `scontrol release` it"
)


def _broken_runs(world: World, job: SlurmJob) -> int:
    """Return the number of runs with GPU faults, with this run. This run counts once its signal is recorded."""
    counted = world.memory.jobs.get(_job_key(job), _NO_PLACEMENT).signalled
    return world.memory.breaks.get(_job_key(job), 0) + (0 if counted else 1)


def _job_key(job: SlurmJob) -> str:
    return str(job.het_id or job.id)


def save_starts(world: World, entries: Iterable[Entry]) -> Iterator[Action]:
    """Set the comment of one started job to its present value, because slurmctld saves its whole state after an update.

    The start of a job alone is saved only each five minutes (24.11): a killed slurmctld, or the other head's, would start
    the job a second time, and drain its node for a duplicate job id.
    """
    began = {entry.event.job for entry in entries if isinstance(entry.event, JobRunning)}
    for job in world.slurm.jobs:
        if job.id in began:
            yield Comment(jobs=(job.id,), reason=job.admin_comment, again=True)
            return


def died_of_signal(world: World, job: SlurmJob, placement: Placement | None) -> bool:
    """Return whether our signal ended the job: its script had no handler for the signal."""
    if placement is None or placement.sent_back or "FAILED" not in job.states:
        return False
    if not (placement.signalled or interrupted_instance(world, placement)):
        return False
    pools = (world.slots[slot].pool for slot in placement.slots if slot in world.slots)
    return job.requeues_on_failure and any(
        job.exit_signal == Signals[f"SIG{p.termination.signal}"] for p in pools
    )


def interrupted_instance(world: World, placement: Placement) -> str:
    """Return the first interrupted instance of the job. Needed if the signal was not recorded."""
    incarnations = (world.incarnation(slot) for slot in placement.slots)
    interrupted = (i.instance for i in incarnations if i is not None and i.interruption is not None)
    return next((instance for instance in interrupted if instance), "")
