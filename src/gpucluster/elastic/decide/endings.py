"""Instances to end: powered-down slots, failed boots, and what no slot owns, each after its grace."""

from collections.abc import Iterator

from gpucluster.cloud.port import Instance
from gpucluster.elastic.decide.world import Fate, World
from gpucluster.elastic.memory import Life
from gpucluster.elastic.model import Action, Phase, Terminate
from gpucluster.plan.names import ROLE_NODE, TAG_CLUSTER, TAG_REQUEST, TAG_ROLE

AGAIN_S = 15.0  # a termination that does not show by then is asked for again


def ending(world: World) -> Iterator[Action]:
    """Group by reason, so that one call ends many."""
    by_reason: dict[str, list[str]] = {}
    owned: set[str] = set()
    for slot, life in world.memory.lives.items():
        if not life.instance:
            continue
        if slot in world.slots:
            owned.add(life.instance)
        reason = _reason(world, slot, life)
        if reason and _due(world, life.instance):
            by_reason.setdefault(reason, []).append(life.instance)
    for instance in strays(world, owned):
        if instance.launched_at + world.plan.times.orphan_grace_s <= world.now and _due(world, instance.id):
            by_reason.setdefault("no slot owns it", []).append(instance.id)
    for reason, ids in sorted(by_reason.items()):
        yield Terminate(instances=tuple(sorted(ids)), reason=reason)


def strays(world: World, owned: set[str]) -> Iterator[Instance]:
    """Living instances of this cluster's nodes that no slot owns and no open request could have made."""
    launches = world.memory.launches  # a fleet's instances have its tags, and not its token (T14)
    tokens = {launch.ask.token for launch in launches.values()}
    for instance in world.cloud.instances.values():
        tags = instance.tags
        if instance.id in owned or not instance.living:
            continue
        if instance.token in tokens or tags.get(TAG_REQUEST) in launches:
            continue
        if tags.get(TAG_CLUSTER) == world.plan.name and tags.get(TAG_ROLE) == ROLE_NODE:
            yield instance


def _reason(world: World, slot: str, life: Life) -> str | None:
    fate, phase = world.fate(slot), world.phases.get(slot)
    if fate not in (Fate.LIVES, Fate.UNSEEN, Fate.HALTED) or slot not in world.slots:
        return None
    rows = (
        (fate is Fate.HALTED, "it is stopped"),
        (life.failed is not None, "its boot failed"),
        (phase is Phase.ENDING, "Slurm powers its node down"),
        (phase is Phase.DOWN_OFF, "Slurm gave its node up"),
        (phase is Phase.OFF and _past_grace(world, life), "its slot is powered down"),
    )
    return next((reason for holds, reason in rows if holds), None)


def _past_grace(world: World, life: Life) -> bool:
    """Slurm may only have forgotten a launch (killed just after a resume): the node then registers unasked."""
    return life.unneeded_at is not None and life.unneeded_at + world.plan.times.orphan_grace_s <= world.now


def _due(world: World, instance: str) -> bool:
    asked = world.memory.endings.get(instance)
    return asked is None or not asked <= world.now < asked + AGAIN_S  # in the future: the clock went back
