"""Common parts of the job screens: the case, the lines of its request, and the month's spend."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpucluster.elastic import ledger
from gpucluster.elastic.abilities import CONFIRM, UNRESTORED, Ability
from gpucluster.elastic.decide import limits
from gpucluster.elastic.decide.jobs import runs_begun
from gpucluster.elastic.decide.offers import Headroom, Offer, refusal_of
from gpucluster.elastic.decide.world import HAS_INSTANCE, World
from gpucluster.elastic.inspect.why.causes import Cause, Offers, pools
from gpucluster.elastic.inspect.why.history import Past, meaning
from gpucluster.elastic.inspect.why.screen import Line, Part
from gpucluster.elastic.status_endpoint import UNREAD
from gpucluster.plan.model import Market, Pool, SlurmPlan
from gpucluster.plan.names import REASON_PREFIX, ROLE_NODE, TAG_CLUSTER, TAG_ROLE
from gpucluster.slurm.values import SlurmJob
from gpucluster.text import format_money

MOST = 8  # lines of one kind; the others are counted


@dataclass(frozen=True, slots=True)
class Case:
    """All values from which a job's screen is built."""

    world: World
    headroom: Headroom
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
    mine = names_of(pools(case.world, job)) or "no known pool"
    yield Line(
        part=Part.REQUEST,
        at=case.past.submitted_at or job.submitted_at or None,  # Slurm's own time is reset by each requeue
        words=f"{many} of {mine} (partition {', '.join(job.partitions) or 'unknown'})"
        + (f" for each of the {job.tasks} waiting tasks of its array" if job.tasks > 1 else ""),
    )
    if job.restarts:
        times = "once" if job.restarts == 1 else f"{job.restarts} times"
        unbegun = job.restarts - runs_begun(case.world, job)
        early = f", {unbegun} of them before the job began" if unbegun else ""
        yield Line(part=Part.DONE, at=case.past.left_at or None, words=f"requeued {times}{early}")


def halted_lines(case: Case) -> Iterator[Line]:
    """Return what stops the launches of the whole cluster, and who can change it."""
    world = case.world
    yield Line(
        part=Part.NEXT,
        words="the daemon launches no instance until launches are permitted again; running nodes and jobs continue",
    )
    if world.halted == UNRESTORED:
        step = CONFIRM.format(cluster=world.plan.name)
        yield Line(part=Part.REMEDY, words=f"{step}, then pause pools and keep nodes anew")
        return
    if not world.observation.halted.startswith(UNREAD):
        yield Line(
            part=Part.REMEDY,
            words=f"`gpucluster scaling start {world.plan.name}` permits launches again; it refuses while a `down` runs",
        )
        return
    yield unread_remedy(world.plan)


def unread_remedy(plan: SlurmPlan) -> Line:
    """Return what a person can do if the control object cannot be read, or not be renewed."""
    key = plan.aws and plan.aws.kms_key
    also = f", and the KMS key {key} (docs/aws.md, KMS keys)" if key else ""
    return Line(
        part=Part.REMEDY, words=f"check the cluster's bucket, the rights of the head's role on it{also}"
    )


def answered(case: Case) -> Iterator[Line]:
    """Return each refused offer of the job's pools, and the time of the cloud's last refusal."""
    found: list[Line] = []
    for some in dict.fromkeys(offers_of(case)):
        refusal = refusal_of(case.world.memory, some)
        if refusal is None:
            continue
        at_once = f" for {refusal.size} at once" if refusal.size > 1 else ""
        times = f", {refusal.times} times in a row" if refusal.times > 1 else ""
        means = f" ({text})" if (text := meaning(refusal.words)) else ""
        found.append(
            Line(
                part=Part.REASON,
                at=refusal.at or None,
                words=f"{some.words} in {some.spec.zone}: {refusal.words}{at_once}{means}{times}",
            )
        )
    yield from most(found, Part.REASON)


def refused_end_lines(world: World, slots: Iterable[str]) -> Iterator[Line]:
    """Return the instances of the slots that EC2 refuses to terminate, and what a person can do."""
    refused = [(slot, known) for slot in slots if (known := world.refused_end(slot)) is not None]
    found: list[Line] = []
    for slot, known in refused:
        instance = world.memory.incarnations[slot].instance
        words = f"{slot} takes no job: {instance} cannot be terminated: {known.words}"
        found.append(Line(part=Part.REASON, at=known.at, words=words))
    yield from most(found, Part.REASON)
    if refused:
        due = min(known.until for _, known in refused)
        yield Line(
            part=Part.NEXT, at=due, needs=Ability.TERMINATE, words="the daemon requests the termination again"
        )
        tags = f"{TAG_CLUSTER}={world.plan.name} and {TAG_ROLE}={ROLE_NODE}"
        words = f"restore the instance's tags {tags}, or the rights of the head's role; or end it yourself: aws ec2 terminate-instances --instance-ids ID"
        yield Line(part=Part.REMEDY, words=words)


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


def our_words(comment: str) -> str:
    return comment.removeprefix(REASON_PREFIX).strip() if comment.startswith(REASON_PREFIX) else ""


def hourly_rate(world: World) -> int:
    """Return the cost of living instances, in micro-USD an hour."""
    return sum(price for price, _ in _living(world))


def unpriced(world: World) -> int:
    """Return living instances of unknown price. The real spend is at least the shown one."""
    return sum(
        1
        for slot, incarnation in world.memory.incarnations.items()
        if incarnation.instance
        and not incarnation.price
        and incarnation.market is not Market.CAPACITY_BLOCK  # prepaid
        and world.instance_status(slot) in HAS_INSTANCE
    )


def spend_lines(world: World) -> Iterator[Line]:
    """Return the month's spend and budget, if the cluster has a budget."""
    budget = world.plan.budget
    if budget is None:
        return
    blind = unpriced(world)
    least = "at least " if blind else ""
    yield Line(
        part=Part.COST,
        words=f"{ledger.month_of(world.now)}: {least}{format_money(limits.spent(world))} of {format_money(budget.monthly)} spent; launches stop at "
        f"{format_money(budget.stop_scaling_at)}; now {least}{format_money(hourly_rate(world))} an hour"
        + (f"; {blind} machines have no price in the catalog" if blind else ""),
    )


def budget_lines(world: World) -> Iterator[Line]:
    """Return the lines of a job that waits for the budget."""
    yield Line(
        part=Part.NEXT,
        at=ledger.next_month(world.now),
        needs=Ability.LAUNCH,
        words="a new month begins and launches continue",
    )
    yield Line(
        part=Part.REMEDY, words="raise `budget` in the spec and apply it; running nodes and jobs continue"
    )


def _living(world: World) -> tuple[tuple[int, float], ...]:
    incarnations = world.memory.incarnations.items()
    return tuple(
        (incarnation.price, incarnation.counts_from)
        for slot, incarnation in incarnations
        if incarnation.instance and world.instance_status(slot) in HAS_INSTANCE
    )
