"""Idle nodes are powered down after their pool's time: pending, so a job that comes first keeps the node."""

from collections.abc import Iterator

from gpucluster.elastic.decide.awaited import awaited
from gpucluster.elastic.decide.world import HAS, World
from gpucluster.elastic.model import Action, Phase, PowerDown, PowerUp


def suspend(world: World) -> Iterator[Action]:
    """Nodes that are idle for longer than their pool allows."""
    for pool in world.plan.pools:
        due = tuple(s for s, at in idle_ends(world, pool.name) if at <= world.now)
        if due:
            yield PowerDown(slots=due, reason=f"idle for {pool.idle_s} s")


def idle_ends(world: World, pool: str | None = None) -> Iterator[tuple[str, float]]:
    """When each idle elastic node of ours is due; what a job comes back to is not."""
    kept = awaited(world)
    for slot in world.group(Phase.UP):
        place, node, life = world.slots[slot], world.node(slot), world.life(slot)
        if (pool is not None and place.pool.name != pool) or place.always_on or life is None:
            continue
        if not node.idle or node.drained or slot in kept or world.fate(slot) not in HAS:
            continue
        since = max(node.last_busy, life.up_at or 0.0)
        yield slot, since + place.pool.idle_s


def keep_on(world: World, held: frozenset[str]) -> Iterator[Action]:
    """Always-on slots that are off are powered up; blocked ones, and those `held` back now, wait for their zone."""
    off = tuple(
        slot
        for slot in world.group(Phase.OFF)
        if world.slots[slot].always_on
        and slot not in held
        and not world.node(slot).drained
        and world.free(slot)
    )
    if off:
        yield PowerUp(slots=off, reason="always on")
