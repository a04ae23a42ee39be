"""Operators' orders: pools drained, nodes replaced, kept and released."""

from collections.abc import Iterator

from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Event
from gpucluster.elastic.model import Action


def noticed(world: World) -> Iterator[Event]:
    """Orders that were carried out, keeps that ran out."""
    yield from ()


def carry_out(world: World) -> Iterator[Action]:
    """What the standing orders still need."""
    yield from ()
