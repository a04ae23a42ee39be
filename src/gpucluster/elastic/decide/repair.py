"""What the life table says of nodes is carried out; instances that Slurm uses and no journal knows are adopted.

What another drained or downed with a reason that is neither ours nor Slurm's own is left alone.
"""

from collections.abc import Iterator

from gpucluster.cloud.port import Instance
from gpucluster.elastic import owners
from gpucluster.elastic.decide.asks import refused_for
from gpucluster.elastic.decide.endings import strays
from gpucluster.elastic.decide.life import Do, Lives, plain
from gpucluster.elastic.decide.world import Fate, World
from gpucluster.elastic.events import Adopted, Event, Refused
from gpucluster.elastic.model import Action, Drain, MarkDown, Phase, PowerDown, ResetDown, Unblock
from gpucluster.elastic.owners import Owner
from gpucluster.plan.model import LaunchTemplate


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
            template = _template_of(world, slot, found)
            yield Adopted(
                slot=slot,
                instance=found.id,
                machine=found.machine,
                market=found.market,
                zone=found.zone,
                source=template.source if template else 0,
                price=(template.price or 0) if template else 0,
            )


def _template_of(world: World, slot: str, found: Instance) -> LaunchTemplate | None:
    """What of the pool's an instance was launched from, as far as it shows: its machine and market."""
    templates = world.slots[slot].pool.templates
    return next((t for t in templates if (t.machine, t.market) == (found.machine, found.market)), None)


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


def repair(lives: Lives, held: frozenset[str]) -> Iterator[Action]:
    """At most one step a node and pass, as its row says; the next pass reads what came of it.

    What is `held` back in this very pass is not powered down as well: that would clear its drain; nor what is powered up.
    """
    for words, slots in lives.to(Do.LIFT).items():
        yield Unblock(slots=slots, reason=words)
    for words, slots in lives.to(Do.HOLD).items():
        yield Drain(slots=slots, reason=owners.reason(Owner.ORDER, words))
    for words, slots in lives.to(Do.SET_DOWN).items():
        yield MarkDown(slots=slots, reason=owners.reason(Owner.ORDER, words))
    for words, slots in lives.to(Do.DOWN_AND_OFF).items():
        yield MarkDown(slots=slots, reason=owners.reason(Owner.CAPACITY, words))
        yield PowerDown(slots=slots, reason=owners.reason(Owner.CAPACITY, words))
    for words, slots in lives.to(Do.OFF).items():
        if due := tuple(s for s in slots if s not in held):
            yield PowerDown(slots=due, reason=words)
    for words, slots in lives.to(Do.RESET).items():
        yield ResetDown(slots=slots, reason=words)
