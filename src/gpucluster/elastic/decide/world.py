"""The input of all rules as one value: plan, Slurm, cloud and memory, joined by slot."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from typing import TypeVar

from gpucluster.cloud.limits import UNSEEN_S
from gpucluster.cloud.port import Instance, InstanceState, Reservation
from gpucluster.elastic.abilities import UNRESTORED, Ability, Dependency, Loss, denied
from gpucluster.elastic.decide.ordered_drains import shown
from gpucluster.elastic.decide.person_drains import restored
from gpucluster.elastic.events import Verb
from gpucluster.elastic.memory import Incarnation, Memory, RefusedEnd
from gpucluster.elastic.model import CloudView, Observation, ReceivedReport
from gpucluster.plan.model import Bindings, Pool, SlurmPlan
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import SlurmPhase, classify
from gpucluster.slurm.values import SlurmJob, SlurmNode, SlurmView

SCHEDULES_S = 60.0  # Slurm starts an eligible job within this time if it can
LISTED_S = 30.0  # a new instance is normally listed within this time


@dataclass(frozen=True, slots=True)
class Slot:
    """The pool and zone of a slot; they never change."""

    name: str
    pool: Pool
    zone: str
    number: int
    always_on: bool


class InstanceStatus(StrEnum):
    """The state of a slot's instance."""

    NONE = "none"  # no instance
    ALIVE = "alive"
    UNSEEN = "unseen"  # new, or missing for a short time: counts as living
    HALTED = "halted"  # stopping or stopped: not usable, and still to be terminated
    ENDED = "ended"  # shutting down or terminated
    MISSING = "missing"  # unlisted for a long time, but its node is up


HAS_INSTANCE = frozenset(
    {InstanceStatus.ALIVE, InstanceStatus.UNSEEN, InstanceStatus.HALTED, InstanceStatus.MISSING}
)  # these count as living; see World.instance_status
_STATUSES: Mapping[InstanceState, InstanceStatus] = {
    InstanceState.PENDING: InstanceStatus.ALIVE,
    InstanceState.RUNNING: InstanceStatus.ALIVE,
    InstanceState.STOPPING: InstanceStatus.HALTED,
    InstanceState.STOPPED: InstanceStatus.HALTED,
    InstanceState.SHUTTING_DOWN: InstanceStatus.ENDED,
    InstanceState.TERMINATED: InstanceStatus.ENDED,
}


_T = TypeVar("_T")


def _once_per_plan(build: Callable[[SlurmPlan], _T]) -> Callable[[SlurmPlan], _T]:
    """Cache the value for each plan object. A hash of the plan would be slow, and a pass needs the value many times."""
    known: dict[int, tuple[SlurmPlan, _T]] = {}  # it keeps the plan, so that no other object gets its id

    @wraps(build)
    def cached(plan: SlurmPlan) -> _T:
        entry = known.get(id(plan))
        if entry is None:
            entry = known[id(plan)] = plan, build(plan)
        return entry[1]

    return cached


@_once_per_plan
def slots_of(plan: SlurmPlan) -> Mapping[str, Slot]:
    """Return every slot of the plan by name, in the order of the plan."""
    return {
        name: Slot(name, pool, span.zone, number, name in always)
        for pool in plan.pools
        for always in (frozenset(pool.always_on()),)
        for span in pool.slots
        for number, name in zip(range(span.first, span.last + 1), span, strict=True)
    }


