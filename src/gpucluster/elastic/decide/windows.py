"""Capacity blocks as Slurm reservations: no job runs before a block begins, or into its end."""

from collections.abc import Iterator

from gpucluster.elastic.decide.world import World
from gpucluster.elastic.model import Action


def windows(world: World) -> Iterator[Action]:
    """Bring Slurm's reservations of ours to what the cloud says of the blocks."""
    yield from ()
