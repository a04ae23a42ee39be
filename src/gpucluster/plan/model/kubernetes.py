"""The Kubernetes part of a plan: pools, the resources of a node, and the teams' shares. `values` says the units of amounts."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Literal

from gpucluster.plan import names
from gpucluster.plan.model.capacity import Launch, Share, Source
from gpucluster.plan.model.eks import EksControlPlane, Taint
from gpucluster.plan.model.pools import Interface
from gpucluster.plan.model.values import KNOWN_TO_KARPENTER, Distribution, TopologyLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingControlPlane:
    """A cluster of the site."""

    kind: ClassVar[Literal["existing"]] = "existing"
    distribution: ClassVar[Distribution] = Distribution.EXISTING
    context: str  # context of the operator's kubeconfig
    eks_name: str | None = None  # its name in EKS; not None if a pool is elastic


class PodSecurity(StrEnum):
    """The Pod Security level that a namespace enforces."""

    BASELINE = "baseline"
    PRIVILEGED = "privileged"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """Nodes that are equal for pods and for the queue: a pool of the spec, or its part in one zone.

    The first `min` nodes are always on, and no autoscaler manages them. Karpenter adds and removes the other
    `max` - `min` nodes.
    """

    name: str  # of the pool, or `POOL.ZONE` of a part
    of: str  # name of the pool in the spec
    min: int
    max: int
    idle_s: int  # an elastic node that is empty for this time is removed
    sources: tuple[Source, ...]
    launches: tuple[Launch, ...]  # in the order in which they are tried; empty without elastic nodes
    zone: str  # of the always-on nodes: one, so that a gang on them is in one zone
    zones: tuple[str, ...]  # of all sources, in the order of the network
    arch: str  # amd64 | arm64
    vcpus_of: dict[str, int]  # machine -> its vCPUs
    gpu_model: str | None
    gpu_count: int  # physical GPUs of a node, sliced or not
    mig: dict[str, int]  # profile -> slices of each GPU; empty: GPUs are whole
    allocatable: dict[
        str, int
    ]  # the resources of a node for pods, without the reserve of kubelet and daemons
    shared_by: tuple[str, ...]  # the resources of quotas; all others follow in proportion
    labels: dict[str, str]  # on every node
    taints: tuple[Taint, ...]
    local_disks: bool  # every machine has local NVMe disks
    interfaces: tuple[Interface, ...]  # empty: the default interface of the machine
    levels: tuple[
        TopologyLevel, ...
    ]  # widest first, the host last; only for always-on pools, because Kueue counts existing nodes

    @property
    def vcpus(self) -> int:
        """The vCPUs of the smallest machine."""
        return min(self.vcpus_of.values())

    @property
    def elastic(self) -> int:
        """The number of elastic nodes."""
        return self.max - self.min

    @property
    def elastic_taints(self) -> tuple[Taint, ...]:
        """The taints of the elastic nodes. Without a taint, pods of add-ons and charts keep a node that Karpenter could remove.

        They prefer other nodes then. If there is no room, they start here, so that no add-on waits.
        """
        soft = Taint(key=names.LABEL_POOL, value=self.name, effect="PreferNoSchedule")
        return self.taints or ((soft,) if self.elastic else ())

    @property
    def unknown_to_karpenter(self) -> dict[str, int]:
        """The resources of a node that Karpenter does not know of its machine type: slices of GPUs, huge pages."""
        return {name: amount for name, amount in self.allocatable.items() if name not in KNOWN_TO_KARPENTER}

    def offers(self) -> dict[str, int]:
        """The allocatable resources of all nodes together, at `max`."""
        return {resource: amount * self.max for resource, amount in self.allocatable.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A team: people with a namespace, a queue and a share of the pools."""

    name: str
    namespace: str
    group: str  # the group in RBAC bindings
    queue: str  # name of its ClusterQueue
    quota: dict[str, int]  # from the spec
    may_borrow: bool
    share: int  # weight in Kueue's fair sharing
    shares: tuple[Share, ...]  # in the order in which the queue tries them
    pod_security: PodSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIdentity:
    """An EKS Pod Identity association: pods of the service account get a role with these rights in S3.

    Each place is `s3://BUCKET` or `s3://BUCKET/PREFIX`, a folder, without a slash at its end.
    """

    team: str
    namespace: str
    service_account: str
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()  # may read, write and delete


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePreemption:
    """Which running workloads a waiting one may preempt, in the words of Kueue's ClusterQueue."""

    reclaim_within_cohort: str
    borrow_within_cohort: str
    within_cluster_queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """A priority of workloads in the queue."""

    name: str
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrice:
    """The on-demand price of one unit of a pool's GPU resource for an hour: of the pool's dearest machine, in millionths of a dollar."""

    pool: str
    resource: str
    hour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitoring:
    """Metrics for the Prometheus operator. A pool with a machine whose price is unknown has no row in `prices`."""

    prices: tuple[GpuPrice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRuntime:
    """What a pod of a TrainJob gets in a pool: the whole GPUs of a node, and their part of the rest."""

    pool: str
    resources: dict[str, int]  # requests equal limits, except for the CPU, which has no limit
    fabric: bool  # has EFA interfaces, so it locks memory
    fabric_env: dict[str, str]  # what NCCL and the fabric need
    shm_mib: int
    anywhere: bool  # the pool has a topology, and no level is requested

    @property
    def pools(self) -> tuple[str, ...]:
        return (self.pool,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """Kubeflow Trainer, with a ClusterTrainingRuntime for each pool with whole GPUs."""

    image: str  # of TrainJobs that name none
    pull_secrets: tuple[str, ...]
    runtimes: tuple[TrainingRuntime, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """The Kubernetes part of a plan: of EKS or of an existing cluster. `spare` is the part that no team has: the cohort lends it."""

    version: str
    control_plane: EksControlPlane | ExistingControlPlane
    queueing: str  # kueue
    fair_sharing: bool
    preemption: QueuePreemption
    priorities: tuple[Priority, ...]  # highest first
    gpu_stack: str  # device-plugin
    monitoring: Monitoring | None
    trainer: Trainer | None
    validation_image: str  # of the pods of `gpucluster validate`
    node_image: str | None  # release of EKS's AL2023 image; None: the newest
    pools: tuple[NodePool, ...]
    teams: tuple[Team, ...]
    pod_identities: tuple[PodIdentity, ...]  # sorted by namespace and service account
    spare: tuple[Share, ...]

    @property
    def distribution(self) -> Distribution:
        return self.control_plane.distribution

    def pool(self, name: str) -> NodePool:
        """The pool with that name; ValueError if there is none."""
        for pool in self.pools:
            if pool.name == name:
                return pool
        raise ValueError(f"no pool {name!r} runs Kubernetes")

    def identities(self, team: str) -> tuple[PodIdentity, ...]:
        """The service accounts of a team that have rights in S3."""
        return tuple(one for one in self.pod_identities if one.team == team)

    def team(self, name: str) -> Team:
        """The team with that name; ValueError if there is none."""
        for team in self.teams:
            if team.name == name:
                return team
        raise ValueError(f"there is no team {name!r}")
