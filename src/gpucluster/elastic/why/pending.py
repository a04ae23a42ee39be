"""A job that waits: for Slurm, for the cloud, or for people."""

from collections.abc import Callable, Iterator

from gpucluster.elastic import words
from gpucluster.elastic.decide import blocked, restarts
from gpucluster.elastic.decide.offers import closed, refusal_of, why_none
from gpucluster.elastic.decide.world import HAS
from gpucluster.elastic.model import Phase
from gpucluster.elastic.why import money
from gpucluster.elastic.why.case import Case, answered, asked, most, names_of, offers_of, our_words, slots_of
from gpucluster.elastic.why.causes import Cause, drained_by_others, pools
from gpucluster.elastic.why.reasons import reason_of
from gpucluster.elastic.why.screen import Line, Part, Screen, screen


def pending(case: Case) -> Screen:
    """Its screen."""
    lines = (*asked(case), *answered(case), *_pending_next(case), *money.lines(case.world))
    return screen(case.subject, case.cause, f"waits: {_headline(case)}", lines)


def _headline(case: Case) -> str:
    """Our own sentence is the one that stands on the nodes; Slurm's is its row's."""
    job, world = case.job, case.world
    mine = pools(world, job)
    match case.cause:
        case Cause.TOO_LARGE:
            most = max(len(span) for pool in mine for span in pool.slots)
            return f"it asks for {job.node_count} nodes, and no zone of {names_of(mine)} has more than {most}"
        case Cause.DRAINED:
            held = tuple(s for pool in mine for s in drained_by_others(world, pool))
            return f"{words.fold(held)} {'is' if len(held) == 1 else 'are'} kept back by people or by Slurm, and the rest is too few"
        case Cause.REQUEUED:
            return f"Slurm lets a requeued job begin only after {world.plan.times.cred_expire_s + 1} s"
        case Cause.SCHEDULING:
            return "nothing stands against it: Slurm places it at its next cycle"
        case cause if cause in _OURS:
            return sentence(case)
        case cause:
            ours = cause is Cause.HELD and restarts.held(world, job)
            return restarts.HELD if ours else reason_of(job.reason).words


_OURS = frozenset(
    {
        *(Cause.REFUSED, Cause.QUOTA, Cause.MAX, Cause.BUDGET, Cause.BREAKER),
        *(Cause.PAUSED, Cause.HALTED, Cause.NO_BOOT),
    }
)


def sentence(case: Case) -> str:
    """What `blocked` writes into the job's admin comment and on the nodes: made by the same function."""
    said = [
        why_none(
            case.world,
            case.room,
            pool,
            span.zone,
            case.offers[(pool.name, span.zone)],
            count=case.job.node_count,
        )
        for pool in pools(case.world, case.job)
        for span in pool.slots
    ]
    return "; ".join(dict.fromkeys(said))


def _pending_next(case: Case) -> Iterator[Line]:
    """What happens next and when, and what a person can do."""
    steps: dict[Cause, Callable[[Case], Iterator[Line]]] = {
        Cause.REFUSED: _refusals_run_out,
        Cause.QUOTA: _refusals_run_out,
        Cause.NO_BOOT: _refusals_run_out,
        Cause.MAX: _max,
        Cause.BUDGET: _budget,
        Cause.BREAKER: _breaker,
        Cause.PAUSED: _paused,
        Cause.HALTED: _halted,
        Cause.PRIORITY: _ahead,
        Cause.RESOURCES: _busy,
        Cause.DRAINED: _drained,
        Cause.REQUEUED: _begins,
        Cause.BEGIN: _begins,
        Cause.TOO_LARGE: _too_large,
        Cause.SCHEDULING: _scheduling,
    }
    step = steps.get(case.cause)
    if step is not None:
        yield from step(case)
    remedy = reason_of(case.job.reason).remedy
    if remedy and case.cause not in (
        *_OURS,
        Cause.TOO_LARGE,
        Cause.REQUEUED,
        Cause.DRAINED,
        Cause.SCHEDULING,
    ):
        yield Line(part=Part.DO, words=remedy.replace("JOB", str(case.job.id)))


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
            words=f"the refusal of {some.words} in {some.zone} runs out: one gang may try it, and the others wait for its answer",
        )
    if case.cause is Cause.QUOTA:
        yield Line(
            part=Part.DO,
            words="raise the quota or mend what the answer names; it is tried again by itself",
        )
    elif case.cause is Cause.NO_BOOT:
        yield Line(
            part=Part.DO, words="mend what the node's last step names; the machine's console has the rest"
        )
    else:
        yield Line(
            part=Part.DO,
            words="nothing is needed; another zone, machine or source in the spec's `capacity` would help",
        )


