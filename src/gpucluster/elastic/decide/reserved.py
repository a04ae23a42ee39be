"""The reservations of slurmctld that keep a job off nodes, of any origin: by the spec, for a capacity block, by a person.

The rules are those of job_test_resv in reservation.c of slurmctld (S37). A job is kept off the nodes of a reservation that begins
before the job could end, unless it names the reservation. What is not read counts as no obstacle: a reservation of single
cores, and one that is MAGNETIC, which takes jobs of its users although they do not name it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gpucluster.elastic.decide.world import World
from gpucluster.slurm.states import NodeState
from gpucluster.slurm.values import SlurmJob, SlurmNode, SlurmReservation

_RESERVED = frozenset({NodeState.RESERVED, NodeState.MAINTENANCE})


@dataclass(frozen=True, slots=True)
class Holds:
    """What the reservations mean for one job."""

    named: frozenset[str] = frozenset()  # --reservation
    inside: tuple[frozenset[str], ...] | None = None  # the nodes of those; None: it is not bound to them
    against: tuple[frozenset[str], ...] = ()  # the nodes of those that keep it off
    harmless: frozenset[str] = frozenset()  # the others

    @staticmethod
    def of(world: World, job: SlurmJob) -> "Holds":
        """Return what the reservations at this time mean for the job."""
        listed = world.slurm.reservations
        if not listed and not job.reservation:
            return NOTHING_HELD
        named = _named(job)
        own = tuple(one for one in listed if one.name in named)
        hostile = frozenset(one.name for one in against(world, job))
        bound = bool(named) and not any("FLEX" in one.flags for one in own)
        return Holds(
            named,
            tuple(world.reserved[one.name] for one in own) if bound else None,
            tuple(world.reserved[one.name] for one in listed if one.name in hostile),
            frozenset(one.name for one in listed) - hostile,
        )

    def allow(self, node: SlurmNode) -> bool:
        """Return whether they let the job start on the node."""
        if any(node.name in nodes for nodes in self.against):
            return False
        if self.inside is None:
            return not is_reserved(node) or node.reservation in self.harmless
        return node.reservation in self.named or any(node.name in nodes for nodes in self.inside)


NOTHING_HELD = Holds()


def against(world: World, job: SlurmJob) -> tuple[SlurmReservation, ...]:
    """Return the reservations that keep the job off their nodes, if it starts as soon as it may. The first one comes first."""
    if not world.slurm.reservations:
        return ()
    begins, named = max(world.now, job.begins_at), _named(job)
    own = tuple(one for one in world.slurm.reservations if one.name in named)
    meets = (
        one
        for one in world.slurm.reservations
        if one.starts_at < begins + job.shortest_s and one.ends_at > begins
    )
    found = (one for one in meets if _keeps_off(one, job, own))
    return tuple(sorted(found, key=lambda one: (one.starts_at, one.name)))


def of_node(world: World, slot: str) -> tuple[SlurmReservation, ...]:
    """Return the reservations of the node that have not ended, the first one first."""
    mine = (one for one in world.slurm.reservations if one.ends_at > world.now)
    return tuple(
        sorted(
            (one for one in mine if slot in world.reserved[one.name]),
            key=lambda one: (one.starts_at, one.name),
        )
    )


def is_reserved(node: SlurmNode) -> bool:
    """Return whether a reservation holds the node, so that only jobs of this reservation may use it."""
    return bool(node.reservation) or not _RESERVED.isdisjoint(node.states)


def _keeps_off(one: SlurmReservation, job: SlurmJob, own: Iterable[SlurmReservation]) -> bool:
    if one in own or not one.whole:
        return False
    if not job.reservation:
        return "MAGNETIC" not in one.flags
    return not any(_overrules(mine, one) for mine in own)


def _overrules(mine: SlurmReservation, other: SlurmReservation) -> bool:
    """Return whether jobs of the first may use nodes of the second. One with MAINT overrules all, one with OVERLAP those without MAINT."""
    return "MAINT" in mine.flags or ("OVERLAP" in mine.flags and "MAINT" not in other.flags)


def _named(job: SlurmJob) -> frozenset[str]:
    """Return the reservations that the job may use: --reservation takes several."""
    return frozenset(name for name in job.reservation.split(",") if name)
