"""`why JOB` of a job that has nodes: it waits for instances, or it runs, perhaps on an interrupted instance."""

from collections.abc import Iterable, Iterator

from gpucluster.elastic.abilities import Ability
from gpucluster.elastic.decide import jobs, limits, terminations
from gpucluster.elastic.decide.api_rate import LAUNCHES, Pace
from gpucluster.elastic.decide.evacuation import (
    NO_PLACEMENT,
    EvacuationContext,
    EvacuationRow,
    comes_back,
    components,
    evacuation_of,
    is_held_up,
    rule_of,
    untold_at,
)
from gpucluster.elastic.decide.interruptions import interruption_reason
from gpucluster.elastic.decide.placement import pools_of_job
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import InterruptionKind
from gpucluster.elastic.inspect import silent
from gpucluster.elastic.inspect.daemon_view import IDLE
from gpucluster.elastic.inspect.why.case import (
    Case,
    answered,
    asked,
    halted_lines,
    most,
    our_words,
    spend_lines,
)
from gpucluster.elastic.inspect.why.causes import Cause
from gpucluster.elastic.inspect.why.screen import Line, Part, Screen, screen
from gpucluster.elastic.memory import Incarnation, Interruption, Launch
from gpucluster.plan.names import REASON_PREFIX
from gpucluster.slurm import hostlist
from gpucluster.slurm.states import SlurmPhase
from gpucluster.slurm.values import SlurmJob
from gpucluster.text import rounded_duration


def starting_cause(world: World, job: SlurmJob, *, daemon: bool = True) -> Cause:
    """Return whether its instances boot, or do not exist yet. `daemon`: whether the daemon answers."""
    mine = [s for s in job.nodes if s in world.slots and world.phases.get(s) is SlurmPhase.POWERING_UP]
    incarnations = [incarnation for s in mine if (incarnation := world.incarnation(s)) is not None]
    lacking = [incarnation for incarnation in incarnations if incarnation.instance is None]
    if not lacking:
        return Cause.BOOTING
    if not daemon:
        return Cause.NO_DAEMON
    launches = _launches(world, lacking)
    if world.halted and not any(
        launch.retry_at == 0.0 for launch in launches
    ):  # else EC2 has not answered yet
        return Cause.HALTED
    if launches:
        limited = any(x.retry_at > world.now for x in launches)
    else:
        limited = bool(_wait_s(world, len(lacking)))
    return Cause.RATE_LIMITED if limited and world.may(Ability.LAUNCH) else Cause.LAUNCHING


def starting(case: Case) -> Screen:
    """Return the screen of a starting job."""
    world, job = case.world, case.job
    waiting = [s for s in job.nodes if world.phases.get(s) is SlurmPhase.POWERING_UP]
    up = len(job.nodes) - len(waiting)
    heads = {
        Cause.BOOTING: f"starts: {up} of {len(job.nodes)} nodes are up, {len(waiting)} boot",
        Cause.LAUNCHING: f"starts: Slurm gave it {hostlist.fold(job.nodes)}, and {_launch_words(case)}",
        Cause.NO_DAEMON: f"starts: Slurm gave it {hostlist.fold(job.nodes)}, and nothing is launched: {IDLE}",
        Cause.HALTED: f"starts: Slurm gave it {hostlist.fold(job.nodes)}, and nothing is launched: {world.halted}",
        Cause.RATE_LIMITED: f"starts: Slurm gave it {hostlist.fold(job.nodes)}, and the launch waits for the cloud's API rate limit",
    }
    comment = our_words(job.admin_comment)
    stuck = (
        case.cause is Cause.LAUNCHING and not job.requeues_on_failure
    )  # it keeps its nodes, so only their zone is tried
    comment_lines = (Line(part=Part.STATE, words=comment),) if stuck and comment else ()
    lines = (
        *asked(case),
        *_requested(case),
        *answered(case),
        *comment_lines,
        *_boots(case, waiting),
        *silent.of_job(world, job),
        *_starting_next(case, waiting),
        *spend_lines(world),
    )
    return screen(case.subject, case.cause, heads[case.cause], lines)


def _is_requested(case: Case) -> bool:
    incarnations = (case.world.incarnation(slot) for slot in case.job.nodes)
    return any(one is not None and one.request for one in incarnations)


def _launch_words(case: Case) -> str:
    return "a launch is requested" if _is_requested(case) else "no launch for it is under way"


