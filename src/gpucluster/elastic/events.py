"""What the journal holds: facts that were seen and steps that were taken, one small value each.

A new kind of event is a class here, a word in `Event`, and its fold in `memory`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpucluster.plan.model import Interface, Market


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another machine that will do for an Ask, in the same zone and market."""

    machine: str
    template_id: str
    template_version: int
    price: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One RunInstances, or one CreateFleet where there are alternatives; a repeat is made from this alone (T01)."""

    request: str  # r1, r2 ... in the order of the journal
    token: str
    pool: str
    source: int
    slots: tuple[str, ...]
    zone: str
    machine: str
    market: Market
    template_id: str
    template_version: int
    subnet_id: str
    gangs: tuple[int, ...] = ()  # sizes of the gangs whose slots these are, in order; none: all are one gang
    jobs: tuple[int, ...] = ()  # for whom, for people
    price: int = 0  # micro-USD an hour for one; 0: unknown or paid ahead
    reservation: str | None = None
    max_price: int | None = None
    alternatives: tuple[Alternative, ...] = ()  # to `machine`, which is preferred; only for gangs of one
    accounts: tuple[str, ...] = ()  # of the jobs, for cost
    placement_group: str | None = None  # by name
    interfaces: tuple[Interface, ...] = ()  # what RunInstances lists; a fleet takes the template's (T31)
    group: str = ""  # of the interfaces

    @property
    def at_least(self) -> int:
        """Fewer than the smallest gang are of no use."""
        return min(self.gangs) if len(self.gangs) > 1 else len(self.slots)

    @property
    def offer(self) -> str:
        """What a refusal is remembered under; pools share it."""
        return self.offer_of(self.machine)

    def offer_of(self, machine: str) -> str:
        """The same of an alternative."""
        return offer(self.market, machine, self.zone, self.reservation or "")

    def priced(self, machine: str) -> str:
        """What a refusal of our price is remembered under: another pool may pay more."""
        return offer(self.market, machine, self.zone, at_most(self.max_price))


def offer(market: Market, machine: str, zone: str, detail: str = "") -> str:
    """`spot/p5en.48xlarge/us-east-1a`; of a reservation `.../cr-1`, where only a price is refused `.../at-most-5`."""
    return "/".join(part for part in (market.value, machine, zone, detail) if part)


def at_most(max_price: int | None) -> str:
    """The detail of a price limit; none is no limit."""
    return "" if max_price is None else f"at-most-{max_price}"


def source_key(pool: str, position: int) -> str:
    """What a stopped source is remembered under: a quota or a configuration fault is not the zone's."""
    return f"source/{pool}/{position}"


# --- events ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Born:
    """A new journal. `epoch` goes into every token, so a rebuilt cluster never gets its forerunner's instances."""

    epoch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The daemon started; what was refused for this run may be tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCalled:
    """A hook's request was taken from the spool."""

    kind: str
    hostlist: str
    called_at: float
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlaced:
    """Slurm gave a job our slots."""

    job: int
    slots: tuple[str, ...]
    submitted_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRunning:
    """The job left CONFIGURING."""

    job: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLeft:
    """The job holds our slots no more: it ended, or was requeued."""

    job: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """Slurm wants the slot: a new life. A living instance of the slot serves it."""

    slot: str
    life: int
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """Slurm still waits for a boot that the node already made: the same need, a new number, so slurmd starts anew."""

    slot: str
    life: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAsked:
    """Written and synced before the call."""

    ask: Ask


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDone:
    """The cloud gave these, in the order of the request's slots; where fewer came, whole gangs are served first to last."""

    request: str
    instances: tuple[str, ...]
    machines: tuple[str, ...] = ()  # of each, where a fleet chose; none: the request's


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRefused:
    """Nothing was launched. `refusals` are remembered: (offer or source) -> until."""

    request: str
    key: str | None  # None: only the token was spent
    words: str
    until: float
    for_this_run: bool = False
    size: int = 0  # the least gang that was refused: a smaller one may still be had (T06); 0: any


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDeferred:
    """No outcome yet: lost or throttled. The identical call is repeated from `retry_at` on."""

    request: str
    retry_at: float
    words: str
    pace_all: bool  # throttled: no other launch before that, either


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDropped:
    """A request that nobody needs any more, unseen in the cloud for long."""

    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An offer is bad for another reason than the cloud's no: its boots fail, or it gave fewer than was asked."""

    key: str
    words: str
    until: float
    size: int = 0  # as in LaunchRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgot:
    """Refusals that ran out while no job waited."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Booted:
    """The cloud showed the instance running for the first time."""

    slot: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The instance's agent asked for its name."""

    slot: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CameUp:
    """Slurm took the node."""

    slot: str
    pool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BecameIdle:
    """Slurm shows the node idle."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BecameBusy:
    """The node has a job again."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unneeded:
    """Slurm shows the slot off, and its instance lives: kept for the grace, in case Slurm only forgot."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BootFailed:
    """The boot will not become a node; `words` are the node's own last step, or the cloud's reason."""

    slot: str
    instance: str
    words: str
    pool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAsked:
    """The end of these instances was asked for."""

    instances: tuple[str, ...]
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGone:
    """The slot's instance is at least shutting down; the slot may get another."""

    slot: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeOver:
    """Slurm does not want the slot, and it has no instance."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSeen:
    """Instances whose end we asked for are ended; nothing more to remember of them."""

    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A living instance of ours that Slurm already uses as this slot, and no request of ours knows."""

    slot: str
    instance: str
    machine: str
    market: Market
    price: int = 0
    zone: str = ""
    source: int = 0


