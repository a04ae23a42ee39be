"""What every job's screen is made from, and lines that more than one kind of screen has."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.elastic.decide.offers import Offer, Room, refusal_of
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.model import SlurmJob
from gpucluster.elastic.why.causes import Cause, Offers, pools
from gpucluster.elastic.why.past import Past, by_offer, meaning
from gpucluster.elastic.why.screen import Line, Part
from gpucluster.plan.model import Pool
from gpucluster.plan.names import REASON_PREFIX

MOST = 8  # lines of one kind; the rest is counted


@dataclass(frozen=True, slots=True)
class Case:
    """All that a job's screen is made from."""

    world: World
    room: Room
    offers: Offers
    job: SlurmJob
    past: Past
    cause: Cause

    @property
    def subject(self) -> str:
        return f"job {self.job.id}"


def asked(case: Case) -> Iterator[Line]:
    job = case.job
    many = f"{job.node_count} node{'s' if job.node_count != 1 else ''}"
    mine = names_of(pools(case.world, job)) or "no pool of ours"
    yield Line(
        part=Part.ASKED,
        at=case.past.submitted_at or job.submitted_at or None,  # Slurm's own begins anew with each requeue
        words=f"{many} of {mine} (partition {', '.join(job.partitions) or 'unknown'})",
    )
    if job.restarts:
        times = "once" if job.restarts == 1 else f"{job.restarts} times"
        yield Line(part=Part.DONE, at=case.past.left_at or None, words=f"requeued {times}")


def answered(case: Case) -> Iterator[Line]:
    """Each offer of the job's pools that a refusal stands against, and when the cloud said so last."""
    said = by_offer(case.past)
    found: list[Line] = []
    for some in dict.fromkeys(offers_of(case)):
        refusal = refusal_of(case.world.memory, some)
        if refusal is None:
            continue
        answer = said.get(some.key)
        at_once = f" for {refusal.size} at once" if refusal.size > 1 else ""
        times = f", {refusal.times} times in a row" if refusal.times > 1 else ""
        means = f" ({text})" if (text := meaning(refusal.words)) else ""
        found.append(
            Line(
                part=Part.ANSWERED,
                at=answer.at if answer else None,
                words=f"{some.words} in {some.zone}: {refusal.words}{at_once}{means}{times}",
            )
        )
    yield from most(found, Part.ANSWERED)


def offers_of(case: Case) -> Iterator[Offer]:
    for pool in pools(case.world, case.job):
        for part in pool.slots:
            yield from case.offers.get((pool.name, part.zone), ())


def most(found: list[Line], part: Part) -> Iterator[Line]:
    yield from found[:MOST]
    if len(found) > MOST:
        yield Line(part=part, words=f"and {len(found) - MOST} more")


def names_of(some: tuple[Pool, ...]) -> str:
    return ", ".join(pool.name for pool in some)


def slots_of(pool: Pool) -> tuple[str, ...]:
    return tuple(slot for part in pool.slots for slot in part)


def our_words(comment: str) -> str:
    return comment.removeprefix(REASON_PREFIX).strip() if comment.startswith(REASON_PREFIX) else ""
