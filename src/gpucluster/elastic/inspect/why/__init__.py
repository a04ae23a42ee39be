"""`why JOB|NODE`: one screen of plain text, from the journal and from the present state of Slurm and the cloud.

Pure. A sentence that the daemon writes into Slurm (a node's reason, a job's admin comment) is built here by the same
function. If Slurm itself is the cause, the screen names its reason and a remedy.
"""

from collections.abc import Iterable, Iterator

from gpucluster.elastic.abilities import Dependency
from gpucluster.elastic.decide.offers import Headroom, all_offers
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Entry
from gpucluster.elastic.inspect import losses
from gpucluster.elastic.inspect.daemon_view import ACTING, UNKNOWN, DaemonView
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot, after_facts, would_do
from gpucluster.elastic.inspect.why import allocated, pending, repeated
from gpucluster.elastic.inspect.why.case import Case, unread_remedy
from gpucluster.elastic.inspect.why.causes import Cause, CauseFinder, Offers
from gpucluster.elastic.inspect.why.history import Past, past
from gpucluster.elastic.inspect.why.nodes import of_node
from gpucluster.elastic.inspect.why.screen import Line, Part, Screen, screen, text
from gpucluster.slurm import hostlist
from gpucluster.slurm.states import JOB_ENDED, JobState
from gpucluster.slurm.values import SlurmJob
from gpucluster.text import utc_minute

__all__ = ["Cause", "Line", "Part", "Screen", "text", "why"]


def why(snapshot: ClusterSnapshot, subject: str, daemon: DaemonView | None = None) -> Screen:
    """Return the screen of a job (its number) or of a node (its name). `daemon`: this machine's; None: only whether it acts is known."""
    daemon = daemon or (ACTING if snapshot.daemon else UNKNOWN)
    actions = would_do(snapshot)
    known = after_facts(snapshot, actions)
    world = known.world
    if world is None:
        named = f"{'job' if subject.isdecimal() else 'node'} {subject}"
        blind = snapshot.unanswered
        words = f"has no known state: {blind} does not answer"
        lost = _lost(known) if daemon.acts else ()
        return screen(named, Cause.UNSEEN, words, (*lost, *_silent_controller(snapshot), *_of_daemon(daemon)))
    headroom, offers = Headroom(world), all_offers(world)
    if subject.isdecimal():
        number, pruned = int(subject), snapshot.pruned_before
        shown = of_job(
            world,
            headroom,
            offers,
            number,
            snapshot.entries,
            daemon=daemon.acts or bool(daemon.holder),
            pruned_before=pruned,
        )
    else:
        shown = of_node(world, headroom, offers, subject, entries=snapshot.entries, actions=actions)
    if shown.known:
        again = repeated.lines(world, subject)
        shown = screen(shown.subject, shown.cause, shown.headline, (*shown.lines, *again), shown.actions)
    return permitted(known, world, shown) if daemon.acts else without_daemon(world, shown, daemon)


def permitted(snapshot: ClusterSnapshot, world: World, shown: Screen) -> Screen:
    """Return the screen without the next steps that the daemon may not do now, and with what prevents them."""
    if not shown.known or not world.lost:
        return shown
    kept = (line for line in shown.lines if line.needs is None or world.may(line.needs))
    return screen(shown.subject, shown.cause, shown.headline, (*_lost(snapshot), *kept), shown.actions)


def _lost(snapshot: ClusterSnapshot) -> Iterator[Line]:
    """Return what the daemon cannot use now, and what to do about the control object."""
    yield from (Line(part=Part.STATE, words=words) for words in losses.of(snapshot))
    if {Dependency.CONTROL, Dependency.LEASE} & snapshot.lost.keys():
        yield unread_remedy(snapshot.plan)


def _silent_controller(snapshot: ClusterSnapshot) -> Iterator[Line]:
    """Return what the agent's watchdog knows of a slurmctld that runs and does not answer."""
    since = snapshot.controller.silent_since
    if since is not None and snapshot.observation.slurm is None:
        yield Line(part=Part.STATE, at=since, words="slurmctld runs, but does not answer")
        yield Line(
            part=Part.NEXT, words="the head's agent restarts it after some minutes; running jobs continue"
        )


OVER = JOB_ENDED | {JobState.COMPLETING}


def without_daemon(world: World, shown: Screen, daemon: DaemonView) -> Screen:
    """Return the screen without the steps that the daemon of this machine would do next, and with what to do."""
    if not shown.known or shown.cause is Cause.FINISHED:
        return shown
    other = "" if world.plan.head.standby is None else "; on the other head it may run"
    lines = (line for line in shown.lines if line.part is not Part.NEXT)
    return screen(shown.subject, shown.cause, shown.headline, (*_of_daemon(daemon, other), *lines))