@_once_per_plan
def names_in(plan: SlurmPlan) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Return the slots of each (pool, zone). Each name is built once."""
    found: dict[tuple[str, str], list[str]] = {}
    for slot in slots_of(plan).values():
        found.setdefault((slot.pool.name, slot.zone), []).append(slot.name)
    return {place: tuple(names) for place, names in found.items()}


@_once_per_plan
def positions_of(plan: SlurmPlan) -> Mapping[str, int]:
    """Return the position of each slot in the order of slurm.conf."""
    return {name: position for position, name in enumerate(slots_of(plan))}


NEW_JOURNAL = "the journal is new or outdated"


def lost_of(observation: Observation, memory: Memory) -> Mapping[Dependency, Loss]:
    """Return the dependencies that cannot be read now, also without a view of Slurm."""
    lost, since = observation.lost, memory.unrestored_since
    if since is not None:
        lost = {Dependency.JOURNAL: Loss(since=since, words=observation.unrestored or NEW_JOURNAL), **lost}
    return {Dependency.EC2: Loss(since=None, words=""), **lost} if observation.cloud is None else lost


@dataclass(frozen=True, slots=True)
class World:
    """Plan, observation and memory at one time. Only `World.of` builds it.

    `observation` is kept whole, so each reader can use every field of Observation. `phases` and `groups` hold only slots
    that Slurm lists. Without a view of the cloud, `cloud` lists nothing, and every instance in memory counts as living.
    """

    plan: SlurmPlan
    bindings: Bindings
    observation: Observation
    memory: Memory
    now: float
    slurm: SlurmView
    cloud: CloudView
    slots: Mapping[str, Slot]
    phases: Mapping[str, SlurmPhase]
    groups: Mapping[SlurmPhase, tuple[str, ...]]
    starting: tuple[SlurmJob, ...]  # jobs in CONFIGURING, the most urgent first
    starting_on: Mapping[str, tuple[SlurmJob, ...]]  # slot -> the jobs of `starting` that hold it
    removed: frozenset[str] | None  # slots that a held bundle removes or changes; None: not known
    reserved: Mapping[str, frozenset[str]]  # the nodes of each reservation of Slurm

    @staticmethod
    def of(
        plan: SlurmPlan, bindings: Bindings, observation: Observation, memory: Memory, now: float
    ) -> "World | None":
        """Return the world; None without a view of Slurm."""
        slurm = observation.slurm
        if slurm is None:
            return None
        slurm = shown(restored(slurm, memory), memory)
        slots = slots_of(plan)
        phases, groups = _phases(slots, slurm.nodes)
        starting = tuple(sorted((j for j in slurm.jobs if j.configuring), key=urgency))
        return World(
            plan=plan,
            bindings=bindings,
            observation=observation,
            memory=memory,
            now=now,
            slurm=slurm,
            cloud=observation.cloud or CloudView(at=now, instances={}),
            slots=slots,
            phases=phases,
            groups=groups,
            starting=starting,
            starting_on=_by_slot(starting),
            removed=None if observation.held is None else frozenset(observation.held.nodes),
            reserved={one.name: frozenset(one.nodes) for one in slurm.reservations},
        )

    @property
    def blind(self) -> bool:
        """Return whether the state of the instances is not known now."""
        return self.observation.cloud is None

    @property
    def lost(self) -> Mapping[Dependency, Loss]:
        """Return the dependencies that cannot be read now."""
        return lost_of(self.observation, self.memory)

    @property
    def halted(self) -> str:
        """Return why nothing is launched in the whole cluster; empty: launches are permitted."""
        unrestored = self.memory.unrestored_since is not None
        return self.observation.halted or (UNRESTORED if unrestored else "")

    @property
    def just_lost_journal(self) -> bool:
        """Return whether a lost journal may have known instances that are not adopted yet: EC2's list may lack one for a time (T21)."""
        return self.memory.lost_at is not None and self.now < self.memory.lost_at + UNSEEN_S

    def may(self, ability: Ability) -> bool:
        """Return whether the daemon may do this now."""
        return ability not in denied(self.lost)

    @property
    def reports(self) -> Mapping[str, ReceivedReport]:
        """Return the last report of each instance's agent."""
        return self.observation.reports

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        """Return EC2's capacity reservations by id, as they were last read."""
        return self.observation.reservations

    @property
    def listening_since(self) -> float:
        """Return the time when the daemon began to listen. No agent could report before."""
        return self.observation.listening_since

    def group(self, *phases: SlurmPhase) -> Iterable[str]:
        """Return the slots in these phases."""
        for phase in phases:
            yield from self.groups.get(phase, ())

    def node(self, slot: str) -> SlurmNode:
        return self.slurm.nodes[slot]

    def incarnation(self, slot: str) -> Incarnation | None:
        return self.memory.incarnations.get(slot)

    def boots(self) -> Iterator[tuple[str, str, Incarnation]]:
        """Return slot, instance and incarnation of each boot that has not failed."""
        for slot in self.group(SlurmPhase.POWERING_UP):
            incarnation = self.incarnation(slot)
            if incarnation is not None and incarnation.instance is not None and incarnation.failed is None:
                yield slot, incarnation.instance, incarnation

    def instance(self, slot: str) -> Instance | None:
        """Return the slot's instance as the cloud lists it."""
        incarnation = self.memory.incarnations.get(slot)
        return (
            self.cloud.instances.get(incarnation.instance)
            if incarnation is not None and incarnation.instance
            else None
        )

    def instance_status(self, slot: str) -> InstanceStatus:
        """Return the state of the slot's instance. If it stays unlisted it is MISSING while its node is up, else ENDED."""
        incarnation = self.memory.incarnations.get(slot)
        if incarnation is None or incarnation.instance is None:
            return InstanceStatus.NONE
        if self.blind:
            return InstanceStatus.UNSEEN
        listed = self.cloud.instances.get(incarnation.instance)
        if listed is not None:
            return _STATUSES[listed.state]
        missing_since = max(
            incarnation.launched_at, self.cloud.absent_since.get(incarnation.instance, self.now)
        )
        if missing_since + UNSEEN_S > self.now:
            return InstanceStatus.UNSEEN
        return InstanceStatus.MISSING if self.phases.get(slot) is SlurmPhase.UP else InstanceStatus.ENDED

    def refused_end(self, slot: str) -> RefusedEnd | None:
        """Return the cloud's refusal to terminate the slot's living instance. While it lasts, the slot takes no job."""
        if not self.memory.refused_ends:
            return None
        incarnation = self.memory.incarnations.get(slot)
        known = self.memory.refused_ends.get((incarnation and incarnation.instance) or "")
        lives = known is not None and known.refused and self.instance_status(slot) in HAS_INSTANCE
        return known if lives else None

    def just_undrained(self, slot: str) -> bool:
        """Return whether the slot was undrained or resumed so recently that Slurm may still start a job on it."""
        seen = self.memory.drains.get(slot)
        return seen is not None and not seen.drained and seen.since <= self.now < seen.since + SCHEDULES_S

    def just_opened(self, slot: str) -> bool:
        """Return whether that drain was for a lack of capacity."""
        return self.just_undrained(slot) and self.memory.drains[slot].blocked

    def kept(self, slot: str) -> bool:
        """Return whether a `keep` order for the slot's instance is in force."""
        order = self.memory.orders.get(slot)
        if order is None or order.verb is not Verb.NODE_KEEP:
            return False
        return order.until is None or order.until > self.now

    def is_removed(self, slot: str) -> bool:
        """Return whether a held bundle removes or changes the slot. If that is not known, our drain of the slot stays."""
        if self.removed is not None:
            return slot in self.removed
        node = self.slurm.nodes.get(slot)
        return node is not None and node.drained and node.drain_owner is DrainOwner.BUNDLE

    def free(self, slot: str) -> bool:
        """Return whether the slot is powered down and has no instance and no launch."""
        incarnation = self.memory.incarnations.get(slot)
        return self.phases.get(slot) is SlurmPhase.OFF and (
            incarnation is None or not (incarnation.instance or incarnation.request)
        )


