"""Jobs that beat and then do not: reported, and requeued if the pool says so."""

from collections.abc import Iterator

from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Event
from gpucluster.elastic.model import Action


def noticed(world: World) -> Iterator[Event]:
    """Beats that stopped, and that began again."""
    yield from ()


def act(world: World) -> Iterator[Action]:
    """Tell, or requeue."""
    yield from ()
