"""Drains that an operator orders with `gpucluster node drain`, and their ends with `gpucluster node undrain`.

The drain has a person's reason: it is a person's, and no rule of the daemon lifts it or writes over it. That holds from the
order on, before Slurm shows it. An order is done when Slurm shows the state, so that a later `scontrol` of a person counts.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gpucluster.elastic.events import Event, OrderCompleted, Verb
from gpucluster.elastic.memory import Memory, OperatorOrder
from gpucluster.elastic.model import Action, Drain, ResetDown, Undrain
from gpucluster.slurm.drain_table import SLURM_USER
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import NodeState
from gpucluster.slurm.values import SlurmNode, SlurmView

if TYPE_CHECKING:
    from gpucluster.elastic.decide.world import World


def reason(words: str, by: str) -> str:
    """Return the text for Slurm's Reason field."""
    return f"{words} (by {by})"


def shown(slurm: SlurmView, memory: Memory) -> SlurmView:
    """Return the view in which the nodes of drain orders are drained by their person already."""
    found = {
        slot: _as_ordered(node, order)
        for slot, order in memory.drain_orders.items()
        if order.verb is Verb.NODE_DRAIN and (node := slurm.nodes.get(slot)) is not None
    }
    return replace(slurm, nodes={**slurm.nodes, **found}) if found else slurm


def drain_ordered(world: "World") -> Iterator[Drain]:
    """Drain the nodes of orders that Slurm does not show yet."""
    for slot, order in _open(world, Verb.NODE_DRAIN):
        yield Drain(slots=(slot,), reason=reason(order.words, order.by))


def undrain_ordered(world: "World", own_reason: Callable[["World", str], str]) -> Iterator[Action]:
    """Lift the drains of orders that Slurm still shows. `undrain` does not lift a FAIL: `resume` does (node_mgr.c).

    `own_reason`: why the daemon itself keeps a slot drained. Then the drain becomes the daemon's, and no job is placed between.
    """
    for slot, order in _open(world, Verb.NODE_UNDRAIN):
        if NodeState.FAIL in world.node(slot).states:
            yield ResetDown(slots=(slot,), reason=reason(order.words, order.by))
        elif own := own_reason(world, slot):
            yield Drain(slots=(slot,), reason=own)
        else:
            yield Undrain(slots=(slot,), reason=reason(order.words, order.by))


def completed(world: "World") -> Iterator[Event]:
    """Return events for orders whose state Slurm shows, and for those of slots that a new plan does not have."""
    for slot, order in world.memory.drain_orders.items():
        if slot not in world.slots or _is_done(world, slot, order):
            yield OrderCompleted(verb=order.verb, target=slot)


def _open(world: "World", verb: Verb) -> Iterator[tuple[str, OperatorOrder]]:
    """Yield the orders that are not done, of slots that Slurm lists."""
    for slot, order in world.memory.drain_orders.items():
        if order.verb is verb and slot in world.phases and not _is_done(world, slot, order):
            yield slot, order


def _is_done(world: "World", slot: str, order: OperatorOrder) -> bool:
    """Return whether a list of Slurm that is newer than the order shows its state.

    A drain must have its person's reason there. One to be lifted is a person's also after Slurm wrote over its reason.
    """
    listed = world.observation.slurm
    node = None if listed is None else listed.nodes.get(slot)
    if listed is None or node is None or listed.at <= order.at:
        return False
    if order.verb is Verb.NODE_DRAIN:
        return _drained_by_person(node)
    return not _drained_by_person(world.node(slot))


def _drained_by_person(node: SlurmNode) -> bool:
    return node.drained and node.drain_owner is DrainOwner.PERSON


def _as_ordered(node: SlurmNode, order: OperatorOrder) -> SlurmNode:
    if _drained_by_person(node):
        return node
    return replace(
        node,
        states=node.states | {NodeState.DRAIN},
        reason=reason(order.words, order.by),
        reason_by=SLURM_USER,
        reason_at=order.at,
    )
