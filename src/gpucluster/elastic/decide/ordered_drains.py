"""Drains that an operator orders with `gpucluster node drain`, and their ends with `gpucluster node undrain`.

The drain has a person's reason: it is a person's, and no rule of the daemon lifts it or writes over it. An order is done
when Slurm shows the state, so that a later `scontrol` of a person counts.
"""

from collections.abc import Iterator

from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Event, OrderCompleted, Verb
from gpucluster.elastic.memory import OperatorOrder
from gpucluster.elastic.model import Action, Drain, Undrain
from gpucluster.slurm.drains import DrainOwner


def reason(words: str, by: str) -> str:
    """Return the text for Slurm's Reason field."""
    return f"{words} (by {by})"


def drain_ordered(world: World) -> Iterator[Action]:
    """Drain and undrain the slots of orders that Slurm does not show yet."""
    for slot, order in world.memory.drain_orders.items():
        if slot not in world.slots or _is_done(world, slot, order):
            continue
        text = reason(order.words, order.by)
        yield (Drain if order.verb is Verb.NODE_DRAIN else Undrain)(slots=(slot,), reason=text)


def completed(world: World) -> Iterator[Event]:
    """Return events for orders whose state Slurm shows, and for those of slots that a new plan does not have."""
    for slot, order in world.memory.drain_orders.items():
        if slot not in world.slots or _is_done(world, slot, order):
            yield OrderCompleted(verb=order.verb, target=slot)


def _is_done(world: World, slot: str, order: OperatorOrder) -> bool:
    node = world.node(slot)
    by_person = node.drained and node.drain_owner is DrainOwner.PERSON
    return by_person is (order.verb is Verb.NODE_DRAIN)
