"""The Kubernetes part of a plan: pools, what a node of each gives to pods, and how teams share it.

Amounts of resources are whole numbers in the unit of their name: `cpu` in thousandths of a CPU; memory, huge pages
and ephemeral storage in MiB; everything else (GPUs, MIG slices, EFA interfaces) counted. `quantity` writes them.
"""

from dataclasses import dataclass
from enum import StrEnum

from gpucluster.plan.market import Source

CPU, MEMORY, EPHEMERAL = "cpu", "memory", "ephemeral-storage"
HUGE_PAGES = "hugepages-2Mi"
GPU = "nvidia.com/gpu"
MIG_PREFIX = "nvidia.com/mig-"
EFA = "vpc.amazonaws.com/efa"
IN_MIB = frozenset({MEMORY, EPHEMERAL, HUGE_PAGES})


class Distribution(StrEnum):
    """Whose control plane it is."""

    EKS = "eks"
    EXISTING = "existing"


class PodSecurity(StrEnum):
    """The level that a namespace enforces."""

    BASELINE = "baseline"
    PRIVILEGED = "privileged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """Keeps pods away that do not tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level of the topology: the word of the spec, and the node label that tells its domains."""

    word: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """One network interface that a node is launched with."""

    card: int
    device: int
    kind: str  # interface | efa-only


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """Nodes that look the same to pods.

    The first `min` stand always and are no autoscaler's; the other `max` - `min` come and go with Karpenter.
    """

    name: str
    min: int
    max: int
    idle_s: int  # an elastic node that is empty so long ends
    sources: tuple[Source, ...]
    zone: str  # of the nodes that stand always: one, so that a gang of them has one zone
    zones: tuple[str, ...]  # of all sources, in the network's order
    arch: str  # amd64 | arm64
    vcpus: int  # of the least machine
    gpu_model: str | None
    gpu_count: int  # whole GPUs of a node, sliced or not
    mig: dict[str, int]  # profile -> slices of each GPU; empty: GPUs are whole
    allocatable: dict[str, int]  # what pods can have of a node, the headroom taken off
    shared_by: tuple[str, ...]  # the resources that quotas are written in; the others follow in proportion
    labels: dict[str, str]  # on every node
    taints: tuple[Taint, ...]
    local_disks: bool  # every machine has NVMe of its own
    interfaces: tuple[Interface, ...]  # empty: the machine's one
    levels: tuple[
        Level, ...
    ]  # widest first, the host last; only where all nodes stand: Kueue counts on what is there

    @property
    def elastic(self) -> int:
        """How many nodes come and go."""
        return self.max - self.min

    def offers(self) -> dict[str, int]:
        """All nodes' allocatable together, at `max`."""
        return {resource: amount * self.max for resource, amount in self.allocatable.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of one pool: what is promised, and how much more may be borrowed."""

    pool: str
    nominal: dict[str, int]
    borrow: dict[str, int]  # all 0: never


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """People with a namespace, a queue and a share of the pools."""

    name: str
    namespace: str
    group: str  # what RBAC binds
    queue: str  # name of its ClusterQueue
    quota: dict[str, int]  # as wished
    may_borrow: bool
    shares: tuple[Share, ...]  # in the order in which the queue tries them
    pod_security: PodSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """A Kubernetes that stands, and what it is told. `spare` is what no team was promised: the cohort lends it."""

    version: str
    distribution: Distribution
    context: str | None  # of the operator's kubeconfig, where it exists already
    queueing: str  # kueue
    gpu_stack: str  # device-plugin
    pools: tuple[NodePool, ...]
    teams: tuple[Team, ...]
    spare: tuple[Share, ...]

    def pool(self, name: str) -> NodePool:
        """The pool of that name; ValueError for another."""
        for pool in self.pools:
            if pool.name == name:
                return pool
        raise ValueError(f"no pool {name!r} runs Kubernetes")

    def team(self, name: str) -> Team:
        """The team of that name; ValueError for another."""
        for team in self.teams:
            if team.name == name:
                return team
        raise ValueError(f"there is no team {name!r}")


def accelerators(gpus: int, mig: dict[str, int]) -> dict[str, int]:
    """The resources by which pods ask for a node's GPUs: whole ones, or slices of each."""
    if mig and gpus:
        return {f"{MIG_PREFIX}{profile}": gpus * slices for profile, slices in sorted(mig.items())}
    return {GPU: gpus} if gpus else {}


def weight(resource: str) -> int:
    """What one of a resource counts when the rest of its node is shared out: a slice by its sevenths of the GPU."""
    return int(resource.removeprefix(MIG_PREFIX).partition("g")[0]) if resource.startswith(MIG_PREFIX) else 1


def quantity(resource: str, amount: int) -> str:
    """An amount as Kubernetes writes it: `3500m`, `96`, `1048576Mi`."""
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    return f"{amount}Mi" if resource in IN_MIB else str(amount)
