"""Odd states brought to a good one: nodes without an instance, DOWN and DOWN~ nodes, left-over power-ups, Slurm's drains.

What another drained or downed with a reason that is neither ours nor Slurm's own is left alone.
"""

from collections.abc import Iterator

from gpucluster.cloud.port import Instance
from gpucluster.elastic.decide.asks import refused_for
from gpucluster.elastic.decide.endings import strays
from gpucluster.elastic.decide.world import HAS, Fate, World
from gpucluster.elastic.events import Adopted, Event, Refused
from gpucluster.elastic.model import Action, MarkDown, Phase, PowerDown, ResetDown, SlurmNode
from gpucluster.plan.names import REASON_PREFIX

SLURMS_OWN = (  # reasons that slurmctld writes by itself (24.11)
    "ResumeTimeout reached",
    "Not responding",
    "Node unexpectedly rebooted",
    "NO NETWORK ADDRESS FOUND",
)
GONE = f"{REASON_PREFIX} its instance is gone"
LEFT = f"{REASON_PREFIX} no job wants it any more"
STUCK = f"{REASON_PREFIX} powered up and down at once"


def adoptions(world: World) -> Iterator[Event]:
    """Up nodes whose instance no request of ours knows (a lost journal): Slurm's address names it."""
    homeless = [s for s in world.group(Phase.UP) if world.fate(s) is Fate.NONE]
    if not homeless:
        return
    owned = {life.instance for life in world.memory.lives.values() if life.instance}
    by_address: dict[str, Instance] = {i.address: i for i in strays(world, owned) if i.address}
    for slot in homeless:
        found = by_address.get(world.node(slot).address)
        if found is not None:
            yield Adopted(
                slot=slot, instance=found.id, machine=found.machine, market=found.market, zone=found.zone
            )


def unfit(world: World) -> Iterator[Event]:
    """Machines that register with less than slurm.conf says: while one stands, its offer is left alone."""
    if not any("INVALID_REG" in world.node(s).states for s in world.group(Phase.UP)):
        return
    told: set[str] = set()
    for slot in world.group(Phase.UP):
        life, node = world.life(slot), world.node(slot)
        if life is None or not life.machine or "INVALID_REG" not in node.states or life.offer in told:
            continue
        told.add(life.offer)
        old = world.memory.refusals.get(life.offer)
        if old is None or old.until <= world.now:
            words = f"is not what slurm.conf says: {plain(node.reason)}"
            yield Refused(key=life.offer, words=words, until=world.now + refused_for(world.plan.times, old))


def repair(world: World) -> Iterator[Action]:
    """At most one step a node and pass; the next pass reads what came of it."""
    yield from _down(tuple(s for s in world.group(Phase.UP, Phase.SILENT) if _unbacked(world, s)), GONE)
    yield from _down(tuple(s for s in world.group(Phase.WANTED) if _left_over(world, s)), LEFT)
    yield from _replace_spoiled(world)
    stranded = tuple(s for s in world.group(Phase.STRANDED) if world.node(s).idle)
    off = tuple(s for s in stranded if "POWERED_DOWN" in world.node(s).states)
    yield from _down(tuple(s for s in stranded if s not in off), STUCK)
    failed = tuple(s for s in world.group(Phase.DOWN) if _stays_down(world, s))
    if failed:
        yield PowerDown(slots=failed, reason="down, and not coming back")
    reset = (*off, *(s for s in world.group(Phase.DOWN_OFF) if _resettable(world, s)))
    if reset:
        yield ResetDown(slots=reset, reason="powered down, and fit to be used again")


def _down(slots: tuple[str, ...], reason: str) -> Iterator[Action]:
    if slots:
        yield MarkDown(slots=slots, reason=reason)
        yield PowerDown(slots=slots, reason=reason)


def _replace_spoiled(world: World) -> Iterator[Action]:
    """A node that Slurm itself drained gets no job ever again and costs as much: gone after its idle time."""
    found: dict[str, list[str]] = {}
    for slot in world.group(Phase.UP):
        node = world.node(slot)
        if node.spoiled and node.idle and node.reason_at + world.slots[slot].pool.idle_s <= world.now:
            found.setdefault(plain(node.reason), []).append(slot)
    for words, slots in sorted(found.items()):
        yield from _down(tuple(slots), f"{REASON_PREFIX} replaced, Slurm drained it: {words}")


def _unbacked(world: World, slot: str) -> bool:
    """No instance and none on its way; a drain by somebody else keeps the node as it is."""
    life, node = world.life(slot), world.node(slot)
    if node.drained and not (node.ours or node.spoiled or _slurms(node)):
        return False
    return world.fate(slot) in (Fate.NONE, Fate.ENDED) and not (life and life.request)


def _left_over(world: World, slot: str) -> bool:
    """Powered up for a job that is gone, and nothing was launched yet."""
    life = world.life(slot)
    if life is None or not life.jobs or life.instance or life.request or world.slots[slot].always_on:
        return False
    return world.node(slot).idle and not world.starting_on.get(slot)


def _stays_down(world: World, slot: str) -> bool:
    """Ours at once; Slurm's own once the instance is gone or the grace is over (ReturnToService may heal it)."""
    node = world.node(slot)
    if "POWER_DOWN" in node.states:
        return False
    if node.ours:
        return True
    over = node.reason_at + world.plan.times.orphan_grace_s <= world.now
    return _slurms(node) and (world.fate(slot) not in HAS or over)


def _resettable(world: World, slot: str) -> bool:
    node = world.node(slot)
    return (node.ours or _slurms(node)) and world.fate(slot) not in HAS


def _slurms(node: SlurmNode) -> bool:
    return node.reason.startswith(SLURMS_OWN)


def plain(text: str) -> str:
    """Slurm's words: printable, short."""
    return "".join(c for c in text if c.isprintable())[:120]
