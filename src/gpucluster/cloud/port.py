"""The interface to a cloud: the calls of the elastic daemon and of `gpucluster down`, their answers and faults.

A fault is classified by the caller's next move. `cloud.aws` implements the port over EC2 and SQS.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gpucluster.plan.messages import Notice
from gpucluster.plan.model import Interface, Market


class Fault(StrEnum):
    """The class of a failed call by the caller's next step."""

    NO_CAPACITY = "no-capacity"  # try the next candidate; remember the refusal for a while
    UNSUPPORTED = "unsupported"  # drop (machine, zone)
    THROTTLED = "throttled"  # wait and repeat with the same token; it says nothing about capacity
    QUOTA = "quota"  # stop the source and report it
    CONFIGURATION = "configuration"  # stop the source and report it
    TOKEN = "token"  # the token cannot be used again: a new attempt needs a new one  # noqa: S105
    GONE = "gone"  # the named resource does not exist
    LOST = "lost"  # no answer: the outcome is unknown, repeat the identical call


class CloudError(Exception):
    """A failed call; `code` and `message` are the cloud's own."""

    def __init__(self, fault: Fault, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.fault, self.code, self.message = fault, code, message


class InstanceState(StrEnum):
    """The states of an instance as EC2 names them."""

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
class LaunchSpec:
    """One launch: the parameters of RunInstances and CreateFleet except count, token and tags.

    The launch template also has machine type, interfaces, security group and target reservation (`aws.pools`).

    An offer, a request in the journal and a call have the same value. A new field of a launch is added here, set in
    `elastic.decide.offers` and passed on in `cloud.aws`.
    """

    machine: str  # EC2 instance type
    market: Market
    zone: str
    subnet_id: str
    template_id: str
    template_version: int
    reservation: str | None = None  # `cr-...`: the capacity reservation or block to launch into
    max_price: int | None = None  # for spot, micro-USD an hour
    placement_group: str | None = None  # by name
    interfaces: tuple[
        Interface, ...
    ] = ()  # each is listed with subnet and security group (T31); empty: one interface
    security_group: str = ""  # of the interfaces


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCall:
    """One RunInstances of `at_least` (else exactly `count`) to `count` instances."""

    token: str  # at most 64 ASCII characters; identical calls have identical tokens
    count: int
    spec: LaunchSpec
    tags: Mapping[str, str]
    at_least: int | None = None  # MinCount if fewer than `count` are useful; None: all or none


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCall:
    """One CreateFleet of type `instant`: any of `specs`, the first preferred.

    All specs have one zone and one market. The market is spot or on-demand: a reservation or a block needs a
    LaunchCall. `at_least` has the same meaning as in LaunchCall. The interfaces are those of the launch templates.
    """

    token: str
    count: int
    specs: tuple[LaunchSpec, ...]
    tags: Mapping[str, str]
    at_least: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetError:
    """The error of one override of a fleet, with the cloud's code and text; see `cloud.fleet`."""

    machine: str
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAnswer:
    """Instances and errors of one fleet; either may be empty (T13)."""

    instances: tuple[tuple[str, str], ...]  # (id, machine)
    errors: tuple[FleetError, ...]


KEY_REFUSALS = ("Client.InvalidKMSKey", "Client.InternalError")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance as the cloud lists it. Every field but the id may be out of date."""

    id: str
    state: InstanceState
    zone: str
    machine: str
    market: Market
    address: str | None
    launched_at: float  # seconds since the epoch, the cloud's clock
    token: str | None  # the ClientToken of its launch
    reason: str | None = None  # the cloud's reason for the termination
    reservation: str | None = (
        None  # the reservation that it runs in, also if the launch did not name it (T25)
    )
    tags: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def living(self) -> bool:
        return self.state in LIVING

    @property
    def key_refused(self) -> bool:
        """Return whether it ended because EBS could not use the KMS key of a volume.

        RunInstances succeeds with such a key. The message decides: the code of the reason may be `Server.InternalError` (T51).
        """
        return not self.living and any(text in (self.reason or "") for text in KEY_REFUSALS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A capacity reservation or block as the cloud lists it."""

    id: str
    state: str  # EC2's state: active, scheduled, expired, cancelled, payment-pending, ...
    machine: str
    zone: str
    total: int
    free: int
    starts_at: float | None = None
    ends_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNotice:
    """A message of the queue with a notice about one instance. `handle` deletes it."""

    instance: str
    notice: Notice
    handle: str


class NoticePort(Protocol):
    """The queue of interruption events. It delivers each event at least once, late, and in any order."""

    def receive(self, wait_s: float) -> tuple[QueueNotice, ...]:
        """Wait so long for messages; unreadable ones are deleted."""
        ...

    def forget(self, handles: Sequence[str]) -> None:
        """Delete messages that the journal holds."""
        ...


class CloudPort(Protocol):
    """The calls to a cloud. Each may raise CloudError. No call repeats a launch by itself."""

    def launch(self, call: LaunchCall) -> tuple[str, ...]:
        """Return the ids of `count` instances, or of at least `at_least`. A repeated token returns the same ids, also of ended instances."""
        ...

    def fleet(self, call: FleetCall) -> FleetAnswer:
        """Launch from several machine types at once; every answer uses up the token.

        An answer without instances has errors. Evaluate them together (`cloud.fleet`).
        """
        ...

    def reservations(self, ids: Sequence[str]) -> tuple[Reservation, ...]:
        """Return these reservations, without those that do not exist."""
        ...

    def instances(self, cluster: str, also: Sequence[str] = ()) -> tuple[Instance, ...]:
        """Return every instance with the cluster's tag and role `node`; terminated ones, too, while the cloud lists them.

        `also`: instances of ours that are returned whatever their tags are now, if the cloud knows them.
        """
        ...

    def terminate(self, ids: Sequence[str]) -> tuple[str, ...]:
        """Terminate the instances; idempotent. Return the ids that the cloud does not know; they prevent no other termination.

        An id is unknown long after its end, and for some seconds after its launch (eventual consistency).
        """
        ...


class Scaling(StrEnum):
    """Whether the daemon may launch."""

    RUN = "run"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The content of the control object in the bucket. Each write names the version that was read."""

    scaling: Scaling = Scaling.RUN
    epoch: int = 0  # rises with each new holder
    by: str = ""  # the last writer, for people
    holder: str = ""  # the daemon that may act, `HOST/BOOT/PID/NONCE`
    held_until: float = 0.0  # by the holder's clock, for people only; see elastic.lease
    beat: int = 0  # counts renewals of this holder, so that all writes differ
    renewed: int = 0  # the newest epoch, before this one, whose holder renewed


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """The control object and its version."""

    control: Control
    etag: str | None  # None: the object does not exist
    malformed: str = ""  # why its content cannot be read; then `control` says nothing but STOP


NEVER_READABLE = Control(
    scaling=Scaling.STOP, by="the daemon, because no version of the damaged control object can be read"
)


def malformed(words: str) -> CloudError:
    """Return the error of a control object whose content cannot be read."""
    return CloudError(
        Fault.CONFIGURATION, "MalformedControl", f"{words}; the daemon replaces it about half a minute later"
    )


class ControlPort(Protocol):
    """The control object of one cluster. It is read before each launch; a missing answer counts as STOP."""

    def read(self) -> Control:
        """Return the object; Control() if it does not exist. CloudError also if its content cannot be read."""
        ...

    def last_readable(self) -> Control | None:
        """Return the last version whose content can be read, also of a deleted object; NEVER_READABLE if none can be read.

        None: the bucket has no version.
        """
        ...

    def scale(self, scaling: Scaling, by: str) -> Control:
        """Write whether to launch, and who says so, conditionally; repeat after a conflict. Return what was there; idempotent.

        The epoch stays: it belongs to the holder.
        """
        ...

    def stamped(self) -> Stamped:
        """Return the object with its version."""
        ...

    def write(self, control: Control, etag: str | None) -> str | None:
        """Replace that version and return the new one; None if another writer replaced it first (T39).

        After a CloudError it is unknown whether the object was written.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StampedBody:
    """An object of the bucket with its version. None: it does not exist."""

    body: bytes | None = None
    etag: str | None = None


class ObjectPort(Protocol):
    """One object of the bucket, which one daemon at a time writes."""

    def read(self) -> StampedBody:
        """Return the object with its version."""
        ...

    def write(self, body: bytes, etag: str | None) -> str | None:
        """Replace that version and return the new one; None if another writer replaced it first (T39)."""
        ...


class TopologyPort(Protocol):
    """Where the cloud has placed machines."""

    def network_nodes(self, ids: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Return the switches above each running instance, the nearest last. A type without them is missing."""
        ...


class TrialPort(Protocol):
    """Whether the cloud would take a launch."""

    def try_launch(self, call: LaunchCall) -> None:
        """Let the cloud check the caller's rights and the parameters, and launch nothing; the token is not used.

        CloudError: it refuses the call. It checks neither capacity nor quotas.
        """
        ...
