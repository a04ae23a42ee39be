"""Which slots a waiting job can use: its partitions, its required and excluded nodes, its features, reservations.

Launch tests, drains, idle nodes and `why` use these functions, so that they agree. Constraints that are not read here
(a complex `--constraint`, what `reserved` leaves out) count as met: a test that no job uses ends after a time (`blocked`).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from gpucluster.elastic.decide.reserved import NOTHING_HELD, Holds
from gpucluster.elastic.decide.world import World, names_in, urgency
from gpucluster.plan.model import Pool
from gpucluster.slurm.pending import WAITS_FOR_NODES
from gpucluster.slurm.states import NodeState
from gpucluster.slurm.values import SlurmJob, SlurmNode

SOON_S = 600.0  # a job that may start only later than this does not count as waiting
_SIMPLE_FEATURES = re.compile(r"[^&|\[\](){}*,]+(?:(?:&[^&|\[\](){}*,]+)*|(?:\|[^&|\[\](){}*,]+)*)")


@dataclass(frozen=True, slots=True)
class Part:
    """What one job needs, or one component of a het job."""

    count: int = 1
    required: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    features: str = ""
    holds: Holds = NOTHING_HELD
    near: frozenset[str] | None = field(default=None, compare=False)  # see `_near`; None: it requires no node

    @staticmethod
    def of(world: World, job: SlurmJob) -> "Part":
        return Part(
            max(1, job.node_count),
            frozenset(job.required_nodes),
            frozenset(job.excluded_nodes),
            job.features,
            Holds.of(world, job),
            _near(world, job),
        )

    def fits(self, node: SlurmNode) -> bool:
        """Return whether it may use this node if no reservation keeps it off."""
        if node.name in self.excluded or (self.near is not None and node.name not in self.near):
            return False
        return not self.features or has_features(node.features, self.features)


@dataclass(frozen=True, slots=True)
class Need:
    """The nodes that a waiting job needs from one pool. The components of a het job start together, so they are one need."""

    jobs: tuple[SlurmJob, ...]
    parts: tuple[Part, ...]  # two needs with the same parts are served by the same slots

    @staticmethod
    def of(world: World, jobs: Sequence[SlurmJob]) -> "Need":
        """Return the need of a job, or of the components of a het job."""
        return Need(tuple(jobs), tuple(Part.of(world, job) for job in jobs))

    @property
    def count(self) -> int:
        return sum(part.count for part in self.parts)

    @property
    def required(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.required for part in self.parts))

    def allows(self, node: SlurmNode) -> bool:
        """Return whether the job, or one of its components, may use this node."""
        return any(part.fits(node) and part.holds.allow(node) for part in self.parts)

    def fits(self, node: SlurmNode) -> bool:
        """Return whether the job may use this node if no reservation keeps it off."""
        return any(part.fits(node) for part in self.parts)

    def first_of(self, slots: Sequence[str]) -> tuple[str, ...]:
        """Return those of the slots that it uses: the required ones, and as many others as it needs with all of those."""
        required = self.required
        others = (slot for slot in slots if slot not in required)
        return (
            *(slot for slot in slots if slot in required),
            *islice(others, max(0, self.count - len(required))),
        )


def _near(world: World, job: SlurmJob) -> frozenset[str] | None:
    """Return the nodes that the job may use with those that it requires: these alone, or all of their pool and zone."""
    required = frozenset(job.required_nodes)
    if not required or len(required) >= job.node_count:
        return required or None
    places = {(slot.pool.name, slot.zone) for name in required if (slot := world.slots.get(name)) is not None}
    return frozenset(name for place in places for name in names_in(world.plan)[place])


def waiting(world: World) -> tuple[SlurmJob, ...]:
    """Return the pending jobs that only lack nodes and could start soon, the most urgent first."""
    soon = world.now + SOON_S
    jobs = (j for j in world.slurm.jobs if j.pending and j.priority > 0 and j.begins_at <= soon)
    return tuple(sorted((j for j in jobs if j.reason in WAITS_FOR_NODES), key=urgency))


def pools_of_job(world: World, job: SlurmJob) -> tuple[str, ...]:
    """Return the pools of the job's partitions."""
    return tuple(p for part in world.plan.partitions if part.name in job.partitions for p in part.pools)


def needs_of(world: World, pool: Pool, jobs: Iterable[SlurmJob]) -> tuple[Need, ...]:
    """Return the needs of these jobs from the pool, in their order. Of needs with the same parts, only the first."""
    gangs: dict[int, list[SlurmJob]] = {}
    for job in jobs:
        if pool.name in pools_of_job(world, job):
            gangs.setdefault(job.het_id or job.id, []).append(job)
    found: dict[tuple[Part, ...], Need] = {}
    for need in (Need.of(world, gang) for gang in gangs.values()):
        found.setdefault(need.parts, need)
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
