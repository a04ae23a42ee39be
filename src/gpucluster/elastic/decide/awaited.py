"""Idle nodes that a job which is sent back will start on: kept up until it does, however short the pool's idle time."""

from collections.abc import Iterator

from gpucluster.elastic import owners
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.model import Phase, SlurmJob
from gpucluster.elastic.owners import Owner

AWAITED_S = (
    90.0  # after it may start: slurmctld looks at its queue each half minute, and may still be cleaning up
)


def awaited(world: World) -> frozenset[str]:
    """In one zone for each job, the one with the most of them; no node for two jobs."""
    found: set[str] = set()
    for job in world.slurm.jobs:
        count = _count(world, job)
        if count:
            found.update(_idle_nodes(world, job, found)[:count])
    return frozenset(found)


def _count(world: World, job: SlurmJob) -> int:
    """How many it will miss."""
    if job.pending:
        soon = abs(job.begins_at - world.now) < AWAITED_S
        return job.node_count if soon and owners.owner_of(job.admin_comment) is Owner.TROUBLE else 0
    if not job.running or owners.owner_of(job.admin_comment) is not Owner.TROUBLE:
        return 0
    return sum(1 for node in job.nodes if (life := world.life(node)) is not None and life.trouble is not None)


def _idle_nodes(world: World, job: SlurmJob, taken: set[str]) -> list[str]:
    zones: dict[str, list[str]] = {}
    pools = {p for part in world.plan.partitions if part.name in job.partitions for p in part.pools}
    for slot in world.group(Phase.UP):
        place, node = world.slots[slot], world.node(slot)
        if place.pool.name in pools and node.idle and not node.drained and slot not in taken:
            zones.setdefault(place.zone, []).append(slot)
    here = {world.slots[node].zone for node in job.nodes if node in world.slots}
    return max(_of(zones, here), key=len, default=list[str]())


def _of(zones: dict[str, list[str]], here: set[str]) -> Iterator[list[str]]:
    """Of a job that still runs, only its own zone."""
    for zone, slots in sorted(zones.items()):
        if not here or zone in here:
            yield slots
