"""The context of one slot: the values that the rows of the node table read. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from gpucluster.elastic.decide import replacements
from gpucluster.elastic.decide.evacuation import comes_back, is_healthy
from gpucluster.elastic.decide.placement import Need, is_open, needs_of, pools_of_job, waiting
from gpucluster.elastic.decide.reserved import is_reserved
from gpucluster.elastic.decide.world import HAS_INSTANCE, SCHEDULES_S, InstanceStatus, Slot, World
from gpucluster.elastic.events import Verb
from gpucluster.elastic.memory import Incarnation
from gpucluster.plan.model import Pool, Times
from gpucluster.slurm import drains
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.pending import FIRST_IN_LINE, PendingReason
from gpucluster.slurm.states import NodeState, SlurmPhase
from gpucluster.slurm.values import SlurmJob, SlurmNode

EXPECTED_S = 600.0  # the least time for which an idle node is held for a waiting job, after its idle time
EXPECTED_NEEDS = 5  # so many different jobs at the head of the queue hold idle nodes
_STOPS_LAUNCHES = (Verb.POOL_PAUSE, Verb.POOL_DRAIN)


class SharedContext:
    """Values that are the same for all slots at one time. Each is computed once, at its first use."""

    def __init__(self, world: World) -> None:
        self.world = world

    @cached_property
    def running(self) -> frozenset[str]:
        """Return the slots on which a job runs or is suspended."""
        jobs = (job for job in self.world.slurm.jobs if job.running or job.suspended)
        return frozenset(node for job in jobs for node in job.nodes)

    @cached_property
    def waited_for(self) -> frozenset[str]:
        """Return the pools with a waiting job."""
        return frozenset(pool for job in waiting(self.world) for pool in pools_of_job(self.world, job))

    @cached_property
    def starved(self) -> frozenset[str]:
        """Return the pools with a job that Slurm should already have started on a free slot."""
        jobs = [job for job in waiting(self.world) if self._starves(job)]
        return frozenset(pool for job in jobs for pool in pools_of_job(self.world, job))

    @cached_property
    def awaited(self) -> frozenset[str]:
        """Return idle nodes that wait for a requeued job."""
        return awaited(self.world)

    @cached_property
    def expected(self) -> frozenset[str]:
        """Return idle nodes that Slurm plans for a job, or that a job at the head of the queue can use with others."""
        planned = set(self._planned())
        first = [job for job in waiting(self.world) if job.reason == PendingReason.RESOURCES]
        for pool in self.world.plan.pools if first else ():
            for need in needs_of(self.world, pool, first)[:EXPECTED_NEEDS]:
                planned.update(need.first_of(self._idle_for(pool, need)))
        return frozenset(planned)

    @cached_property
    def spares(self) -> frozenset[str]:
        """Return the idle nodes that stay up as spares."""
        return frozenset(slot for pool in self.world.plan.pools for slot in self._spares(pool))

    @cached_property
    def needed_spares(self) -> frozenset[str]:
        """Return the slots to power up as spares. Headroom is checked at the power-up."""
        return frozenset(slot for pool in self.world.plan.pools for slot in self._lacking(pool))

    def is_paused(self, pool: Pool) -> bool:
        """Return whether an operator paused or drained the pool."""
        order = self.world.memory.orders.get(pool.name)
        return order is not None and order.verb in _STOPS_LAUNCHES

    def is_drained(self, pool: Pool) -> bool:
        order = self.world.memory.orders.get(pool.name)
        return order is not None and order.verb is Verb.POOL_DRAIN

    def healthy(self, slot: str) -> bool:
        """Return whether the node can start the next job, has its instance, and got no notice."""
        incarnation = self.world.incarnation(slot)
        return (
            self.world.node(slot).takes_jobs
            and incarnation is not None
            and incarnation.interruption is None
            and self.world.instance_status(slot) in HAS_INSTANCE
        )

    def _planned(self) -> Iterator[str]:
        """Yield the nodes that Slurm plans for a job and that a job may use now. slurmctld plans for the time after a reservation, too."""
        needs: dict[str, tuple[Need, ...]] = {}
        eligible = [job for job in self.world.slurm.jobs if job.pending and job.priority > 0]
        for slot in self.world.group(SlurmPhase.UP):
            node, pool = self.world.node(slot), self.world.slots[slot].pool
            if NodeState.PLANNED in node.states and pool.name not in needs:
                needs[pool.name] = needs_of(self.world, pool, eligible)
            if NodeState.PLANNED in node.states and any(n.allows(node) for n in needs[pool.name]):
                yield slot

    def _starves(self, job: SlurmJob) -> bool:
        since = max(job.begins_at, job.submitted_at)
        return job.reason in FIRST_IN_LINE and since + SCHEDULES_S <= self.world.now

    def _spares(self, pool: Pool) -> Iterator[str]:
        if not pool.spares or self.is_drained(pool):
            return
        up = [s for s in self.world.group(SlurmPhase.UP) if self._of(s, pool)]
        idle = [s for s in up if self.healthy(s) and not is_reserved(self.world.node(s))]
        yield from sorted(idle, key=lambda s: not self.world.slots[s].always_on)[: pool.spares]

    def _lacking(self, pool: Pool) -> Iterator[str]:
        if not pool.spares or self.is_paused(pool):
            return
        up = sum(1 for s in self.spares if self._of(s, pool))
        coming = sum(
            1
            for s in self.world.group(SlurmPhase.POWERING_UP)
            if self._of(s, pool) and not self.world.starting_on.get(s)
        )
        free = [s for s in self.world.group(SlurmPhase.OFF) if self._of(s, pool) and self.world.free(s)]
        usable = [s for s in free if not (self.world.node(s).drained or is_reserved(self.world.node(s)))]
        yield from usable[: max(0, pool.spares - up - coming)]

    def _idle_for(self, pool: Pool, need: Need) -> list[str]:
        """Return the open nodes of the zone that has most of them for this need."""
        zones: dict[str, list[str]] = {}
        for slot in self.world.group(SlurmPhase.UP):
            node = self.world.node(slot)
            if self._of(slot, pool) and is_open(node) and need.allows(node):
                zones.setdefault(self.world.slots[slot].zone, []).append(slot)
        return max((zones[zone] for zone in sorted(zones)), key=len, default=list[str]())

    def _of(self, slot: str, pool: Pool) -> bool:
        return self.world.slots[slot].pool.name == pool.name


@dataclass(frozen=True, slots=True)
class NodeContext:
    """One slot at one time."""

    shared: SharedContext
    slot: str
    place: Slot
    node: SlurmNode
    phase: SlurmPhase
    incarnation: Incarnation | None
    instance_status: InstanceStatus

    @staticmethod
    def of(shared: SharedContext, slot: str) -> "NodeContext":
        world = shared.world
        return NodeContext(
            shared,
            slot,
            world.slots[slot],
            world.node(slot),
            world.phases[slot],
            world.memory.incarnations.get(slot),
            world.instance_status(slot),
        )

    # --- times ------------------------------------------------------------------------------------
    @property
    def now(self) -> float:
        return self.shared.world.now

    @property
    def times(self) -> Times:
        return self.shared.world.plan.times

    @property
    def idle_until(self) -> float:
        """Return the time at which an idle node is powered down."""
        up_at = (
            self.incarnation.up_at
            if self.incarnation is not None and self.incarnation.up_at is not None
            else 0.0
        )
        return max(self.node.last_busy, up_at) + self.place.pool.idle_s

    @property
    def expected_until(self) -> float:
        """Return the time at which an idle node is powered down although a waiting job may use it."""
        return self.idle_until + max(EXPECTED_S, float(self.place.pool.idle_s))

    @property
    def lingers(self) -> bool:
        """Return whether the node has been in this phase for longer than its bound."""
        known = self.shared.world.memory.lingers.get(self.slot)
        return known is not None and known.phase == self.phase and known.since + known.bound_s <= self.now

    # --- states of Slurm ----------------------------------------------------------------------
    def has_state(self, word: str) -> bool:
        return word in self.node.states

    @property
    def reboots(self) -> bool:
        return self.has_state(NodeState.REBOOT_ISSUED) or self.has_state(NodeState.REBOOT_REQUESTED)

    @property
    def about_to_end(self) -> bool:
        """Return whether a power-down is pending. Slurm ignores a power-down that was requested during a power-up (24.11, observed)."""
        return (
            self.has_state(NodeState.POWER_DOWN) or self.has_state(NodeState.POWER_DRAIN)
        ) and not self.has_state(NodeState.POWERING_UP)

    @property
    def drained_by_person(self) -> bool:
        """Return whether a person, or an unknown owner, drained the node."""
        return self.node.drained and self.node.drain_owner in (DrainOwner.PERSON, DrainOwner.NONE)

    @property
    def unfit(self) -> bool:
        """Return whether Slurm itself keeps jobs off the node."""
        return self.node.drained_by_slurm or (self.has_state(NodeState.INVALID_REG) and not self.node.drained)

    @property
    def failed_program(self) -> bool:
        """Return whether Slurm drained the node because its Prolog, its Epilog or a part of slurmd failed (S30, S42, S46)."""
        return self.node.failed

    @property
    def unfit_long(self) -> bool:
        up_at = (
            self.incarnation.up_at
            if self.incarnation is not None and self.incarnation.up_at is not None
            else 0.0
        )
        since = self.node.reason_at if self.node.drained else max(self.node.reason_at, up_at)
        return since + self.place.pool.idle_s <= self.now

    @property
    def drained_long(self) -> bool:
        """Return whether the reason is older than the pool's idle time."""
        return self.node.reason_at + self.place.pool.idle_s <= self.now

    @property
    def may_be_replaced(self) -> bool:
        """Return whether its replacement has begun, or the pool may begin one more in this hour."""
        return replacements.may_be_replaced(self.shared.world, self.place.pool, self.incarnation)

    @property
    def fault_kept(self) -> bool:
        """Return whether a GPU of the node failed, and the pool has had its most replacements of an hour."""
        return replacements.is_kept(self.shared.world, self.slot)

    @property
    def reports_nothing(self) -> bool:
        """Return whether we drained the node, and for the pool's idle time no report said that it is healthy."""
        since = max(self.node.reason_at, self.shared.world.listening_since)
        return since + self.place.pool.idle_s <= self.now and not is_healthy(self.shared.world, self.slot)

    @property
    def just_undrained(self) -> bool:
        return self.shared.world.just_undrained(self.slot)

    @property
    def only_drained_by_person(self) -> bool:
        """Return whether others drained the node and Slurm has not powered it down."""
        return self.drained_by_person and self.phase not in (
            SlurmPhase.OFF,
            SlurmPhase.POWERING_DOWN,
            SlurmPhase.DOWN_OFF,
        )

    def drained_by(self, *owners: DrainOwner) -> bool:
        return self.node.drained and self.node.drain_owner in owners

    @property
    def removed(self) -> bool:
        """Return whether a held bundle removes or changes the slot."""
        return self.shared.world.is_removed(self.slot)

    # --- jobs -------------------------------------------------------------------------------------
    @property
    def runs(self) -> bool:
        return self.slot in self.shared.running

    @property
    def busy(self) -> bool:
        """Return whether the node has a job, by its state or by the list of jobs."""
        return not self.node.idle or self.runs or self.starts

    @property
    def starts(self) -> bool:
        return bool(self.shared.world.starting_on.get(self.slot))

    # --- the instance -----------------------------------------------------------------------------
    @property
    def has_instance(self) -> bool:
        """Return whether the slot has, or may have, an instance."""
        return self.instance_status in HAS_INSTANCE

    @property
    def can_terminate(self) -> bool:
        """Return whether the instance can be terminated."""
        return self.instance_status in (InstanceStatus.ALIVE, InstanceStatus.UNSEEN, InstanceStatus.HALTED)

    @property
    def end_refused(self) -> bool:
        """Return whether the cloud refuses to terminate the instance."""
        return self.shared.world.refused_end(self.slot) is not None

    @property
    def launch_requested(self) -> bool:
        return self.incarnation is not None and self.incarnation.request is not None

    @property
    def has_lost_instance(self) -> bool:
        """Return whether the slot has no instance and no launch. A journal that was lost may have known one."""
        if self.shared.world.just_lost_journal and not self._known_since_loss:
            return False
        return (
            self.instance_status in (InstanceStatus.NONE, InstanceStatus.ENDED) and not self.launch_requested
        )

    @property
    def _known_since_loss(self) -> bool:
        """Return whether this journal itself saw how the slot's last instance came."""
        lost_at, one = self.shared.world.memory.lost_at, self.incarnation
        if lost_at is None or one is None:
            return False
        return max(one.since, one.launched_at, one.adopted_at or 0.0) >= lost_at

    @property
    def failed(self) -> bool:
        return self.incarnation is not None and self.incarnation.failed is not None

    @property
    def left_over(self) -> bool:
        """Return whether the node was powered up for jobs, or by Slurm alone, and no job needs it now."""
        return self.incarnation is not None and self.incarnation.idle_is_unwanted and not self.place.always_on

    @property
    def relapses(self) -> bool:
        """Return whether Slurm powers it up again after a request that was already served. It cannot be stopped yet."""
        return (
            self.left_over
            and self.incarnation is not None
            and self.incarnation.relapses
            and self.has_state(NodeState.POWERED_DOWN)
        )

    @property
    def past_grace(self) -> bool:
        """Return whether the grace period is over. Until then, a node that a killed slurmctld forgot may register."""
        since = self.incarnation.unneeded_at if self.incarnation is not None else None
        return since is not None and since + self.times.orphan_grace_s <= self.now

    # --- orders -----------------------------------------------------------------------------------
    @property
    def kept(self) -> bool:
        """Return whether an operator's `keep` applies and the slot has an instance."""
        return self.has_instance and self.shared.world.kept(self.slot)

    @property
    def ordered(self) -> bool:
        return self.slot in self.shared.world.memory.orders


