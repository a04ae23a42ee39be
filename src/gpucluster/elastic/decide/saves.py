"""A job's start, saved at once where a second head may have to go on with it.

slurmctld 24.11 saves the start only with the next change of any job, or after 300 s. A head that takes over before sends
the batch script again; slurmd refuses the duplicate, the node is drained, and the job is queued again.
"""

from collections.abc import Iterable, Iterator

from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Entry, JobRunning
from gpucluster.elastic.model import Action, Comment


def save(world: World, entries: Iterable[Entry]) -> Iterator[Action]:
    """Change one of the jobs that began into what it is already: with it all are saved."""
    began = {entry.event.job for entry in entries if isinstance(entry.event, JobRunning)}
    head = world.plan.head
    if head is None or head.standby is None:
        return
    for job in world.slurm.jobs:
        if job.id in began:
            yield Comment(jobs=(job.id,), reason=job.admin_comment, again=True)
            return
