"""Pools: machines and their markets, slots, launch templates, and existing hosts; partitions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, islice
from typing import ClassVar, Literal

from gpucluster.plan.model.capacity import Source
from gpucluster.plan.model.shapes import NodeShape
from gpucluster.plan.model.values import Market


class InterfaceKind(StrEnum):
    """The type of a network interface, in EC2's words."""

    ENA = "interface"  # ordinary: with an address
    EFA = "efa"  # address and fabric
    EFA_ONLY = "efa-only"  # fabric without an address; cannot be primary


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """One network interface of a launch; (card, device) is unique, the primary is (0, 0)."""

    card: int
    device: int
    kind: InterfaceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRange:
    """Slots of one pool in one zone: `prefix` + number, `first` to `last` inclusive.

    Numbers of a cloud's slots are unpadded. Existing hosts have no zone (""), and keep the names of the site: `width`
    pads the number with zeros, and without a width the prefix is the whole name of the only host.
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


def hostlist(spans: Iterable[SlotRange]) -> str:
    """The ranges as Slurm writes them: `h200-1a-[1-16],h200-1b-[1-16]`."""
    return ",".join(span.hostlist for span in spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageByName:
    """An image in the account itself."""

    kind: ClassVar[Literal["name"]] = "name"
    os: str  # ubuntu-24.04, debian-13
    name: str  # `gpucluster-ubuntu-24.04-slurm-24.11`, the name from `gpucluster image build`


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageById:
    """Any image that the account may use."""

    kind: ClassVar[Literal["id"]] = "id"
    os: str
    id: str  # ami-...


Image = ImageByName | ImageById


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTemplate:
    """The launch template of (pool, source, machine). `key` names it in bindings; sources of one market share it."""

    key: str
    source: int  # Source.position
    machine: str
    market: Market
    price: int | None = None  # micro-USD an hour in the catalog; None: unknown, or prepaid
    interfaces: tuple[Interface, ...] = ()  # none: one ordinary interface
    root_gib: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Facts of an existing host, in addition to those in slurm.conf."""

    machine: str  # the name in the spec's `machines`
    gpu_memory_mib: int | None
    fabric: str | None  # infiniband, roce or ethernet
    fabric_ports: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Termination:
    """The steps for a job before its machine ends: a signal to its batch script, and the time until its requeue."""

    signal: str = "USR1"
    lead_s: int = 20  # time of the requeue, in seconds before the machine ends
    grace_s: int = (
        90  # time of the requeue, in seconds after the signal, if the machine has no end time (a broken GPU)
    )
    script: str | None = None  # the site's program on the node; arguments: the kind and the end time


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHeartbeat:
    """The watchdog of jobs that touch a heartbeat file (opt-in): a job counts as hung after `after_s` without a touch."""

    after_s: int
    requeue: bool  # False: the job is only reported


@dataclass(frozen=True, slots=True, kw_only=True)
class BootScript:
    """A script of the site that a node runs as root at its boot, if its content has this hash."""

    bucket: str
    key: str
    sha256: str
    limit_s: int = 600

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """The breaker: after `boots` failed boots in a row the pool launches nothing for `cooldown_s`."""

    boots: int = 6
    cooldown_s: int = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """An environment variable of jobs, with the reason for its value and the source. A row of `never` has no value."""

    name: str
    value: str
    reason: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnvironment:
    """The environment of NCCL and of the fabric for jobs of a pool. Users read it on the nodes."""

    fabric: str = "ethernet"  # efa, infiniband, roce or ethernet
    set: tuple[Variable, ...] = ()
    on_symptom: tuple[Variable, ...] = ()  # a job may set it if it has the symptom of the reason
    never: tuple[Variable, ...] = ()  # obsolete or wrong here


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nodes:
    """Nodes that are equal for Slurm."""

    name: str
    boot_timeout_s: int
    shape: NodeShape
    slots: tuple[SlotRange, ...]
    environment: JobEnvironment = JobEnvironment()
    features: tuple[str, ...] = ()  # of every node, for `--constraint`: what is known before a launch
    health_limit: int = 0  # most nodes that health checks keep drained at one time; 0 without health checks

    @property
    def report_s(self) -> float:
        """The boot has failed if the agent is silent for so long. Then there is time for another machine."""
        return self.boot_timeout_s / 3

    @property
    def node_names(self) -> tuple[str, ...]:
        """All slots, in their order."""
        return tuple(chain.from_iterable(self.slots))

    @property
    def hostlist(self) -> str:
        """All slots as Slurm writes them."""
        return hostlist(self.slots)

    def zone_of(self, node: str) -> str | None:
        """The zone of one of this pool's slots ("" for a host); None for a name that is not one."""
        return next((span.zone for span in self.slots if node in span), None)


