"""How one slot stands: what the rows of the life table ask of it. Pure questions, none of them costs a search."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from gpucluster.elastic.decide.awaited import awaited
from gpucluster.elastic.decide.blocked import pools_of, waiting
from gpucluster.elastic.decide.leaving import well
from gpucluster.elastic.decide.world import HAS, Fate, Slot, World
from gpucluster.elastic.events import Verb
from gpucluster.elastic.memory import Life
from gpucluster.elastic.model import Phase, SlurmJob, SlurmNode
from gpucluster.elastic.owners import Owner, Stranger
from gpucluster.plan.model import Pool, Times

STARVES_S = 60.0  # a job that Slurm could have started at once, and did not
_STARVED = ("Resources", "ReqNodeNotAvail", "Nodes required")
_RESTS = (Verb.POOL_PAUSE, Verb.POOL_DRAIN)


class Moment:
    """What is the same for all slots of a moment; each worked out once, when it is first asked for."""

    def __init__(self, world: World) -> None:
        self.world = world

    @cached_property
    def running(self) -> frozenset[str]:
        """Slots on which a job runs, or is suspended."""
        jobs = (job for job in self.world.slurm.jobs if job.running or job.suspended)
        return frozenset(node for job in jobs for node in job.nodes)

    @cached_property
    def waited_for(self) -> frozenset[str]:
        """Pools for which a job waits."""
        return frozenset(pool for job in waiting(self.world) for pool in pools_of(self.world, job))

    @cached_property
    def starved(self) -> frozenset[str]:
        """Pools whose free slots a job should have got."""
        jobs = [job for job in waiting(self.world) if self._starves(job)]
        return frozenset(pool for job in jobs for pool in pools_of(self.world, job))

    @cached_property
    def awaited(self) -> frozenset[str]:
        """Idle nodes to which a job comes back."""
        return awaited(self.world)

    @cached_property
    def spares(self) -> frozenset[str]:
        """Idle nodes that stay up beside those that work."""
        return frozenset(slot for pool in self.world.plan.pools for slot in self._spares(pool))

    @cached_property
    def wanted_spares(self) -> frozenset[str]:
        """Slots that are off and are to be spares; whether there is room for them is asked where they are powered up."""
        return frozenset(slot for pool in self.world.plan.pools for slot in self._lacking(pool))

    def rests(self, pool: Pool) -> bool:
        """Whether an operator paused or drained the pool."""
        order = self.world.memory.orders.get(pool.name)
        return order is not None and order.verb in _RESTS

    def empties(self, pool: Pool) -> bool:
        order = self.world.memory.orders.get(pool.name)
        return order is not None and order.verb is Verb.POOL_DRAIN

    def healthy(self, slot: str) -> bool:
        """Up, idle and of use to the next job."""
        node, life = self.world.node(slot), self.world.life(slot)
        fit = node.idle and not node.drained and "INVALID_REG" not in node.states
        return fit and life is not None and life.trouble is None and self.world.fate(slot) in HAS

    def _starves(self, job: SlurmJob) -> bool:
        since = max(job.begins_at, job.submitted_at)
        return job.reason.startswith(_STARVED) and since + STARVES_S <= self.world.now

    def _spares(self, pool: Pool) -> Iterator[str]:
        if not pool.spares or self.empties(pool):
            return
        idle = [s for s in self.world.group(Phase.UP) if self._of(s, pool) and self.healthy(s)]
        yield from sorted(idle, key=lambda s: not self.world.slots[s].always_on)[: pool.spares]

    def _lacking(self, pool: Pool) -> Iterator[str]:
        if not pool.spares or self.rests(pool):
            return
        up = sum(1 for s in self.spares if self._of(s, pool))
        coming = sum(
            1
            for s in self.world.group(Phase.WANTED)
            if self._of(s, pool) and not self.world.starting_on.get(s)
        )
        free = [s for s in self.world.group(Phase.OFF) if self._of(s, pool) and self.world.free(s)]
        usable = [s for s in free if not self.world.node(s).drained]
        yield from usable[: max(0, pool.spares - up - coming)]

    def _of(self, slot: str, pool: Pool) -> bool:
        return self.world.slots[slot].pool.name == pool.name


@dataclass(frozen=True, slots=True)
class Stand:
    """One slot at one moment."""

    moment: Moment
    slot: str
    place: Slot
    node: SlurmNode
    phase: Phase
    life: Life | None
    fate: Fate

    @staticmethod
    def of(moment: Moment, slot: str) -> "Stand":
        world = moment.world
        return Stand(
            moment,
            slot,
            world.slots[slot],
            world.node(slot),
            world.phases[slot],
            world.memory.lives.get(slot),
            world.fate(slot),
        )

    # --- times ------------------------------------------------------------------------------------
    @property
    def now(self) -> float:
        return self.moment.world.now

    @property
    def times(self) -> Times:
        return self.moment.world.plan.times

    @property
    def idle_until(self) -> float:
        """When an idle node is due."""
        up_at = self.life.up_at if self.life is not None and self.life.up_at is not None else 0.0
        return max(self.node.last_busy, up_at) + self.place.pool.idle_s

    @property
    def lingers(self) -> bool:
        """It has stood so for longer than that should last."""
        known = self.moment.world.memory.lingers.get(self.slot)
        return known is not None and known.phase == self.phase and known.since + known.bound_s <= self.now

    # --- words ------------------------------------------------------------------------------------
    def says(self, word: str) -> bool:
        return word in self.node.states

    @property
    def reboots(self) -> bool:
        return self.says("REBOOT_ISSUED") or self.says("REBOOT_REQUESTED")

    @property
    def about_to_end(self) -> bool:
        """A power-down is pending; one asked for while it powered up is ignored (24.11, seen)."""
        return (self.says("POWER_DOWN") or self.says("POWER_DRAIN")) and not self.says("POWERING_UP")

    @property
    def theirs(self) -> bool:
        """Drained by a person, or by who knows whom."""
        return self.node.drained and self.node.whose in (Stranger.PERSON, Stranger.NOBODY)

    @property
    def unfit(self) -> bool:
        """Slurm gives it no job, by its own judgement."""
        return self.node.spoiled or (self.says("INVALID_REG") and not self.node.drained)

    @property
    def unfit_long(self) -> bool:
        up_at = self.life.up_at if self.life is not None and self.life.up_at is not None else 0.0
        since = self.node.reason_at if self.node.drained else max(self.node.reason_at, up_at)
        return since + self.place.pool.idle_s <= self.now

    @property
    def mute(self) -> bool:
        """For the pool's idle time nobody has said that a machine which we drained is well."""
        since = max(self.node.reason_at, self.moment.world.listening_since)
        return since + self.place.pool.idle_s <= self.now and not well(self.moment.world, self.slot)

    @property
    def theirs_alone(self) -> bool:
        """And Slurm has not powered it down itself."""
        return self.theirs and self.phase not in (Phase.OFF, Phase.ENDING, Phase.DOWN_OFF)

    def drained_by(self, *owners: Owner | Stranger) -> bool:
        return self.node.drained and self.node.whose in owners

    # --- jobs -------------------------------------------------------------------------------------
    @property
    def runs(self) -> bool:
        return self.slot in self.moment.running

    @property
    def busy(self) -> bool:
        """A job has it, by Slurm's words or by the list of jobs."""
        return not self.node.idle or self.runs or self.starts

    @property
    def starts(self) -> bool:
        return bool(self.moment.world.starting_on.get(self.slot))

    # --- the machine ------------------------------------------------------------------------------
    @property
    def has(self) -> bool:
        """A machine that is there, or may be."""
        return self.fate in HAS

    @property
    def ends(self) -> bool:
        """A machine that can be ended."""
        return self.fate in (Fate.LIVES, Fate.UNSEEN, Fate.HALTED)

    @property
    def asked(self) -> bool:
        return self.life is not None and self.life.request is not None

    @property
    def unbacked(self) -> bool:
        """No machine, and none on its way."""
        return self.fate in (Fate.NONE, Fate.ENDED) and not self.asked

    @property
    def failed(self) -> bool:
        return self.life is not None and self.life.failed is not None

    @property
    def left_over(self) -> bool:
        """Powered up for jobs, or by Slurm alone; and where no job has it now, for nobody."""
        return self.life is not None and self.life.idle_is_unwanted and not self.place.always_on

    @property
    def relapses(self) -> bool:
        """Slurm powers it up by a request that was served long ago, and has not begun: until then it cannot be stopped."""
        return self.left_over and self.life is not None and self.life.relapses and self.says("POWERED_DOWN")

    @property
    def past_grace(self) -> bool:
        """Slurm may only have forgotten a launch (killed just after a resume): the node then registers unasked."""
        since = self.life.unneeded_at if self.life is not None else None
        return since is not None and since + self.times.orphan_grace_s <= self.now

    # --- orders -----------------------------------------------------------------------------------
    @property
    def kept(self) -> bool:
        """By an operator; there is something to keep."""
        return self.has and self.moment.world.kept(self.slot)

    @property
    def ordered(self) -> bool:
        return self.slot in self.moment.world.memory.orders
