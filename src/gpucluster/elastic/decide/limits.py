"""What stops launches: the budget, a pool's breaker, a pause; each says so, and none ends a running job."""

from collections.abc import Iterator

from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Event


def noticed(world: World) -> Iterator[Event]:
    """Lines that the month's spend crossed, breakers that trip or close."""
    yield from ()


def stop_of(world: World, pool: str) -> str:
    """Why the pool may launch nothing now, in words; empty: it may."""
    return ""
