"""Jobs that beat and then do not: reported, and requeued if the pool says so.

A job beats by touching a file on a node of its own (opt-in); only a file of the job's user counts, and only since the
job's start. A job without one is never judged, nor one with a node whose agent is silent. Ages are the node's own: its
clock and the daemon's may differ.
"""

from collections.abc import Iterator

from gpucluster.elastic import owners
from gpucluster.elastic.decide.gangs import tell
from gpucluster.elastic.decide.restarts import RESTARTS
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Beats, Event, Hangs
from gpucluster.elastic.memory import Hanging
from gpucluster.elastic.model import Action, Heard, Requeue, SlurmJob
from gpucluster.elastic.owners import Owner
from gpucluster.plan.model import Hung

SILENT_BEATS = 3  # an agent that missed so many heartbeats is silent
SILENT_LEAST_S = 10.0


def noticed(world: World) -> Iterator[Event]:
    """Beats that stopped, and that began again or whose job is gone."""
    if not world.memory.hanging and not any(pool.hung for pool in world.plan.pools):
        return
    seen: set[str] = set()
    for job in world.slurm.jobs:
        key, rule = str(job.id), _rule(world, job)
        if rule is None or not job.running:
            continue
        seen.add(key)
        last = _last_beat(world, job)
        known = world.memory.hanging.get(key)
        if last is None:
            continue
        quiet = last + rule.after_s <= world.now
        if quiet and known is None:
            yield Hangs(
                job=job.id, since=last, words=f"no progress for {rule.after_s} s by its own heartbeat file"
            )
        elif not quiet and known is not None:
            yield Beats(job=job.id)
    for key in sorted(world.memory.hanging.keys() - seen):
        yield Beats(job=int(key))


def act(world: World) -> Iterator[Action]:
    """Tell, or send back; what a job's machine is left for is told first."""
    hanging = world.memory.hanging
    for job in world.slurm.jobs if hanging else ():
        known = hanging.get(str(job.id))
        if known is None or _rule(world, job) is None or not job.running or _is_left(world, job):
            continue
        reason = sentence(known)
        if sends_back(world, job):
            yield Requeue(jobs=(job.id,), instance="", reason=reason)
        else:
            yield from tell((job,), reason)


def sends_back(world: World, job: SlurmJob) -> bool:
    """Whether a job that hangs is queued again: by the spec, and not without end, whatever its restarts were for."""
    rule = _rule(world, job)
    return rule is not None and rule.requeue and job.returns and job.restarts < RESTARTS


def next_due(world: World) -> float:
    """When the first of the jobs that beat now would be called hung."""
    found = (
        last + rule.after_s
        for job in world.slurm.jobs
        if job.running
        and str(job.id) not in world.memory.hanging
        and (rule := _rule(world, job)) is not None
        and (last := _last_beat(world, job)) is not None
    )
    return min(found, default=float("inf"))


def sentence(hanging: Hanging) -> str:
    """What stands in the job's comment."""
    return owners.reason(Owner.TROUBLE, hanging.words)


def _rule(world: World, job: SlurmJob) -> Hung | None:
    place = next((world.slots[node] for node in job.nodes if node in world.slots), None)
    return place.pool.hung if place is not None else None


def _last_beat(world: World, job: SlurmJob) -> float | None:
    """Its last touch by the daemon's clock; None: it never beat in this run, or not all of its nodes are heard."""
    last: float | None = None
    for node in job.nodes:
        life = world.life(node)
        heard = world.reports.get(life.instance or "") if life is not None else None
        if heard is None or _silent(world, heard):
            return None
        for beat in heard.report.beats:
            at = heard.at - max(0.0, heard.report.clock - beat.at)
            if beat.job == job.id and beat.uid == job.user_id and at >= job.started_at:
                last = at if last is None else max(last, at)
    return last


def _silent(world: World, heard: Heard) -> bool:
    return heard.at + max(SILENT_BEATS * world.plan.times.heartbeat_s, SILENT_LEAST_S) < world.now


def _is_left(world: World, job: SlurmJob) -> bool:
    return any((life := world.life(node)) is not None and life.trouble is not None for node in job.nodes)