AWAITED_S = (
    90.0  # before and after the job's begin time: slurmctld reads its queue each 30 s, and may still clean up
)


def awaited(world: World) -> frozenset[str]:
    """Return the idle nodes that wait for requeued jobs: for each job, those of one zone. No node waits for two jobs."""
    found: set[str] = set()
    for job in world.slurm.jobs:
        count = _count(world, job)
        if count:
            found.update(_idle_nodes(world, job, found)[:count])
    return frozenset(found)


def _count(world: World, job: SlurmJob) -> int:
    """Return how many nodes of the job are, or were, on interrupted instances."""
    if job.pending:
        soon = abs(job.begins_at - world.now) < AWAITED_S
        return job.node_count if soon and drains.owner_of(job.admin_comment) is DrainOwner.EVACUATION else 0
    evacuated = job.running and drains.owner_of(job.admin_comment) is DrainOwner.EVACUATION
    if not evacuated or not comes_back(world, job):
        return 0
    return sum(
        1
        for node in job.nodes
        if (incarnation := world.incarnation(node)) is not None and incarnation.interruption is not None
    )


def _idle_nodes(world: World, job: SlurmJob, taken: set[str]) -> tuple[str, ...]:
    zones: dict[str, list[str]] = {}
    pools, need = pools_of_job(world, job), Need.of(world, (job,))
    for slot in world.group(SlurmPhase.UP):
        place, node = world.slots[slot], world.node(slot)
        if place.pool.name in pools and is_open(node) and need.allows(node) and slot not in taken:
            zones.setdefault(place.zone, []).append(slot)
    here = {world.slots[node].zone for node in job.nodes if node in world.slots}
    return need.first_of(max(_of(zones, here), key=len, default=list[str]()))


def _of(zones: dict[str, list[str]], here: set[str]) -> Iterator[list[str]]:
    """Yield the idle nodes by zone. For a job that still runs, only its own zone counts."""
    for zone, slots in sorted(zones.items()):
        if not here or zone in here:
            yield slots
