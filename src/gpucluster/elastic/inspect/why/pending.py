"""`why JOB` of a job that waits: for Slurm, for the cloud, or for people."""

from collections import Counter
from collections.abc import Callable, Iterator

from gpucluster.elastic.abilities import Ability
from gpucluster.elastic.decide import jobs, placement
from gpucluster.elastic.decide.bundle_drains import words_for_jobs
from gpucluster.elastic.decide.node_table import IDLE, NodeTable, row_for
from gpucluster.elastic.decide.offers import closed, refusal_of, why_none
from gpucluster.elastic.decide.sizes import REMEDY, Sizes
from gpucluster.elastic.decide.world import HAS_INSTANCE, World
from gpucluster.elastic.inspect.why import drain_lines, reserved
from gpucluster.elastic.inspect.why.case import (
    Case,
    answered,
    asked,
    budget_lines,
    halted_lines,
    most,
    offers_of,
    our_words,
    refused_end_lines,
    spend_lines,
)
from gpucluster.elastic.inspect.why.causes import (
    Cause,
    begins_late,
    drained_by_others,
    idle_now,
    pools,
    reservation_against,
    reservation_of_idle,
)
from gpucluster.elastic.inspect.why.reasons import Kind, reason_of
from gpucluster.elastic.inspect.why.screen import Line, Part, Screen, screen
from gpucluster.plan.messages import HeldBundle
from gpucluster.slurm import hostlist, reservations
from gpucluster.slurm.states import SlurmPhase
from gpucluster.slurm.values import SlurmReservation
from gpucluster.text import rounded_duration


def pending(case: Case) -> Screen:
    """Return the screen of a pending job."""
    held = (slot for pool in pools(case.world, case.job) for slot in pool.node_names)
    lines = (
        *asked(case),
        *(() if case.cause in _WITHOUT_NODES else answered(case)),
        *refused_end_lines(case.world, held),
        *reserved.of_job(case),
        *_pending_next(case),
        *spend_lines(case.world),
    )
    return screen(case.subject, case.cause, f"waits: {_headline(case)}", lines)


# Slurm does not look for nodes yet, so what the cloud refused is no reason
_WITHOUT_NODES = frozenset({Cause.DEPENDENCY, Cause.BEGIN, Cause.HELD, Cause.LIMIT})


def _headline(case: Case) -> str:
    """Return the headline: the sentence that the daemon also writes to the nodes, or the text for Slurm's reason."""
    job, world = case.job, case.world
    mine = pools(world, job)
    match case.cause:
        case Cause.TOO_LARGE:
            return Sizes(world).never_starts(job)
        case Cause.DRAINED:
            drained = tuple(s for pool in mine for s in drained_by_others(world, pool))
            return f"{hostlist.fold(drained)} {'is' if len(drained) == 1 else 'are'} drained or down, not by the daemon, and the other nodes are too few"
        case Cause.REQUEUED:
            return f"Slurm starts a requeued job only after {world.plan.times.cred_expire_s + 1} s"
        case Cause.SCHEDULING:
            return "nothing blocks it: Slurm places it in its next scheduling cycle"
        case cause if cause in _OURS:
            return sentence(case)
        case _:
            return _words_of_slurm(case)


def _words_of_slurm(case: Case) -> str:
    """Return Slurm's reason in words, with what the daemon knows about it."""
    job, world = case.job, case.world
    if case.cause is Cause.BEGIN and begins_late(world, job):
        later = rounded_duration(job.begins_at - world.now)
        return (
            f"it was requeued and begins in {later}. Slurm itself waits {world.plan.times.cred_expire_s + 1} s: "
            "its clock was ahead at the requeue, or a person set the time"
        )
    if case.cause is Cause.RESERVATION and (against := _against(case)) is not None:
        return f"because of {reservations.words(against)}"
    if case.cause is Cause.HELD and jobs.is_held(world, job):
        return jobs.HELD_REASON
    held = _held_words(case) if case.cause is Cause.RESOURCES else None
    return held or reason_of(job.reason).words


