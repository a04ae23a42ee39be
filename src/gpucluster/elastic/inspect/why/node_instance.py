"""`why NODE`: the slot's instance: its end, its tags, its state in EC2 and its boot."""

from collections.abc import Iterable, Iterator

from gpucluster.cloud.tags import node_tags, tag_step
from gpucluster.elastic.decide.world import InstanceStatus, World
from gpucluster.elastic.events import Entry, InstanceGone, TerminationRequested
from gpucluster.elastic.inspect.why.allocated import boot_words, node_evacuation
from gpucluster.elastic.inspect.why.case import refused_end_lines
from gpucluster.elastic.inspect.why.screen import Line, Part
from gpucluster.elastic.memory import Incarnation
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import SlurmPhase
from gpucluster.text import format_money, rounded_duration


def lines(world: World, name: str, entries: Iterable[Entry]) -> Iterator[Line]:
    """Return what is known of the slot's instance, or why its last one ended."""
    yield from _refused_end(world, name)
    yield from _lost_tags(world, name)
    yield from _instance(world, name)
    yield from _unlisted(world, name)
    yield from _last_end(world, name, entries)


def _refused_end(world: World, name: str) -> Iterator[Line]:
    """Return why the instance cannot be terminated. A drain for it has the same words."""
    drained = world.node(name).drain_owner is DrainOwner.TERMINATION
    lines = refused_end_lines(world, (name,))
    return (line for line in lines if not (drained and line.part is Part.REASON))


def _lost_tags(world: World, name: str) -> Iterator[Line]:
    """Return the tags that the instance lost. EC2 may show none of a young one's tags (T20), and its refused end says the same."""
    listed = world.instance(name)
    if listed is None or not listed.living or not listed.tags or world.refused_end(name) is not None:
        return
    want = node_tags(world.plan.name)
    lost = {key: value for key, value in want.items() if listed.tags.get(key) != value}
    if lost:
        tags = " and ".join(f"{key}={value}" for key, value in lost.items())
        words = f"{listed.id} has lost its tag {tags}: the head may not terminate it, and `down` refuses to"
        yield Line(part=Part.REASON, words=words)
        region = world.plan.aws.region if world.plan.aws is not None else ""
        yield Line(part=Part.REMEDY, words=tag_step(listed.id, lost, region))


def _instance(world: World, name: str) -> Iterator[Line]:
    incarnation = world.incarnation(name)
    if incarnation is None or incarnation.instance is None:
        if incarnation is not None and incarnation.request:
            yield Line(part=Part.DONE, words=f"request {incarnation.request} was sent, and has no answer yet")
        return
    listed = world.instance(name)
    state = listed.state.value if listed else "not listed by the cloud now"
    price = f", {format_money(incarnation.price)} an hour" if incarnation.price else ""
    machine = f"{incarnation.instance} ({incarnation.market.value} {incarnation.machine} in {incarnation.zone or 'an unknown zone'}{price})"
    if incarnation.up_at is None and world.phases[name] is SlurmPhase.POWERING_UP:
        yield Line(part=Part.STATE, at=incarnation.launched_at, words=boot_words(world, name, incarnation))
        return
    yield Line(
        part=Part.DONE, at=incarnation.launched_at, words=f"{machine} was launched; EC2 state: {state}"
    )
    if incarnation.up_at:
        yield Line(part=Part.DONE, at=incarnation.up_at, words=f"Slurm registered it{_took(incarnation)}")
    if incarnation.interruption is not None:
        yield from node_evacuation(world, name, incarnation, incarnation.interruption)


def _unlisted(world: World, name: str) -> Iterator[Line]:
    """Return how to end an instance that only the journal has: while its node is up, the daemon never does."""
    incarnation = world.incarnation(name)
    if incarnation is None or world.instance_status(name) is not InstanceStatus.MISSING:
        return
    words = f"EC2 does not list {incarnation.instance}, and the node is up: the daemon keeps it in its journal until the node powers down"
    yield Line(part=Part.REASON, words=words)
    yield Line(part=Part.REMEDY, words=f"scontrol update nodename={name} state=power_down")


def _took(incarnation: Incarnation) -> str:
    return (
        f", {rounded_duration(incarnation.up_at - incarnation.launched_at)} after its launch"
        if incarnation.up_at and incarnation.up_at > incarnation.launched_at
        else ""
    )


def _last_end(world: World, name: str, entries: Iterable[Entry]) -> Iterator[Line]:
    """Return why the last instance ended, if the slot has no instance now."""
    incarnation = world.incarnation(name)
    if incarnation is None or incarnation.instance is not None:
        return
    words: dict[str, str] = {}
    gone: tuple[float, str] | None = None
    for entry in entries:
        match entry.event:
            case TerminationRequested(instances=ids, words=why):
                words.update(dict.fromkeys(ids, why))
            case InstanceGone(slot=slot, instance=instance) if slot == name:
                gone = (entry.at, instance)
            case _:
                pass
    if gone is not None:
        yield Line(part=Part.DONE, at=gone[0], words=f"{gone[1]} ended: {words.get(gone[1], 'not by us')}")