class TroubleKind(StrEnum):
    """Why a living machine is to be left."""

    SPOT = "spot"  # taken back at `ends_at`
    REBALANCE = "rebalance"  # may be taken back: a hint
    MAINTENANCE = "maintenance"  # the cloud's, from `ends_at` on
    BLOCK_END = "block-end"  # its capacity block ends at `ends_at`
    FAULT = "fault"  # a GPU of it failed
    REPLACE = "replace"  # a person asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Troubled:
    """A machine is to be left; the same news from a second source is no second event."""

    slot: str
    instance: str
    kind: TroubleKind
    words: str
    ends_at: float | None = None
    source: str = ""  # node, queue, cloud, operator


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFaulted:
    """A GPU's fault that was not told before, or that now weighs more."""

    slot: str
    instance: str
    xid: int
    device: str
    count: int
    severity: str  # catalog.xids


@dataclass(frozen=True, slots=True, kw_only=True)
class Signalled:
    """The batch scripts of these jobs were told that `instance` goes."""

    instance: str
    jobs: tuple[int, ...]
    signal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBack:
    """These jobs were requeued before `instance` ends."""

    instance: str
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleOver:
    """What was announced was called off."""

    instance: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTripped:
    """Too many boots of a pool failed in a row: nothing is launched until then."""

    pool: str
    words: str
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerReset:
    """The cooldown is over, a boot succeeded, or a person lifted it."""

    pool: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hangs:
    """A job that used to beat does not."""

    job: int
    since: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Beats:
    """It beats again, or is gone."""

    job: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobForgotten:
    """Slurm lists the job no more: in how many of its runs GPUs broke matters to nobody."""

    job: int


class Verb(StrEnum):
    """What an operator may ask of the daemon; taken from the spool like a hook's call."""

    POOL_PAUSE = "pool-pause"  # launch nothing; what runs goes on
    POOL_DRAIN = "pool-drain"  # pause, and let the nodes go as they fall idle
    POOL_RESUME = "pool-resume"  # undo both, and lift a breaker
    NODE_REPLACE = "node-replace"  # drain; when idle (or at once with `now`) a new machine
    NODE_KEEP = "node-keep"  # not ended until then, not even when its boot failed
    NODE_RELEASE = "node-release"  # undo keep and replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """An operator's order."""

    verb: Verb
    target: str  # a pool or a slot
    by: str
    words: str = ""
    until: float | None = None  # of a keep
    now: bool = False  # of a replace: signal and requeue rather than wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A node-replace was carried out, or a keep ran out."""

    verb: Verb
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCrossed:
    """The month's spend crossed a line: `warn` or `stop`, or a new month began: `open`."""

    line: str
    month: str  # 2026-11
    spent: int  # micro-USD


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A state that no row of the life table has: nothing is done, and it is told. No states: it is over."""

    slot: str
    states: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lingers:
    """A node stands where Slurm should not leave it for longer than `bound_s`. No phase: it is over."""

    slot: str
    phase: str
    bound_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerUpStays:
    """Slurm kept the mark of a power-up that is done, and would power the node up once it is off. Not `stays`: it went."""

    slot: str
    stays: bool


Event = (
    Born | Started | HookCalled | JobPlaced | JobRunning | JobLeft | Needed | Renewed | LaunchAsked | LaunchDone
    | LaunchRefused | LaunchDeferred | LaunchDropped | Refused | Forgot | Booted | Registered | CameUp | BecameIdle
    | BecameBusy | Unneeded | BootFailed | EndAsked | InstanceGone | LifeOver | EndSeen | Adopted
    | Troubled | Signalled | SentBack | TroubleOver | BreakerTripped | BreakerReset | Hangs | Beats | Ordered | Served
    | BudgetCrossed | Unknown | Lingers | GpuFaulted | PowerUpStays | JobForgotten
)  # fmt: skip
EVENTS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in Event.__args__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An event and when it was written."""

    at: float
    event: Event
