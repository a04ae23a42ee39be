"""Facts: the answers of an account. Findings: the lines of the report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")


class AccountStatus(StrEnum):
    """The result of a check; unknown: the account gave no answer."""

    OK = "ok"
    WARNING = "warning"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountFinding:
    """The result of one check. `where` names the pool and field of the spec."""

    what: str
    verdict: AccountStatus
    found: str
    expected: str = ""
    where: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A missing answer. `denied`: the caller has no permission for the query."""

    reason: str
    denied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFact:
    """A quota with its name in Service Quotas."""

    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetFact:
    """An existing subnet of the site."""

    zone: str
    vpc: str
    free: int
    owner: str = ""  # account


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressFact:
    """A fixed private address. An empty subnet: it does not exist yet, so nothing can use the address."""

    subnet: str = ""
    holder: str = ""  # the interface that uses the address, with its description; empty: it is free
    ours: bool = False  # the holder is an instance of this cluster
    reserved: bool = False  # a CIDR reservation of the subnet keeps it from others


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFact:
    """An AMI."""

    id: str
    name: str
    state: str
    created: str
    deprecated: str = ""  # ISO 8601; empty: never


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationFact:
    """A capacity reservation or capacity block of the account."""

    id: str
    state: str
    machine: str
    zone: str
    total: int
    block: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LockFact:
    """The lock of a Pulumi stack: its backend and its holders."""

    backend: str
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFact:
    """A KMS key. An empty state: there is no such key."""

    id: str  # as it was named: ARN or alias
    state: str = ""  # as KMS writes it: Enabled, Disabled, PendingDeletion
    manager: str = ""  # CUSTOMER or AWS


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultKeyFact:
    """How EBS encrypts a volume that names no key."""

    always: bool  # encryption by default is on
    key: KeyFact | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All answers; Unknown with a reason for each missing one."""

    identity: str | Unknown
    zones: Mapping[str, str] | Unknown  # zone -> state, as EC2 writes it
    quotas: Mapping[str, QuotaFact | Unknown] = field(default_factory=dict[str, QuotaFact | Unknown])
    offered: frozenset[tuple[str, str]] | Unknown = frozenset()  # (machine, zone)
    subnets: Mapping[str, SubnetFact] | Unknown = field(default_factory=dict[str, SubnetFact])
    addresses: Mapping[str, AddressFact | Unknown] = field(
        default_factory=dict[str, AddressFact | Unknown]
    )  # by fixed address
    images: Mapping[str, tuple[ImageFact, ...] | Unknown] = field(
        default_factory=dict[str, tuple[ImageFact, ...] | Unknown]
    )  # by name or id
    roles: Mapping[str, bool | Unknown] = field(default_factory=dict[str, bool | Unknown])
    reservations: tuple[ReservationFact, ...] | Unknown = ()
    secrets: Mapping[str, str | Unknown] = field(default_factory=dict[str, str | Unknown])  # ARN -> state
    key: KeyFact | Unknown | None = None  # of `aws.kms_key`; None: the spec names none
    default_key: DefaultKeyFact | Unknown = Unknown("not queried")
    lock: LockFact | Unknown = Unknown("not queried")
