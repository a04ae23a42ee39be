"""`why NODE`: its state in Slurm and the cloud, the owner of a drain, the next step and its latest time."""

from collections.abc import Iterable, Iterator, Mapping

from gpucluster.elastic.decide.node_table import Decision, NodeTable, Row, row_for
from gpucluster.elastic.decide.offers import Headroom
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Entry
from gpucluster.elastic.inspect.snapshot import actions_on
from gpucluster.elastic.inspect.why import node_instance, node_next
from gpucluster.elastic.inspect.why.causes import Cause, Offers
from gpucluster.elastic.inspect.why.screen import Line, Part, Screen, screen
from gpucluster.elastic.log_lines import action_name
from gpucluster.elastic.model import Action
from gpucluster.plan.names import REASON_PREFIX
from gpucluster.slurm.drains import SLURM_PROGRAM_REASONS, DrainOwner, owner_of
from gpucluster.slurm.states import NodeState
from gpucluster.text import short

_OWNERS: Mapping[DrainOwner, str] = {
    DrainOwner.CAPACITY: "the daemon, because there is no capacity; it removes the drain when there is capacity",
    DrainOwner.EVACUATION: "the daemon, because its instance is being evacuated",
    DrainOwner.HEALTH: "its health program, because a check failed; the daemon replaces its instance",
    DrainOwner.BUNDLE: "the daemon, for a new bundle: `gpucluster bundle show -c {cluster}` lists what it waits for",
    DrainOwner.TERMINATION: "the daemon, because its old instance cannot be terminated; it removes the drain when that has ended",
    DrainOwner.OPERATOR: "the daemon, by an operator's order: `gpucluster node release {node} -c {cluster}` removes it",
}
_PROGRAM_FAILED = (
    "a program of the {program} failed or reached its time limit: on the node, "
    "journalctl -t gpucluster-health-{log}; slurmd's log has `{log}`"
)


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
    context = NodeTable(world).context(name)
    row = row_for(context)
    incarnation = context.incarnation
    mine = actions_on(actions, name, incarnation.instance if incarnation is not None else None)
    lines = (
        *_slurm(world, name, row),
        *_drain(world, name),
        *node_instance.lines(world, name, entries),
        *_jobs(world, name),
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
    node, place = world.node(name), world.slots[name]
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
            words="many nodes of the pool fail their checks: look for a common cause, for example a driver or a mount; scontrol update nodename=NODE state=drain reason=WORDS takes single nodes",
        )
    if row.decision is Decision.RECORD:
        yield Line(
            part=Part.REMEDY,
            words=f"bring it to a known state (scontrol update nodename={name} state=...), and report this message",
        )


def _drain(world: World, name: str) -> Iterator[Line]:
    node = world.node(name)
    if not node.reason or not (node.drained or NodeState.DOWN in node.states):
        return  # a reason may be older than the present state
    owner = owner_of(node.reason)
    if owner is not None:
        whose = _OWNERS[owner].format(node=name, cluster=world.plan.name)
    elif node.has_daemon_reason:
        whose = "another version of the daemon"
    elif not node.drained and node.reason_by == "slurm":
        whose = "Slurm itself"  # the daemon set the node DOWN: the node table brings it back
    elif node.drained_by_slurm:
        whose = "Slurm itself: its instance is replaced after the pool's idle time"
    else:
        whose = f"{node.reason_by or 'unknown'}: scontrol update nodename={name} state=resume"
    yield Line(
        part=Part.REASON,
        at=node.reason_at or None,
        words=f"{node.reason.removeprefix(REASON_PREFIX).strip()} (by {whose})",
    )
    if node.drained_by_slurm and node.reason.startswith(SLURM_PROGRAM_REASONS):
        program = node.reason.split()[0]
        yield Line(part=Part.REMEDY, words=_PROGRAM_FAILED.format(program=program, log=program.lower()))


def _jobs(world: World, name: str) -> Iterator[Line]:
    here = [j for j in world.slurm.jobs if name in j.nodes and (j.configuring or j.running)]
    for job in here[:4]:
        yield Line(
            part=Part.STATE,
            at=job.started_at or None,
            words=f"job {job.id} {'starts' if job.configuring else 'runs'} on it",
        )


def _order(world: World, name: str) -> Iterator[Line]:
    order = world.memory.orders.get(name)
    if order is not None:
        because = f": {order.words}" if order.words else ""
        yield Line(part=Part.REASON, at=order.at, words=f"{order.by} ordered {order.verb.value}{because}")
        if order.until is not None:
            yield Line(part=Part.NEXT, at=order.until, words="that order expires")
        yield Line(
            part=Part.REMEDY, words=f"`gpucluster node release {name} -c {world.plan.name}` reverses it"
        )
