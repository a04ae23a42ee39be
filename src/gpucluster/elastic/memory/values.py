"""What the daemon remembers, as values; none is ever changed in place."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpucluster.elastic.events import Ask, TroubleKind, Verb, offer
from gpucluster.plan.model import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """The last life of a slot."""

    number: int
    since: float
    open: bool = True  # wanted, or with an instance
    jobs: tuple[int, ...] = ()
    generation: int = 0  # launches made for the slot, over all lives
    failed_boots: int = 0  # in this life
    request: str | None = None  # a launch without an outcome
    instance: str | None = None
    machine: str = ""
    market: Market = Market.ON_DEMAND
    source: int = 0
    zone: str = ""
    launched_at: float = 0.0
    booted_at: float | None = None
    registered_at: float | None = None
    up_at: float | None = None
    idle_at: float | None = None
    unneeded_at: float | None = None
    failed: str | None = None  # why this instance's boot failed
    price: int = 0  # micro-USD an hour; 0: unknown or paid ahead
    trouble: "Trouble | None" = None  # why this instance is to be left
    faults: tuple[str, ...] = ()  # of this instance's GPUs, already told: `XID DEVICE SEVERITY`
    relapses: bool = False  # once it is off Slurm powers it up by itself

    @property
    def offer(self) -> str:
        return offer(self.market, self.machine, self.zone)

    @property
    def idle_is_unwanted(self) -> bool:
        """Powered up for jobs, or for nothing: where none of them has it now, nobody wants it."""
        return bool(self.jobs) or self.relapses


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A request whose outcome is unknown."""

    ask: Ask
    asked_at: float
    retry_at: float = 0.0
    tries: int = 1
    throttled: bool = False  # the last try took no tokens for its instances
    doubtful: bool = (
        False  # an earlier try may have launched: its answer was lost, or the daemon died over it
    )

    @property
    def came_to_nothing(self) -> bool:
        """Whether each try was throttled, so that nothing can have been launched."""
        return self.throttled and not self.doubtful


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """After `until` the next gang may try; a success forgets it, another refusal doubles it."""

    until: float
    times: int
    words: str
    for_this_run: bool = False
    size: int = 0  # gangs smaller than this were not refused; 0: all were


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A job on our slots."""

    slots: tuple[str, ...]
    running: bool = False
    signalled: bool = False  # told, in this run, that a machine of it goes
    sent_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why an instance is to be left, and what was done about it so far."""

    kind: TroubleKind
    since: float
    words: str
    ends_at: float | None = None
    source: str = ""  # node, queue, cloud, operator, catalog
    signalled: tuple[int, ...] = ()  # jobs
    signalled_at: float | None = None
    sent_back: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What was left in a token bucket of the cloud's API, then."""

    tokens: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a person asked of a pool or a slot, and it stands."""

    verb: Verb
    at: float
    by: str
    words: str = ""
    until: float | None = None
    now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tripped:
    """A breaker that is open."""

    until: float
    words: str
    boots: int = 0  # how many had failed in a row then; one more trips it again


@dataclass(frozen=True, slots=True, kw_only=True)
class Hanging:
    """A job that stopped beating."""

    since: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Linger:
    """Since when a node stands in a phase that Slurm should leave by itself."""

    phase: str
    since: float
    bound_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The fold. Never changed in place."""

    epoch: str = ""
    requests: int = 0  # how many launches were ever asked
    paced_until: float = 0.0
    lives: Mapping[str, Life] = field(default_factory=dict[str, Life])
    launches: Mapping[str, Launch] = field(default_factory=dict[str, Launch])
    refusals: Mapping[str, Refusal] = field(default_factory=dict[str, Refusal])
    endings: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # instance -> when its end was asked
    jobs: Mapping[str, Placement] = field(default_factory=dict[str, Placement])  # job id as text -> where
    levels: Mapping[str, Level] = field(default_factory=dict[str, Level])  # bucket of the API -> its level
    orders: Mapping[str, Order] = field(default_factory=dict[str, Order])  # pool or slot -> order
    boots: Mapping[str, int] = field(default_factory=dict[str, int])  # pool -> failed boots in a row
    breakers: Mapping[str, Tripped] = field(default_factory=dict[str, Tripped])  # pool -> open breaker
    hanging: Mapping[str, Hanging] = field(default_factory=dict[str, Hanging])  # job id as text
    breaks: Mapping[str, int] = field(
        default_factory=dict[str, int]
    )  # job id as text -> runs in which GPUs broke
    taken: Mapping[str, tuple[float, ...]] = field(
        default_factory=dict[str, tuple[float, ...]]
    )  # offer -> when its machines were last taken back
    spent: Mapping[str, int] = field(default_factory=dict[str, int])  # month -> micro-USD of ended instances
    budget: str = ""  # the line that was crossed last, `2026-11/warn`
    unknown: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]]
    )  # slot -> states that no row has
    lingers: Mapping[str, Linger] = field(default_factory=dict[str, Linger])  # by slot
