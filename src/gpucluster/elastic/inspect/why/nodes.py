"""`why NODE`: its state in Slurm and the cloud, the owner of a drain, the next step and its latest time."""

from collections.abc import Iterable, Iterator

from gpucluster.elastic.abilities import Ability
from gpucluster.elastic.decide.node_table import Decision, NodeTable, Row, row_for
from gpucluster.elastic.decide.offers import Headroom
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Entry, Verb
from gpucluster.elastic.inspect import silent
from gpucluster.elastic.inspect.snapshot import actions_on
from gpucluster.elastic.inspect.why import drain_lines, node_instance, node_next, reserved
from gpucluster.elastic.inspect.why.causes import Cause, Offers
from gpucluster.elastic.inspect.why.hosts import of_host
from gpucluster.elastic.inspect.why.screen import Line, Part, Screen, screen
from gpucluster.elastic.log_lines import action_name
from gpucluster.elastic.model import Action
from gpucluster.text import short


def of_node(
    world: World,
    headroom: Headroom,
    offers: Offers,
    name: str,
    *,
    entries: Iterable[Entry],
    actions: tuple[Action, ...],
) -> Screen:
    """Return the screen of a slot; `actions` is what the daemon does now."""
    subject = f"node {name}"
    if name not in world.slots:
        return screen(subject, Cause.UNKNOWN, _unknown(world, name))
    if name not in world.slurm.nodes:
        return screen(
            subject, Cause.NODE, "is in the plan, but slurmctld does not list it: scontrol reconfigure"
        )
    if world.plan.aws is None:
        return of_host(world, name, _jobs(world, name))
    context = NodeTable(world).context(name)
    row = row_for(context)
    incarnation = context.incarnation
    mine = actions_on(actions, name, incarnation.instance if incarnation is not None else None)
    lines = (
        *_slurm(world, name, row),
        # an action of the daemon comes before the one of slurmctld
        *(line for line in silent.of_node(world, name) if not mine or line.part is not Part.NEXT),
        *drain_lines.lines(world, name),
        *node_instance.lines(world, name, entries),
        *_jobs(world, name),
        *reserved.of_node(world, name),
        *_order(world, name),
        *(node_next.now(world, mine) if mine else node_next.later(world, headroom, offers, context, row)),
    )
    return screen(subject, Cause.NODE, row.sentence(context), lines, tuple(action_name(a) for a in mine))


def _unknown(world: World, name: str) -> str:
    if name.replace("_", "").replace("+", "").isdecimal():
        return (
            f"is not known; for a part of a job array, use the task's own number: squeue -h -j {name} -o %A"
        )
    spans = ", ".join(pool.hostlist for pool in world.plan.pools)
    return f"is not known; this cluster has {spans}"


def _slurm(world: World, name: str, row: Row) -> Iterator[Line]:
    listed, place = world.observation.slurm, world.slots[name]
    node = listed.nodes[name] if listed is not None else world.node(name)
    zone = f" in {place.zone}" if place.zone else ""
    always = ", always on" if place.always_on else ""
    yield Line(
        part=Part.STATE,
        words=f"pool {place.pool.name}{zone}{always}; state in Slurm: {'+'.join(sorted(node.states))}",
    )
    if unhealthy := world.node(name).unhealthy:
        yield Line(part=Part.STATE, words=short(unhealthy))
        yield Line(
            part=Part.REMEDY,
            words=f"many nodes of the pool fail their checks: look for a common cause, for example a driver or a mount; single nodes: `gpucluster node drain NODE --because WORDS -c {world.plan.name}`",
        )
    if row.decision is Decision.RECORD:
        yield Line(
            part=Part.REMEDY,
            words=f"bring it to a known state (scontrol update nodename={name} state=...), and report this message",
        )


def _jobs(world: World, name: str) -> Iterator[Line]:
    here = [j for j in world.slurm.jobs if name in j.nodes and (j.configuring or j.running)]
    for job in here[:4]:
        yield Line(
            part=Part.STATE,
            at=job.started_at or None,
            words=f"job {job.id} {'starts' if job.configuring else 'runs'} on it",
        )


_DRAIN_ACTS = {
    Verb.NODE_DRAIN: ("the daemon drains it", Ability.EVACUATE),
    Verb.NODE_UNDRAIN: ("the daemon lifts the drain", Ability.UPDATE),
}


def _order(world: World, name: str) -> Iterator[Line]:
    drain = world.memory.drain_orders.get(name)
    if drain is not None:
        words = f"{drain.by} ordered {drain.verb.value}: {drain.words}"
        words = f"{words.removesuffix(': ')}; slurmctld does not show it yet"
        yield Line(part=Part.REASON, at=drain.at, words=words)
        act, needs = _DRAIN_ACTS[drain.verb]
        if not world.may(needs):  # else it is among the acts of this pass
            yield Line(part=Part.NEXT, at=world.now, needs=needs, words=act)
    order = world.memory.orders.get(name)
    if order is not None:
        because = f": {order.words}" if order.words else ""
        yield Line(part=Part.REASON, at=order.at, words=f"{order.by} ordered {order.verb.value}{because}")
        if order.until is not None:
            yield Line(part=Part.NEXT, at=order.until, words="that order expires")
        yield Line(
            part=Part.REMEDY, words=f"`gpucluster node release {name} -c {world.plan.name}` reverses it"
        )
