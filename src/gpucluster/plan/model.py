"""The ClusterPlan: every default taken, every name, address and fact decided once.

Plain frozen dataclasses, standard library only, because nodes read `plan.json` too.
Nothing to the right of it looks anything up. Ranges stay ranges (prefix, first, last): no list of nodes.
Units stand in the names: `_s` seconds, `_mib` MiB.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, islice
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
    """Slots of one pool in one zone: `prefix` + number, `first` to `last` inclusive.

    A cloud's are unpadded. Hosts that exist have no zone (""), and names as the site wrote them: `width` pads the
    number with zeros, and without a width the prefix is the whole name of the one host.
    """

    zone: str
    prefix: str
    first: int
    last: int
    width: int | None = 0

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __iter__(self) -> Iterator[str]:
        return (self._name(number) for number in range(self.first, self.last + 1))

    def __contains__(self, node: object) -> bool:
        if not isinstance(node, str) or not node.startswith(self.prefix):
            return False
        number = node.removeprefix(self.prefix)
        if not (number.isascii() and number.isdecimal()):
            return self.width is None and not number
        return self.first <= int(number) <= self.last and self._name(int(number)) == node

    @property
    def hostlist(self) -> str:
        """The range as Slurm writes it: `h200-1a-[1-16]`, or `h200-1a-1` for one."""
        first, last = self._name(self.first), self._name(self.last)
        if first == last:
            return first
        return f"{self.prefix}[{first.removeprefix(self.prefix)}-{last.removeprefix(self.prefix)}]"

    def _name(self, number: int) -> str:
        return self.prefix if self.width is None else f"{self.prefix}{number:0{self.width}}"


class InterfaceKind(StrEnum):
    """What a network interface of a machine is, in EC2's words."""

    ENA = "interface"  # ordinary: it has an address
    EFA = "efa"  # address and fabric
    EFA_ONLY = "efa-only"  # fabric without an address; cannot be primary


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """One network interface of a launch; (card, device) is unique, the primary is (0, 0)."""

    card: int
    device: int
    kind: InterfaceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What machines boot from: the account's own image of that name, or one by its id. Exactly one is there."""

    os: str  # ubuntu-24.04, debian-13
    name: str | None = None  # `gpucluster-ubuntu-24.04-slurm-24.11`, as `gpucluster image build` names it
    id: str | None = None  # ami-...


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTemplate:
    """What (pool, source, machine) is launched from; `key` names it in bindings, and sources of one market share it."""

    key: str
    source: int  # Source.position
    machine: str
    market: Market
    price: int | None = None  # micro-USD an hour in the catalog; None: unknown, or paid ahead
    interfaces: tuple[Interface, ...] = ()  # none: one ordinary interface
    root_gib: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What a host that exists has beside what Slurm is told of."""

    machine: str  # the name in the spec's `machines`
    gpu_memory_mib: int | None
    fabric: str | None  # infiniband, roce or ethernet
    fabric_ports: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Farewell:
    """What a job gets when its machine is about to go: a signal to its batch script, and time until the requeue."""

    signal: str = "USR1"
    lead_s: int = 20  # requeued so long before the machine's end
    grace_s: int = (
        90  # where the machine sets no end itself (a broken GPU): requeued so long after the signal
    )
    script: str | None = None  # the site's own program on the node, called with the kind and the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Hung:
    """A job that beats (opt-in, a file that it touches) and then does not for `after_s`."""

    after_s: int
    requeue: bool  # else it is only told


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """After `boots` failed boots in a row the pool launches nothing for `cooldown_s`."""

    boots: int = 6
    cooldown_s: int = 900


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
    slots: tuple[
        SlotRange, ...
    ]  # one range a zone, zones in the plan's order; of hosts, ranges in the spec's order
    templates: tuple[LaunchTemplate, ...]
    addresses: tuple[str, ...] = ()  # of hosts that exist, one for each slot, in their order
    hardware: Hardware | None = None  # of hosts that exist, beside what Slurm sees
    spares: int = 0  # idle nodes that are kept up beside those that work
    farewell: Farewell = Farewell()
    hung: Hung | None = None
    breaker: Breaker = Breaker()
    image: Image | None = None  # its own; None: the cluster's
    placement: bool = False  # launched into a placement group of the pool's zone, where that helps

    def zone_of(self, node: str) -> str | None:
        """The zone of one of this pool's slots ("" for a host that exists); None for a name that is not one."""
        return next((span.zone for span in self.slots if node in span), None)

    def always_on(self) -> tuple[str, ...]:
        """The first `min` slots of the first zone of the first source; every host that exists."""
        spans = [s for s in self.slots if not self.sources or s.zone == self.sources[0].zones[0]]
        return tuple(islice(chain.from_iterable(spans), self.min))

    def hosts(self) -> tuple[tuple[str, str], ...]:
        """(name, address) of hosts that exist; a cloud's slots have no address before they live."""
        return (
            tuple(zip(chain.from_iterable(self.slots), self.addresses, strict=True)) if self.addresses else ()
        )


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
class Spine:
    """A switch above leaves; leaves of two spines have no common switch."""

    name: str
    leaves: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """A zone's private subnet, and the public one beside it if there is one; made by us, or by `id` the site's own."""

    zone: str
    cidr: str  # "" where it is the site's
    public_cidr: str | None = None  # for gateways and login machines
    id: str | None = None
    public_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The cluster's own VPC, or the site's by its id. Machines but for login have no public address."""

    cidr: str  # "" where it is the site's
    subnets: tuple[Subnet, ...]
    vpc: str | None = None  # the site's
    nat: tuple[
        str, ...
    ] = ()  # zones with a NAT gateway of ours, in the plan's order; one serves zones without
    endpoints: tuple[
        str, ...
    ] = ()  # interface endpoints: `ec2`, `secretsmanager`; S3's gateway is always there


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who reaches the login machines."""

    ssh_from: tuple[str, ...] = ()  # address ranges; none: nobody by ssh
    ssm: bool = False  # by Session Manager, on every machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """What the role for jobs reaches: `s3://BUCKET` or `s3://BUCKET/PREFIX`, a folder, without a slash at its end."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()  # and read, and delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Aws:
    """Where on AWS, and what from."""

    region: str
    image: Image | None  # of Slurm's machines
    network: Network
    tags: tuple[tuple[str, str], ...] = ()  # the site's own, on everything; by key
    boundary: str | None = None  # ARN of the policy that bounds every role
    jobs: Jobs | None = None  # None: jobs have no role


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """How hosts that exist are reached."""

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
    secret: str | None = None  # ARN of the bind password's secret; None: anonymous


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A protected disk of the head, which outlives it."""

    key: str  # `state`, or of an export: what names it in bindings
    size_gib: int
    path: str  # where the head mounts it


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """A second head that waits: slurmctld's backup and the daemon's standby. Its state lies on a shared mount."""

    machine: str
    zone: str
    address: str
    state: str  # the mount that both heads share


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Machines that people log in to."""

    machine: str
    zone: str
    names: tuple[str, ...]  # `research-login-1`


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The one machine that Slurm's controller runs on; on AWS it is Pulumi's, and has a machine type and a zone."""

    name: str
    machine: str | None
    zone: str | None
    address: str  # fixed, private
    controller_port: int  # slurmctld
    registration_port: int  # the elastic daemon, for nodes
    volumes: tuple[Volume, ...] = ()
    standby: Standby | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """Of every controller, the first to be asked first."""
        return (self.address, *(() if self.standby is None else (self.standby.address,)))


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
    storm_s: float = 600.0  # machines of one offer that are taken back within this are one storm
    prolog_s: float = 300.0  # a running job whose Prolog has not reported for so long is queued again
    lease_s: float = 30.0  # who may act keeps that so long after the last renewal; renewed at a third


@dataclass(frozen=True, slots=True, kw_only=True)
class Nfs:
    """An export of the head's own disk, or of a server that is there."""

    server: str  # address
    export: str
    from_head: bool
    stand_in: bool = False  # a rehearsal's: mounted by a stand-in, so neither type nor source are NFS's


