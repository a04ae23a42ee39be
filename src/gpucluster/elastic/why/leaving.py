"""What a machine that is to be left still has before it, by the daemon's own table of troubles."""

from collections.abc import Iterator

from gpucluster.elastic.decide import restarts
from gpucluster.elastic.decide.leaving import RULES, Moment, Rule, moment_of, sentence
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.memory import Life, Trouble
from gpucluster.elastic.model import Phase, SlurmJob
from gpucluster.elastic.why.screen import Line, Part
from gpucluster.plan.names import REASON_PREFIX


def words_of(trouble: Trouble) -> str:
    """As it stands in the node's reason and in the job's comment."""
    return sentence(trouble).removeprefix(REASON_PREFIX).strip()


def of_node(world: World, slot: str, life: Life, trouble: Trouble) -> Iterator[Line]:
    """What was done and what comes, as the node sees it."""
    rule, moment = _rule(world, slot, trouble)
    yield _told(trouble, "")
    if trouble.signalled:
        yield Line(
            part=Part.DONE, at=trouble.signalled_at, words=f"job {_list(trouble.signalled)} was signalled"
        )
    if trouble.sent_back:
        yield Line(part=Part.DONE, words=f"job {_list(trouble.sent_back)} was requeued")
    if world.phases.get(slot) not in (Phase.UP, Phase.SILENT, Phase.LEAVING):
        return  # it has left
    if not rule.drains:
        yield Line(part=Part.NEXT, words="it works on; while it idles it is let go, and another comes")
    elif (at := rule.takes(moment)) is not None:
        yield Line(
            part=Part.NEXT,
            at=at,
            words="it leaves, with whatever still runs there; before that as soon as it is empty",
        )
    else:
        yield Line(part=Part.NEXT, words="it leaves as soon as its jobs have ended")


def of_job(world: World, slot: str, trouble: Trouble, job: SlurmJob) -> Iterator[Line]:
    """The same as one of its jobs sees it."""
    rule, moment = _rule(world, slot, trouble)
    done = world.memory.jobs.get(str(job.id))
    farewell = moment.farewell
    yield _told(trouble, f"{slot}: ")
    if not job.batch:
        words = f"it has no batch script (srun, salloc): no {farewell.signal} reaches it"
        yield Line(part=Part.STANDS, words=words)
    elif done is not None and done.signalled:
        words = f"its batch script was signalled with {farewell.signal}, to write a checkpoint"
        yield Line(part=Part.DONE, at=trouble.signalled_at, words=words)
    elif (at := rule.signals(moment)) is not None:
        yield Line(part=Part.NEXT, at=at, words=f"its batch script is signalled with {farewell.signal}")
    if (at := rule.requeues(moment)) is not None and not (done is not None and done.sent_back):
        held = restarts.holds(world, job, trouble)
        goes_on = restarts.HELD if held else "it is requeued, and starts anew on other nodes"
        stays = "it cannot be requeued (srun, salloc or --no-requeue): it goes on as long as its machine does"
        yield Line(part=Part.NEXT, at=at, words=goes_on if job.returns else stays)
    if (at := rule.takes(moment)) is not None:
        yield Line(part=Part.NEXT, at=at, words=f"{slot} leaves, with whatever still runs there")


def _told(trouble: Trouble, who: str) -> Line:
    source = f" (told by the {trouble.source})" if trouble.source in ("node", "queue", "cloud") else ""
    return Line(part=Part.ANSWERED, at=trouble.since, words=f"{who}{trouble.words}{source}")


def _rule(world: World, slot: str, trouble: Trouble) -> tuple[Rule, Moment]:
    return RULES[trouble.kind], moment_of(world, slot, trouble)


def _list(jobs: tuple[int, ...]) -> str:
    return ", ".join(map(str, jobs))
