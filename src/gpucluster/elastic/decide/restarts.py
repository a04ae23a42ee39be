"""How often a job comes back before that is ended: one bound for jobs that hang and for jobs in which GPUs break."""

from collections.abc import Iterator

from gpucluster.elastic.decide.leaving import sentence
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Event, JobForgotten, TroubleKind
from gpucluster.elastic.memory import Placement, Trouble
from gpucluster.elastic.model import SlurmJob

RESTARTS = 5
_UNTOLD = Placement(slots=())


def holds(world: World, job: SlurmJob, trouble: Trouble) -> bool:
    """Whether it is held when it is queued again: else it would break one machine after the other for ever."""
    return trouble.kind is TroubleKind.FAULT and _broken_runs(world, job) > RESTARTS


def held(world: World, job: SlurmJob) -> bool:
    """Whether the runs in which GPUs broke are too many already; that of a het job is its leader's."""
    return world.memory.breaks.get(_key(job), 0) > RESTARTS


def held_sentence(trouble: Trouble) -> str:
    """What stands in its comment then."""
    return f"{sentence(trouble)}; {HELD}"


def forgotten(world: World) -> Iterator[Event]:
    """Jobs that Slurm lists no more."""
    if world.memory.breaks:
        listed = {_key(job) for job in world.slurm.jobs}
        for key in sorted(world.memory.breaks.keys() - listed):
            yield JobForgotten(job=int(key))


HELD = (
    f"GPUs failed in more than {RESTARTS} runs of this job, so it is held: "
    "look at its program, then `scontrol release` it"
)


def _broken_runs(world: World, job: SlurmJob) -> int:
    """With this one, which counts once its signal is recorded."""
    counted = world.memory.jobs.get(_key(job), _UNTOLD).signalled
    return world.memory.breaks.get(_key(job), 0) + (0 if counted else 1)


def _key(job: SlurmJob) -> str:
    return str(job.het_id or job.id)
