"""A job that has its nodes and waits for their machines."""

from collections.abc import Iterable, Iterator

from gpucluster.elastic import words
from gpucluster.elastic.decide import boots
from gpucluster.elastic.decide.pace import LAUNCHES, Pace
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.memory import Launch, Life
from gpucluster.elastic.model import Phase, SlurmJob
from gpucluster.elastic.why import money
from gpucluster.elastic.why.case import Case, answered, asked, most, our_words
from gpucluster.elastic.why.causes import Cause
from gpucluster.elastic.why.screen import Line, Part, Screen, screen


def cause_of(world: World, job: SlurmJob) -> Cause:
    """Whether machines boot, or are not there yet."""
    mine = [s for s in job.nodes if s in world.slots and world.phases.get(s) is Phase.WANTED]
    lives = [life for s in mine if (life := world.life(s)) is not None]
    lacking = [life for life in lives if life.instance is None]
    if not lacking:
        return Cause.BOOTING
    if any(life.request for life in lacking):
        launches = _launches(world, lacking)
        return Cause.PACED if any(x.retry_at > world.now for x in launches) else Cause.LAUNCHING
    return Cause.PACED if _wait_s(world, len(lacking)) else Cause.LAUNCHING


def starting(case: Case) -> Screen:
    """Its screen."""
    world, job = case.world, case.job
    waiting = [s for s in job.nodes if world.phases.get(s) is Phase.WANTED]
    up = len(job.nodes) - len(waiting)
    heads = {
        Cause.BOOTING: f"starts: {up} of {len(job.nodes)} nodes are up, {len(waiting)} boot",
        Cause.LAUNCHING: f"starts: Slurm gave it {words.fold(job.nodes)}, and the cloud is asked for machines",
        Cause.PACED: f"starts: Slurm gave it {words.fold(job.nodes)}, and the cloud's API takes calls only so fast",
    }
    comment = our_words(job.admin_comment)
    stuck = (
        case.cause is Cause.LAUNCHING and not job.returns
    )  # it keeps its nodes, and its zone alone is tried
    told = (Line(part=Part.STANDS, words=comment),) if stuck and comment else ()
    lines = (
        *asked(case),
        *_requested(case),
        *answered(case),
        *told,
        *_boots(case, waiting),
        *_starting_next(case, waiting),
        *money.lines(world),
    )
    return screen(case.subject, case.cause, heads[case.cause], lines)


def _requested(case: Case) -> Iterator[Line]:
    if case.past.placed_at:
        yield Line(
            part=Part.DONE, at=case.past.placed_at, words=f"Slurm gave it {words.fold(case.job.nodes)}"
        )
    for sent in case.past.requests[-3:]:
        ask = sent.ask
        again = f"; {sent.deferred}, so the identical call is repeated" if sent.deferred else ""
        yield Line(
            part=Part.DONE,
            at=sent.at,
            words=f"{ask.request}: {len(ask.slots)} x {ask.market.value} {ask.machine} in {ask.zone}{again}",
        )


def _boots(case: Case, waiting: list[str]) -> Iterator[Line]:
    found = [
        Line(part=Part.STANDS, at=life.launched_at, words=f"{slot}: {boot_words(case.world, slot, life)}")
        for slot in waiting
        if (life := case.world.life(slot)) is not None and life.instance is not None
    ]
    yield from most(found, Part.STANDS)


def _wait_s(world: World, count: int) -> float:
    """How long until the API takes a call for so many machines, by the daemon's own model of its buckets."""
    return max(
        world.memory.paced_until - world.now, Pace(world.memory, world.now).wait_s(LAUNCHES, count), 0.0
    )


def _launches(world: World, lives: Iterable[Life]) -> list[Launch]:
    """Their requests without an outcome."""
    asked = {life.request for life in lives if life.request}
    return [launch for request, launch in world.memory.launches.items() if request in asked]


def boot_words(world: World, slot: str, life: Life) -> str:
    """A booting machine in words: its instance, and the last that it said."""
    what = f"{life.instance} ({life.market.value} {life.machine}) was launched"
    if life.failed:
        return f"{what}, and its boot failed: {life.failed}"
    heard = world.reports.get(life.instance or "")
    if heard is not None:
        return f"{what}; its last word: {boots.last_word(heard.report)}"
    return (
        f"{what}; {'it runs' if life.booted_at else 'the cloud starts it'}, and its agent has not called yet"
    )


def _starting_next(case: Case, waiting: list[str]) -> Iterator[Line]:
    world = case.world
    if case.cause is Cause.PACED:
        lives = [life for slot in waiting if (life := world.life(slot)) is not None]
        retries = [launch.retry_at for launch in _launches(world, lives)]
        lacking = sum(1 for life in lives if life.instance is None and not life.request)
        at = max([world.now + (_wait_s(world, lacking) if lacking else 0.0), *retries])
        yield Line(
            part=Part.NEXT,
            at=at,
            words="the next call; a throttle says nothing about capacity, and no zone is given up for it",
        )
        return
    if case.cause is Cause.LAUNCHING:
        yield Line(
            part=Part.NEXT,
            words="within seconds the cloud answers: machines boot, or the next offer is asked",
        )
    limits = [
        (max(life.launched_at, life.since) + world.slots[s].pool.boot_timeout_s, s)
        for s in waiting
        if (life := world.life(s)) is not None
        and life.instance is not None
        and not life.failed
        and s in world.slots
    ]
    if limits:
        at, slot = min(limits)
        yield Line(
            part=Part.NEXT,
            at=at,
            words=f"{slot} is given up if it is not up by then, and replaced while Slurm waits",
        )