def _split(span: SlotRange, count: int) -> Iterator[tuple[SlotRange, bool]]:
    """The first `count` slots of the range, then the others; no empty range."""
    if count:
        yield replace(span, last=span.first + count - 1), True
    if count < len(span):
        yield replace(span, first=span.first + count), False


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsPool(_Nodes):
    """Slots on AWS, one range for each zone in the plan's order of zones. `max` limits the live nodes over all zones."""

    addresses: ClassVar[tuple[()]] = ()  # a slot has no address before its instance runs

    min: int
    max: int
    idle_s: int
    sources: tuple[Source, ...]
    templates: tuple[LaunchTemplate, ...]
    spares: int = 0  # idle nodes that stay on in addition to the busy ones
    termination: Termination = Termination()
    job_heartbeat: JobHeartbeat | None = None
    breaker: Breaker = Breaker()
    replacements_per_hour: int = (
        1  # most instances replaced in an hour after a failed check or a drain of Slurm's
    )
    image: Image | None = None  # None: the cluster's image
    on_boot: tuple[BootScript, ...] = ()  # in order, before slurmd
    placement: bool = False  # launched into a placement group of the pool's zone, if that is useful

    def by_start(self) -> tuple[tuple[SlotRange, bool], ...]:
        """The slots as ranges of always-on slots (True) and of elastic ones, in their order."""
        split = (
            _split(span, self.min if span.zone == self.sources[0].zones[0] else 0) for span in self.slots
        )
        return tuple(chain.from_iterable(split))

    def always_on(self) -> tuple[str, ...]:
        """The always-on slots: the first `min` slots of the first zone of the first source."""
        spans = [span for span in self.slots if span.zone == self.sources[0].zones[0]]
        return tuple(islice(chain.from_iterable(spans), self.min))

    def hosts(self) -> tuple[tuple[str, str], ...]:
        """Empty, because no slot of a cloud is an existing host."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPool(_Nodes):
    """Existing hosts, in the spec's order. All of them are always on; gpucluster never launches or ends them."""

    sources: ClassVar[tuple[Source, ...]] = ()
    templates: ClassVar[tuple[LaunchTemplate, ...]] = ()
    idle_s: ClassVar[int] = 0
    spares: ClassVar[int] = 0
    termination: ClassVar[Termination] = Termination()
    job_heartbeat: ClassVar[None] = None
    breaker: ClassVar[Breaker] = Breaker()
    replacements_per_hour: ClassVar[int] = 0
    image: ClassVar[None] = None
    on_boot: ClassVar[tuple[()]] = ()
    placement: ClassVar[bool] = False

    addresses: tuple[str, ...]  # one for each slot, in the slots' order
    hardware: Hardware

    def __post_init__(self) -> None:
        slots = sum(len(span) for span in self.slots)
        if slots != len(self.addresses):
            raise ValueError(
                f"pool {self.name}: {len(self.addresses)} addresses, expected {slots}, one a host"
            )

    @property
    def min(self) -> int:
        return len(self.addresses)

    @property
    def max(self) -> int:
        return len(self.addresses)

    def by_start(self) -> tuple[tuple[SlotRange, bool], ...]:
        """Every range of hosts is always on."""
        return tuple((span, True) for span in self.slots)

    def always_on(self) -> tuple[str, ...]:
        """Every host."""
        return self.node_names

    def hosts(self) -> tuple[tuple[str, str], ...]:
        """(name, address) of each host."""
        return tuple(zip(self.node_names, self.addresses, strict=True))


Pool = AwsPool | HostPool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSizes:
    """What a job of a partition gets that does not ask for it."""

    memory_of_cpu_mib: int
    cpus_of_gpu: int | None  # or of a MIG slice. None: the nodes have no GPUs, or more slices than CPUs
    most_cpus_of_node: int | None = (
        None  # MaxCPUsPerNode, which counts the CPUs that `extra` reserves; None: no limit
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A Slurm partition over whole pools."""

    name: str
    pools: tuple[str, ...]
    default: bool
    max_time_s: int | None
    default_time_s: int  # of a job without --time
    sizes: JobSizes
    requires_gpus: bool = False  # jobs without GPUs are refused
    max_cpus_per_node: int | None = None  # for all jobs of the partition together
    tier: int = 1  # jobs of a higher tier start first
    exclusive: bool = False  # a job has its nodes alone
    qos: str | None = None  # its limits count for all jobs of the partition
    accounts: tuple[str, ...] = ()  # none: all
    allow_qos: tuple[str, ...] = ()  # none: all
    topology: str | None = None  # None: the default one

    def node_names(self, pools: Iterable[Pool]) -> tuple[str, ...]:
        """Its nodes, in the order of the plan's pools."""
        return tuple(node for pool in pools if pool.name in self.pools for node in pool.node_names)
