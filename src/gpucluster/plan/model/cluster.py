"""The ClusterPlan: every default is set, and every name, address and fact is decided once.

The classes are plain frozen dataclasses and need only the standard library, because machines read `plan.json`, too.
Code that reads a plan makes no look-ups. A range of nodes stays a range (prefix, first, last).
Units are in the names: `_s` seconds, `_mib` MiB.

A plan is one of three classes: `SlurmOnAws`, `SlurmOnHosts` or `KubernetesOnAws`. If exactly one of several parts must be
present, the field is a union of dataclasses with a `kind`, so an illegal plan cannot be made. A part that a class never
has is a constant of that class (`aws: ClassVar[None]`): a test such as `plan.aws is None` then narrows the type.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gpucluster.plan.model.accounting import (
    Account,
    Accounting,
    ExternalDatabase,
    License,
    Limits,
    LocalDatabase,
    Preemption,
    Qos,
    SiteReservation,
)
from gpucluster.plan.model.aws import (
    NOBODY,
    Access,
    Aws,
    JobsS3Access,
    Network,
    OwnNetwork,
    SiteNetwork,
    SiteSubnet,
    Subnet,
)
from gpucluster.plan.model.bindings import Bindings, FileSystemBinding, TemplateBinding
from gpucluster.plan.model.eks import EksControlPlane
from gpucluster.plan.model.kubernetes import Kubernetes
from gpucluster.plan.model.pools import (
    AwsPool,
    BootScript,
    Breaker,
    Hardware,
    HostPool,
    Image,
    ImageById,
    ImageByName,
    Interface,
    InterfaceKind,
    JobEnvironment,
    JobHeartbeat,
    JobSizes,
    LaunchTemplate,
    Partition,
    Pool,
    SlotRange,
    Source,
    Termination,
    Variable,
)
from gpucluster.plan.model.shapes import Mig, MigSlice, Mps, NodeShape, Shards
from gpucluster.plan.model.storage import (
    AwsFileSystem,
    Efs,
    FileSystem,
    FsxLustre,
    Lustre,
    LustreLink,
    Mount,
    Nfs,
    NfsFromHead,
    NfsFromServer,
    Nvme,
    OtherMount,
    SiteEfs,
    SiteLustre,
)
from gpucluster.plan.model.topology import Blocks, Flat, Leaf, Spine, Topology, Tree
from gpucluster.plan.model.values import Containers, Follow, Market

__all__ = [
    "Access",
    "Account",
    "Accounting",
    "Aws",
    "AwsFileSystem",
    "AwsHead",
    "AwsPlan",
    "AwsPool",
    "Bindings",
    "Blocks",
    "BootScript",
    "Breaker",
    "Budget",
    "ClusterPlan",
    "Containers",
    "Directory",
    "Efs",
    "ExternalDatabase",
    "FileSystem",
    "FileSystemBinding",
    "Flat",
    "Follow",
    "FsxLustre",
    "Hardware",
    "Head",
    "Health",
    "HostHead",
    "HostPool",
    "Hosts",
    "Image",
    "ImageById",
    "ImageByName",
    "Interface",
    "InterfaceKind",
    "JobEnvironment",
    "JobHeartbeat",
    "JobSizes",
    "JobsS3Access",
    "KubernetesOnAws",
    "LaunchTemplate",
    "Leaf",
    "License",
    "Limits",
    "LocalDatabase",
    "Login",
    "Lustre",
    "LustreLink",
    "Market",
    "Mig",
    "MigSlice",
    "Mount",
    "Mps",
    "Network",
    "Nfs",
    "NfsFromHead",
    "NfsFromServer",
    "NodeShape",
    "NodeSsh",
    "Nvme",
    "OtherMount",
    "OwnNetwork",
    "Partition",
    "Pool",
    "Preemption",
    "Qos",
    "Sessions",
    "Shards",
    "SiteEfs",
    "SiteLustre",
    "SiteNetwork",
    "SiteReservation",
    "SiteSubnet",
    "SlotRange",
    "Slurm",
    "SlurmLine",
    "SlurmOnAws",
    "SlurmOnHosts",
    "SlurmPlan",
    "SlurmSetting",
    "Software",
    "Source",
    "Spine",
    "Standby",
    "Subnet",
    "TemplateBinding",
    "Termination",
    "Times",
    "Topology",
    "Tree",
    "User",
    "Variable",
    "Volume",
    "eks_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Access to existing hosts."""

    ssh_user: str
    ssh_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A person on every machine, and the public keys that open the account."""

    name: str
    uid: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """People by LDAP, through sssd on every machine."""

    uri: str  # ldaps://...
    base: str
    secret: str | None = None  # ARN of the secret with the bind password; None: anonymous


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A protected disk of the head, which survives the head."""

    key: str  # `state`, or the key of an export in bindings
    size_gib: int
    path: str  # mount point on the head


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """A second head in standby: slurmctld's backup and the daemon's standby. Its state is on a shared mount."""

    machine: str
    zone: str
    address: str
    state: str  # the mount that both heads share


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The limits of all sessions of one user on a login machine together."""

    memory_mib: int
    tasks: int
    cpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Machines for users to log in."""

    machine: str
    zone: str
    names: tuple[str, ...]  # `research-login-1`
    sessions: Sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsHead:
    """The machine of Slurm's controller, made by Pulumi."""

    name: str
    machine: str
    zone: str
    address: str  # fixed, private
    controller_port: int  # slurmctld
    registration_port: int  # port of the elastic daemon, for nodes
    volumes: tuple[Volume, ...] = ()
    standby: Standby | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """The names of all controllers, in the order in which clients try them."""
        return (self.address, *(() if self.standby is None else (self.standby.address,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHead:
    """The existing host of Slurm's controller."""

    volumes: ClassVar[tuple[()]] = ()
    standby: ClassVar[None] = None

    name: str
    address: str
    controller_port: int
    registration_port: int

    @property
    def addresses(self) -> tuple[str, ...]:
        """The names of all controllers: there is only one."""
        return (self.address,)


Head = AwsHead | HostHead


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmLine:
    """One `Key=value` that differs from the renderer's default; None removes the key.

    For a comma list (`SlurmctldParameters`) the value is the whole list.
    """

    file: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSsh:
    """ssh to nodes: a user needs a running job there. `operators` do not, nor does root."""

    operators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Software on shared storage: folders that every machine sees."""

    modules: str | None = None  # module files of Lmod
    conda: str | None = None  # an installation of Conda


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSetting:
    """A key of slurm.conf that the spec sets by `extra` or leaves out by `remove` (value None)."""

    kind: str  # `slurm.conf`, or `node` and `partition` for the lines of a pool or partition
    of: str  # name of the pool or partition; empty for slurm.conf
    key: str  # as the manual writes it
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """The version, how jobs of one node are kept apart, and the lines that differ in a rehearsal (none on AWS)."""

    version: str
    lines: tuple[SlurmLine, ...] = ()
    private_tmp: str | None = None  # folder of the /tmp of each job; None: all jobs of a node share /tmp
    node_ssh: NodeSsh | None = None  # None: gpucluster sets up no ssh on nodes
    containers: Containers | None = None
    software: Software | None = None
    accounting: Accounting | None = None  # None: one line for each job in a file of the head
    preemption: Preemption | None = None
    requeue: bool = True  # of batch jobs that do not say
    licenses: tuple[License, ...] = ()
    reservations: tuple[SiteReservation, ...] = ()
    settings: tuple[SlurmSetting, ...] = ()  # sorted


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Health checks of nodes. The limit of drains is in each pool."""

    prolog: bool  # checks also run before and after each job
    every_s: int  # on idle nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """All timeouts and intervals of the cluster. The sandbox shortens them by its printed table."""

    suspend_timeout_s: int  # Slurm's: an ending node cannot be allocated for this time
    cred_expire_s: int  # a requeued job may start again after this + 1
    poll_s: float  # interval at which the daemon reads Slurm and cloud while a change is in progress
    reconcile_s: float  # the interval without a change in progress
    heartbeat_s: float  # interval of a node's report to the daemon
    orphan_grace_s: float  # an instance that no slot owns is terminated so long after it was first seen
    refusal_s: float  # a refusal is remembered for this time at first; the time doubles up to refusal_max_s
    refusal_max_s: float
    self_termination_s: (
        float  # a node that never registered, or reached no controller for this time, ends itself
    )
    storm_s: float = 600.0  # reclaimed machines of one offer within this time count as one storm
    prolog_s: float = 300.0  # a running job is requeued if its Prolog has not reported for this time
    lease_s: float = 30.0  # the lease ends this long after the last renewal; it is renewed at a third


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The budget of a calendar month (UTC), by our own ledger at catalog prices; amounts in micro-USD."""

    monthly: int
    warn_at: int  # also an amount
    stop_scaling_at: int
    notify: tuple[str, ...] = ()  # mail addresses for AWS Budgets


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    """The common fields of every plan. `schema` is the number of the plan's format; a changed meaning of a field raises it."""

    schema: int
    name: str
    storage: tuple[Mount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SlurmCluster(_Cluster):
    """The common fields of every cluster with Slurm."""

    slurm: Slurm
    partitions: tuple[Partition, ...]
    times: Times
    users: tuple[User, ...] = ()
    directory: Directory | None = None
    health: Health | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOnAws(_SlurmCluster):
    """Slurm on AWS, with or without Kubernetes."""

    kind: ClassVar[Literal["slurm-on-aws"]] = "slurm-on-aws"
    hosts: ClassVar[None] = None
    topologies: ClassVar[tuple[()]] = ()
    spines: ClassVar[tuple[()]] = ()  # the leaf of a zone is joined with no other

    leaves: tuple[Leaf, ...]
    aws: Aws
    image: Image  # of every Slurm machine, except in pools with their own image
    head: AwsHead
    pools: tuple[AwsPool, ...]
    access: Access = NOBODY
    login: Login | None = None
    budget: Budget | None = None
    kubernetes: Kubernetes | None = None

    def pool_of(self, node: str) -> AwsPool | None:
        """The pool that has the slot `node`; None for a name that is not a slot."""
        return next((pool for pool in self.pools if pool.zone_of(node) is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOnHosts(_SlurmCluster):
    """Slurm on hosts that exist."""

    kind: ClassVar[Literal["slurm-on-hosts"]] = "slurm-on-hosts"
    aws: ClassVar[None] = None
    login: ClassVar[None] = None
    budget: ClassVar[None] = None
    kubernetes: ClassVar[None] = None

    hosts: Hosts
    head: HostHead
    pools: tuple[HostPool, ...]
    topologies: tuple[Topology, ...] = ()  # none: all nodes have the same distance

    @property
    def default_topology(self) -> Topology | None:
        """The topology of partitions that name none."""
        return next((one for one in self.topologies if one.default), None)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaf switches of the default topology; none if it is no tree."""
        tree = self.default_topology
        return tree.leaves if isinstance(tree, Tree) else ()

    @property
    def spines(self) -> tuple[Spine, ...]:
        """The switches above others in the default topology; none if it is no tree."""
        tree = self.default_topology
        return tree.spines if isinstance(tree, Tree) else ()

    def pool_of(self, node: str) -> HostPool | None:
        """The pool that has the host `node`; None for a name that is not a host."""
        return next((pool for pool in self.pools if pool.zone_of(node) is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOnAws(_Cluster):
    """Kubernetes on AWS, without Slurm."""

    kind: ClassVar[Literal["kubernetes-on-aws"]] = "kubernetes-on-aws"
    hosts: ClassVar[None] = None
    slurm: ClassVar[None] = None
    head: ClassVar[None] = None
    pools: ClassVar[tuple[()]] = ()
    partitions: ClassVar[tuple[()]] = ()
    topologies: ClassVar[tuple[()]] = ()
    leaves: ClassVar[tuple[()]] = ()
    spines: ClassVar[tuple[()]] = ()
    users: ClassVar[tuple[()]] = ()
    directory: ClassVar[None] = None
    health: ClassVar[None] = None
    login: ClassVar[None] = None
    budget: ClassVar[None] = None

    aws: Aws
    kubernetes: Kubernetes

    def __post_init__(self) -> None:
        for mount in self.storage:
            if isinstance(mount.source, NfsFromHead):
                raise ValueError(  # noqa: TRY004 -- the type is right, the combination is not
                    f"storage {mount.path}: found NFS from the head, expected another: there is no head"
                )


ClusterPlan = SlurmOnAws | SlurmOnHosts | KubernetesOnAws
SlurmPlan = SlurmOnAws | SlurmOnHosts
AwsPlan = SlurmOnAws | KubernetesOnAws


def eks_of(plan: AwsPlan) -> EksControlPlane | None:
    """Return the control plane that the program creates; None without Kubernetes, or with an existing one."""
    plane = None if plan.kubernetes is None else plan.kubernetes.control_plane
    return plane if isinstance(plane, EksControlPlane) else None
