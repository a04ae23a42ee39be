"""What the elastic daemon and `gpucluster down` ask of a cloud, and how it may answer.

A fault is classed by the caller's next move. `cloud.aws` speaks to AWS (or to the sandbox's face of it);
`cloud.model.ModelCloud` is the same port over the model, for tests, and can be told to refuse.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gpucluster.plan.messages import Notice
from gpucluster.plan.model import Interface, Market


class Fault(StrEnum):
    """Why a call failed, by what to do next."""

    NO_CAPACITY = "no-capacity"  # next candidate; remember for a while
    UNSUPPORTED = "unsupported"  # drop (machine, zone) for good
    THROTTLED = "throttled"  # pace, same token; says nothing about capacity
    QUOTA = "quota"  # stop, tell
    CONFIGURATION = "configuration"  # stop, tell
    TOKEN = "token"  # the token is spent: a new attempt needs a new one  # noqa: S105
    GONE = "gone"  # what was named is not there
    LOST = "lost"  # no answer: the outcome is unknown, repeat the identical call


class CloudError(Exception):
    """A call that failed; `code` and `message` are the cloud's own words."""

    def __init__(self, fault: Fault, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.fault, self.code, self.message = fault, code, message


class InstanceState(StrEnum):
    """EC2's own words."""

    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"
    STOPPING = "stopping"
    STOPPED = "stopped"


LIVING = frozenset(
    {InstanceState.PENDING, InstanceState.RUNNING, InstanceState.STOPPING, InstanceState.STOPPED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """One RunInstances of `at_least` (else exactly `count`) to `count`: in one zone, of one machine and market."""

    token: str  # <= 64 ASCII; identical request <=> identical token
    count: int
    template_id: str
    template_version: int
    subnet_id: str
    zone: str
    machine: str
    market: Market
    tags: Mapping[str, str]
    at_least: int | None = None  # MinCount where fewer than `count` are of use; None: all or none
    reservation: str | None = None  # `cr-...` that it must come from
    max_price: int | None = None  # of spot, micro-USD an hour
    placement_group: str | None = None  # by name
    interfaces: tuple[
        Interface, ...
    ] = ()  # listed by the launch, each with subnet and group (T31); none: one
    group: str = ""  # the interfaces' security group


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOverride:
    """One machine that will do, and the template that starts it."""

    machine: str
    template_id: str
    template_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRequest:
    """One CreateFleet of type `instant`: any of `overrides`, the first preferred, in one zone and market.

    Spot and on-demand only: a reservation or block names itself in a LaunchRequest. `at_least` as there.
    """

    token: str
    count: int
    subnet_id: str
    zone: str
    overrides: tuple[FleetOverride, ...]
    market: Market
    tags: Mapping[str, str]
    at_least: int | None = None
    max_price: int | None = None
    placement_group: str | None = None  # by name


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetError:
    """What one override was refused for, in the cloud's words; see `cloud.fleet.judge`."""

    machine: str
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAnswer:
    """Instances and errors of one fleet: either may be empty, both may be full (T13)."""

    instances: tuple[tuple[str, str], ...]  # (id, machine)
    errors: tuple[FleetError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance as the cloud lists it; anything but the id may lag behind."""

    id: str
    state: InstanceState
    zone: str
    machine: str
    market: Market
    address: str | None
    launched_at: float  # seconds since the epoch, the cloud's clock
    token: str | None  # the ClientToken of its launch
    reason: str | None = None  # the cloud's words for an end
    reservation: str | None = None  # the one that it really runs in, whatever was asked (T25)
    tags: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def living(self) -> bool:
        return self.state in LIVING


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A capacity reservation or block as the cloud lists it."""

    id: str
    state: str  # EC2's word: active, scheduled, expired, cancelled, payment-pending, ...
    machine: str
    zone: str
    total: int
    free: int
    starts_at: float | None = None
    ends_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A message of the queue: a notice of one instance. `handle` deletes it."""

    instance: str
    notice: Notice
    handle: str


class NoticePort(Protocol):
    """The queue of interruptions: at least once, in any order, late."""

    def receive(self, wait_s: float) -> tuple[Told, ...]:
        """Wait so long for messages; what cannot be read is dropped there."""
        ...

    def forget(self, handles: Sequence[str]) -> None:
        """Delete messages that are in the journal."""
        ...


class CloudPort(Protocol):
    """The calls. Each may raise CloudError; none retries a launch by itself."""

    def launch(self, request: LaunchRequest) -> tuple[str, ...]:
        """Return the ids of `count` instances, or of at least `at_least` (a token's replay: the same, perhaps dead)."""
        ...

    def fleet(self, request: FleetRequest) -> FleetAnswer:
        """Launch from several machines at once; any answer spends the token.

        An answer without instances has errors: judge them together (`cloud.fleet`).
        """
        ...

    def reservations(self, ids: Sequence[str]) -> tuple[Reservation, ...]:
        """These reservations; one that is not there is left out."""
        ...

    def instances(self, cluster: str) -> tuple[Instance, ...]:
        """Every instance with the cluster's tag and role `node`, ended ones included while the cloud shows them."""
        ...

    def terminate(self, ids: Sequence[str]) -> None:
        """Ask for the end of these; idempotent. One unknown id must not spare the others."""
        ...


class Scaling(StrEnum):
    """Whether the daemon may launch."""

    RUN = "run"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The control object in the bucket, written only conditionally on what was read."""

    scaling: Scaling = Scaling.RUN
    epoch: int = 0  # rises with each new holder
    by: str = ""  # who wrote it, for people
    holder: str = ""  # the daemon that may act, `HOST/BOOT/PID/NONCE`
    held_until: float = 0.0  # by the holder's clock, for people; elastic.lease says whose clock counts
    beat: int = 0  # of this holder's renewals, so that no two writes are alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """The control object and which version of it that was."""

    control: Control
    etag: str | None  # None: there is no object


class ControlPort(Protocol):
    """Read before each launch; an answer that cannot be had counts as STOP."""

    def read(self) -> Control:
        """Return the object; a missing one is the default Control()."""
        ...

    def stop(self, by: str) -> None:
        """Write `scaling: stop`, conditionally, retried on a conflict; idempotent."""
        ...

    def stamped(self) -> Stamped:
        """Return the object with its version."""
        ...

    def write(self, control: Control, etag: str | None) -> str | None:
        """Write over exactly that version and return the new one; None when another writer was faster (T39).

        A CloudError leaves open whether it was written.
        """
        ...
