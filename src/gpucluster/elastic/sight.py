"""One moment of a cluster for whoever only looks at it: `why`, `timeline`, `reconcile --dry-run`, metrics. A plain value."""

from dataclasses import dataclass

from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Entry
from gpucluster.elastic.memory import Memory
from gpucluster.elastic.model import Observation
from gpucluster.plan.model import Bindings, ClusterPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What is planned, seen and remembered, and the journal's entries where they were read."""

    plan: ClusterPlan
    bindings: Bindings
    seen: Observation
    memory: Memory
    now: float
    entries: tuple[Entry, ...] = ()

    @property
    def world(self) -> World | None:
        """As `decide` sees it; None without a view of Slurm and of the cloud."""
        seen = self.seen
        if seen.slurm is None or seen.cloud is None:
            return None
        return World.of(
            self.plan,
            self.bindings,
            self.memory,
            self.now,
            slurm=seen.slurm,
            cloud=seen.cloud,
            reports=seen.reports,
            told=seen.told,
            halted=seen.halted,
        )
