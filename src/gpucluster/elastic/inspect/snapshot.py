"""A cluster at one time, as a plain value: for `why`, `timeline`, `reconcile --dry-run` and the metrics."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpucluster.elastic.abilities import Dependency, Loss
from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.world import World, lost_of
from gpucluster.elastic.events import Entry
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import (
    Action,
    LaunchTrial,
    Observation,
    RecordEvents,
    Requeue,
    Signal,
)
from gpucluster.elastic.repeats import targets
from gpucluster.elastic.status_endpoint import CopyState
from gpucluster.plan.messages import ControllerWatch
from gpucluster.plan.model import Bindings, SlurmPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """Plan, observation and memory at `now`; `entries` are the journal's, if the reader read it; see JournalRecord."""

    plan: SlurmPlan
    bindings: Bindings
    observation: Observation
    memory: Memory
    now: float
    entries: tuple[Entry, ...] = ()
    pruned_before: float | None = None
    controller: ControllerWatch = field(default_factory=ControllerWatch)  # of the agent's watchdog
    copy: CopyState = field(default_factory=CopyState)  # of orders and spend, as the daemon publishes it
    trials: Mapping[str, LaunchTrial] = field(default_factory=dict[str, LaunchTrial])  # the daemon's dry runs
    daemon: bool = True  # False: the daemon does not answer on this machine

    @property
    def world(self) -> World | None:
        """Return the world for `decide`; None without a view of Slurm."""
        return World.of(self.plan, self.bindings, self.observation, self.memory, self.now)

    @property
    def lost(self) -> Mapping[Dependency, Loss]:
        """Return what cannot be read now, also without a view of Slurm."""
        return lost_of(self.observation, self.memory)

    @property
    def unanswered(self) -> str:
        """Return `slurmctld` if it gave no answer; empty: it did."""
        return "slurmctld" if self.observation.slurm is None else ""


def would_do(snapshot: ClusterSnapshot) -> tuple[Action, ...]:
    """Return what the daemon does now: the daemon's own function, over the same value."""
    return decide(snapshot.plan, snapshot.bindings, snapshot.observation, snapshot.memory, snapshot.now)


def actions_on(actions: Iterable[Action], slot: str, instance: str | None) -> tuple[Action, ...]:
    """Return those of `actions` that change the node, its instance or the jobs that run on the instance."""
    return tuple(action for action in actions if _changes(action, slot, instance))


def _changes(action: Action, slot: str, instance: str | None) -> bool:
    if isinstance(action, Signal | Requeue):
        return instance is not None and action.instance == instance
    return not {slot, instance}.isdisjoint(targets(action))


def after_facts(snapshot: ClusterSnapshot, actions: tuple[Action, ...]) -> ClusterSnapshot:
    """Return the snapshot with the facts that the daemon records first; its actions rest on those too."""
    facts = tuple(entry for a in actions if isinstance(a, RecordEvents) for entry in a.entries)
    return replace(snapshot, memory=fold(snapshot.memory, facts))
