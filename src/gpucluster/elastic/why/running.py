"""A job that runs: on a machine that is to be left, or without progress."""

from collections.abc import Iterator

from gpucluster.elastic import words
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import TroubleKind
from gpucluster.elastic.model import SlurmJob
from gpucluster.elastic.why import money
from gpucluster.elastic.why.case import Case, asked
from gpucluster.elastic.why.causes import Cause, pools
from gpucluster.elastic.why.screen import Line, Part, Screen, screen, span


def cause_of(world: World, job: SlurmJob) -> Cause:
    """Whether it is well."""
    if str(job.id) in world.memory.hanging:
        return Cause.HUNG
    return Cause.LEAVING if any(_trouble(world, s) for s in job.nodes) else Cause.RUNNING


def _trouble(world: World, slot: str) -> bool:
    life = world.life(slot)
    return life is not None and life.trouble is not None and life.trouble.kind is not TroubleKind.REBALANCE


def running(case: Case) -> Screen:
    """Its screen."""
    job, world = case.job, case.world
    where = words.fold(job.nodes) if job.nodes else "no node"
    since = Line(part=Part.DONE, at=job.started_at or case.past.running_at or None, words=f"runs on {where}")
    lines = (*asked(case), since, *_troubles(case), *_hung(case), *_limit(case), *money.lines(world))
    heads = {
        Cause.RUNNING: "runs",
        Cause.LEAVING: f"runs, and a machine of it is to be left: {_first_trouble(case)}",
        Cause.HUNG: f"runs, but makes no progress: {world.memory.hanging[str(job.id)].words}"
        if case.cause is Cause.HUNG
        else "",
    }
    return screen(case.subject, case.cause, heads[case.cause], lines)


def _first_trouble(case: Case) -> str:
    for slot in case.job.nodes:
        life = case.world.life(slot)
        if life is not None and life.trouble is not None:
            return f"{slot}, {life.trouble.words}"
    return ""


def _troubles(case: Case) -> Iterator[Line]:
    world, job = case.world, case.job
    for slot in job.nodes:
        life = world.life(slot)
        trouble = life.trouble if life else None
        if trouble is None:
            continue
        yield Line(
            part=Part.ANSWERED, at=trouble.since, words=f"{slot}: {trouble.kind.value}: {trouble.words}"
        )
        if trouble.ends_at:
            yield Line(part=Part.NEXT, at=trouble.ends_at, words=f"{slot} ends")
        if job.id in trouble.signalled:
            yield Line(
                part=Part.DONE,
                at=trouble.signalled_at,
                words="its batch script was signalled, to write a checkpoint",
            )
        farewell = world.slots[slot].pool.farewell
        if job.id not in trouble.sent_back:
            at = (
                trouble.ends_at - farewell.lead_s
                if trouble.ends_at
                else (trouble.signalled_at or trouble.since) + farewell.grace_s
            )
            verb = (
                "it is requeued, and starts on other nodes"
                if job.returns
                else "its nodes end under it: it cannot be requeued"
            )
            yield Line(part=Part.NEXT, at=at, words=verb)


def _hung(case: Case) -> Iterator[Line]:
    hanging = case.world.memory.hanging.get(str(case.job.id))
    if hanging is None:
        return
    yield Line(part=Part.ANSWERED, at=hanging.since, words=f"its last heartbeat: {hanging.words}")
    told = [pool.hung for pool in pools(case.world, case.job) if pool.hung]
    if any(hung.requeue for hung in told) and case.job.returns:
        yield Line(part=Part.NEXT, words="it is requeued, as the spec's `hung` says")
    else:
        yield Line(
            part=Part.DO,
            words=f"look at it: srun --jobid={case.job.id} --overlap --pty bash; or scontrol requeue {case.job.id}",
        )


def _limit(case: Case) -> Iterator[Line]:
    job = case.job
    if job.started_at and job.time_limit_s:
        yield Line(
            part=Part.NEXT,
            at=job.started_at + job.time_limit_s,
            words=f"its time limit of {span(job.time_limit_s)} is over",
        )
