"""Drain this node with our reason, unless the pool has too many nodes that are drained for their health already.

Nodes do not know of each other, and each may find a fault at the same time. A node drains itself first, counts then, and
removes its drain if the pool has more than its limit. slurmctld orders the drains, so the last node of too many always sees
them all: no more than the limit stay. Two nodes at once may both step back; the next check of each tries again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from gpucluster.agent.health.programs import Argv
from gpucluster.checks.check import QueryOutput
from gpucluster.checks.node_health import HealthSettings
from gpucluster.slurm import drains
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.parse import SlurmAnswerError, parse_nodes
from gpucluster.slurm.values import SlurmNode
from gpucluster.text import ascii_line, short

LONGEST_REASON = 160
Scontrol = Callable[[Argv], QueryOutput]


class Outcome(StrEnum):
    """What became of an unhealthy node."""

    DRAINED = "drained"
    DRAINED_ALREADY = "drained-already"  # by anybody: the reason stays
    LIMIT = "limit"  # the pool has its most drained nodes: the node goes on
    NO_ANSWER = "no-answer"  # slurmctld does not answer, or refuses: the node goes on


@dataclass(frozen=True, slots=True)
class Drained:
    """The outcome, and the nodes of the pool that others drained for their health."""

    outcome: Outcome
    others: int = 0


def drain(settings: HealthSettings, node: str, words: str, scontrol: Scontrol) -> Drained:
    """Drain `node` for `words`, within the limit of its pool."""
    before = _nodes(settings, scontrol)
    mine = next((one for one in before if one.name == node), None)
    if mine is None:
        return Drained(Outcome.NO_ANSWER)
    if mine.drained:
        return Drained(Outcome.DRAINED_ALREADY)
    others = _others(settings, node, before)
    if others >= settings.limit:
        return Drained(Outcome.LIMIT, others)
    reason = drains.reason(DrainOwner.HEALTH, ascii_line(short(words), LONGEST_REASON))
    if _update(scontrol, node, "state=drain", f"reason={reason}"):
        return Drained(Outcome.NO_ANSWER)
    return _confirmed(settings, node, scontrol)


def _confirmed(settings: HealthSettings, node: str, scontrol: Scontrol) -> Drained:
    """Count again after the drain, and remove it if the pool has too many, or if the pool cannot be read."""
    after = _nodes(settings, scontrol)
    others = _others(settings, node, after)
    if after and others < settings.limit:
        return Drained(Outcome.DRAINED, others)
    _update(scontrol, node, "state=undrain")
    return Drained(Outcome.LIMIT if after else Outcome.NO_ANSWER, others)


def comment(node: str, words: str, scontrol: Scontrol) -> bool:
    """Set the node's Comment, which people and the daemon read; empty words remove it. Return whether it is set."""
    text = drains.reason(DrainOwner.HEALTH, ascii_line(short(words), LONGEST_REASON)) if words else ""
    return not _update(scontrol, node, f"comment={text}")


def _others(settings: HealthSettings, node: str, nodes: Iterable[SlurmNode]) -> int:
    """Return how many other nodes of the pool are drained for their health, also those that are off."""
    return sum(
        1 for one in nodes if one.name != node and one.drained and one.drain_owner is DrainOwner.HEALTH
    )


def show(settings: HealthSettings) -> Argv:
    """The command that lists the nodes of the pool."""
    return ("scontrol", "--future", "show", "nodes", settings.nodes, "--json")


def _nodes(settings: HealthSettings, scontrol: Scontrol) -> tuple[SlurmNode, ...]:
    try:
        return parse_nodes(scontrol(show(settings)).text())
    except (SlurmAnswerError, ValueError):
        return ()


def _update(scontrol: Scontrol, node: str, *words: str) -> int:
    return scontrol(("scontrol", "update", f"nodename={node}", *words)).code
