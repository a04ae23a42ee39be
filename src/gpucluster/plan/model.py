"""The ClusterPlan: every default taken, every name, address and fact decided once.

Plain frozen dataclasses, standard library only, because nodes read `plan.json` too.
Nothing to the right of it looks anything up. Ranges stay ranges (prefix, first, last): no list of nodes.
Units stand in the names: `_s` seconds, `_mib` MiB.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from gpucluster.plan.kubernetes import Kubernetes
from gpucluster.plan.market import Market, Source

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """What Slurm sees of every node of a pool: the least of its machines."""

    sockets: int
    cores_per_socket: int
    threads_per_core: int
    real_memory_mib: int  # nameplate less the plan's margin
    gpu_model: str | None
    gpu_count: int

    @property
    def cpus(self) -> int:
        return self.sockets * self.cores_per_socket * self.threads_per_core


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRange:
    """Slots of one pool in one zone: `prefix` + number, unpadded, `first` to `last` inclusive."""

    zone: str
    prefix: str
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __iter__(self) -> Iterator[str]:
        return (f"{self.prefix}{number}" for number in range(self.first, self.last + 1))

    @property
    def hostlist(self) -> str:
        """The range as Slurm writes it: `h200-1a-[1-16]`, or `h200-1a-1` for one."""
        if self.first == self.last:
            return f"{self.prefix}{self.first}"
        return f"{self.prefix}[{self.first}-{self.last}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTemplate:
    """What (pool, source, machine) is launched from; `key` names it in bindings and tags."""

    key: str
    source: int  # Source.position
    machine: str
    market: Market


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Nodes that look the same to Slurm; `max` bounds the live ones over all zones."""

    name: str
    min: int
    max: int
    idle_s: int
    boot_timeout_s: int
    shape: NodeShape
    sources: tuple[Source, ...]
    slots: tuple[SlotRange, ...]  # one range a zone, zones in the plan's order
    templates: tuple[LaunchTemplate, ...]

    def zone_of(self, node: str) -> str | None:
        """The zone of one of this pool's slots; None for a name that is not one."""
        for span in self.slots:
            number = node.removeprefix(span.prefix)
            if number != node and number.isdecimal() and span.first <= int(number) <= span.last:
                return span.zone
        return None

    def always_on(self) -> tuple[str, ...]:
        """The first `min` slots of the first zone of the first source."""
        span = next(s for s in self.slots if s.zone == self.sources[0].zones[0])
        return tuple(span)[: self.min]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A Slurm partition over whole pools."""

    name: str
    pools: tuple[str, ...]
    default: bool
    max_time_s: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A switch of the topology: slots that share it. Leaves of two zones have no common switch."""

    name: str
    slots: tuple[SlotRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """One public subnet a zone."""

    zone: str
    cidr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The cluster's own VPC."""

    cidr: str
    subnets: tuple[Subnet, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aws:
    """Where on AWS, and what from."""

    region: str
    image: str | None  # name of the image of Slurm's machines, `gpucluster-slurm-24.11`
    network: Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The one machine that Slurm's controller runs on; on AWS it is Pulumi's, and has a machine type and a zone."""

    name: str
    machine: str | None
    zone: str | None
    address: str  # fixed, private
    controller_port: int  # slurmctld
    registration_port: int  # the elastic daemon, for nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmLine:
    """One `Key=value` that differs from what the renderer would write; None removes the key.

    For a comma list (`SlurmctldParameters`) the value is the whole list.
    """

    file: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """The version, and the lines in which a rehearsal differs (none on AWS)."""

    version: str
    lines: tuple[SlurmLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Every waiting time of the cluster; the sandbox shortens them by its printed table."""

    suspend_timeout_s: int  # Slurm's: an ending node cannot be allocated so long
    cred_expire_s: int  # a requeued job may start again after this + 1
    poll_s: float  # the daemon's look at Slurm and cloud while something is under way
    reconcile_s: float  # the same when all is quiet
    heartbeat_s: float  # a node's word to the daemon
    orphan_grace_s: float  # an instance that no request owns ends after this
    refusal_s: float  # a refusal is remembered so long at first, doubled up to refusal_max_s
    refusal_max_s: float
    self_end_s: float  # a node that never registered, or saw no controller for so long, ends itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Nfs:
    """An export of the head's own disk, or of a server that is there."""

    server: str  # address
    export: str
    from_head: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Lustre:
    """An FSx for Lustre; its id, name and mount name are in the bindings."""

    zone: str
    size_gib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherMount:
    """What `mount -t` is told."""

    type: str
    source: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A file system that every machine has at `path`; exactly one kind is there."""

    path: str
    nfs: Nfs | None = None
    lustre: Lustre | None = None
    other: OtherMount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """The whole cluster. `schema` is the plan's own, raised when a field changes its meaning.

    A part that the cluster does not have is None; whoever needs it takes it by `there`.
    """

    schema: int
    name: str
    aws: Aws | None
    head: Head | None
    slurm: Slurm | None
    kubernetes: Kubernetes | None
    storage: tuple[Mount, ...]
    pools: tuple[Pool, ...]
    partitions: tuple[Partition, ...]
    leaves: tuple[Leaf, ...]
    times: Times

    def pool_of(self, node: str) -> Pool | None:
        """The pool that has the slot `node`; None for a name that is not one."""
        return next((p for p in self.pools if p.zone_of(node) is not None), None)


def there(part: T | None) -> T:
    """A part that the caller's kind of cluster has; ValueError for another kind."""
    if part is None:
        raise ValueError("this plan has no such part: it is of another kind of cluster")
    return part


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateBinding:
    """A launch template as the cloud knows it; launched by this version, never by `$Latest`."""

    id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bindings:
    """What only the cloud knows, from Pulumi's outputs; `bindings.json` beside the plan."""

    schema: int
    region: str
    bucket: str
    secret: str  # ARN of the munge key's secret
    subnets: dict[str, str]  # zone -> subnet id
    templates: dict[str, TemplateBinding]  # LaunchTemplate.key -> template
