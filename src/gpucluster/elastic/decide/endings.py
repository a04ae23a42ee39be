"""Instances to end: powered-down slots, failed boots, and what no slot owns, each after its grace."""

from collections.abc import Iterator

from gpucluster.cloud.port import Instance
from gpucluster.elastic.decide.life import Do, Lives
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.model import Action, Terminate
from gpucluster.plan.names import ROLE_NODE, TAG_CLUSTER, TAG_REQUEST, TAG_ROLE

AGAIN_S = 15.0  # a termination that does not show by then is asked for again


def ending(lives: Lives) -> Iterator[Action]:
    """Grouped by reason, so that one call ends many."""
    world = lives.world
    by_reason: dict[str, list[str]] = {}
    for reason, slots in lives.to(Do.END).items():
        found = (life.instance for slot in slots if (life := world.life(slot)) is not None)
        by_reason[reason] = [i for i in found if i is not None and _due(world, i)]
    owned = {
        life.instance for slot, life in world.memory.lives.items() if life.instance and slot in world.slots
    }
    by_reason["no slot owns it"] = [
        i.id
        for i in strays(world, owned)
        if i.launched_at + world.plan.times.orphan_grace_s <= world.now and _due(world, i.id)
    ]
    for reason, ids in sorted(by_reason.items()):
        if ids:
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


def _due(world: World, instance: str) -> bool:
    asked = world.memory.endings.get(instance)
    return asked is None or not asked <= world.now < asked + AGAIN_S  # in the future: the clock went back