def _of_daemon(daemon: DaemonView, other: str = "") -> Iterator[Line]:
    """Return what a daemon that does not act is, what it does not do, and a remedy. `other`: what may hold elsewhere."""
    if not daemon.acts:
        effect = "" if daemon.holder else f": it launches, drains and terminates nothing{other}"
        yield Line(part=Part.STATE, words=f"{daemon.state}{effect}")
        if daemon.then:
            yield Line(part=Part.NEXT, words=daemon.then)
        yield Line(part=Part.REMEDY, words=daemon.remedy)


def of_job(
    world: World,
    headroom: Headroom,
    offers: Offers,
    number: int,
    entries: Iterable[Entry],
    *,
    daemon: bool = True,
    pruned_before: float | None = None,
) -> Screen:
    """Return the screen of a job by its number. `pruned_before`: see JournalRecord."""
    known = past(number, entries)
    job = next((j for j in world.slurm.jobs if j.id == number), None)
    if job is None or (job.states & OVER and not job.pending):  # a requeued job is PENDING and COMPLETING
        return _over(number, job, known, world.plan.name, pruned_before)
    if job.running:
        return allocated.running(
            Case(world, headroom, offers, job, known, allocated.running_cause(world, job))
        )
    if job.configuring:
        return allocated.starting(
            Case(world, headroom, offers, job, known, allocated.starting_cause(world, job, daemon=daemon))
        )
    if not job.pending:
        return _aside(job)
    return pending.pending(
        Case(world, headroom, offers, job, known, CauseFinder(world, headroom, offers).cause_of(job))
    )


def _over(
    number: int, job: SlurmJob | None, known: Past, cluster: str, pruned_before: float | None
) -> Screen:
    """Return the screen of a job that has ended. It names `timeline` only if the journal has events of the job."""
    subject = f"job {number}"
    events = f"; `gpucluster timeline {number} -c {cluster}` shows its events" if known.placed_at else ""
    more = Line(
        part=Part.REMEDY,
        words=f"scontrol show job {number} shows how it ended, while slurmctld still lists it{events}",
    )
    if job is None and not known.placed_at:
        return screen(
            subject,
            Cause.UNKNOWN,
            "is not known: Slurm does not list it, and the journal"
            + ("" if pruned_before is None else f", which begins at {utc_minute(pruned_before)},")
            + " has no node of this cluster for it",
            (
                Line(
                    part=Part.REMEDY,
                    words="squeue lists the present jobs; slurmctld drops a finished job after some minutes",
                ),
            ),
        )
    if job is not None and JobState.FAILED in job.states and not (job.nodes or known.placed_at):
        words = f"never had a node: Slurm refused it ({', '.join([*sorted(job.states), job.reason])})"
        return screen(subject, Cause.FINISHED, words, (more,))
    how = f" ({', '.join(sorted(job.states))}{_exit(job)})" if job else ""
    return screen(subject, Cause.FINISHED, f"has ended{how}", (*_journeys(known), more))


def _exit(job: SlurmJob) -> str:
    """Return how the batch script ended, if it did not end with 0."""
    if job.exit_signal:
        return f", signal {job.exit_signal}"
    return f", exit code {job.exit_code}" if job.exit_code else ""


def _aside(job: SlurmJob) -> Screen:
    """Return the screen of a job in another state: suspended, revoked, or a state of a later Slurm."""
    named = ", ".join(sorted(job.states)) or "of no state"
    where = f" on {hostlist.fold(job.nodes)}" if job.nodes else ""
    do = (
        f"scontrol resume {job.id}"
        if JobState.SUSPENDED in job.states
        else f"scontrol show job {job.id}; man squeue"
    )
    return screen(
        f"job {job.id}",
        Cause.SLURM,
        f"is {named}{where}: the daemon has no part in that state",
        (Line(part=Part.REMEDY, words=do),),
    )


def _journeys(known: Past) -> Iterator[Line]:
    if known.submitted_at:
        yield Line(part=Part.REQUEST, at=known.submitted_at, words="submitted")
    if known.placed_at:
        yield Line(part=Part.DONE, at=known.placed_at, words=f"Slurm gave it {hostlist.fold(known.slots)}")
    if known.running_at:
        yield Line(part=Part.DONE, at=known.running_at, words="it began to run")
    if known.left_at:
        yield Line(part=Part.DONE, at=known.left_at, words="it released its nodes")