def _requested(case: Case) -> Iterator[Line]:
    if case.past.placed_at:
        yield Line(
            part=Part.DONE, at=case.past.placed_at, words=f"Slurm gave it {hostlist.fold(case.job.nodes)}"
        )
    for sent in case.past.requests[-3:]:
        ask = sent.ask
        again = f"; {sent.deferred}, so the identical call is repeated" if sent.deferred else ""
        yield Line(
            part=Part.DONE,
            at=sent.at,
            words=f"{ask.id}: {len(ask.slots)} x {ask.spec.market.value} {ask.spec.machine} in {ask.spec.zone}{again}",
        )


def _boots(case: Case, waiting: list[str]) -> Iterator[Line]:
    found = [
        Line(
            part=Part.STATE,
            at=incarnation.launched_at,
            words=f"{slot}: {boot_words(case.world, slot, incarnation)}",
        )
        for slot in waiting
        if (incarnation := case.world.incarnation(slot)) is not None and incarnation.instance is not None
    ]
    yield from most(found, Part.STATE)


def _wait_s(world: World, count: int) -> float:
    """Return the seconds until the API accepts a call for so many instances, by our model of its buckets."""
    return max(
        world.memory.paced_until - world.now, Pace(world.memory, world.now).wait_s(LAUNCHES, count), 0.0
    )


def _launches(world: World, incarnations: Iterable[Incarnation]) -> list[Launch]:
    """Return their requests without an outcome."""
    asked = {incarnation.request for incarnation in incarnations if incarnation.request}
    return [launch for request, launch in world.memory.launches.items() if request in asked]


def boot_words(world: World, slot: str, incarnation: Incarnation) -> str:
    """Describe a booting instance: its id and its last report."""
    what = f"{incarnation.instance} ({incarnation.market.value} {incarnation.machine}) was launched"
    if incarnation.failed:
        return f"{what}, and its boot failed: {incarnation.failed}"
    received = world.reports.get(incarnation.instance or "")
    if received is not None:
        return f"{what}; its last report: {terminations.last_word(received.report)}"
    return f"{what}; {'it is running' if incarnation.booted_at else 'it is pending'}, and its agent has not reported yet"


def _starting_next(case: Case, waiting: list[str]) -> Iterator[Line]:
    world = case.world
    if case.cause is Cause.RATE_LIMITED:
        incarnations = [
            incarnation for slot in waiting if (incarnation := world.incarnation(slot)) is not None
        ]
        retries = [launch.retry_at for launch in _launches(world, incarnations)]
        lacking = sum(
            1 for incarnation in incarnations if incarnation.instance is None and not incarnation.request
        )
        at = max([world.now + (_wait_s(world, lacking) if lacking else 0.0), *retries])
        yield Line(
            part=Part.NEXT,
            needs=Ability.LAUNCH,
            at=at,
            words="the daemon repeats the call; a rate limit does not close the zone",
        )
        return
    if case.cause is Cause.HALTED:
        yield from halted_lines(case)
    if case.cause is Cause.LAUNCHING:
        yield Line(
            part=Part.NEXT,
            needs=Ability.LAUNCH,
            words="EC2 answers within seconds: then instances boot, or the daemon tries the next offer"
            if _is_requested(case)
            else "the daemon launches as soon as an offer of the zone is not refused",
        )
    ends = [
        (terminations.boot_limit(world, s, incarnation), s)
        for s in waiting
        if (incarnation := world.incarnation(s)) is not None
        and incarnation.instance is not None
        and not incarnation.failed
        and s in world.slots
    ]
    if ends:
        limit, slot = min(ends, key=lambda one: (one[0].at, one[1]))
        then = "is queued again" if case.job.requeues_on_failure else "fails"
        words = f"the instance of {slot} is {terminated(world, slot)} if {limit.missing} by then"
        if limit.last:
            words = f"{slot} is set DOWN if {limit.missing} by then, and the job {then}"
        yield Line(part=Part.NEXT, needs=Ability.UPDATE, at=limit.at, words=words)


def terminated(world: World, slot: str) -> str:
    """Return what becomes of an instance that does not boot: in a pool that may launch, another one takes its place."""
    stop = world.halted or limits.stop_of(world, world.slots[slot].pool.name)
    return "terminated" if stop else "replaced"


def running_cause(world: World, job: SlurmJob) -> Cause:
    """Return whether the instance is healthy."""
    if str(job.id) in world.memory.stalled:
        return Cause.STALLED
    return Cause.EVACUATING if any(_interruption(world, s) for s in _nodes(world, job)) else Cause.RUNNING