def _held_words(case: Case) -> str | None:
    """Return why no node is busy and still none takes the job: the daemon drained them. None: another cause."""
    world = case.world
    known = [slot for pool in pools(world, case.job) for slot in pool.node_names if slot in world.slurm.nodes]
    if not known or any(_is_busy(world, slot) for slot in known):
        return None
    reasons = Counter(
        our_words(world.node(s).reason)
        for s in known
        if world.node(s).drained and world.node(s).drain_owner.is_daemon
    )
    if not reasons:
        return None
    return f"the daemon drained the nodes that it can use: {reasons.most_common(1)[0][0]}"


def _is_busy(world: World, slot: str) -> bool:
    up = world.phases[slot] in (SlurmPhase.UP, SlurmPhase.POWERING_UP)
    return up and not world.node(slot).idle


_OURS = frozenset(
    {
        *(Cause.REFUSED, Cause.QUOTA, Cause.MAX, Cause.BUDGET, Cause.BREAKER),
        *(Cause.PAUSED, Cause.HALTED, Cause.NO_BOOT, Cause.REMOVED),
    }
)


def sentence(case: Case) -> str:
    """Return the sentence that the daemon writes to the job and the nodes, built by the same function."""
    if case.cause is Cause.REMOVED:
        return words_for_jobs(case.world.observation.held or HeldBundle())
    reasons = [
        why_none(
            case.world,
            case.headroom,
            pool,
            span.zone,
            case.offers[(pool.name, span.zone)],
            count=case.job.node_count,
        )
        for pool in pools(case.world, case.job)
        for span in pool.slots
    ]
    return "; ".join(dict.fromkeys(reasons))


def _pending_next(case: Case) -> Iterator[Line]:
    """Return the next steps with their times, and what a person can do."""
    steps: dict[Cause, Callable[[Case], Iterator[Line]]] = {
        Cause.REFUSED: _refusals_run_out,
        Cause.QUOTA: _refusals_run_out,
        Cause.NO_BOOT: _refusals_run_out,
        Cause.MAX: _max,
        Cause.BUDGET: _budget,
        Cause.BREAKER: _breaker,
        Cause.PAUSED: _paused,
        Cause.HALTED: halted_lines,
        Cause.PRIORITY: _ahead,
        Cause.RESOURCES: _busy,
        Cause.REMOVED: _removed,
        Cause.DRAINED: _drained,
        Cause.REQUEUED: _begins,
        Cause.BEGIN: _begins,
        Cause.TOO_LARGE: _too_large,
        Cause.SCHEDULING: _scheduling,
        Cause.RESERVATION: _reservation,
    }
    step = steps.get(case.cause)
    if step is not None:
        yield from step(case)
    reason = reason_of(case.job.reason)
    if case.cause is Cause.RESERVATION and reason.kind is not Kind.RESERVATION:
        return  # Slurm's reason is of busy nodes, so its remedy does not fit
    remedy = reason.remedy
    if remedy and case.cause not in (
        *_OURS,
        Cause.TOO_LARGE,
        Cause.REQUEUED,
        Cause.DRAINED,
        Cause.SCHEDULING,
    ):
        yield Line(part=Part.REMEDY, words=remedy.replace("JOB", str(case.job.id)))


def _refusals_run_out(case: Case) -> Iterator[Line]:
    world = case.world
    standing = [
        (refusal.until, some)
        for some in offers_of(case)
        if (refusal := refusal_of(world.memory, some)) is not None
        and closed(world.memory, some, world.now)
        and not refusal.for_this_run
    ]
    if standing:
        at, some = min(standing, key=lambda pair: pair[0])
        yield Line(
            part=Part.NEXT,
            at=at,
            needs=Ability.LAUNCH,
            words=f"the refusal of {some.words} in {some.spec.zone} expires: the daemon tests the offer with one gang, and the other gangs wait for the result",
        )
    if case.cause is Cause.QUOTA:
        yield Line(
            part=Part.REMEDY,
            words="raise the quota, or correct the setting that the refusal names; the daemon then tries again by itself",
        )
    elif case.cause is Cause.NO_BOOT:
        yield Line(
            part=Part.REMEDY,
            words="repair the cause that the last boot step reports; the instance's console log has the details",
        )
    else:
        yield Line(
            part=Part.REMEDY,
            words="no action is required; another zone, machine type or source in the spec's `capacity` would help",
        )


