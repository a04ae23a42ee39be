"""`why JOB`: pending, starting, running or over."""

from collections.abc import Iterable, Iterator

from gpucluster.elastic import words
from gpucluster.elastic.decide.offers import Room
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Entry
from gpucluster.elastic.model import SlurmJob
from gpucluster.elastic.why import pending, running, starting
from gpucluster.elastic.why.case import Case
from gpucluster.elastic.why.causes import Cause, Judge, Offers
from gpucluster.elastic.why.past import Past, past
from gpucluster.elastic.why.screen import Line, Part, Screen, screen

OVER = frozenset(
    [
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "COMPLETING",
    ]
)


def of_job(world: World, room: Room, offers: Offers, number: int, entries: Iterable[Entry]) -> Screen:
    """The screen of a job by its number."""
    known = past(number, entries)
    job = next((j for j in world.slurm.jobs if j.id == number), None)
    if job is None or job.states & OVER:
        return _over(number, job, known)
    if job.running:
        return running.running(Case(world, room, offers, job, known, running.cause_of(world, job)))
    if job.configuring:
        return starting.starting(Case(world, room, offers, job, known, starting.cause_of(world, job)))
    if not job.pending:
        return _aside(job)
    return pending.pending(Case(world, room, offers, job, known, Judge(world, room, offers).waits_for(job)))


def _over(number: int, job: SlurmJob | None, known: Past) -> Screen:
    subject = f"job {number}"
    more = Line(
        part=Part.DO,
        words=f"scontrol show job {number} has its end while slurmctld still knows it; `gpucluster timeline {number}` its story here",
    )
    if job is None and not known.placed_at:
        return screen(
            subject,
            Cause.UNKNOWN,
            "is not known: Slurm does not list it, and it never had a node of ours",
            (
                Line(
                    part=Part.DO,
                    words="squeue lists the jobs that are there; one that is over slurmctld forgets in minutes",
                ),
            ),
        )
    how = f" ({', '.join(sorted(job.states))})" if job else ""
    return screen(subject, Cause.FINISHED, f"is over{how}: nothing waits", (*_journeys(known), more))


def _aside(job: SlurmJob) -> Screen:
    """Neither pending nor running nor over: suspended, revoked, or what a later Slurm has."""
    named = ", ".join(sorted(job.states)) or "of no state"
    where = f" on {words.fold(job.nodes)}" if job.nodes else ""
    do = (
        f"scontrol resume {job.id}"
        if "SUSPENDED" in job.states
        else f"scontrol show job {job.id}; man squeue"
    )
    return screen(
        f"job {job.id}",
        Cause.SLURM,
        f"is {named}{where}: that is Slurm's own affair",
        (Line(part=Part.DO, words=do),),
    )


def _journeys(known: Past) -> Iterator[Line]:
    if known.submitted_at:
        yield Line(part=Part.ASKED, at=known.submitted_at, words="submitted")
    if known.placed_at:
        yield Line(part=Part.DONE, at=known.placed_at, words=f"Slurm gave it {words.fold(known.slots)}")
    if known.running_at:
        yield Line(part=Part.DONE, at=known.running_at, words="it began to run")
    if known.left_at:
        yield Line(part=Part.DONE, at=known.left_at, words="it left its nodes")
