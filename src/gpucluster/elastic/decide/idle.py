"""Nodes that are up without a job: how long they stay, and which are powered up for nobody yet: always on, or spare."""

from collections.abc import Iterator

from gpucluster.elastic.decide import limits
from gpucluster.elastic.decide.life import Do, Lives, row_for
from gpucluster.elastic.decide.offers import Room
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.model import Action, Phase, PowerUp

_IDLE = ("idle", "idle-over")


def idle_ends(world: World, pool: str | None = None) -> Iterator[tuple[str, float]]:
    """When each idle node is due that does not stay for another reason; a job that comes first keeps it."""
    lives = Lives(world)
    for slot in world.group(Phase.UP):
        stand = lives.stand(slot)
        if pool in (None, stand.place.pool.name) and row_for(stand).name in _IDLE:
            yield slot, stand.idle_until


def keep_on(lives: Lives, room: Room, held: frozenset[str]) -> Iterator[Action]:
    """Slots that are to be up without a job; blocked ones, and those `held` back now, wait for their zone."""
    for words, slots in lives.to(Do.POWER_UP).items():
        off = tuple(_within(lives.world, room, slots, held))
        if off:
            yield PowerUp(slots=off, reason=words)


def _within(world: World, room: Room, slots: tuple[str, ...], held: frozenset[str]) -> Iterator[str]:
    """A slot with its machine costs no more; another only if its pool may launch and has room."""
    taken: dict[str, int] = {}
    for slot in slots:
        pool = world.slots[slot].pool.name
        if not world.free(slot):
            yield slot
        elif slot not in held and not limits.stop_of(world, pool) and taken.get(pool, 0) < room.of_pool(pool):
            taken[pool] = taken.get(pool, 0) + 1
            yield slot
