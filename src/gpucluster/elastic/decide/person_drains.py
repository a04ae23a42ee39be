"""Drains by people that Slurm may write over (S46): slurmd and slurmstepd send their reason for a drained node, too, and slurmctld
that of a registration.

The journal has them, so the person stays the owner: of a used node a step may fail to end, and of an idle one the disk may fill.
slurmctld's other drains begin after the end of the person's. Nodes that are off are not recorded.

A drain that is lifted while its node is DOWN leaves its reason there (S49), which does not tell who set the node DOWN. The view
drops it. A DOWN by a person has another time.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gpucluster.elastic.events import Event, PersonDrained, PersonDrainLifted
from gpucluster.elastic.memory import Memory, PersonDrain
from gpucluster.slurm.drain_table import APPENDED
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import POWERED_DOWN, NodeState
from gpucluster.slurm.values import SlurmNode, SlurmView

if TYPE_CHECKING:
    from gpucluster.elastic.decide.world import World


def restored(slurm: SlurmView, memory: Memory) -> SlurmView:
    """Return the view in which a person's drain has the person's reason again, and a lifted one has none."""
    seen = ((slot, slurm.nodes.get(slot), drain) for slot, drain in memory.person_drains.items())
    found = {
        slot: shown
        for slot, node, drain in seen
        if node is not None and (shown := _shown(node, drain)) is not node
    }
    return replace(slurm, nodes={**slurm.nodes, **found}) if found else slurm


def _shown(node: SlurmNode, drain: PersonDrain) -> SlurmNode:
    if drain.lifted:
        return replace(node, reason="", reason_by="") if _is_left(node, drain) else node
    if _is_changed(node, drain):
        return replace(node, reason=drain.reason, reason_by=drain.by, reason_at=drain.at or node.reason_at)
    return node


def _is_changed(node: SlurmNode, drain: PersonDrain) -> bool:
    """Return whether a drain of Slurm's is the person's with another text: written over, or continued."""
    return node.drained_by_slurm and (
        node.written.replaces or node.reason.startswith(f"{drain.reason}{APPENDED}")
    )


def _is_left(node: SlurmNode, drain: PersonDrain) -> bool:
    """Return whether the reason of an undrained node is the one of this drain."""
    of_drain = (drain.reason, drain.by, drain.at)
    return not node.drained and (node.reason, node.reason_by, node.reason_at) == of_drain


def person_drains(world: "World") -> Iterator[Event]:
    """Return new drains by people, and those that are over. `world` has the restored view."""
    known, new = world.memory.person_drains, dict[PersonDrain, list[str]]()
    for node in world.slurm.nodes.values():
        if _is_drained(node) and not _is_off(node) and node.name not in world.memory.drain_orders:
            drain = PersonDrain(reason=node.reason, by=node.reason_by, at=node.reason_at)
            if known.get(node.name) != drain:
                new.setdefault(drain, []).append(node.name)
    for drain, slots in new.items():
        yield PersonDrained(slots=tuple(slots), reason=drain.reason, by=drain.by, at=drain.at)
    yield from _over(world)


def _over(world: "World") -> Iterator[Event]:
    listed = world.observation.slurm
    lifted, over = list[str](), list[str]()
    for slot, drain in world.memory.person_drains.items():
        if listed is None or slot not in listed.nodes or _is_drained(world.slurm.nodes[slot]):
            continue
        if not _is_left(listed.nodes[slot], drain):
            over.append(slot)
        elif not drain.lifted:
            lifted.append(slot)
    if lifted:
        yield PersonDrainLifted(slots=tuple(lifted))
    if over:
        yield PersonDrained(slots=tuple(over), reason="", by="")


def _is_drained(node: SlurmNode) -> bool:
    return node.drained and node.drain_owner is DrainOwner.PERSON


def _is_off(node: SlurmNode) -> bool:
    """Return whether nobody else writes a reason on the node: it has no slurmd, and is not DOWN."""
    return not POWERED_DOWN.isdisjoint(node.states) and NodeState.DOWN not in node.states