def _max(case: Case) -> Iterator[Line]:
    world = case.world
    for pool in pools(world, case.job):
        alive = [s for s in pool.node_names if world.instance_status(s) in HAS_INSTANCE]
        yield Line(part=Part.STATE, words=f"{len(alive)} instances of {pool.name} exist, max is {pool.max}")
    yield Line(
        part=Part.NEXT,
        needs=Ability.UPDATE,
        words="it starts when nodes become free or idle nodes are powered down",
    )
    yield Line(part=Part.REMEDY, words="raise `max` in the spec and apply it")


def _budget(case: Case) -> Iterator[Line]:
    yield from budget_lines(case.world)


def _breaker(case: Case) -> Iterator[Line]:
    for pool in pools(case.world, case.job):
        tripped = case.world.memory.breakers.get(pool.name)
        if tripped is not None:
            yield Line(
                part=Part.NEXT,
                at=tripped.until,
                needs=Ability.LAUNCH,
                words=f"the breaker of {pool.name} permits one gang as a test",
            )
            yield Line(
                part=Part.REMEDY,
                words=f"repair the cause that the last boot step reports; `gpucluster pool resume {pool.name} -c {case.world.plan.name}` closes the breaker at once",
            )


def _paused(case: Case) -> Iterator[Line]:
    for pool in pools(case.world, case.job):
        order = case.world.memory.orders.get(pool.name)
        if order is not None:
            because = f": {order.words}" if order.words else ""
            yield Line(
                part=Part.REASON,
                at=order.at,
                words=f"{order.by} ordered {order.verb.value}{because}",
            )
            yield Line(
                part=Part.REMEDY, words=f"gpucluster pool resume {pool.name} -c {case.world.plan.name}"
            )


def _ahead(case: Case) -> Iterator[Line]:
    job = case.job
    rivals = [
        j for j in placement.waiting(case.world)
        if j.id != job.id and set(j.partitions) & set(job.partitions) and (-j.priority, j.id) < (-job.priority, job.id)
    ]  # fmt: skip
    if rivals:
        named = ", ".join(str(j.id) for j in rivals[:5]) + (
            f" and {len(rivals) - 5} more" if len(rivals) > 5 else ""
        )
        yield Line(
            part=Part.STATE,
            words=f"ahead of it: {'job' if len(rivals) == 1 else 'jobs'} {named}; its priority is {job.priority}",
        )
    yield Line(part=Part.NEXT, words="Slurm places it after these jobs have started or ended")


def _busy(case: Case) -> Iterator[Line]:
    world = case.world
    for pool in pools(world, case.job):
        for part in pool.slots:
            here = [s for s in part if s in world.slurm.nodes]
            busy = sum(1 for s in here if _is_busy(world, s))
            ending = sum(
                1
                for s in here
                if world.phases[s] in (SlurmPhase.POWERING_DOWN, SlurmPhase.POWER_DOWN_PENDING)
            )
            shut = [s for s in here if world.node(s).drained]
            ours = sum(1 for s in shut if world.node(s).drain_owner.is_daemon)
            yield Line(
                part=Part.STATE,
                words=f"{pool.name}{f' in {part.zone}' if part.zone else ''}: {busy} of {len(here)} busy, {ending} powering down, {len(shut)} drained{f', {ours} of them by the daemon' if ours else ''}",
            )