def _nodes(world: World, job: SlurmJob) -> Iterator[str]:
    """Yield the nodes whose loss ends the run: those of all components of a het job, which are signalled and requeued together."""
    for part in components(world, job.het_id) if job.het_id else (job,):
        yield from part.nodes


def _interruption(world: World, slot: str) -> bool:
    incarnation = world.incarnation(slot)
    return (
        incarnation is not None
        and incarnation.interruption is not None
        and incarnation.interruption.kind is not InterruptionKind.REBALANCE
    )


def running(case: Case) -> Screen:
    """Return the screen of a running job."""
    job, world = case.job, case.world
    where = hostlist.fold(job.nodes) if job.nodes else "no node"
    since = Line(part=Part.DONE, at=job.started_at or case.past.running_at or None, words=f"runs on {where}")
    lines = (
        *asked(case),
        since,
        *silent.of_job(world, job),
        *_interruptions(case),
        *_half_started(case),
        *_heartbeat(case),
        *_limit(case),
        *spend_lines(world),
    )
    heads = {
        Cause.RUNNING: _running(case),
        Cause.EVACUATING: f"runs, but one of its instances is being evacuated: {_first_trouble(case)}",
        Cause.STALLED: f"runs, but makes no progress: {_heartbeat_words(world, job)}"
        if case.cause is Cause.STALLED
        else "",
    }
    return screen(case.subject, case.cause, heads[case.cause], lines)


def _first_trouble(case: Case) -> str:
    for slot in _nodes(case.world, case.job):
        incarnation = case.world.incarnation(slot)
        if incarnation is not None and incarnation.interruption is not None:
            return f"{slot}: {evacuation_words(incarnation.interruption)}"
    return ""


def _interruptions(case: Case) -> Iterator[Line]:
    for slot in _nodes(case.world, case.job):
        incarnation = case.world.incarnation(slot)
        if incarnation is not None and incarnation.interruption is not None and slot in case.world.slots:
            yield from job_evacuation(case.world, slot, incarnation.interruption, case.job)


_PROLOG = "Prolog"
_NO_PROLOG = "a node has not reported the end of its Prolog, so the script has not begun"


def _running(case: Case) -> str:
    if case.job.reason == _PROLOG:
        return f"is RUNNING, but has no batch step: {_NO_PROLOG}"
    half = jobs.half_started(case.world, case.job)
    return f"is RUNNING, but has only half started: {half.words}" if half is not None else "runs"


def _half_started(case: Case) -> Iterator[Line]:
    """The next step for a job whose start was lost, for example in a storm of reconfigures."""
    job, world = case.job, case.world
    half = jobs.half_started(world, job)
    if half is None:
        if job.reason == _PROLOG and any(node in world.slots for node in job.nodes):
            due = job.started_at + world.plan.times.prolog_s
            words = "it is requeued" if jobs.requeues_without_prolog(world, job) else "it gets a comment"
            yield Line(
                part=Part.NEXT,
                needs=Ability.UPDATE,
                at=due,
                words=f"{words}, if the Prolog has not ended by then",
            )
        return
    if half.requeues(world, job):
        yield Line(part=Part.NEXT, needs=Ability.UPDATE, words="it is requeued now")
    else:
        words = f"scancel {job.id}, and submit it again; journalctl -u slurmd on {hostlist.fold(job.nodes)} has its start"
        yield Line(part=Part.REMEDY, words=words)


def _heartbeat_words(world: World, job: SlurmJob) -> str:
    """Return the sentence as the job's comment has it."""
    return jobs.stalled_reason(world.memory.stalled[str(job.id)]).removeprefix(REASON_PREFIX).strip()


def _heartbeat(case: Case) -> Iterator[Line]:
    hanging = case.world.memory.stalled.get(str(case.job.id))
    if hanging is None:
        return
    yield Line(part=Part.REASON, at=hanging.since, words="its last heartbeat")
    if jobs.requeues_stalled(case.world, case.job):
        yield Line(
            part=Part.NEXT,
            needs=Ability.UPDATE,
            words="it is requeued, because the spec sets `job_heartbeat.requeue`",
        )
    else:
        yield Line(
            part=Part.REMEDY,
            words=f"inspect it: srun --jobid={case.job.id} --overlap --pty bash; or scontrol requeue {case.job.id}",
        )


def _limit(case: Case) -> Iterator[Line]:
    job = case.job
    if job.started_at and job.time_limit_s:
        yield Line(
            part=Part.NEXT,
            at=job.started_at + job.time_limit_s,
            words=f"its time limit of {rounded_duration(job.time_limit_s)} is over",
        )


