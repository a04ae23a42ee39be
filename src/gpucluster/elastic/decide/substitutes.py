"""Other machines for those that are to be left: asked for at once, so that they are up when the jobs come back."""

from collections.abc import Iterable, Iterator, Mapping

from gpucluster.elastic.decide import limits
from gpucluster.elastic.decide.offers import Room, choose, offers_in
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.model import Action, Phase, PowerUp


def substitutes(world: World, missed: Mapping[tuple[str, str], int]) -> Iterator[PowerUp]:
    """As many as will be missed in each (pool, zone), less what boots or idles there, and only what can be had."""
    room, found = Room(world), list[str]()
    for (name, zone), count in sorted(missed.items()):
        pool = next(p for p in world.plan.pools if p.name == name)
        wanted = min(count - _at_hand(world, name, zone), room.of_pool(name))
        if (
            wanted <= 0
            or limits.stop_of(world, name)
            or not choose(world, room, offers_in(world, pool, zone), wanted)
        ):
            continue
        found.extend(_free(world, name, zone)[:wanted])
    if found:
        yield PowerUp(slots=tuple(found), reason="for a job that is sent back from a machine that goes")


def powered_up(actions: Iterable[Action]) -> frozenset[str]:
    """The slots that these actions power up: nothing else is asked of them in this pass."""
    return frozenset(slot for action in actions if isinstance(action, PowerUp) for slot in action.slots)


def _at_hand(world: World, pool: str, zone: str) -> int:
    """Nodes that no job has: up and idle, or booting."""
    return sum(
        1
        for slot in world.group(Phase.UP, Phase.WANTED)
        if _in(world, slot, pool, zone)
        and world.node(slot).idle
        and not world.node(slot).drained
        and not world.starting_on.get(slot)
        and ((life := world.life(slot)) is None or life.trouble is None)
    )


def _free(world: World, pool: str, zone: str) -> list[str]:
    return [
        slot
        for slot in world.group(Phase.OFF)
        if _in(world, slot, pool, zone) and not world.node(slot).drained and world.free(slot)
    ]


def _in(world: World, slot: str, pool: str, zone: str) -> bool:
    place = world.slots[slot]
    return place.pool.name == pool and place.zone == zone
