"""Jobs that only half started: RUNNING, and their Prolog never reported.

slurmctld that ends in the moment of a start loses the word of the Prolog or the batch script's launch, and looks at it
again only when a node registers, twenty minutes later (24.11, seen: ten nodes stand paid and idle under a job that shows
as running). Slurm's reason for such a job is `Prolog`.
"""

from collections.abc import Iterator

from gpucluster.elastic.decide.gangs import tell
from gpucluster.elastic.decide.restarts import RESTARTS
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.model import Action, Requeue, SlurmJob
from gpucluster.plan.names import REASON_PREFIX


def send_back(world: World) -> Iterator[Action]:
    """Queue them again; one that may not be queued again, or came back too often, hears why it hangs."""
    for job in world.slurm.jobs:
        if not _half_started(world, job):
            continue
        if job.returns and job.restarts < RESTARTS:  # else a Prolog that is only slow would never end
            yield Requeue(jobs=(job.id,), instance="", reason=_sentence(world, "it is queued again"))
        else:
            then = f"it came back {job.restarts} times, so it is left to run: look at its Prolog"
            yield from tell(
                (job,), _sentence(world, then if job.returns else "cancel it, and submit it again")
            )


def _half_started(world: World, job: SlurmJob) -> bool:
    if not (job.running and job.reason == "Prolog" and job.started_at):
        return False
    return job.started_at + world.plan.times.prolog_s <= world.slurm.at and any(
        node in world.slots for node in job.nodes
    )


def _sentence(world: World, then: str) -> str:
    return f"{REASON_PREFIX} its Prolog has not reported for {world.plan.times.prolog_s:g} s, so it only half started: {then}"
