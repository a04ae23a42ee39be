"""`why NODE` on existing hosts: no daemon acts there, so the screen says what Slurm says, and what a person can do."""

from collections.abc import Callable, Iterator

from gpucluster.elastic.decide.world import World
from gpucluster.elastic.inspect import silent
from gpucluster.elastic.inspect.why import drain_lines
from gpucluster.elastic.inspect.why.causes import Cause
from gpucluster.elastic.inspect.why.screen import Line, Part, Screen, screen
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import NodeState
from gpucluster.slurm.values import SlurmNode

_Rows = tuple[tuple[Callable[[SlurmNode], bool], str], ...]


def _drained_by(owner: DrainOwner) -> Callable[[SlurmNode], bool]:
    return lambda node: node.drained and node.drain_owner is owner


_HEADLINES: _Rows = (  # the first row that matches
    (_drained_by(DrainOwner.SLURM), "Slurm drained it, and it stays drained: nobody replaces an existing host"),
    (_drained_by(DrainOwner.HEALTH), "a health check failed, and it stays drained: nobody replaces an existing host"),
    (_drained_by(DrainOwner.BUNDLE), "a new bundle removes or changes it, so it takes no new jobs"),
    (lambda node: node.drained, "drained by a person; only a person can resume it"),
    (lambda node: NodeState.DOWN in node.states, "Slurm set it DOWN, or a person did"),
    (lambda node: NodeState.NOT_RESPONDING in node.states, "it does not respond"),
    (lambda node: not node.idle, "a job uses it"),
    (lambda _: True, "up, and ready for a job"),
)  # fmt: skip


def of_host(world: World, name: str, jobs: Iterator[Line]) -> Screen:
    """Return the screen of an existing host; `jobs` are the lines of its jobs."""
    node = world.node(name)
    headline = next(words for matches, words in _HEADLINES if matches(node))
    return screen(
        f"node {name}", Cause.NODE, headline, (*_state(world, node), *silent.of_node(world, name), *drain_lines.lines(world, name), *jobs, *_remedy(node))
    )  # fmt: skip


def _state(world: World, node: SlurmNode) -> Iterator[Line]:
    pool = world.slots[node.name].pool.name
    yield Line(part=Part.STATE, words=f"pool {pool}; state in Slurm: {'+'.join(sorted(node.states))}")


def _remedy(node: SlurmNode) -> Iterator[Line]:
    if node.drained and node.drain_owner in (DrainOwner.SLURM, DrainOwner.HEALTH):
        words = f"mend what the reason names; then scontrol update nodename={node.name} state=resume"
        yield Line(part=Part.REMEDY, words=words)
