"""Why a job is not running, in one word: for `why`, and for the metrics that count waiting jobs by it."""

from collections.abc import Mapping
from enum import StrEnum

from gpucluster.elastic.decide.blocked import pools_of
from gpucluster.elastic.decide.offers import Offer, Room, closed
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Verb, source_key
from gpucluster.elastic.ledger import month_of
from gpucluster.elastic.model import Phase, SlurmJob
from gpucluster.elastic.why.reasons import Kind, reason_of
from gpucluster.plan.model import Pool

Offers = Mapping[tuple[str, str], tuple[Offer, ...]]


class Cause(StrEnum):
    """Closed: metrics carry it as a label, alerts name it."""

    RUNNING = "running"
    LEAVING = "leaving"  # runs on a machine that is to be left
    HUNG = "hung"
    BOOTING = "booting"
    LAUNCHING = "launching"  # a launch has no answer yet
    PACED = "paced"  # the API's buckets are empty
    REFUSED = "refused"  # the cloud has none
    QUOTA = "quota"  # quota, permission, configuration: a person has to act
    MAX = "max"
    BUDGET = "budget"
    BREAKER = "breaker"
    PAUSED = "paused"
    HALTED = "halted"  # launches are stopped for the whole cluster
    NO_BOOT = "no-boot"  # machines come, and do not become nodes
    TOO_LARGE = "too-large"  # no zone has so many slots
    DRAINED = "drained"  # people keep the nodes back
    REQUEUED = "requeued"  # Slurm lets a requeued job wait
    PRIORITY = "priority"
    RESOURCES = "resources"
    DEPENDENCY = "dependency"
    LIMIT = "limit"  # a QOS's, an association's, a partition's
    HELD = "held"
    BEGIN = "begin"
    RESERVATION = "reservation"
    REQUEST = "request"  # Slurm cannot serve what was asked
    SLURM = "slurm"  # another reason of Slurm's own
    SCHEDULING = "scheduling"  # nothing stands against it: Slurm's next cycle
    FINISHED = "finished"
    NODE = "node"  # the screen is a node's
    UNSEEN = "unseen"  # slurmctld or the cloud did not answer
    UNKNOWN = "unknown"


_OF_KIND: Mapping[Kind, Cause] = {
    Kind.PRIORITY: Cause.PRIORITY,
    Kind.RESOURCES: Cause.RESOURCES,
    Kind.DEPENDENCY: Cause.DEPENDENCY,
    Kind.LIMIT: Cause.LIMIT,
    Kind.HELD: Cause.HELD,
    Kind.BEGIN: Cause.BEGIN,
    Kind.RESERVATION: Cause.RESERVATION,
    Kind.REQUEST: Cause.REQUEST,
    Kind.OTHER: Cause.SLURM,
}


def pools(world: World, job: SlurmJob) -> tuple[Pool, ...]:
    """The pools in which the job could run."""
    named = pools_of(world, job)
    return tuple(pool for pool in world.plan.pools if pool.name in named)


