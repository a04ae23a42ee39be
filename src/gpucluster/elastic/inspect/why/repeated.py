"""`why`: the acts on a node or a job that the daemon decides pass after pass, and what prevents them."""

from collections.abc import Iterator, Mapping

from gpucluster.elastic.decide.world import World
from gpucluster.elastic.inspect.why.screen import Line, Part
from gpucluster.elastic.model import Repeat
from gpucluster.text import short

DOES: Mapping[str, str] = {  # the action's class
    "Block": "drains it: it has no capacity",
    "Undrain": "removes its drain",
    "Drain": "drains it",
    "MarkDown": "sets it DOWN",
    "PowerDown": "powers it down",
    "PowerUp": "powers it up",
    "ResetDown": "resumes it",
    "Terminate": "terminates its instance",
    "LaunchGang": "launches an instance for it",
    "Signal": "signals its jobs",
    "Requeue": "requeues its jobs",
}
NO_EFFECT = "nothing shows that it has happened"


def lines(world: World, subject: str) -> Iterator[Line]:
    """Return one line for each such act on the node or its instance, or on the job and its nodes."""
    wanted = _targets(world, subject)
    for one in world.observation.repeats:
        if one.target in wanted:
            yield _line(one, wanted[one.target])


def _targets(world: World, subject: str) -> Mapping[str, str]:
    """Return the targets, each with the node that its line names."""
    if subject.isdecimal():
        nodes = next((job.nodes for job in world.slurm.jobs if job.id == int(subject)), ())
        return {subject: "", **{node: node for node in nodes}}
    incarnation = world.incarnation(subject)
    instance = incarnation.instance if incarnation is not None else None
    return {subject: ""} if instance is None else {subject: "", instance: ""}


def _line(one: Repeat, node: str) -> Line:
    named = f"{node}: " if node else ""
    prevents = short(one.error, 200) or NO_EFFECT
    words = f"{named}since then the daemon {DOES[one.act]} in each pass ({one.times} until now): {prevents}"
    return Line(part=Part.STATE, at=one.since, words=words)
