"""Nodes that are up in Slurm although their slurmd does not run, or does not answer slurmctld. Pure.

Slurm shows such a node as before until SlurmdTimeout is over. What shows it earlier: the report of the node's agent, and the mark
NOT_RESPONDING. On existing hosts no agent reports. A start of slurmctld delays the end of SlurmdTimeout. A node with INVALID_REG,
which slurmctld does not ping, is never set DOWN (S08).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.elastic.abilities import Ability
from gpucluster.elastic.decide.jobs import is_silent
from gpucluster.elastic.decide.node_table import down_after_s
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.inspect.why.screen import Line, Part
from gpucluster.elastic.model import ReceivedReport
from gpucluster.plan import defaults
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import NodeState, SlurmPhase
from gpucluster.slurm.values import SlurmJob
from gpucluster.text import relative_time, rounded_duration

STOPPED = "slurmd does not run on it, as its agent reports"
HANGS = "slurmctld gets no answer from slurmd, which runs, as its agent reports"
GONE = "slurmctld gets no answer from slurmd, and its agent does not report either"
UNANSWERED = "slurmctld gets no answer from slurmd"
UNPINGED = "slurmctld does not ping a node with INVALID_REG, so it does not mark it DOWN"
_UP = (SlurmPhase.UP, SlurmPhase.NOT_RESPONDING, SlurmPhase.POWER_DOWN_PENDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentNode:
    """`since` and `down_by` are Unix seconds; None: not known. slurmctld sets the node DOWN at `down_by` at the latest.

    `pinged`: it does so at some time.
    """

    name: str
    words: str
    since: float | None = None
    down_by: float | None = None
    pinged: bool = True
    heard_at: float | None = None  # the last report of its agent, if that is silent too


def silent_nodes(world: World) -> Iterator[SilentNode]:
    """Return these nodes in the plan's order."""
    found = (silent_node(world, slot) for slot in world.phases)
    return (one for one in found if one is not None)


def silent_node(world: World, name: str) -> SilentNode | None:
    """Return what is known of the node's slurmd; None: it answers, or the node is not up."""
    phase = world.phases.get(name)
    if phase not in _UP or NodeState.REBOOT_ISSUED in world.node(name).states:
        return None
    received = _last_report(world, name)
    heard = received is not None and not is_silent(world, received)
    if received is not None and heard and (down_s := received.report.slurmd_down_s) is not None:
        return _since(world, name, STOPPED, received.at - down_s)
    if phase is not SlurmPhase.NOT_RESPONDING:
        return None
    words = UNANSWERED if received is None else HANGS if heard else GONE
    known = world.memory.lingers.get(name)
    since = known.since if known is not None and known.phase == phase else None
    return _since(world, name, words, since, None if received is None or heard else received.at)


def of_node(world: World, name: str) -> Iterator[Line]:
    """Return the lines of the node's screen."""
    found = silent_node(world, name)
    if found is None:
        return
    heard = "" if found.heard_at is None else f", since {relative_time(found.heard_at, world.now)}"
    yield Line(part=Part.STATE, at=found.since, words=f"{found.words}{heard}")
    most, timeout = rounded_duration(down_after_s(world.plan)), defaults.slurmd_timeout(world.plan).value
    if not found.pinged:
        yield Line(part=Part.STATE, words=UNPINGED)
    elif found.down_by is not None and found.down_by <= world.now:
        words = f"slurmctld has not marked it DOWN, although that takes at most {most}"
        yield Line(part=Part.STATE, at=found.down_by, words=words)
        yield Line(part=Part.REMEDY, words=f"on the head: grep {name} /var/log/slurm/slurmctld.log")
    else:
        counted = f"at most {most} after its last answer, or after slurmctld's own start if that is later"
        when = "by then" if found.down_by is not None else counted
        words = f"slurmctld marks it DOWN {when} (SlurmdTimeout is {rounded_duration(timeout)}){_jobs(world, name)}"
        yield Line(part=Part.NEXT, at=found.down_by, words=words)
        yield _after(world, name, found.down_by)
    yield Line(part=Part.REMEDY, words=_remedy(world, found))


def of_job(world: World, job: SlurmJob) -> Iterator[Line]:
    """Return the lines of the screen of a job that has such nodes."""
    for found in (one for slot in job.nodes if (one := silent_node(world, slot)) is not None):
        yield Line(part=Part.STATE, at=found.since, words=f"{found.name}: {found.words}")
        if found.down_by is not None and found.down_by > world.now:
            ends = "is queued again" if job.requeues_on_failure else "fails"
            words = f"slurmctld marks {found.name} DOWN by then, and the job {ends}"
            yield Line(part=Part.NEXT, at=found.down_by, words=words)


def _last_report(world: World, name: str) -> ReceivedReport | None:
    """Return the last report of the node's instance in this incarnation."""
    incarnation = world.incarnation(name)
    received = world.reports.get(incarnation.instance or "") if incarnation is not None else None
    if incarnation is None or received is None or received.report.incarnation != incarnation.number:
        return None
    return received


def _since(
    world: World, name: str, words: str, since: float | None, heard_at: float | None = None
) -> SilentNode:
    started, pinged = world.slurm.started_at, NodeState.INVALID_REG not in world.node(name).states
    down_by = None
    if since is not None and started is not None and pinged:
        down_by = max(since, started) + down_after_s(world.plan)
    return SilentNode(name=name, words=words, since=since, down_by=down_by, pinged=pinged, heard_at=heard_at)


def _jobs(world: World, name: str) -> str:
    held = (job for job in world.slurm.jobs if job.running or job.configuring or job.suspended)
    used = any(name in job.nodes for job in held)
    return ": its jobs end, and Slurm queues again those that it may" if used else ""


def _after(world: World, name: str, down_by: float | None) -> Line:
    """Return what follows once the node is DOWN, as the rows of the node table for DOWN have it."""
    node = world.node(name)
    person = node.drained and node.drain_owner in (DrainOwner.PERSON, DrainOwner.NONE)
    if world.plan.aws is None or world.kept(name) or person:
        return Line(part=Part.NEXT, words="then it stays DOWN until slurmd answers")
    grace = world.plan.times.orphan_grace_s
    at = None if down_by is None else down_by + grace
    words = f"the daemon powers it down if slurmd has not answered {rounded_duration(grace)} after that"
    return Line(part=Part.NEXT, at=at, needs=Ability.UPDATE, words=words)


def _remedy(world: World, found: SilentNode) -> str:
    if found.words == GONE:
        return f"`gpucluster node replace {found.name} --now -c {world.plan.name}` replaces its instance"
    return (
        f"on {found.name}: journalctl -u slurmd; systemctl restart slurmd brings it back, and its jobs go on"
    )
