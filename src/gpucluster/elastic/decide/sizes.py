"""Jobs that can never start: they request more nodes than their pools can have at one time.

All nodes of a job are in one zone. The components of a het job start together, may be in several zones, and share no node
(S41), so all of them count against the `max` of a pool.
"""

from collections.abc import Mapping
from functools import cached_property

from gpucluster.elastic.decide.placement import pools_of_job
from gpucluster.elastic.decide.world import World
from gpucluster.plan.model import Pool
from gpucluster.slurm.values import SlurmJob

REMEDY = "request fewer nodes, or raise `max` in the spec"


class Sizes:
    """Finds the jobs that can never start. Values of the plan are computed once for all jobs of a pass."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pools = {pool.name: pool for pool in world.plan.pools}
        self._known: dict[tuple[str, ...], tuple[tuple[str, ...], int]] = {}

    def never_starts(self, job: SlurmJob) -> str:
        """Return why the job can never start, as a sentence for people; empty if it can."""
        mine, most = self._pools_of(job)
        if not mine:
            return ""
        if job.node_count > most:
            return f"it can never start: it requests {job.node_count} nodes, and no zone of {', '.join(mine)} has more than {most}"
        return self._het_never_starts(job.het_id) if job.het_id else ""

    def _het_never_starts(self, leader: int) -> str:
        """Compare the nodes of the components with their pools. A component of other pools does not count."""
        needs = [(self._pools_of(job)[0], max(1, job.node_count)) for job in self._components.get(leader, ())]
        everywhere = tuple(dict.fromkeys(name for mine, _ in needs for name in mine))
        for pools in dict.fromkeys((*(mine for mine, _ in needs if mine), everywhere)):
            count = sum(nodes for mine, nodes in needs if mine and set(mine) <= set(pools))
            most = sum(_at_one_time(self._pools[name]) for name in pools)
            if count > most:
                return (
                    f"it can never start: the components of this het job request {count} nodes of {', '.join(pools)} "
                    f"together, which has at most {most}"
                )
        return ""

    def _pools_of(self, job: SlurmJob) -> tuple[tuple[str, ...], int]:
        """Return the pools of the job's partitions, and the most nodes that a zone of one of them has."""
        found = self._known.get(job.partitions)
        if found is None:
            mine = tuple(dict.fromkeys(pools_of_job(self._world, job)))
            most = max((_in_one_zone(self._pools[name]) for name in mine), default=0)
            found = self._known[job.partitions] = mine, most
        return found

    @cached_property
    def _components(self) -> Mapping[int, list[SlurmJob]]:
        found: dict[int, list[SlurmJob]] = {}
        for job in self._world.slurm.jobs:
            if job.het_id and (job.pending or job.running or job.configuring):
                found.setdefault(job.het_id, []).append(job)
        return found


def _in_one_zone(pool: Pool) -> int:
    most = max((len(span) for span in pool.slots), default=0)
    return min(most, pool.max) if pool.sources else most


def _at_one_time(pool: Pool) -> int:
    slots = sum(len(span) for span in pool.slots)
    return min(slots, pool.max) if pool.sources else slots
