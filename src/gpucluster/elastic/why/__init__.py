"""`why JOB|NODE`: one screen in plain words from what the daemon remembers and what Slurm and the cloud show now.

Pure. Where the daemon writes a sentence into Slurm (a node's reason, a job's admin comment), the screen is made by the
same functions; where Slurm itself is the cause, it says that with the remedy.
"""

from gpucluster.elastic.decide.offers import Room, all_offers
from gpucluster.elastic.sight import Sight
from gpucluster.elastic.why.causes import Cause
from gpucluster.elastic.why.jobs import of_job
from gpucluster.elastic.why.nodes import of_node
from gpucluster.elastic.why.screen import Line, Part, Screen, screen, text

__all__ = ["Cause", "Line", "Part", "Screen", "text", "why"]


def why(sight: Sight, subject: str) -> Screen:
    """The screen of a job (its number) or of a node (its name)."""
    world = sight.world
    if world is None:
        named = f"{'job' if subject.isdecimal() else 'node'} {subject}"
        blind = "slurmctld" if sight.seen.slurm is None else "the cloud"
        words = f"cannot be told of: {blind} does not answer, and nothing is concluded from that"
        return screen(named, Cause.UNSEEN, words)
    room, offers = Room(world), all_offers(world)
    if subject.isdecimal():
        return of_job(world, room, offers, int(subject), sight.entries)
    return of_node(world, room, offers, subject, sight.entries)