def owned(memory: Memory, now: float) -> tuple[str, ...]:
    """Return the instances of the slots, which are looked up by id if the list of the cluster's tags lacks them.

    A person may have changed their tags; then they still live, and their slots are not free. New ones are left out: EC2
    lists them late (T20).
    """
    known = (one for one in memory.incarnations.values() if one.instance)
    return tuple(sorted(one.instance or "" for one in known if one.launched_at + LISTED_S <= now))


def urgency(job: SlurmJob) -> tuple[int, int]:
    """Return the sort key: highest priority first, then the oldest."""
    return (-job.priority, job.id)


def _phases(
    slots: Mapping[str, Slot], nodes: Mapping[str, SlurmNode]
) -> tuple[dict[str, SlurmPhase], dict[SlurmPhase, tuple[str, ...]]]:
    known: dict[frozenset[str], SlurmPhase] = {}
    phases: dict[str, SlurmPhase] = {}
    groups: dict[SlurmPhase, list[str]] = {}
    for name in slots:
        node = nodes.get(name)
        if node is None:
            continue
        phase = known.get(node.states)
        if phase is None:
            phase = known[node.states] = classify(node.states)
        phases[name] = phase
        groups.setdefault(phase, []).append(name)
    return phases, {phase: tuple(names) for phase, names in groups.items()}


def _by_slot(jobs: tuple[SlurmJob, ...]) -> dict[str, tuple[SlurmJob, ...]]:
    found: dict[str, tuple[SlurmJob, ...]] = {}
    for job in jobs:
        for node in job.nodes:
            found[node] = (*found.get(node, ()), job)
    return found
