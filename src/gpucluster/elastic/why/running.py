"""A job that runs: on a machine that is to be left, or without progress."""

from collections.abc import Iterator

from gpucluster.elastic import words
from gpucluster.elastic.decide import hung
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import TroubleKind
from gpucluster.elastic.model import SlurmJob
from gpucluster.elastic.why import leaving, money
from gpucluster.elastic.why.case import Case, asked
from gpucluster.elastic.why.causes import Cause
from gpucluster.elastic.why.screen import Line, Part, Screen, screen, span
from gpucluster.plan.names import REASON_PREFIX


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
        Cause.HUNG: f"runs, but hangs: {_hung_words(world, job)}" if case.cause is Cause.HUNG else "",
    }
    return screen(case.subject, case.cause, heads[case.cause], lines)


def _first_trouble(case: Case) -> str:
    for slot in case.job.nodes:
        life = case.world.life(slot)
        if life is not None and life.trouble is not None:
            return f"{slot}: {leaving.words_of(life.trouble)}"
    return ""


def _troubles(case: Case) -> Iterator[Line]:
    for slot in case.job.nodes:
        life = case.world.life(slot)
        if life is not None and life.trouble is not None and slot in case.world.slots:
            yield from leaving.of_job(case.world, slot, life.trouble, case.job)


def _hung_words(world: World, job: SlurmJob) -> str:
    """As it stands in the job's comment."""
    return hung.sentence(world.memory.hanging[str(job.id)]).removeprefix(REASON_PREFIX).strip()


def _hung(case: Case) -> Iterator[Line]:
    hanging = case.world.memory.hanging.get(str(case.job.id))
    if hanging is None:
        return
    yield Line(part=Part.ANSWERED, at=hanging.since, words="its last heartbeat")
    if hung.sends_back(case.world, case.job):
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
