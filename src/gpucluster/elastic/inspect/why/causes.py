"""Why a job does not run, as one word: for `why` and for the metrics of waiting jobs."""

from collections.abc import Callable, Mapping, Set
from enum import StrEnum

from gpucluster.elastic.decide import reserved
from gpucluster.elastic.decide.bundle_drains import has_no_other_slot
from gpucluster.elastic.decide.offers import Headroom, Offer, closed
from gpucluster.elastic.decide.placement import Need, is_open, pools_of_job
from gpucluster.elastic.decide.sizes import Sizes
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import DOES_NOT_BOOT, Verb, source_key
from gpucluster.elastic.inspect.why.reasons import Kind, reason_of
from gpucluster.elastic.ledger import month_of
from gpucluster.plan.model import Pool
from gpucluster.slurm.states import NodeState, SlurmPhase
from gpucluster.slurm.values import SlurmJob, SlurmNode, SlurmReservation

Offers = Mapping[tuple[str, str], tuple[Offer, ...]]


class Cause(StrEnum):
    """The causes. Metrics carry them as labels and alerts name them, so the set is fixed."""

    RUNNING = "running"
    EVACUATING = "evacuating"  # runs on an instance that is interrupted
    STALLED = "stalled"
    BOOTING = "booting"
    LAUNCHING = "launching"  # a launch has no outcome yet
    NO_DAEMON = "no-daemon"  # the daemon does not answer, so nothing is launched
    RATE_LIMITED = "rate-limited"  # the API's token buckets are empty
    REFUSED = "refused"  # the cloud has no capacity
    QUOTA = "quota"  # quota, permission, configuration: a person has to act
    MAX = "max"
    BUDGET = "budget"
    BREAKER = "breaker"
    PAUSED = "paused"
    HALTED = "halted"  # launches are stopped for the whole cluster
    NO_BOOT = "no-boot"  # instances start, and do not become nodes
    TOO_LARGE = "too-large"  # its pools never have so many nodes
    REMOVED = "removed"  # a held bundle removes or changes all nodes that it could use
    DRAINED = "drained"  # people drained the nodes
    REQUEUED = "requeued"  # Slurm delays a requeued job
    PRIORITY = "priority"
    RESOURCES = "resources"
    DEPENDENCY = "dependency"
    LIMIT = "limit"  # a limit of a QOS, an association, a partition
    HELD = "held"
    BEGIN = "begin"
    RESERVATION = "reservation"
    REQUEST = "request"  # Slurm cannot serve the request
    SLURM = "slurm"  # another reason of Slurm's own
    SCHEDULING = "scheduling"  # no obstacle: Slurm's next cycle starts it
    FINISHED = "finished"
    NODE = "node"  # the screen is of a node
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
    """Return the pools in which the job could run."""
    named = pools_of_job(world, job)
    return tuple(pool for pool in world.plan.pools if pool.name in named)


class CauseFinder:
    """Finds the causes at one time. Values of a pool are computed once for all of its waiting jobs."""

    def __init__(self, world: World, headroom: Headroom, offers: Offers) -> None:
        self.world, self.headroom, self.offers = world, headroom, offers
        self._sizes = Sizes(world)
        self._most: dict[str, int | None] = {}
        self._shuts: dict[tuple[object, ...], bool] = {}
        self._against: dict[tuple[object, ...], SlurmReservation | None] = {}

    def cause_of(self, job: SlurmJob) -> Cause:
        """Return the cause of a pending job. Slurm's reason comes first if the daemon could not change it."""
        kind = reason_of(job.reason).kind
        if kind is Kind.BEGIN and job.begins_at > self.world.now and job.restarts:
            return Cause.BEGIN if begins_late(self.world, job) else Cause.REQUEUED
        if kind not in (Kind.RESOURCES, Kind.PRIORITY, Kind.NONE):
            return _OF_KIND[kind]
        if kind is not Kind.PRIORITY and self._kept_off(job):
            return Cause.RESERVATION
        return self._of_pools(pools(self.world, job), job) or (
            _OF_KIND[kind] if kind is not Kind.NONE else Cause.SCHEDULING
        )

    def _of_pools(self, mine: tuple[Pool, ...], job: SlurmJob) -> Cause | None:
        """Return the cause that is the same for all pools of the job; None without one."""
        if not mine:
            return None
        if has_no_other_slot(self.world, job):
            return Cause.REMOVED
        if self._sizes.never_starts(job):
            return Cause.TOO_LARGE
        need = Need.of(self.world, (job,))
        if all(self._shut(pool, need) for pool in mine):
            idle_serve = not all(self._shut(pool, need, reservations=False) for pool in mine)
            shut = shut_by(self.world, self.headroom, self.offers, mine[0])
            return Cause.RESERVATION if idle_serve else shut
        if all(self._drained(pool, job) for pool in mine):
            return Cause.DRAINED
        return None

    def _kept_off(self, job: SlurmJob) -> bool:
        """Return whether a reservation is the cause. Jobs with the same constraints have the same answer."""
        if not self.world.slurm.reservations:
            return False
        key = (job.partitions, *Need.of(self.world, (job,)).parts)
        if key not in self._against:
            self._against[key] = reservation_against(self.world, job)
        return self._against[key] is not None

    def _shut(self, pool: Pool, need: Need, *, reservations: bool = True) -> bool:
        """Return whether no offer can launch the nodes that the job needs in addition to the idle ones that it may use.

        If the offers that are not refused have offer headroom, it is true only if a refused offer has enough of it.
        `reservations=False`: as if the idle nodes had no reservation.
        """
        if not pool.sources:
            return False
        key = (pool.name, reservations, *need.parts)
        if key not in self._shuts:
            self._shuts[key] = self._no_offer(
                pool, need.count - self._ready(pool, need, reservations=reservations)
            )
        return self._shuts[key]

    def _no_offer(self, pool: Pool, lacks: int) -> bool:
        if lacks <= 0:
            return False
        here = [offer for span in pool.slots for offer in self.offers.get((pool.name, span.zone), ())]
        refused = [offer for offer in here if closed(self.world.memory, offer, self.world.now, lacks)]
        most = max((self.headroom.of(offer) for offer in here if offer not in refused), default=0)
        return most < lacks and (not most or any(self.headroom.of(offer) >= lacks for offer in refused))

    def _ready(self, pool: Pool, need: Need, *, reservations: bool) -> int:
        """Return the most nodes in one of the pool's zones that need no launch for it: idle ones, and required ones that are busy.

        A gang uses one zone, and a spare is no whole gang.
        """
        allows = need.allows if reservations else need.fits
        return max(
            (sum(1 for s in span if self._is_ready(s, need, allows)) for span in pool.slots), default=0
        )

    def _is_ready(self, slot: str, need: Need, allows: Callable[[SlurmNode], bool]) -> bool:
        required = slot in need.required and self.world.phases.get(slot) is SlurmPhase.UP
        return (required or idle_now(self.world, slot)) and allows(self.world.node(slot))

    def _drained(self, pool: Pool, job: SlurmJob) -> bool:
        """Return whether drains of people or of Slurm leave no zone with enough nodes."""
        if pool.name not in self._most:
            self._most[pool.name] = _most_left(self.world, pool)
        most = self._most[pool.name]
        return most is not None and most < job.node_count


