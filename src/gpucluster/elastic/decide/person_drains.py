"""Drains by people that Slurm may write over (S46): slurmd and slurmstepd send their reason for a drained node, too, and slurmctld
that of a registration.

The journal has them, so the person stays the owner: of a used node a step may fail to end, and of an idle one the disk may fill.
slurmctld's other drains begin after the end of the person's. Nodes that are off are not recorded.

A drain that is lifted while its node is DOWN leaves its reason there (S49). The view drops it if slurmctld had set the node DOWN
before. Else the DOWN is a person's: the same words change nothing, slurmctld appends its own. A DOWN by a person is recorded, too,
because a drain after it writes over its reason.
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
    return (
        drain.drained
        and node.drained_by_slurm
        and (node.written.replaces or node.reason.startswith(f"{drain.reason}{APPENDED}"))
    )


def _is_left(node: SlurmNode, drain: PersonDrain) -> bool:
    """Return whether the reason of an undrained node is the one of this drain, and its DOWN is not a person's."""
    of_drain = (drain.reason, drain.by, drain.at)
    return drain.was_down and not node.drained and (node.reason, node.reason_by, node.reason_at) == of_drain


def person_drains(world: "World") -> Iterator[Event]:
    """Return new drains and DOWNs by people, and those that are over. `world` has the restored view."""
    known, new = world.memory.person_drains, dict[PersonDrain, list[str]]()
    for node in world.slurm.nodes.values():
        before = known.get(node.name)
        if (
            not _is_persons(node)
            or _is_off(node)
            or node.name in world.memory.drain_orders
            or (before is not None and _is_left(node, before))
        ):
            continue
        drain = _found(node, before)
        if before is None or replace(before, was_down=drain.was_down) != drain:
            new.setdefault(drain, []).append(node.name)
    for drain, slots in new.items():
        yield PersonDrained(
            slots=tuple(slots),
            reason=drain.reason,
            by=drain.by,
            at=drain.at,
            drained=drain.drained,
            was_down=drain.was_down,
        )
    yield from _over(world)


def _found(node: SlurmNode, before: PersonDrain | None) -> PersonDrain:
    """Return what the node shows of a person. The node was DOWN before if nothing of a person's was on it."""
    free = before is None or before.lifted
    return PersonDrain(
        reason=node.reason,
        by=node.reason_by,
        at=node.reason_at,
        drained=node.drained,
        was_down=free and node.drained and NodeState.DOWN in node.states,
    )


def _over(world: "World") -> Iterator[Event]:
    listed = world.observation.slurm
    lifted, over = list[str](), list[str]()
    for slot, drain in world.memory.person_drains.items():
        if listed is None or slot not in listed.nodes:
            continue
        if _is_left(listed.nodes[slot], drain):
            if not drain.lifted:
                lifted.append(slot)
        elif not _is_persons(world.slurm.nodes[slot]):
            over.append(slot)
    if lifted:
        yield PersonDrainLifted(slots=tuple(lifted))
    if over:
        yield PersonDrained(slots=tuple(over), reason="", by="")


def _is_persons(node: SlurmNode) -> bool:
    """Return whether a person drained the node or set it DOWN."""
    return (node.drained or NodeState.DOWN in node.states) and node.drain_owner is DrainOwner.PERSON


def _is_off(node: SlurmNode) -> bool:
    """Return whether nobody else writes a reason on the node: it has no slurmd, and is not DOWN."""
    return not POWERED_DOWN.isdisjoint(node.states) and NodeState.DOWN not in node.states
