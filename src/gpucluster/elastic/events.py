"""The events of the journal: facts that were observed and steps that were taken. Each is one small value.

A new kind of event is a class here, a word in `Event`, and its fold in `memory`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gpucluster.cloud.port import LaunchSpec
from gpucluster.plan.model import Market

DOES_NOT_BOOT = "does not boot"  # begins the words of a refusal after failed boots


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another machine type that serves a LaunchRequest, in the same zone and market."""

    spec: LaunchSpec
    price: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """One RunInstances, or one CreateFleet if there are alternatives. A repeat is made from this value alone (T01)."""

    id: str  # r1, r2 ... in the order of the journal
    token: str
    pool: str
    source: int
    slots: tuple[str, ...]
    spec: LaunchSpec
    # Sizes of the gangs that own the slots, in order; empty: all slots are one gang.
    gangs: tuple[int, ...] = ()
    jobs: tuple[int, ...] = ()  # for tags and messages
    price: int = 0  # micro-USD an hour for one instance; 0: unknown or prepaid
    # In addition to the spec, which is preferred; only for single nodes.
    alternatives: tuple[Alternative, ...] = ()
    accounts: tuple[str, ...] = ()  # of the jobs, for cost reports

    @property
    def smallest_gang(self) -> int:
        """Return the size of the smallest gang. Fewer instances are not usable."""
        return min(self.gangs) if len(self.gangs) > 1 else len(self.slots)

    @property
    def specs(self) -> tuple[LaunchSpec, ...]:
        """Return the preferred spec, then the alternatives."""
        return (self.spec, *(other.spec for other in self.alternatives))

    @property
    def machines(self) -> tuple[str, ...]:
        """Return the machine types of `specs`."""
        return tuple(spec.machine for spec in self.specs)

    @property
    def offer_key(self) -> str:
        """Return the key of a refusal of this offer; pools share it."""
        return self.offer_key_of(self.spec.machine)

    def offer_key_of(self, machine: str) -> str:
        """Return the same key for an alternative."""
        return offer_key(self.spec.market, machine, self.spec.zone, self.spec.reservation or "")

    def price_key_of(self, machine: str) -> str:
        """Return the key of a refusal of our maximum price. Another pool may pay more."""
        return offer_key(self.spec.market, machine, self.spec.zone, price_detail(self.spec.max_price))


def offer_key(market: Market, machine: str, zone: str, detail: str = "") -> str:
    """Return `spot/p5en.48xlarge/us-east-1a`; a reservation adds `/cr-1`, a maximum price `/at-most-5`."""
    return "/".join(part for part in (market.value, machine, zone, detail) if part)


def price_detail(max_price: int | None) -> str:
    """Return the part of an offer key for a maximum price; empty without one."""
    return "" if max_price is None else f"at-most-{max_price}"


def source_key(pool: str, position: int) -> str:
    """Return the key of a stopped source. A quota or a configuration error does not depend on the zone."""
    return f"source/{pool}/{position}"


# --- events ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class JournalCreated:
    """A new journal. Each token contains `epoch`, so a rebuilt cluster gets no instance of an earlier cluster.

    `first` False: a daemon of this cluster may have acted before. The copy of the orders tells whether an earlier journal is lost.
    """

    epoch: str
    first: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOutdated:
    """The journal is of before the last daemon, such as a restored backup: it lacks the orders since."""

    epoch: int  # of the lease of the daemon that opened it last
    last: int  # of the last daemon, by the control object


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStarted:
    """The daemon started, with this epoch of the lease. Refusals `for_this_run` are dropped."""

    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCalled:
    """A hook's request was read from the spool."""

    kind: str
    hostlist: str
    called_at: float
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlaced:
    """Slurm gave a job our slots. `restarts`: Slurm's count of the job's requeues at that time."""

    job: int
    slots: tuple[str, ...]
    submitted_at: float
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRunning:
    """The job left CONFIGURING."""

    job: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased:
    """The job no longer holds our slots: it ended, or was requeued. Not `began`: one of its nodes never came up for it."""

    job: int
    began: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNeeded:
    """Slurm powers the slot up: a new incarnation begins. A living instance of the slot serves the new incarnation."""

    slot: str
    incarnation: int
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationRenewed:
    """Slurm waits for a boot that already finished. Only the incarnation's number changes, so that slurmd starts again."""

    slot: str
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequested:
    """A launch was requested. Written and synced before the call."""

    request: LaunchRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDone:
    """The cloud returned instances, in the order of the request's slots. If too few, the first gangs are whole."""

    request: str
    instances: tuple[str, ...]
    machines: tuple[str, ...] = ()  # the machine type of each, if a fleet chose; empty: the request's type


