"""The world as one value: plan, Slurm, cloud and memory joined by slot; every rule reads from here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from gpucluster.cloud.port import Instance, InstanceState, Told
from gpucluster.elastic.events import Verb
from gpucluster.elastic.memory import Life, Memory
from gpucluster.elastic.model import CloudView, Heard, Phase, SlurmJob, SlurmNode, SlurmView
from gpucluster.elastic.states import classify
from gpucluster.plan.model import Bindings, ClusterPlan, Pool

UNSEEN_S = 300.0  # T20: an id may be unlisted so long; also how long a listed one may be missing (T21)


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot's fixed place."""

    name: str
    pool: Pool
    zone: str
    number: int
    always_on: bool


class Fate(StrEnum):
    """What became of a slot's instance."""

    NONE = "none"  # there is none
    LIVES = "lives"
    UNSEEN = "unseen"  # young, or missing for a short time: taken as living
    HALTED = "halted"  # stopping or stopped: no use, and still to be ended
    ENDED = "ended"  # at least shutting down
    MISSING = "missing"  # unlisted for long


HAS = frozenset({Fate.LIVES, Fate.UNSEEN, Fate.HALTED, Fate.MISSING})  # counts as there; see World.fate
_FATES: Mapping[InstanceState, Fate] = {
    InstanceState.PENDING: Fate.LIVES,
    InstanceState.RUNNING: Fate.LIVES,
    InstanceState.STOPPING: Fate.HALTED,
    InstanceState.STOPPED: Fate.HALTED,
    InstanceState.SHUTTING_DOWN: Fate.ENDED,
    InstanceState.TERMINATED: Fate.ENDED,
}


@cache
def slots_of(plan: ClusterPlan) -> Mapping[str, Slot]:
    """Every slot of the plan by name, in the plan's order."""
    return {
        name: Slot(name, pool, span.zone, number, name in always)
        for pool in plan.pools
        for always in (frozenset(pool.always_on()) if pool.min else frozenset[str](),)
        for span in pool.slots
        for number, name in zip(range(span.first, span.last + 1), span, strict=True)
    }


@cache
def names_in(plan: ClusterPlan) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """The slots of each (pool, zone): a name is made once."""
    found: dict[tuple[str, str], list[str]] = {}
    for slot in slots_of(plan).values():
        found.setdefault((slot.pool.name, slot.zone), []).append(slot.name)
    return {place: tuple(names) for place, names in found.items()}


@dataclass(frozen=True, slots=True)
class World:
    """One moment. Built by `World.of`; `phases` and `groups` hold only slots that Slurm knows."""

    plan: ClusterPlan
    bindings: Bindings
    now: float
    memory: Memory
    slots: Mapping[str, Slot]
    slurm: SlurmView
    cloud: CloudView
    reports: Mapping[str, Heard]
    phases: Mapping[str, Phase]
    groups: Mapping[Phase, tuple[str, ...]]
    starting: tuple[SlurmJob, ...]  # CONFIGURING, the most urgent first
    starting_on: Mapping[str, tuple[SlurmJob, ...]]  # slot -> those of `starting` that hold it
    told: tuple[Told, ...] = ()  # news of the queue
    halted: str = ""  # why nothing may be launched at all
    listening_since: float = 0.0  # nobody could call the daemon before

    @staticmethod
    def of(
        plan: ClusterPlan,
        bindings: Bindings,
        memory: Memory,
        now: float,
        *,
        slurm: SlurmView,
        cloud: CloudView,
        reports: Mapping[str, Heard],
        told: tuple[Told, ...] = (),
        halted: str = "",
        listening_since: float = 0.0,
    ) -> "World":
        slots = slots_of(plan)
        phases, groups = _phases(slots, slurm.nodes)
        starting = tuple(sorted((j for j in slurm.jobs if j.configuring), key=urgency))
        return World(
            plan=plan,
            bindings=bindings,
            now=now,
            memory=memory,
            slots=slots,
            slurm=slurm,
            cloud=cloud,
            reports=reports,
            phases=phases,
            groups=groups,
            starting=starting,
            starting_on=_by_slot(starting),
            told=told,
            halted=halted,
            listening_since=listening_since,
        )

    def group(self, *phases: Phase) -> Iterable[str]:
        """The slots in these phases."""
        for phase in phases:
            yield from self.groups.get(phase, ())

    def node(self, slot: str) -> SlurmNode:
        return self.slurm.nodes[slot]

    def life(self, slot: str) -> Life | None:
        return self.memory.lives.get(slot)

    def instance(self, slot: str) -> Instance | None:
        """The slot's instance as listed."""
        life = self.memory.lives.get(slot)
        return self.cloud.instances.get(life.instance) if life is not None and life.instance else None

    def fate(self, slot: str) -> Fate:
        """What became of the slot's instance. MISSING is ended only where Slurm does not hear the node either."""
        life = self.memory.lives.get(slot)
        if life is None or life.instance is None:
            return Fate.NONE
        listed = self.cloud.instances.get(life.instance)
        if listed is not None:
            return _FATES[listed.state]
        missing_since = max(life.launched_at, self.cloud.absent_since.get(life.instance, self.now))
        if missing_since + UNSEEN_S > self.now:
            return Fate.UNSEEN
        return Fate.MISSING if self.phases.get(slot) is Phase.UP else Fate.ENDED

    def kept(self, slot: str) -> bool:
        """Whether an operator's order to keep the slot's machine stands."""
        order = self.memory.orders.get(slot)
        if order is None or order.verb is not Verb.NODE_KEEP:
            return False
        return order.until is None or order.until > self.now

    def free(self, slot: str) -> bool:
        """Powered down, without an instance or a launch: a job could be placed here, but for a drain."""
        life = self.memory.lives.get(slot)
        return self.phases.get(slot) is Phase.OFF and (life is None or not (life.instance or life.request))


def urgency(job: SlurmJob) -> tuple[int, int]:
    """Sort key: highest priority first, then the oldest."""
    return (-job.priority, job.id)


def _phases(
    slots: Mapping[str, Slot], nodes: Mapping[str, SlurmNode]
) -> tuple[dict[str, Phase], dict[Phase, tuple[str, ...]]]:
    known: dict[frozenset[str], Phase] = {}
    phases: dict[str, Phase] = {}
    groups: dict[Phase, list[str]] = {}
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
