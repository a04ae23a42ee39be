"""Machines that are to be left: notices, maintenance, broken GPUs, a block's end, a person's replace. One table of kinds."""

from collections.abc import Iterator

from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Event
from gpucluster.elastic.model import Action


def noticed(world: World) -> Iterator[Event]:
    """What is news of machines that live: from their agents, the queue, the cloud, and operators."""
    yield from ()


def leave(world: World) -> Iterator[Action]:
    """Drain, signal, requeue, replace: as the trouble's kind says and as its end comes near."""
    yield from ()