def idle_now(world: World, slot: str) -> bool:
    """Return whether the node is up and has no job."""
    return world.phases.get(slot) is SlurmPhase.UP and is_open(world.node(slot))


def reservation_against(world: World, job: SlurmJob) -> SlurmReservation | None:
    """Return the reservation because of which no zone has enough nodes for the job; None: no reservation is the cause.

    A reservation that begins before the job could end keeps the job off its nodes, too. Of several the first one counts.
    """
    need, found = Need.of(world, (job,)), reserved.against(world, job)
    if not found:
        return None
    parts = [
        [world.node(s) for s in span if s in world.slurm.nodes] for p in pools(world, job) for span in p.slots
    ]
    fit = [frozenset(node.name for node in part if need.fits(node)) for part in parts]
    enough = [part for part in fit if _serves(need, part)]
    if any(_serves(need, {s for s in part if need.allows(world.node(s))}) for part in enough):
        return None
    return next((one for one in found if any(part & world.reserved[one.name] for part in enough)), None)


def _serves(need: Need, slots: Set[str]) -> bool:
    return len(slots) >= need.count and need.required <= slots


def reservation_of_idle(world: World, job: SlurmJob) -> SlurmReservation | None:
    """Return the first reservation that keeps the job off an idle node of its pools."""
    need = Need.of(world, (job,))
    slots = (slot for pool in pools(world, job) for slot in pool.node_names if slot in world.slurm.nodes)
    idle = frozenset(s for s in slots if idle_now(world, s) and need.fits(world.node(s)))
    return next((one for one in reserved.against(world, job) if idle & world.reserved[one.name]), None)


def begins_late(world: World, job: SlurmJob) -> bool:
    """Return whether a requeued job begins later than Slurm lets one: its clock was set, or a person set the time."""
    return bool(job.restarts) and job.begins_at - world.now > world.plan.times.cred_expire_s + 1 + CLOCKS_S


CLOCKS_S = 60.0  # between the clocks of slurmctld and of this machine


def shut_by(world: World, headroom: Headroom, offers: Offers, pool: Pool) -> Cause:
    """Return what stops the pool; the cause that a person must remove first."""
    memory = world.memory
    here = [offer for span in pool.slots for offer in offers.get((pool.name, span.zone), ())]
    standing = [offer for offer in here if closed(memory, offer, world.now)]
    sources = {source_key(offer.pool, offer.source.position) for offer in standing}
    rows = (
        (bool(world.halted), Cause.HALTED),
        (_stopped(world, pool) is not None, _stopped(world, pool) or Cause.BUDGET),
        (not headroom.of_pool(pool.name), Cause.MAX),
        (bool(here) and len(standing) == len(here) and bool(sources & memory.refusals.keys()), Cause.QUOTA),
        (bool(standing) and all(_no_boot(world, offer) for offer in standing), Cause.NO_BOOT),
        (bool(standing), Cause.REFUSED),
    )
    return next((cause for holds, cause in rows if holds), Cause.MAX)


def drained_by_others(world: World, pool: Pool) -> tuple[str, ...]:
    """Return the nodes that others than the daemon keep from jobs."""
    return tuple(s for s in pool.node_names if s in world.slurm.nodes and _others(world, s))


def _most_left(world: World, pool: Pool) -> int | None:
    """Return the most nodes of one zone, less those that others drained; None if they drained none."""
    if not drained_by_others(world, pool):
        return None
    return max(
        (sum(1 for s in part if s in world.slurm.nodes and not _others(world, s)) for part in pool.slots),
        default=0,
    )


def _stopped(world: World, pool: Pool) -> Cause | None:
    """Return which of our limits stops the pool's launches."""
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
    return (node.drained or NodeState.DOWN in node.states) and not node.drain_owner.is_daemon


def _no_boot(world: World, offer: Offer) -> bool:
    refusal = world.memory.refusals.get(offer.key)
    return refusal is not None and refusal.words.startswith(DOES_NOT_BOOT)