@dataclass(frozen=True, slots=True, kw_only=True)
class SparesLaunched:
    """Instances of a partial launch that fill no whole gang and could not be terminated at once. They count in their pool until they have ended."""

    pool: str
    source: int
    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRefused:
    """Nothing was launched. The offer or source of `key` is refused until `until`."""

    request: str
    key: str | None  # None: only the token is used up
    words: str
    until: float
    for_this_run: bool = False
    size: int = 0  # the smallest refused gang: a smaller one may still get capacity (T06); 0: any


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDeferred:
    """The call has no outcome yet: lost or throttled. The identical call is repeated from `retry_at` on."""

    request: str
    retry_at: float
    words: str
    pace_all: bool  # throttled: all other launches wait, too


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDropped:
    """A request was dropped: no slot needs it, and for a long time the cloud listed no instance of it."""

    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRefused:
    """An offer is refused without an error of the cloud: its boots fail, or it gave fewer instances than requested."""

    key: str
    words: str
    until: float
    size: int = 0  # as in LaunchRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminationRefused:
    """A TerminateInstances failed. Each instance is requested again from `until` on, in a call of its own.

    `refused` False: EC2 gave no answer, throttled the call, or refused the call of several instances.
    """

    instances: tuple[str, ...]
    words: str
    until: float
    refused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalsForgotten:
    """Refusals that expired while no job waited."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRunning:
    """The cloud listed the instance as running for the first time."""

    slot: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRegistered:
    """The instance's agent registered with the daemon."""

    slot: str
    instance: str
    incarnation: int = (
        0  # of its slurmd, if this journal does not know it: an earlier one gave it; 0: it does
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUp:
    """Slurm accepted the registration of the node."""

    slot: str
    pool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdle:
    """Slurm lists the node as idle."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBusy:
    """The node has a job again."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUnneeded:
    """Slurm lists the slot as off, but its instance still runs: it stays until the grace period ends."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BootFailed:
    """The boot failed. `words` name the node's last boot step, or the cloud's reason."""

    slot: str
    instance: str
    words: str
    pool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminationRequested:
    """The termination of these instances was requested."""

    instances: tuple[str, ...]
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGone:
    """The slot's instance is shutting down or terminated. The slot may get another."""

    slot: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationOver:
    """Slurm does not need the slot, and it has no instance."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminationSeen:
    """Instances that we terminated have ended. Memory drops them."""

    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceAdopted:
    """A living instance of this slot that no request in memory launched: the journal that knew it is lost.

    Slurm has its address as the slot's, or an order that the copy in the bucket has is for it.
    """

    slot: str
    instance: str
    machine: str
    market: Market
    price: int = 0
    zone: str = ""
    source: int = 0
    launched_at: float = 0.0  # by the cloud's clock; 0: not known
    up: bool = True  # its slurmd registered as this slot


@dataclass(frozen=True, slots=True, kw_only=True)
class StraysSeen:
    """Living instances of this cluster that no slot and no request owns, since now; and those that are none any more."""

    instances: tuple[str, ...] = ()
    over: tuple[str, ...] = ()


class InterruptionKind(StrEnum):
    """Why a living instance must be evacuated."""

    SPOT = "spot"  # reclaimed at `ends_at`
    REBALANCE = "rebalance"  # a hint: it may be reclaimed
    MAINTENANCE = "maintenance"  # of the cloud, from `ends_at` on
    BLOCK_END = "block-end"  # its capacity block ends at `ends_at`
    FAULT = "fault"  # one of its GPUs failed
    REPLACE = "replace"  # an operator ordered it


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """An instance must be evacuated. The same notice from a second source is not recorded again."""

    slot: str
    instance: str
    kind: InterruptionKind
    words: str
    ends_at: float | None = None
    source: str = ""  # node, queue, cloud, operator


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFaulted:
    """A GPU fault that is new, or more severe than the recorded one."""

    slot: str
    instance: str
    xid: int
    device: str
    count: int
    severity: str  # catalog.xids


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsSignalled:
    """The batch scripts of these jobs were signalled, because `instance` ends."""

    instance: str
    jobs: tuple[int, ...]
    signal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsRequeued:
    """These jobs were requeued before `instance` ends."""

    instance: str
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionOver:
    """The interruption is over before the end of the instance."""

    instance: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTripped:
    """Too many boots of a pool failed in a row: it launches nothing until then."""

    pool: str
    words: str
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerReset:
    """The cooldown is over, a boot succeeded, or an operator closed it."""

    pool: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementBegan:
    """The daemon begins to replace an instance, because a check of its node or a GPU failed, or because Slurm drained it."""

    slot: str
    instance: str
    pool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatStopped:
    """The heartbeat of a job stopped."""

    job: int
    since: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResumed:
    """The heartbeat started again, or the job is gone."""

    job: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobForgotten:
    """Slurm no longer lists the job. Memory drops its counts of runs with GPU faults and of starts that never began."""

    job: int


class Verb(StrEnum):
    """The orders that an operator may give to the daemon; read from the spool like a hook's request."""

    POOL_PAUSE = "pool-pause"  # launch nothing; running nodes and jobs continue
    POOL_DRAIN = "pool-drain"  # pause, and power down nodes as they become idle
    POOL_RESUME = "pool-resume"  # undo both, and close the breaker
    NODE_REPLACE = "node-replace"  # drain; when idle (or at once with `now`) launch a new instance
    NODE_KEEP = "node-keep"  # the instance is not terminated until then, even after a failed boot
    NODE_RELEASE = "node-release"  # undo keep and replace
    NODE_DRAIN = "node-drain"  # drain with a person's reason; done when Slurm shows it
    NODE_UNDRAIN = "node-undrain"  # lift a person's drain
    ORDERS_CONFIRM = "orders-confirm"  # the orders are lost, and launches may begin without them


DRAIN_ORDERS = (Verb.NODE_DRAIN, Verb.NODE_UNDRAIN)  # beside a keep or a replace of the node
ALL_ORDERS = "all"  # the target of ORDERS_CONFIRM


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderGiven:
    """An operator's order."""

    verb: Verb
    target: str  # a pool or a slot; ALL_ORDERS
    by: str
    words: str = ""
    until: float | None = None  # of a keep order
    now: bool = False  # of a replace order: signal and requeue instead of waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderCompleted:
    """A replace order was carried out, or a keep order expired."""

    verb: Verb
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCrossed:
    """The month's spend crossed a budget line: `warn` or `stop`, or a new month began: `open`."""

    line: str
    month: str  # 2026-11
    spent: int  # micro-USD


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Stamp:
    """The age of an order: the epoch of the lease, and the number of the change. The higher one is newer."""

    epoch: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedOrder:
    """An order as the copy in the bucket has it. Without a verb: no order is in force any more."""

    target: str
    stamp: Stamp
    verb: Verb | None = None
    at: float = 0.0
    by: str = ""
    words: str = ""
    until: float | None = None
    now: bool = False
    instance: str = ""  # of the slot, when it was copied


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentRestored:
    """The copy in the bucket was read; these parts of it are newer than memory. `spent` by month, in micro-USD."""

    orders: tuple[CopiedOrder, ...] = ()
    budget: str = ""
    budget_stamp: Stamp = field(default_factory=Stamp)
    spent: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownState:
    """A node state without a row in the node table: it is only reported. No states: the node has a known state again."""

    slot: str
    states: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonDrained:
    """A person drained nodes or set them DOWN. No reason: this is over, and nothing of it is left."""

    slots: tuple[str, ...]
    reason: str
    by: str  # the user
    at: float = 0.0  # the time of the reason
    drained: bool = True  # False: DOWN without a drain
    was_down: bool = False  # slurmctld had set the nodes DOWN before


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonDrainLifted:
    """The drains of a person are over, but these nodes still show their reason."""

    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLingers:
    """A node is in a phase that Slurm should leave within `bound_s`. No phase: the node has left it."""

    slot: str
    phase: str
    bound_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerUpMarkStays:
    """Slurm kept the mark of a finished power-up, so it powers the node up again once it is off. `stays` False: no mark."""

    slot: str
    stays: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainsSeen:
    """Slots that were closed or opened since the last pass; hostlists."""

    blocked: str = ""  # drained because there is no capacity
    drained: str = ""  # drained for another reason, DOWN or FUTURE
    undrained: str = ""  # none of these: undrained or resumed


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsForgotten:
    """Slots that the plan no longer has, without an instance and a launch; a hostlist. Memory drops them."""

    slots: str


Event = (
    JournalCreated | DaemonStarted | HookCalled | JobPlaced | JobRunning | JobReleased | NodeNeeded | IncarnationRenewed | LaunchRequested | LaunchDone
    | SparesLaunched | LaunchRefused | LaunchDeferred | LaunchDropped | OfferRefused | RefusalsForgotten | InstanceRunning | NodeRegistered | NodeUp | NodeIdle
    | NodeBusy | NodeUnneeded | BootFailed | TerminationRequested | TerminationRefused | InstanceGone | IncarnationOver | TerminationSeen | InstanceAdopted
    | Interrupted | JobsSignalled | JobsRequeued | InterruptionOver | BreakerTripped | BreakerReset | HeartbeatStopped | HeartbeatResumed | OrderGiven | OrderCompleted
    | BudgetCrossed | UnknownState | StateLingers | GpuFaulted | PowerUpMarkStays | JobForgotten | ReplacementBegan | DrainsSeen
    | PersonDrained | PersonDrainLifted | SlotsForgotten | IntentRestored | JournalOutdated | StraysSeen
)  # fmt: skip
EVENTS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in Event.__args__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An event and the time when it was written."""

    at: float
    event: Event
