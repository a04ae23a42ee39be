"""The values of the state: launch request, instance, interface, refusal."""

from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpucluster.cloud.port import InstanceState
from gpucluster.plan.model import InterfaceKind, Market

ANY = "*"  # a wildcard in capacity rules


class RandomSource(Protocol):
    """A seeded `random.Random` from the caller, for ids, addresses and orders."""

    def getrandbits(self, k: int, /) -> int: ...
    def randrange(self, start: int, stop: int, /) -> int: ...
    def shuffle(self, x: MutableSequence[Any], /) -> None: ...


class Refusal(Exception):  # noqa: N818 - EC2 refuses; whether that is an error is the caller's
    """A request that AWS refuses, with its code and message."""

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long states last on the caller's clock; None: until the launcher reports the change."""

    pending_s: float | None = 1.0
    ending_s: float | None = 5.0  # shutting-down and stopping
    visible_s: float = 3600.0  # terminated instances stay listed so long (T24)
    linger_s: float = 60.0  # interfaces stay so long after `terminated` (T42)
    token_s: float = 24 * 3600.0  # a token is known so long after the end (T03)
    cleaning_s: float = 300.0  # a block's slot is free again so long after its instance ended (T26)
    closing_s: float = 1800.0  # a block's instances are terminated so long before its end (T26)
    warning_s: float = 2400.0  # the warning comes so long before that
    gateway_s: float = 5.0  # a NAT gateway is pending, and later deleting, for so long (minutes on AWS, T43)
    system_s: float = 1.0  # an EFS is creating for so long
    target_s: float = 4.0  # a mount target is creating for so long; 90 s on AWS, not verified (T44)
    lustre_s: float = 20.0  # a Lustre is CREATING for so long; 5 to 20 minutes on AWS (T45)
    link_s: float = 5.0  # its link to S3 is CREATING for so long
    secret_s: float = (
        10.0  # a secret keeps its name so long after a forced deletion (T38); AWS gives no number
    )
    invocation_s: float = 0.5  # GetCommandInvocation does not find a younger command (T53)
    cluster_s: float = (
        3.0  # a cluster of EKS is CREATING, and later DELETING, for so long; 10 to 15 minutes on AWS
    )
    nodegroup_s: float = 3.0  # a node group likewise, and its updates
    addon_s: float = 1.0  # an add-on likewise
    update_s: float = 2.0  # a cluster is UPDATING for so long
    rules_s: float = 2.0  # FSx does not see rules of a group that are younger (T45)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The longest delay until reads show the id, the address and the tags of a new instance; each is random (T20)."""

    id_s: float = 0.0
    address_s: float = 0.0
    tags_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetRef:
    """The subnet of a launch."""

    id: str
    zone: str
    cidr: str
    vpc: str = "vpc-0"
    public: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCardRequest:
    """One requested network interface; an EFA-only one has no address (T29)."""

    card: int = 0
    device: int = 0
    kind: InterfaceKind = InterfaceKind.ENA
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLaunch:
    """One RunInstances with its launch template resolved.

    `fingerprint` is the request as it was sent: equal for identical parameters, and only then.
    `placed` is whether the request itself named a subnet or zone, which makes its token zonal.
    """

    machine: str
    market: Market
    subnet: SubnetRef
    min_count: int
    max_count: int
    token: str | None
    fingerprint: str
    placed: bool = True
    address: str | None = None
    public: bool = False
    image: str = "ami-0"
    groups: tuple[str, ...] = ()
    profile: str | None = None  # ARN of the instance profile
    user_data: bytes = b""
    key_name: str | None = None
    template: tuple[str, int] | None = None
    on_shutdown: str = "stop"  # or terminate
    protected: bool = False  # DisableApiTermination
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    options: Mapping[str, Any] = field(
        default_factory=dict[str, Any]
    )  # returned by Describe calls; no effect
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    volume_tags: Mapping[str, str] = field(default_factory=dict[str, str])
    interface_tags: Mapping[str, str] = field(default_factory=dict[str, str])
    spot_tags: Mapping[str, str] = field(default_factory=dict[str, str])
    reservation: str | None = None  # targeted by id
    only_reserved: bool = False  # `capacity-reservations-only`: never ordinary capacity
    joins_open: bool = True  # a matching open reservation is used, unless the preference is `none`
    max_price: int | None = None  # for spot, micro-USD an hour
    fleet: str | None = None  # id of the fleet that launches it
    placement_group: str | None = None  # by name (T27)
    nics: tuple[NetworkCardRequest, ...] = ()  # without the primary one
    nic: NetworkCardRequest = NetworkCardRequest()  # the primary one

    @property
    def addresses(self) -> int:
        """The number of subnet addresses that one instance takes (T10)."""
        return 1 + sum(nic.kind is not InterfaceKind.EFA_ONLY for nic in self.nics)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """One CreateFleet of type `instant`: overrides in order of preference; a refused override is its Refusal."""

    id: str
    overrides: tuple["InstanceLaunch | Refusal", ...]
    count: int
    least: int
    token: str | None
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The result of a fleet: instances, and errors by position of their override (T13)."""

    id: str
    instances: tuple[tuple[str, int], ...]  # (id, position)
    errors: tuple[tuple[int, str, str], ...]  # (position, code, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceEvent:
    """A scheduled event of an instance (T35)."""

    id: str
    code: str  # instance-retirement, system-reboot, ...
    not_before: float
    description: str
    deadline: float | None = None  # the latest start to which it may be moved; None: it may not be moved
    completed: bool = False

    @property
    def text(self) -> str:
        """The description as EC2 shows it: a completed event stays for a week with a mark."""
        return f"[Completed] {self.description}" if self.completed else self.description


@dataclass(frozen=True, slots=True)
class CapacitySource:
    """The source of one instance's capacity: a capacity rule or a reservation."""

    rule: int | None = None
    reservation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Instance:
    """One instance at one moment. A change makes a new value."""

    id: str
    reservation: str
    index: int
    spec: InstanceLaunch
    state: InstanceState
    since: float  # the time of the last change of `state`
    launched_at: float
    address: str | None
    public_address: str | None
    interface_id: str
    volume_id: str
    mac: str
    drawn: CapacitySource | None  # None after the capacity was returned
    tags: Mapping[str, str]
    reason_code: str = ""
    reason: str = ""
    notice_at: float | None = None  # time of the interruption that a spot notice announces
    notice_hidden: bool = False  # the metadata service does not show the notice (T34)
    rebalance_at: float | None = None  # time of a rebalance recommendation
    events: tuple[MaintenanceEvent, ...] = ()
    reservation_id: str | None = None  # its reservation or block
    known_at: float = 0.0  # reads find its id from then on (T20)
    address_at: float = 0.0
    tags_at: float = 0.0
    nics: tuple["Interface", ...] = ()  # without the primary one

    @property
    def zone(self) -> str:
        return self.spec.subnet.zone


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A network interface of an instance or a service. `gone_at` is set when its owner has ended."""

    id: str
    instance_id: str  # "" for the interface of a service
    subnet: SubnetRef
    address: str | None  # None: EFA-only
    public_address: str | None
    mac: str
    groups: tuple[str, ...]
    tags: Mapping[str, str]
    gone_at: float | None = None
    nic: NetworkCardRequest = NetworkCardRequest()
    service: str = ""  # the description of the service; only the service deletes the interface (T42)


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """One line of the call log."""

    at: float
    action: str
    code: str  # "" = success
    detail: str = ""


def stage(now: float, ready_at: float, ends_at: float | None = None) -> str:
    """The state of a resource that is created and deleted over time: creating, available or deleting."""
    if ends_at is not None:
        return "deleting"
    return "available" if now >= ready_at else "creating"