def evacuation_words(interruption: Interruption) -> str:
    """Return the sentence as the node's reason and the job's comment have it."""
    return interruption_reason(interruption).removeprefix(REASON_PREFIX).strip()


def node_evacuation(
    world: World, slot: str, incarnation: Incarnation, interruption: Interruption
) -> Iterator[Line]:
    """Return the finished and the coming steps, for the node's screen."""
    rule, evacuation = _rule(world, slot, interruption)
    yield _interruption_line(interruption, "")
    if interruption.signalled:
        yield Line(
            part=Part.DONE,
            at=interruption.signalled_at,
            words=f"job {_list(interruption.signalled)} was signalled",
        )
    if interruption.sent_back:
        yield Line(part=Part.DONE, words=f"job {_list(interruption.sent_back)} was requeued")
    if world.phases.get(slot) not in (
        SlurmPhase.UP,
        SlurmPhase.NOT_RESPONDING,
        SlurmPhase.POWER_DOWN_PENDING,
    ):
        return  # the job has left the node
    if not rule.ends_idle or is_held_up(world, slot):
        return  # the hourly limit or a person keeps it; its row has the next step
    if not rule.drains:
        yield Line(
            part=Part.NEXT,
            needs=Ability.UPDATE,
            words="its jobs continue; when it is idle it is powered down",
        )
    elif (at := rule.power_down_at(evacuation)) is not None:
        yield Line(
            part=Part.NEXT,
            needs=Ability.UPDATE,
            at=at,
            words="it is powered down, even if jobs still run on it; earlier if it is idle",
        )
    else:
        yield Line(part=Part.NEXT, needs=Ability.UPDATE, words="it is powered down when its jobs have ended")


def job_evacuation(world: World, slot: str, interruption: Interruption, job: SlurmJob) -> Iterator[Line]:
    """Return the same steps for the screen of one of its jobs."""
    rule, evacuation = _rule(world, slot, interruption)
    done = world.memory.jobs.get(str(job.het_id or job.id), NO_PLACEMENT)
    termination = evacuation.termination
    yield _interruption_line(interruption, f"{slot}: ")
    if not job.batch:
        words = f"it has no batch script (srun, salloc): no {termination.signal} reaches it"
        yield Line(part=Part.STATE, words=words)
    elif done.signalled:
        words = f"its batch script was signalled with {termination.signal}, to write a checkpoint"
        yield Line(part=Part.DONE, at=done.signalled_at or interruption.signalled_at, words=words)
    if job.batch and (at := untold_at(rule, evacuation, done)) is not None:
        yield Line(
            part=Part.NEXT,
            needs=Ability.EVACUATE,
            at=at,
            words=f"its batch script is signalled with {termination.signal}",
        )
    if (at := rule.requeue_at(evacuation)) is not None and not done.sent_back:
        held = jobs.is_held_for(world, job, interruption)
        words = jobs.HELD_REASON if held else f"it is requeued, and {_after_requeue(world, job)}"
        if not job.requeues_on_failure:
            words = "it cannot be requeued (srun, salloc or --no-requeue): it runs until its instance ends"
        if not job.requeues_on_failure or comes_back(world, job):  # else its time limit is over before
            yield Line(part=Part.NEXT, needs=Ability.EVACUATE, at=at, words=words)
    if (at := rule.power_down_at(evacuation)) is not None and not is_held_up(world, slot):
        yield Line(
            part=Part.NEXT,
            needs=Ability.UPDATE,
            at=at,
            words=f"{slot} is powered down, even if jobs still run on it",
        )


def _after_requeue(world: World, job: SlurmJob) -> str:
    """Return what becomes of the job in the queue: while all of its pools may launch nothing, no promise."""
    stops = [world.halted or limits.stop_of(world, pool) for pool in sorted(pools_of_job(world, job))]
    return (
        f"nothing is launched for it: {stops[0]}" if all(stops) and stops else "starts again on other nodes"
    )


def _interruption_line(interruption: Interruption, who: str) -> Line:
    source = f" (from the {interruption.source})" if interruption.source in ("node", "queue", "cloud") else ""
    return Line(part=Part.REASON, at=interruption.since, words=f"{who}{interruption.words}{source}")


def _rule(world: World, slot: str, interruption: Interruption) -> tuple[EvacuationRow, EvacuationContext]:
    return rule_of(world, slot, interruption), evacuation_of(world, slot, interruption)


def _list(jobs: tuple[int, ...]) -> str:
    return ", ".join(map(str, jobs))