@dataclass(frozen=True, slots=True, kw_only=True)
class Efs:
    """An EFS with a mount target a zone; its id is in the bindings."""

    id: str | None = None  # the site's


class Follow(StrEnum):
    """Which changes cross a link between Lustre and S3."""

    NEW = "new"
    CHANGED = "changed"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class LustreLink:
    """A folder of the Lustre that follows a prefix of S3, and is followed by it."""

    path: str
    s3: str  # s3://BUCKET/PREFIX
    imports: tuple[Follow, ...] = ()
    exports: tuple[Follow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lustre:
    """An FSx for Lustre; its id, name and mount name are in the bindings."""

    zone: str
    size_gib: int
    throughput: int = 125  # MB/s a TiB
    links: tuple[LustreLink, ...] = ()
    id: str | None = None  # the site's


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvme:
    """The machine's own disks, striped by the agent, empty at each boot; a folder where there are none."""


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
    efs: Efs | None = None
    lustre: Lustre | None = None
    nvme: Nvme | None = None
    other: OtherMount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Of a calendar month (UTC), by our own ledger at catalog prices; amounts in micro-USD."""

    monthly: int
    warn_at: int  # an amount, too
    stop_scaling_at: int
    notify: tuple[str, ...] = ()  # addresses of mail that AWS Budgets tells


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
    leaves: tuple[Leaf, ...]  # none: every node is as near to every other
    times: Times
    hosts: Hosts | None = None
    spines: tuple[Spine, ...] = ()
    users: tuple[User, ...] = ()
    directory: Directory | None = None
    access: Access = Access()
    login: Login | None = None
    budget: Budget | None = None

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
class FileSystemBinding:
    """A file system as the cloud knows it."""

    id: str
    dns_name: str
    mount_name: str = ""  # of an FSx for Lustre
    access_point: str = ""  # of an EFS


@dataclass(frozen=True, slots=True, kw_only=True)
class Bindings:
    """What only the cloud knows, from Pulumi's outputs; `bindings.json` beside the plan."""

    schema: int
    region: str
    bucket: str
    secret: str  # ARN of the munge key's secret
    subnets: dict[str, str]  # zone -> subnet id
    templates: dict[str, TemplateBinding]  # LaunchTemplate.key -> template
    file_systems: dict[str, FileSystemBinding] = field(
        default_factory=dict[str, FileSystemBinding]
    )  # by mount
    queue: str = ""  # URL of the queue of interruptions; empty: none is read
    volumes: dict[str, str] = field(default_factory=dict[str, str])  # Volume.key -> volume id
    placement_groups: dict[str, str] = field(
        default_factory=dict[str, str]
    )  # `POOL/ZONE` -> the group's name
    jobs_role: str = ""  # ARN of the role for jobs; empty: they have none
    groups: dict[str, str] = field(
        default_factory=dict[str, str]
    )  # role -> security group: a launch that lists its interfaces says it at each (T31)