class Judge:
    """Finds the causes of one moment; what is the pool's is worked out once, however many jobs wait."""

    def __init__(self, world: World, room: Room, offers: Offers) -> None:
        self.world, self.room, self.offers = world, room, offers
        self._idle: dict[str, int] = {}
        self._most: dict[str, int | None] = {}
        self._shuts: dict[tuple[str, int], bool] = {}

    def waits_for(self, job: SlurmJob) -> Cause:
        """The cause of a pending job. Slurm's own reason first where nothing of ours could change it."""
        kind = reason_of(job.reason).kind
        if kind is Kind.BEGIN and job.begins_at > self.world.now and job.restarts:
            return Cause.REQUEUED
        if kind not in (Kind.RESOURCES, Kind.PRIORITY, Kind.NONE):
            return _OF_KIND[kind]
        mine = pools(self.world, job)
        if mine and all(too_large(pool, job) for pool in mine):
            return Cause.TOO_LARGE
        if mine and all(self._shut(pool, job.node_count) for pool in mine):
            return shut_by(self.world, self.room, self.offers, mine[0])
        if mine and all(self._kept_back(pool, job) for pool in mine):
            return Cause.DRAINED
        return _OF_KIND[kind] if kind is not Kind.NONE else Cause.SCHEDULING

    def _shut(self, pool: Pool, count: int) -> bool:
        """Whether nothing can be launched now for what a gang of `count` lacks beside the nodes that idle.

        Where offers have room, and too little, that is why only if a refusal stands against one that would do.
        """
        if not pool.sources:
            return False
        key = (pool.name, count)
        if key not in self._shuts:
            self._shuts[key] = self._no_offer(pool, count)
        return self._shuts[key]

    def _no_offer(self, pool: Pool, count: int) -> bool:
        lacks = count - self._idles(pool)  # a spare idles always, and is no whole gang
        if lacks <= 0:
            return False
        here = [some for span in pool.slots for some in self.offers.get((pool.name, span.zone), ())]
        refused = [some for some in here if closed(self.world.memory, some, self.world.now, lacks)]
        most = max((self.room.of(some) for some in here if some not in refused), default=0)
        return most < lacks and (not most or any(self.room.of(some) >= lacks for some in refused))

    def _idles(self, pool: Pool) -> int:
        """The most nodes that idle in one of its zones: a gang stays in one."""
        found = self._idle.get(pool.name)
        if found is None:
            found = max((sum(1 for s in span if self._idle_now(s)) for span in pool.slots), default=0)
            self._idle[pool.name] = found
        return found

    def _idle_now(self, slot: str) -> bool:
        return self.world.phases.get(slot) is Phase.UP and self.world.node(slot).idle

    def _kept_back(self, pool: Pool, job: SlurmJob) -> bool:
        """Whether people's drains, or Slurm's, leave no zone with enough nodes."""
        if pool.name not in self._most:
            self._most[pool.name] = _most_left(self.world, pool)
        most = self._most[pool.name]
        return most is not None and most < job.node_count


def too_large(pool: Pool, job: SlurmJob) -> bool:
    """Whether no zone could ever hold it."""
    most = max((len(span) for span in pool.slots), default=0)
    return job.node_count > (min(most, pool.max) if pool.sources else most)


def shut_by(world: World, room: Room, offers: Offers, pool: Pool) -> Cause:
    """What shuts it: whoever would have to act first."""
    memory = world.memory
    here = [some for span in pool.slots for some in offers.get((pool.name, span.zone), ())]
    standing = [some for some in here if closed(memory, some, world.now)]
    sources = {source_key(some.pool, some.source.position) for some in standing}
    rows = (
        (bool(world.halted), Cause.HALTED),
        (_stopped(world, pool) is not None, _stopped(world, pool) or Cause.BUDGET),
        (not room.of_pool(pool.name), Cause.MAX),
        (bool(here) and len(standing) == len(here) and bool(sources & memory.refusals.keys()), Cause.QUOTA),
        (bool(standing) and all(_no_boot(world, some) for some in standing), Cause.NO_BOOT),
        (bool(standing), Cause.REFUSED),
    )
    return next((cause for holds, cause in rows if holds), Cause.MAX)


def drained_by_others(world: World, pool: Pool) -> tuple[str, ...]:
    """Nodes that someone else keeps from work."""
    return tuple(s for s in slots_in(pool) if s in world.slurm.nodes and _others(world, s))


def _most_left(world: World, pool: Pool) -> int | None:
    """The most nodes that a zone has beside those that others keep back; None: they keep none back."""
    if not drained_by_others(world, pool):
        return None
    return max(
        (sum(1 for s in part if s in world.slurm.nodes and not _others(world, s)) for part in pool.slots),
        default=0,
    )


def _stopped(world: World, pool: Pool) -> Cause | None:
    """What of ours stops the pool's launches."""
    memory = world.memory
    order, tripped = memory.orders.get(pool.name), memory.breakers.get(pool.name)
    if order is not None and order.verb in (Verb.POOL_PAUSE, Verb.POOL_DRAIN):
        return Cause.PAUSED
    if tripped is not None and tripped.until > world.now:
        return Cause.BREAKER
    spent_out = memory.budget == f"{month_of(world.now)}/stop"
    return Cause.BUDGET if world.plan.budget is not None and spent_out else None


def _others(world: World, slot: str) -> bool:
    node = world.node(slot)
    return (node.drained or "DOWN" in node.states) and not node.ours


def slots_in(pool: Pool) -> tuple[str, ...]:
    """All of a pool's slots."""
    return tuple(slot for span in pool.slots for slot in span)


def _no_boot(world: World, some: Offer) -> bool:
    refusal = world.memory.refusals.get(some.key)
    return refusal is not None and refusal.words.startswith("does not boot")
