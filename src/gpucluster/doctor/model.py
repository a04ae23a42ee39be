"""What an account answered, and what a line of the report says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")


class Verdict(StrEnum):
    """From good to bad; unknown is neither."""

    OK = "ok"
    WARNING = "warning"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that was looked at. `where` is the pool and field of the spec that it is about."""

    what: str
    verdict: Verdict
    found: str
    expected: str = ""
    where: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """An answer that was not had; `denied` names the action that the caller may not."""

    why: str
    denied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFact:
    """A quota as AWS names it."""

    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetFact:
    """A subnet of the site's own."""

    zone: str
    vpc: str
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFact:
    """An image as EC2 shows it."""

    id: str
    name: str
    state: str
    created: str
    deprecated: str = ""  # ISO; empty: never


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedFact:
    """A reservation or block of the account's."""

    id: str
    state: str
    machine: str
    zone: str
    total: int
    block: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LockFact:
    """Pulumi's state: where it is, and who holds it."""

    backend: str
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Every answer, or why there is none."""

    identity: str | Unknown
    zones: Mapping[str, str] | Unknown  # zone -> EC2's word for its state
    quotas: Mapping[str, QuotaFact | Unknown] = field(default_factory=dict[str, QuotaFact | Unknown])
    offered: frozenset[tuple[str, str]] | Unknown = frozenset()  # (machine, zone)
    subnets: Mapping[str, SubnetFact] | Unknown = field(default_factory=dict[str, SubnetFact])
    images: Mapping[str, tuple[ImageFact, ...] | Unknown] = field(
        default_factory=dict[str, tuple[ImageFact, ...] | Unknown]
    )  # by name or id
    roles: Mapping[str, bool | Unknown] = field(default_factory=dict[str, bool | Unknown])
    reservations: tuple[ReservedFact, ...] | Unknown = ()
    secrets: Mapping[str, str | Unknown] = field(default_factory=dict[str, str | Unknown])  # ARN -> state
    lock: LockFact | Unknown = Unknown("not asked")
