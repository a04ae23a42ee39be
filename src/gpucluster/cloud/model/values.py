"""The values of the model: what a launch asks, what an instance is, how a request is refused."""

from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpucluster.cloud.port import InstanceState
from gpucluster.plan.model import InterfaceKind, Market

ANY = "*"  # a wildcard in capacity rules


class Dice(Protocol):
    """A seeded `random.Random`, given in: the model draws ids, addresses and orders from it."""

    def getrandbits(self, k: int, /) -> int: ...
    def randrange(self, start: int, stop: int, /) -> int: ...
    def shuffle(self, x: MutableSequence[Any], /) -> None: ...


class Refusal(Exception):  # noqa: N818 - EC2 refuses; whether that is an error is the caller's
    """A request that EC2 refuses, in its own words."""

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long states last, on the caller's clock; None = until the launcher says so."""

    pending_s: float | None = 1.0
    ending_s: float | None = 5.0  # shutting-down and stopping
    visible_s: float = 3600.0  # terminated instances are listed so long (T24)
    linger_s: float = 60.0  # interfaces outlive `terminated` (T42)
    token_s: float = 24 * 3600.0  # a token is remembered so long after the end (T03)
    cleaning_s: float = 300.0  # a block's slot is back so long after the end of its instance (T26)
    closing_s: float = 1800.0  # a block's instances are ended so long before its end (T26)
    warning_s: float = 2400.0  # and their owner is warned so long before it
    gateway_s: float = 5.0  # a NAT gateway is pending, and later deleting, so long (minutes on AWS, T43)
    system_s: float = 1.0  # an EFS is creating so long
    target_s: float = 4.0  # a mount target is creating so long; 90 s on AWS, not verified (T44)
    lustre_s: float = 20.0  # a Lustre is CREATING so long; 5 to 20 min on AWS (T45)
    link_s: float = 5.0  # and its link to S3
    secret_s: float = 10.0  # a secret has its name so long after a forced deletion (T38); AWS says no number
    rules_s: float = 2.0  # FSx does not see younger rules of a group (T45)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How long, at most, a new instance hides from reading; each is drawn for itself (T20)."""

    id_s: float = 0.0
    address_s: float = 0.0
    tags_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetPlace:
    """What a launch needs to know of its subnet."""

    id: str
    zone: str
    cidr: str
    vpc: str = "vpc-0"
    public: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """One network interface that a launch asks for; an efa-only one has no address (T29)."""

    card: int = 0
    device: int = 0
    kind: InterfaceKind = InterfaceKind.ENA
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """One RunInstances with its launch template resolved.

    `fingerprint` is the request as it was sent: equal for identical parameters, and only then.
    `placed` is whether the request itself named a subnet or zone, which makes its token zonal.
    """

    machine: str
    market: Market
    subnet: SubnetPlace
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
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])  # echoed in descriptions, no behaviour
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    volume_tags: Mapping[str, str] = field(default_factory=dict[str, str])
    interface_tags: Mapping[str, str] = field(default_factory=dict[str, str])
    spot_tags: Mapping[str, str] = field(default_factory=dict[str, str])
    reservation: str | None = None  # targeted, by id
    only_reserved: bool = False  # `capacity-reservations-only`: never ordinary capacity
    joins_open: bool = True  # an open reservation that matches is used, unless the preference is `none`
    max_price: int | None = None  # of spot, micro-USD an hour
    fleet: str | None = None  # id of the fleet that launches it
    placement_group: str | None = None  # by name (T27)
    nics: tuple[Nic, ...] = ()  # beside the primary one
    nic: Nic = Nic()  # the primary one

    @property
    def addresses(self) -> int:
        """How many of its subnet one instance takes (T10)."""
        return 1 + sum(nic.kind is not InterfaceKind.EFA_ONLY for nic in self.nics)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """One CreateFleet of type `instant`: overrides in the order of preference, those refused already with their refusal."""

    id: str
    overrides: tuple["LaunchSpec | Refusal", ...]
    count: int
    least: int
    token: str | None
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What a fleet came to: instances, and errors by the position of their override (T13)."""

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
    deadline: float | None = None  # may be moved up to then; None: not at all
    completed: bool = False

    @property
    def text(self) -> str:
        """The description as EC2 shows it: what is over stays for a week, marked."""
        return f"[Completed] {self.description}" if self.completed else self.description


@dataclass(frozen=True, slots=True)
class Draw:
    """Where one instance's capacity comes from: a capacity rule, or a reservation."""

    rule: int | None = None
    held: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Instance:
    """One instance now. A change makes a new value; holders of an old one see the past."""

    id: str
    reservation: str
    index: int
    spec: LaunchSpec
    state: InstanceState
    since: float  # of `state`
    launched_at: float
    address: str | None
    public_address: str | None
    interface_id: str
    volume_id: str
    mac: str
    drawn: Draw | None  # where its capacity comes from; None once it is given back
    tags: Mapping[str, str]
    reason_code: str = ""
    reason: str = ""
    notice_at: float | None = None  # a spot notice: the end comes then
    notice_hidden: bool = False  # the metadata service says nothing of it (T34)
    rebalance_at: float | None = None  # a rebalance recommendation was given then
    events: tuple[MaintenanceEvent, ...] = ()
    held: str | None = None  # the reservation or block that it runs in
    known_at: float = 0.0  # reads find its id from then on (T20)
    address_at: float = 0.0
    tags_at: float = 0.0
    nics: tuple["Interface", ...] = ()  # beside the primary one

    @property
    def zone(self) -> str:
        return self.spec.subnet.zone


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A network interface of an instance, or of a service by its words; `gone_at` is set when that has ended."""

    id: str
    instance_id: str  # "" of a service's
    subnet: SubnetPlace
    address: str | None  # None: efa-only
    public_address: str | None
    mac: str
    groups: tuple[str, ...]
    tags: Mapping[str, str]
    gone_at: float | None = None
    nic: Nic = Nic()
    service: str = ""  # what a service says of its own: nobody else deletes it (T42)


@dataclass(frozen=True, slots=True)
class Call:
    """One line of the cloud's own trail."""

    at: float
    action: str
    code: str  # "" = done
    detail: str = ""


def stage(now: float, ready_at: float, ends_at: float | None = None) -> str:
    """Where what is made and ended by and by stands: creating, available, deleting."""
    if ends_at is not None:
        return "deleting"
    return "available" if now >= ready_at else "creating"