def _max(case: Case) -> Iterator[Line]:
    world = case.world
    for pool in pools(world, case.job):
        alive = [s for s in slots_of(pool) if world.fate(s) in HAS]
        yield Line(part=Part.STANDS, words=f"{len(alive)} machines of {pool.name} live, max is {pool.max}")
    yield Line(part=Part.NEXT, words="it starts when nodes fall free, or when idle ones are let go")
    yield Line(part=Part.DO, words="raise `max` in the spec, and apply it")


def _budget(case: Case) -> Iterator[Line]:
    yield from money.stopped(case.world)


def _breaker(case: Case) -> Iterator[Line]:
    for pool in pools(case.world, case.job):
        tripped = case.world.memory.breakers.get(pool.name)
        if tripped is not None:
            yield Line(
                part=Part.NEXT, at=tripped.until, words=f"the breaker of {pool.name} closes: one gang may try"
            )
            yield Line(
                part=Part.DO,
                words=f"mend what the last step names; `gpucluster pool resume {pool.name}` closes it at once",
            )


def _paused(case: Case) -> Iterator[Line]:
    for pool in pools(case.world, case.job):
        order = case.world.memory.orders.get(pool.name)
        if order is not None:
            because = f": {order.words}" if order.words else ""
            yield Line(
                part=Part.ANSWERED,
                at=order.at,
                words=f"{order.by} gave the order {order.verb.value}{because}",
            )
            yield Line(part=Part.DO, words=f"gpucluster pool resume {pool.name}")


def _halted(case: Case) -> Iterator[Line]:
    yield Line(part=Part.NEXT, words="nothing is launched before that is over; what runs goes on")
    yield Line(part=Part.DO, words="after `gpucluster down` broke off, `pulumi up` lets it scale again")


def _ahead(case: Case) -> Iterator[Line]:
    job = case.job
    rivals = [
        j for j in blocked.waiting(case.world)
        if j.id != job.id and set(j.partitions) & set(job.partitions) and (-j.priority, j.id) < (-job.priority, job.id)
    ]  # fmt: skip
    if rivals:
        named = ", ".join(str(j.id) for j in rivals[:5]) + (
            f" and {len(rivals) - 5} more" if len(rivals) > 5 else ""
        )
        yield Line(
            part=Part.STANDS,
            words=f"ahead of it: {'job' if len(rivals) == 1 else 'jobs'} {named}; its priority is {job.priority}",
        )
    yield Line(part=Part.NEXT, words="Slurm places it when those have started or left")


def _busy(case: Case) -> Iterator[Line]:
    world = case.world
    for pool in pools(world, case.job):
        for part in pool.slots:
            here = [s for s in part if s in world.slurm.nodes]
            busy = sum(
                1 for s in here if world.phases[s] in (Phase.UP, Phase.WANTED) and not world.node(s).idle
            )
            ending = sum(1 for s in here if world.phases[s] in (Phase.ENDING, Phase.LEAVING))
            shut = sum(1 for s in here if world.node(s).drained)
            yield Line(
                part=Part.STANDS,
                words=f"{pool.name}{f' in {part.zone}' if part.zone else ''}: {busy} of {len(here)} busy, {ending} on their way off, {shut} drained",
            )


def _drained(case: Case) -> Iterator[Line]:
    found = [
        Line(
            part=Part.ANSWERED,
            at=node.reason_at or None,
            words=f"{slot}, by {node.reason_by or 'unknown'}: {node.reason or 'no reason given'}",
        )
        for pool in pools(case.world, case.job)
        for slot in drained_by_others(case.world, pool)
        for node in (case.world.node(slot),)
    ]
    yield from most(found, Part.ANSWERED)
    yield Line(
        part=Part.DO, words="whoever drained them lifts it: scontrol update nodename=NODE state=resume"
    )


def _begins(case: Case) -> Iterator[Line]:
    if case.job.begins_at:
        yield Line(part=Part.NEXT, at=case.job.begins_at, words="it may begin")
    if case.cause is Cause.REQUEUED:
        if comment := our_words(case.job.admin_comment):
            yield Line(part=Part.STANDS, words=f"told when it was sent back: {comment}")
        yield Line(part=Part.NEXT, words="then Slurm places it anew, where there is room")


def _too_large(case: Case) -> Iterator[Line]:
    yield Line(part=Part.NEXT, words="it waits for ever: a gang stays in one zone, within `max`")
    yield Line(
        part=Part.DO, words=f"scancel {case.job.id} and ask for fewer nodes; or raise `max` in the spec"
    )


def _scheduling(case: Case) -> Iterator[Line]:
    yield Line(
        part=Part.NEXT,
        words="within a minute: Slurm looks at each submission, at each end of a job, and each 60 s or less",
    )
