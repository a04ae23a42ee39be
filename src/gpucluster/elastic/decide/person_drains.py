"""Drains by people that Slurm may write over (S46): slurmd and slurmstepd send their reason for a drained node, too, and slurmctld
that of a registration.

The journal has them, so the person stays the owner: of a used node a step may fail to end, and of an idle one the disk may fill.
slurmctld's other drains begin after the end of the person's. Nodes without a slurmd are not recorded.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gpucluster.elastic.events import Event, PersonDrained
from gpucluster.elastic.memory import Memory, PersonDrain
from gpucluster.slurm.drain_table import APPENDED
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import POWERED_DOWN
from gpucluster.slurm.values import SlurmNode, SlurmView

if TYPE_CHECKING:
    from gpucluster.elastic.decide.world import World


def restored(slurm: SlurmView, memory: Memory) -> SlurmView:
    """Return the view in which a person's drain has the person's reason again."""
    written_over = {
        slot: replace(node, reason=drain.reason, reason_by=drain.by)
        for slot, drain in memory.person_drains.items()
        if (node := slurm.nodes.get(slot)) is not None and _is_changed(node, drain)
    }
    return replace(slurm, nodes={**slurm.nodes, **written_over}) if written_over else slurm


def _is_changed(node: SlurmNode, drain: PersonDrain) -> bool:
    """Return whether a drain of Slurm's is the person's with another text: written over, or continued."""
    return node.drained_by_slurm and (
        node.written.replaces or node.reason.startswith(f"{drain.reason}{APPENDED}")
    )


def person_drains(world: "World") -> Iterator[Event]:
    """Return new drains by people on nodes with a slurmd, and those that are over. `world` has the restored view."""
    known, new = world.memory.person_drains, dict[PersonDrain, list[str]]()
    for node in world.slurm.nodes.values():
        if node.drained and POWERED_DOWN.isdisjoint(node.states) and node.drain_owner is DrainOwner.PERSON:
            drain = PersonDrain(reason=node.reason, by=node.reason_by)
            if known.get(node.name) != drain:
                new.setdefault(drain, []).append(node.name)
    for drain, slots in new.items():
        yield PersonDrained(slots=tuple(slots), reason=drain.reason, by=drain.by)
    over = tuple(slot for slot in known if _is_over(world, slot))
    if over:
        yield PersonDrained(slots=over, reason="", by="")


def _is_over(world: "World", slot: str) -> bool:
    node = world.slurm.nodes.get(slot)
    return node is not None and not (node.drained and node.drain_owner is DrainOwner.PERSON)
