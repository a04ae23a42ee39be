"""Operators' orders of pools and nodes: which are carried out, or have run out.

What they do stands where it is done: a pause or drain of a pool in `limits` and in the life table, keep and replace of
a node in the life table and in `notices`. An order never forces: jobs run on, but for a replace with `now`.
"""

from collections.abc import Iterator

from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Event, Served, Verb
from gpucluster.elastic.memory import Order


def noticed(world: World) -> Iterator[Event]:
    """Orders that were carried out, keeps that ran out."""
    for target, order in world.memory.orders.items():
        if _is_over(world, target, order):
            yield Served(verb=order.verb, target=target)


def _is_over(world: World, target: str, order: Order) -> bool:
    match order.verb:
        case Verb.NODE_KEEP:
            return order.until is not None and order.until <= world.now
        case Verb.NODE_REPLACE:
            return _is_replaced(world, target, order)
        case _:
            return False


def _is_replaced(world: World, slot: str, order: Order) -> bool:
    """The machine that it had then is gone; the next one comes when a job, or the pool's minimum, needs it."""
    life = world.life(slot)
    if life is None or life.request is not None:
        return life is None
    return life.instance is None or life.launched_at > order.at
