"""The values of the daemon's memory. They are immutable."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpucluster.elastic.events import InterruptionKind, LaunchRequest, Stamp, Verb, offer_key
from gpucluster.plan.model import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """The present incarnation of a slot, or the last one: the time from one power-up by Slurm to the next."""

    number: int
    since: float
    open: bool = True  # the slot is needed, or has an instance
    jobs: tuple[int, ...] = ()
    generation: int = 0  # launches made for the slot, over all incarnations
    failed_boots: int = 0  # in this incarnation
    request: str | None = None  # a launch without an outcome
    instance: str | None = None
    machine: str = ""
    market: Market = Market.ON_DEMAND
    source: int = 0
    zone: str = ""
    launched_at: float = 0.0
    adopted_at: float | None = None  # a lost journal knew the instance before
    booted_at: float | None = None
    registered_at: float | None = None
    up_at: float | None = None
    idle_at: float | None = None
    unneeded_at: float | None = None
    failed: str | None = None  # why this instance's boot failed
    price: int = 0  # micro-USD an hour; 0: unknown or prepaid
    interruption: "Interruption | None" = None  # why the instance must be evacuated
    replaced_at: float | None = (
        None  # a check, the Prolog, the Epilog or a GPU failed, and its replacement began
    )
    faults: tuple[str, ...] = ()  # recorded faults of this instance's GPUs: `XID DEVICE SEVERITY`
    relapses: bool = False  # Slurm powers it up by itself once it is off

    @property
    def offer_key(self) -> str:
        return offer_key(self.market, self.machine, self.zone)

    @property
    def counts_from(self) -> float:
        """Return the time from which on its cost counts here. The copy in the bucket has what it cost before it was adopted."""
        return self.launched_at if self.adopted_at is None else self.adopted_at

    @property
    def idle_is_unwanted(self) -> bool:
        """Return whether the node is not needed while it has no job: it was powered up for a job, or by Slurm without a reason."""
        return bool(self.jobs) or self.relapses


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A request with an unknown outcome."""

    request: LaunchRequest
    asked_at: float
    retry_at: float = 0.0
    tries: int = 1
    throttled: bool = False  # the last try used no tokens for its instances
    doubtful: bool = False  # an earlier try may have launched: its answer was lost, or the daemon was killed during the call

    @property
    def came_to_nothing(self) -> bool:
        """Return whether each try was throttled, so that no instance was launched."""
        return self.throttled and not self.doubtful


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refusal of an offer until `until`. Then one gang may test it. Another refusal doubles the time."""

    until: float
    times: int
    words: str
    at: float = 0.0  # of the last answer
    for_this_run: bool = False
    size: int = 0  # smaller gangs than this were not refused; 0: all were


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedEnd:
    """An instance that could not be terminated. It is requested again from `until` on."""

    since: float  # of the first refusal
    at: float  # of the last one
    until: float
    times: int
    words: str
    refused: bool  # EC2 refused this instance alone

    def waits(self, now: float) -> bool:
        """Return whether the next request is still to come. A refusal in the future: the clock was set back."""
        return self.at <= now < self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A job on our slots."""

    slots: tuple[str, ...]
    restarts: int = 0  # Slurm's count at the placement
    running: bool = False
    unwatched: bool = False  # the daemon started since, so that the job may have run unseen
    signalled: bool = False  # the job was signalled in this run, because an instance of it ends
    signalled_at: float | None = None  # the last time; None: not known
    sent_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnbegunStarts:
    """How often a job was requeued before it ran, and Slurm's count of its requeues at the last such start."""

    times: int
    last: int

    def runs_begun(self, restarts: int) -> int:
        """Return how many runs began before the start at which Slurm counts `restarts` requeues."""
        return max(0, restarts - (self.times if restarts > self.last else self.times - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """Why an instance must be evacuated, and the steps done so far."""

    kind: InterruptionKind
    since: float
    words: str
    ends_at: float | None = None
    source: str = ""  # node, queue, cloud, operator, catalog
    signalled: tuple[int, ...] = ()  # jobs
    signalled_at: float | None = None
    sent_back: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketLevel:
    """The level of a token bucket of the EC2 API at a time."""

    tokens: float
    at: float


NEVER = Stamp(epoch=-1)  # of a target without an order: older than orders of journals without stamps


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOrder:
    """An operator's order for a pool or a slot that is in force."""

    verb: Verb
    at: float
    by: str
    words: str = ""
    until: float | None = None
    now: bool = False
    stamp: Stamp = field(default_factory=Stamp)
    instance: str = ""  # of the slot, by the copy of a lost journal


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBreaker:
    """A breaker that is open."""

    until: float
    words: str
    boots: int = 0  # failed boots in a row at that time; one more trips it again


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledJob:
    """A job whose heartbeat stopped."""

    since: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LingeringState:
    """The time since when a node is in a phase that Slurm should leave by itself."""

    phase: str
    since: float
    bound_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDrain:
    """The last seen drain of a slot; DOWN and FUTURE close it as well."""

    drained: bool  # False: it was opened
    blocked: bool  # it is, or was, for a lack of capacity
    since: float  # of this state


@dataclass(frozen=True, slots=True, kw_only=True)
class Spare:
    """An instance of a partial launch that serves no slot. It is terminated once the cloud lists it, some seconds after its launch."""

    pool: str
    source: int
    launched_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonDrain:
    """A drain or a DOWN by a person, as it was before a daemon of Slurm wrote its reason over it."""

    reason: str
    by: str
    at: float = 0.0  # the time of the reason
    drained: bool = True  # False: DOWN without a drain
    was_down: bool = False  # slurmctld had set the node DOWN before
    lifted: bool = False  # the drain is over, and the node still shows its reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The daemon's memory, computed from the journal."""

    epoch: str = ""
    lost_at: float | None = None  # when a journal began that lacks what an earlier one knew
    unrestored_since: float | None = (
        None  # the journal is new or outdated, and its orders and spend are not restored
    )
    lease: int = 0  # epoch of the lease of the last daemon
    copied_epoch: int = (
        0  # the highest one of a stamp of the copy: above `lease` if control object and journal were lost
    )
    sequence: int = 0  # number of the changes of orders and of the budget's state
    requests: int = 0  # number of launches so far
    paced_until: float = 0.0
    incarnations: Mapping[str, Incarnation] = field(default_factory=dict[str, Incarnation])
    launches: Mapping[str, Launch] = field(default_factory=dict[str, Launch])
    refusals: Mapping[str, Refusal] = field(default_factory=dict[str, Refusal])
    endings: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # instance -> time of its requested termination
    refused_ends: Mapping[str, RefusedEnd] = field(default_factory=dict[str, RefusedEnd])  # by instance
    spares: Mapping[str, Spare] = field(default_factory=dict[str, Spare])  # by instance
    strays: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # instance without a slot -> time since when this journal knows it
    jobs: Mapping[str, Placement] = field(default_factory=dict[str, Placement])  # by job id as text
    levels: Mapping[str, BucketLevel] = field(
        default_factory=dict[str, BucketLevel]
    )  # bucket of the API -> its level
    orders: Mapping[str, OperatorOrder] = field(
        default_factory=dict[str, OperatorOrder]
    )  # pool or slot -> order
    undone: Mapping[str, Stamp] = field(default_factory=dict[str, Stamp])  # pool or slot whose order is over
    dropped: Stamp = NEVER  # the newest one that `undone` lost: an unknown target up to it is over
    boots: Mapping[str, int] = field(default_factory=dict[str, int])  # pool -> failed boots in a row
    breakers: Mapping[str, OpenBreaker] = field(
        default_factory=dict[str, OpenBreaker]
    )  # pool -> open breaker
    stalled: Mapping[str, StalledJob] = field(default_factory=dict[str, StalledJob])  # job id as text
    breaks: Mapping[str, int] = field(
        default_factory=dict[str, int]
    )  # job id as text -> runs with GPU faults
    unbegun: Mapping[str, UnbegunStarts] = field(
        default_factory=dict[str, UnbegunStarts]
    )  # by job id as text
    taken: Mapping[str, tuple[float, ...]] = field(
        default_factory=dict[str, tuple[float, ...]]
    )  # offer -> times at which its instances were last reclaimed
    replaced: Mapping[str, tuple[float, ...]] = field(
        default_factory=dict[str, tuple[float, ...]]
    )  # pool -> times of an hour at which the replacement of an unhealthy node began
    spent: Mapping[str, int] = field(default_factory=dict[str, int])  # month -> micro-USD of ended instances
    budget: str = ""  # the last budget line that was crossed, `2026-11/warn`
    budget_stamp: Stamp = field(default_factory=Stamp)
    unknown: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]]
    )  # slot -> states without a row
    lingers: Mapping[str, LingeringState] = field(default_factory=dict[str, LingeringState])  # by slot
    drains: Mapping[str, SeenDrain] = field(
        default_factory=dict[str, SeenDrain]
    )  # by slot; a slot that was never drained has none
    drain_orders: Mapping[str, OperatorOrder] = field(
        default_factory=dict[str, OperatorOrder]
    )  # slot -> a drain or its end that Slurm does not show yet
    person_drains: Mapping[str, PersonDrain] = field(default_factory=dict[str, PersonDrain])  # by slot

    def runs_begun(self, job: int, restarts: int) -> int:
        """Return how many runs of the job began before the start at which Slurm counts `restarts` requeues.

        Slurm also counts each start that ended while its nodes booted. A start that was not watched counts as begun.
        """
        unbegun = self.unbegun.get(str(job))
        return restarts if unbegun is None else unbegun.runs_begun(restarts)
