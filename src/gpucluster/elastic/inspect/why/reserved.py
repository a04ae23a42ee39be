"""The reservations of Slurm on both screens: which nodes they hold, whose jobs may use them, and when they end."""

from collections.abc import Iterator

from gpucluster.elastic.decide import reserved
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.inspect.why.case import Case, most
from gpucluster.elastic.inspect.why.causes import pools
from gpucluster.elastic.inspect.why.screen import Line, Part
from gpucluster.slurm import reservations
from gpucluster.slurm.pending import WAITS_FOR_NODES
from gpucluster.slurm.values import SlurmReservation
from gpucluster.text import short


def of_job(case: Case) -> Iterator[Line]:
    """Return the reservations that keep a job off nodes of its pools, if it waits only for nodes."""
    if case.job.reason not in WAITS_FOR_NODES:
        return
    slots = frozenset(slot for pool in pools(case.world, case.job) for slot in pool.node_names)
    found = [
        Line(part=Part.STATE, words=_words(one, case.world.now))
        for one in reserved.against(case.world, case.job)
        if slots & case.world.reserved[one.name]
    ]
    yield from most(found, Part.STATE)


def of_node(world: World, slot: str) -> Iterator[Line]:
    """Return the present and the future reservations of a node."""
    found = [Line(part=Part.STATE, words=_words(one, world.now)) for one in reserved.of_node(world, slot)]
    yield from most(found, Part.STATE)


def _words(one: SlurmReservation, now: float) -> str:
    whose = short(reservations.members(one), 200)
    named = f"--reservation={one.name}" + (f"; {whose}" if whose else "")
    if not one.whole:
        return f"{reservations.words(one)} holds some of their cores for its jobs ({named})"
    if one.starts_at > now:
        return f"{reservations.words(one)}: a job that could run into it does not start there, only its jobs do ({named})"
    return f"{reservations.words(one)}: only its jobs start there ({named})"
