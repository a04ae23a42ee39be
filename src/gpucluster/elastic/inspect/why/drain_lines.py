"""The reason of a drained node on its screen: its words, its owner, and what is unknown about them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucluster.elastic.decide import ordered_drains, replacements
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Verb
from gpucluster.elastic.inspect.why.screen import Line, Part
from gpucluster.plan.names import REASON_PREFIX
from gpucluster.slurm import drains, hostlist
from gpucluster.slurm.drain_table import APPENDED, SLURM_USER, table_of
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import NodeState
from gpucluster.slurm.values import SlurmNode
from gpucluster.text import short

_OWNERS: Mapping[DrainOwner, str] = {
    DrainOwner.CAPACITY: "the daemon, because there is no capacity",
    DrainOwner.EVACUATION: "the daemon, because its instance is being evacuated",
    DrainOwner.HEALTH: "its health program, because a check failed",
    DrainOwner.BUNDLE: "the daemon, for a new bundle: `gpucluster bundle show -c {cluster}` lists what it waits for",
    DrainOwner.TERMINATION: "the daemon, because its old instance cannot be terminated",
    DrainOwner.OPERATOR: "the daemon, by an operator's order: `gpucluster node release {node} -c {cluster}` removes it",
}
_PROGRAM_FAILED = (
    "a program of the {program} failed or reached its time limit: on the node, "
    "journalctl -t gpucluster-health-{log}; slurmd's log has `{log}`"
)
_STEP_STAYS = "a process of a job did not end at SIGKILL: it waits for a device or a file system; the kernel log of the node names it"
_UNKNOWN = (
    "if nobody of the site wrote the reason, report it with the version of Slurm; "
    "scontrol update nodename={node} state=resume returns the node"
)
_REMEDIES: Mapping[str, str] = {  # by the first words of Slurm's own reason
    "Prolog error": _PROGRAM_FAILED.format(program="Prolog", log="prolog"),
    "Epilog error": _PROGRAM_FAILED.format(program="Epilog", log="epilog"),
    "Kill task failed": _STEP_STAYS,
    "SlurmdSpoolDir is full": "the disk of /var/spool/slurmd is full on the node",
}

_ORDERED = re.compile(
    re.escape(ordered_drains.reason("WORDS", "NAME"))
    .replace("WORDS", "(?P<words>.+)")
    .replace("NAME", "(?P<name>.+?)")
    + rf"(?P<appended>{APPENDED}.+)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a reason says, and by whom. `ordered`: by `gpucluster node drain`, whose reasons the daemon sends."""

    words: str
    by: str
    ordered: bool


def told(node: SlurmNode) -> Told:
    """Read the words and the person from the reason of a node."""
    sent = node.drained and node.drain_owner is DrainOwner.PERSON and node.reason_by == SLURM_USER
    if sent and (found := _ORDERED.fullmatch(node.reason)):
        return Told(words=f"{found['words']}{found['appended'] or ''}", by=found["name"], ordered=True)
    return Told(words=node.reason, by=node.reason_by or "unknown", ordered=False)


def lift(world: World, reason: Told, node: str) -> str:
    """Return the command with which the person ends the drain."""
    if reason.ordered and world.plan.aws is not None:
        return f"gpucluster node undrain {node} -c {world.plan.name}"
    return f"scontrol update nodename={node} state=resume"


def lines(world: World, name: str) -> Iterator[Line]:
    """Return the lines of the reason; none if it is older than the present state."""
    node = world.node(name)
    if not node.reason or not (node.drained or NodeState.DOWN in node.states):
        return
    ours, reason = node.drain_owner.is_daemon, told(node)
    words = node.reason.removeprefix(REASON_PREFIX).strip() if ours else reason.words
    yield Line(part=Part.REASON, at=node.reason_at or None, words=f"{words} (by {_whose(world, node)})")
    order = world.memory.drain_orders.get(name)
    if reason.ordered:
        if order is None or order.verb is not Verb.NODE_UNDRAIN:
            yield Line(part=Part.REMEDY, words=f"{lift(world, reason, name)} returns the node")
    elif not ours:
        yield from _unknown(node)
    if len(event := replacements.same_event(world, name)) > 1:
        words = f"Slurm drained {len(event)} nodes for this in the same minute ({short(hostlist.fold(event), 120)}): one event, such as the end of one job"
        yield Line(part=Part.STATE, words=words)
    if node.drained_by_slurm:
        words = next((text for start, text in _REMEDIES.items() if node.reason.startswith(start)), "")
        if words:
            yield Line(part=Part.REMEDY, words=words)


def _whose(world: World, node: SlurmNode) -> str:
    owner = node.drain_owner
    if world.plan.aws is None and owner in (DrainOwner.SLURM, DrainOwner.HEALTH):
        writer = "Slurm itself" if owner is DrainOwner.SLURM else "its health program"
        return f"{writer}: nobody replaces an existing host"
    if owner.is_daemon:
        return _OWNERS[owner].format(node=node.name, cluster=world.plan.name)
    if owner is DrainOwner.SLURM:
        return "Slurm itself"
    reason = told(node)
    return reason.by if reason.ordered else f"{reason.by}: {lift(world, reason, node.name)}"


def _unknown(node: SlurmNode) -> Iterator[Line]:
    """Return what is not known of a reason that gpucluster or Slurm's daemons may have written."""
    person = node.drain_owner is DrainOwner.PERSON and NodeState.FAIL not in node.states
    if person and node.reason.startswith(REASON_PREFIX):
        yield Line(part=Part.STATE, words=f"{_not_ours(node)}: it counts as a person's")
        return
    if not drains.may_be_slurms(node.reason_by):
        return
    table = table_of(node.version)
    if person:
        read = table.find_read(node.reason.partition(APPENDED)[0])
        known = (
            "gpucluster does not know this reason"
            if read is None
            else f"Slurm's source has this reason ({read.sender}, {read.function}), and no recorded run has it"
        )
        yield Line(part=Part.STATE, words=f"{known}: it counts as a person's")
        yield Line(part=Part.REMEDY, words=_UNKNOWN.format(node=node.name))
    if table.version != node.version and node.version:
        used = f"those of {table.version} are used" if table.version else "none is known"
        yield Line(part=Part.STATE, words=f"the reasons of Slurm {node.version} are not recorded: {used}")


def _not_ours(node: SlurmNode) -> str:
    if drains.is_forged(node.reason, node.reason_by):
        return f"{node.reason_by or 'an unknown user'} wrote this, not gpucluster"
    return "another version of gpucluster may have written this"
