"""The replacements of an hour. A false alarm drains node after node: without a limit the daemon would replace a pool over and over.

A replacement is recorded before it begins (`terminations.replacements_begun`). When a pool has had its most, its other unhealthy nodes
stay drained, in rows of the node table that say so. The end of an instance with a failed
GPU counts too, because an agent reports the fault. Its jobs leave it in any case. A fault before slurmd is up is a failed boot:
the pool's breaker counts it.

Slurm drains all nodes of a gang in the same minute when its steps do not end, or its Prolog fails. That is one event: it takes turns with
other faults, so that one cancelled gang does not use up the hours of a pool.
"""

from collections.abc import Iterable, Iterator, Mapping

from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import InterruptionKind, Verb
from gpucluster.elastic.memory import Incarnation, Interruption
from gpucluster.elastic.memory.limits import HOUR_S
from gpucluster.plan.model import Pool
from gpucluster.slurm.states import SlurmPhase
from gpucluster.slurm.values import SlurmNode

EVENT_S = 60.0  # Slurm drains the nodes of one gang within this time


def room(world: World, pool: Pool) -> int:
    """Return how many replacements the pool may begin now."""
    return max(0, pool.replacements_per_hour - len(_recent(world, pool)))


def next_at(world: World, pool: Pool) -> float:
    """Return the time at which the pool may begin one more."""
    recent = _recent(world, pool)
    return world.now if room(world, pool) else recent[-pool.replacements_per_hour] + HOUR_S


def may_be_replaced(world: World, pool: Pool, incarnation: Incarnation | None) -> bool:
    """Return whether its replacement has begun, or the pool may begin one more in this hour."""
    begun = incarnation is not None and incarnation.replaced_at is not None
    return begun or room(world, pool) > 0


def is_counted(world: World, slot: str, interruption: Interruption) -> bool:
    """Return whether its node reported a fault and no operator ordered a replacement. Notices of the cloud have no limit."""
    order = world.memory.orders.get(slot)
    ordered = order is not None and order.verb is Verb.NODE_REPLACE
    faulty = interruption.kind in (InterruptionKind.FAULT, InterruptionKind.REPLACE)
    return faulty and interruption.source == "node" and not ordered


def is_kept(world: World, slot: str) -> bool:
    """Return whether the hourly limit keeps the node with a failed GPU: it stays drained when its jobs have left it."""
    incarnation = world.incarnation(slot)
    interruption = incarnation and incarnation.interruption
    if interruption is None or not is_counted(world, slot, interruption):
        return False
    return not may_be_replaced(world, world.slots[slot].pool, incarnation)


def same_event(world: World, slot: str) -> tuple[str, ...]:
    """Return the nodes of the event in which Slurm drained this one, in the order of their drains; empty if it drained none."""
    return next((event for event in _events(world) if slot in event), ())


def turns(world: World) -> Mapping[str, int]:
    """Return the turn of each node that Slurm drained: 0 for the first of its event, 1 for the next one."""
    return {slot: turn for event in _events(world) for turn, slot in enumerate(event)}


def _events(world: World) -> Iterator[tuple[str, ...]]:
    """Yield the nodes that Slurm drained, by event."""
    alike: dict[tuple[str, str], list[SlurmNode]] = {}
    for slot in world.group(SlurmPhase.UP):
        if (node := world.node(slot)).failed:
            alike.setdefault(node.written.cause, []).append(node)
    for nodes in alike.values():
        yield from _by_minute(nodes)


def _by_minute(alike: Iterable[SlurmNode]) -> Iterator[tuple[str, ...]]:
    """Yield the nodes that were drained for the same, by event."""
    event: list[SlurmNode] = []
    for node in sorted(alike, key=lambda node: (node.reason_at, node.name)):
        if event and node.reason_at > event[0].reason_at + EVENT_S:
            yield tuple(node.name for node in event)
            event = []
        event.append(node)
    if event:
        yield tuple(node.name for node in event)


def _recent(world: World, pool: Pool) -> list[float]:
    since = world.now - HOUR_S
    return sorted(at for at in world.memory.replaced.get(pool.name, ()) if since < at <= world.now)