def _removed(case: Case) -> Iterator[Line]:
    held = case.world.observation.held
    if held is not None and held.waits_for:
        yield Line(part=Part.STATE, words=held.waits_for)
    yield Line(
        part=Part.REMEDY,
        words=f"move it to a partition that stays: scontrol update jobid={case.job.id} partition=NAME; or withdraw the removal",
    )


def _drained(case: Case) -> Iterator[Line]:
    world, found, steps = case.world, list[Line](), set[str]()
    for slot in (s for pool in pools(world, case.job) for s in drained_by_others(world, pool)):
        node = world.node(slot)
        reason = drain_lines.told(node)
        words = f"{slot}, by {reason.by}: {reason.words or 'no reason given'}"
        found.append(Line(part=Part.REASON, at=node.reason_at or None, words=words))
        steps.add(drain_lines.lift(world, reason, "NODE"))
    yield from most(found, Part.REASON)
    yield Line(part=Part.REMEDY, words=f"the person who drained them can run: {', or '.join(sorted(steps))}")


def _begins(case: Case) -> Iterator[Line]:
    if case.job.begins_at:
        yield Line(part=Part.NEXT, at=case.job.begins_at, words="its begin time")
    if case.cause is Cause.REQUEUED:
        if comment := our_words(case.job.admin_comment):
            yield Line(part=Part.STATE, words=f"comment at the requeue: {comment}")
        else:
            words = "Slurm requeued it: a job of a higher QOS or tier preempted it, a node failed, or a person did it"
            yield Line(part=Part.STATE, words=words)
            step = f"with accounting, the ends of its runs: sacct --duplicates -j {case.job.id} -o jobid,state,start,end"
            yield Line(part=Part.REMEDY, words=step)
        yield Line(part=Part.NEXT, words="then Slurm places it on any free nodes")


def _reservation(case: Case) -> Iterator[Line]:
    world, job = case.world, case.job
    own = next((one for one in world.slurm.reservations if one.name == job.reservation), None)
    if own is not None:
        yield Line(part=Part.STATE, words=reservations.words(own))
        return
    against = _against(case)
    if against is None:
        return
    yield from _idle_ends(case, against)
    yield Line(part=Part.NEXT, at=against.ends_at, words="the reservation ends")
    if against.starts_at > world.now:
        words = f"with a shorter time limit it ends before the reservation begins: scontrol update jobid={job.id} timelimit=TIME"
        yield Line(part=Part.REMEDY, words=words)


def _against(case: Case) -> SlurmReservation | None:
    return reservation_against(case.world, case.job) or reservation_of_idle(case.world, case.job)


def _idle_ends(case: Case, against: SlurmReservation) -> Iterator[Line]:
    """Return when idle nodes of the reservation are powered down. In a pool with `max` instances, others can be launched then."""
    world, table = case.world, NodeTable(case.world)
    full = (pool for pool in pools(world, case.job) if pool.sources and not case.headroom.of_pool(pool.name))
    held = [s for pool in full for s in pool.node_names if s in against.nodes and s in world.slurm.nodes]
    idle = [table.context(s) for s in held if idle_now(world, s)]
    ends = [context for context in idle if row_for(context) is IDLE]
    if ends:
        names = hostlist.fold(context.slot for context in ends)
        words = f"the daemon has powered down {names} if none of the reservation's jobs comes, and can launch other nodes"
        yield Line(part=Part.NEXT, at=max(context.idle_until for context in ends), words=words)


def _too_large(case: Case) -> Iterator[Line]:
    words = "all nodes of a job must be in one zone and within `max`"
    if case.job.het_id:
        words += "; the components of a het job start together and share no node"
    yield Line(part=Part.STATE, words=words)
    whole = case.job.het_id or case.job.id
    yield Line(part=Part.REMEDY, words=f"scancel {whole}, and {REMEDY}")


def _scheduling(case: Case) -> Iterator[Line]:
    yield Line(
        part=Part.NEXT,
        words="Slurm starts it within a minute: it schedules at each submission, at each end of a job and at least every 60 s",
    )
