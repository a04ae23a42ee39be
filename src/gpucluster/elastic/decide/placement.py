"""Which slots a waiting job can use: its partitions, its required and excluded nodes, its features, reservations.

Launch tests, drains, idle nodes and `why` use these functions, so that they agree. Constraints that are not read here
(a complex `--constraint`, what `reserved` leaves out) count as met: a test that no job uses ends after a time (`blocked`).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from gpucluster.elastic.decide.reserved import NOTHING_HELD, Holds
from gpucluster.elastic.decide.world import World, urgency
from gpucluster.plan.model import Pool
from gpucluster.slurm.pending import WAITS_FOR_NODES
from gpucluster.slurm.states import NodeState
from gpucluster.slurm.values import SlurmJob, SlurmNode

SOON_S = 600.0  # a job that may start only later than this does not count as waiting
_SIMPLE_FEATURES = re.compile(r"[^&|\[\](){}*,]+(?:(?:&[^&|\[\](){}*,]+)*|(?:\|[^&|\[\](){}*,]+)*)")


@dataclass(frozen=True, slots=True)
class Need:
    """The nodes that a waiting job needs from one pool. The components of a het job start together, so they are one need."""

    jobs: tuple[SlurmJob, ...]
    count: int
    required: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    features: str = ""
    holds: tuple[Holds, ...] = (NOTHING_HELD,)

    @staticmethod
    def of(world: World, jobs: Sequence[SlurmJob]) -> "Need":
        """Return the need of a job, or of the components of a het job. A slot that one component may use is not excluded."""
        first = jobs[0]
        return Need(
            tuple(jobs),
            sum(max(1, job.node_count) for job in jobs),
            frozenset(node for job in jobs for node in job.required_nodes),
            frozenset(first.excluded_nodes).intersection(*(job.excluded_nodes for job in jobs[1:])),
            first.features if len(jobs) == 1 else "",
            tuple(dict.fromkeys(Holds.of(world, job) for job in jobs)),
        )

    @property
    def constraints(self) -> tuple[object, ...]:
        """Return what two needs have in common if the same slots serve both."""
        return (self.count, self.required, self.excluded, self.features, self.holds)

    def allows(self, node: SlurmNode) -> bool:
        """Return whether the job may use this node."""
        return self.fits(node) and any(holds.allow(node) for holds in self.holds)

    def fits(self, node: SlurmNode) -> bool:
        """Return whether the job may use this node if no reservation keeps it off."""
        if node.name in self.excluded:
            return False
        return not self.features or has_features(node.features, self.features)


def waiting(world: World) -> tuple[SlurmJob, ...]:
    """Return the pending jobs that only lack nodes and could start soon, the most urgent first."""
    soon = world.now + SOON_S
    jobs = (j for j in world.slurm.jobs if j.pending and j.priority > 0 and j.begins_at <= soon)
    return tuple(sorted((j for j in jobs if j.reason in WAITS_FOR_NODES), key=urgency))


def pools_of_job(world: World, job: SlurmJob) -> tuple[str, ...]:
    """Return the pools of the job's partitions."""
    return tuple(p for part in world.plan.partitions if part.name in job.partitions for p in part.pools)


def needs_of(world: World, pool: Pool, jobs: Iterable[SlurmJob]) -> tuple[Need, ...]:
    """Return the needs of these jobs from the pool, in their order. Of needs with the same constraints, only the first."""
    gangs: dict[int, list[SlurmJob]] = {}
    for job in jobs:
        if pool.name in pools_of_job(world, job):
            gangs.setdefault(job.het_id or job.id, []).append(job)
    found: dict[tuple[object, ...], Need] = {}
    for need in (Need.of(world, gang) for gang in gangs.values()):
        found.setdefault(need.constraints, need)
    return tuple(found.values())


def is_open(node: SlurmNode) -> bool:
    """Return whether a node that is up starts a new job now: it can, and it is not about to power down."""
    return node.takes_jobs and NodeState.POWER_DOWN not in node.states


def has_features(features: Sequence[str], constraint: str) -> bool:
    """Return whether the features meet `a`, `a&b` or `a|b`. A more complex constraint counts as met."""
    if not _SIMPLE_FEATURES.fullmatch(constraint):
        return True
    return (any if "|" in constraint else all)(word in features for word in re.split("[&|]", constraint))


def lacking(
    need: Need, idle: Sequence[str], free: Sequence[str], slots: Iterable[str]
) -> tuple[str, ...] | None:
    """Return the free slots to power up so that one zone serves the need; None if the zone cannot serve it.

    `idle` and `free` are the zone's nodes and powered-down slots that the need allows, in the order of preference; `slots`
    are all of the zone. Required nodes come first.
    """
    if not need.required <= frozenset(slots):
        return None
    first = need.required - frozenset(idle)
    if not first <= frozenset(free):
        return None
    count = max(len(first), need.count - len(idle))
    others = islice((slot for slot in free if slot not in first), count - len(first))
    found = (*(slot for slot in free if slot in first), *others)
    return found if len(found) == count else None
