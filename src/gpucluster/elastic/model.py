"""What the daemon sees and what it may do: plain values, no effect.

Vocabulary. *Slot*: a Slurm node of a pool, with or without an instance. *Life*: one span in which Slurm wants the
slot, from its power-up to the end of its instance; numbered, never reused. *Request*: one RunInstances and its token.
*Gang*: the slots of one starting job in one zone that lack an instance. *Block*: drained and powered down, our reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpucluster.cloud.port import Instance, Reservation, Told
from gpucluster.elastic.events import Ask, Entry
from gpucluster.elastic.owners import Owner, Stranger, whose
from gpucluster.plan.messages import NodeReport
from gpucluster.plan.names import REASON_PREFIX


class Phase(StrEnum):
    """Where Slurm stands with a node."""

    OFF = "off"  # idle~, drained or not
    WANTED = "wanted"  # powering up, or allocated and not yet powered up
    UP = "up"
    SILENT = "silent"  # up, but slurmctld does not hear it
    LEAVING = "leaving"  # a power-down is pending
    ENDING = "ending"  # powering down; SuspendTimeout runs
    DOWN = "down"
    DOWN_OFF = "down-off"  # DOWN~: a resume failed
    STRANDED = "stranded"  # both ways at once: Slurm will not move it by itself
    FUTURE = "future"  # Slurm takes it for not there yet: no job, no hook, and plain `scontrol show` hides it
    ODD = "odd"  # no known word or combination


HELD = frozenset({"DRAIN", "FAIL"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node as slurmctld shows it; its states in one spelling."""

    name: str
    states: frozenset[str]
    reason: str = ""
    reason_at: float = 0.0
    reason_by: str = ""  # the user who set it
    last_busy: float = 0.0
    boot_time: float = 0.0
    address: str = ""

    @property
    def drained(self) -> bool:
        """Whether it takes no new job; FAIL is a drain that only a person sets."""
        return not HELD.isdisjoint(self.states)

    @property
    def whose(self) -> Owner | Stranger:
        """Who drained or downed it, or wrote the reason that is left over from that."""
        if "FAIL" in self.states:
            return Stranger.PERSON
        return whose(self.reason, self.reason_by, drained=self.drained)

    @property
    def ours(self) -> bool:
        """Whether the reason is ours, of whichever part and version."""
        return self.reason.startswith(REASON_PREFIX) and "FAIL" not in self.states

    @property
    def spoiled(self) -> bool:
        """Whether Slurm itself drained it: by its own user and in its own words, so never a person's drain."""
        return self.drained and self.whose is Stranger.SLURM

    @property
    def idle(self) -> bool:
        return "IDLE" in self.states and "COMPLETING" not in self.states


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job as slurmctld shows it. Names and comments are other people's text."""

    id: int
    states: frozenset[str]
    nodes: tuple[str, ...]  # allocated; empty while pending
    node_count: int
    partitions: tuple[str, ...]
    requeueable: bool
    batch: bool
    het_id: int = 0  # 0: not a het job
    priority: int = 0
    reason: str = ""
    admin_comment: str = ""
    submitted_at: float = 0.0
    begins_at: float = 0.0  # not eligible before
    user_id: int = -1
    started_at: float = 0.0
    time_limit_s: float | None = None
    restarts: int = 0
    batch_host: str = ""
    comment: str = ""  # the user's own
    account: str = ""  # whom Slurm's accounting charges; empty without accounting
    task: str = (
        ""  # of an array: `4_3`; its last task has the whole array's number for an id, so it is named by this
    )
    ended_by: int = 0  # the number of the signal that its batch script died of

    @property
    def configuring(self) -> bool:
        return "CONFIGURING" in self.states

    @property
    def running(self) -> bool:
        return "RUNNING" in self.states and not self.configuring

    @property
    def suspended(self) -> bool:
        """Its processes stand still in its nodes' memory; Slurm shows those as idle."""
        return "SUSPENDED" in self.states

    @property
    def pending(self) -> bool:
        return "PENDING" in self.states

    @property
    def returns(self) -> bool:
        """Whether Slurm queues it again when its nodes fail."""
        return self.batch and self.requeueable


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A Slurm reservation."""

    name: str
    starts_at: float
    ends_at: float
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmView:
    """Nodes first, then jobs, so a job seen here had its nodes at `at` or later."""

    at: float
    nodes: Mapping[str, SlurmNode]
    jobs: tuple[SlurmJob, ...]
    windows: tuple[Window, ...] = ()  # only ours, and only asked for where the plan has capacity blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudView:
    """The cloud's list; what it does not show is not therefore gone (T20, T21)."""

    at: float
    instances: Mapping[str, Instance]
    absent_since: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # ids that we know and it misses
    reservations: Mapping[str, Reservation] = field(default_factory=dict[str, Reservation])  # by id
    reservations_at: float | None = None  # asked more seldom than `at`; None: with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The last word of an instance's agent."""

    report: NodeReport
    at: float
    since: float  # first word with this phase and life


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """None = not known now; nothing is concluded from that."""

    slurm: SlurmView | None
    cloud: CloudView | None
    reports: Mapping[str, Heard] = field(default_factory=dict[str, Heard])  # by instance
    told: tuple[Told, ...] = ()  # news of the queue, each until it is in the journal
    halted: str = ""  # why nothing may be launched at all; empty: it may
    listening_since: float = 0.0  # nobody could call this daemon before


# --- actions -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Remember:
    """Write what was concluded; comes first."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Drain powered-down slots: no job lands there, no hook is called."""

    slots: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unblock:
    """Lift our drain."""

    slots: tuple[str, ...]
    reason: str  # for the log


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """Tell the jobs why."""

    jobs: tuple[int, ...]
    reason: str
    again: bool = False  # as it stands already, so that slurmctld saves its state


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkDown:
    """Set nodes DOWN: a starting or running job on them is requeued or failed at once."""

    slots: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDown:
    """Power down, pending: never takes a node from a job."""

    slots: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerUp:
    """Ask Slurm to resume a slot that is always on."""

    slots: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetDown:
    """DOWN~ back to IDLE~."""

    slots: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminate:
    """End instances."""

    instances: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGang:
    """One RunInstances; `repeat` when its outcome is unknown and the identical call is made again."""

    ask: Ask
    repeat: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Keep new jobs off living nodes; the owner in the reason is who may lift it."""

    slots: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Signal the batch scripts of jobs; written as Signalled after it was done."""

    jobs: tuple[int, ...]
    signal: str
    instance: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """Queue running jobs again; written as SentBack after it was done."""

    jobs: tuple[int, ...]
    instance: str
    reason: str
    held: bool = False  # until a person releases them


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWindow:
    """Make or move a Slurm reservation that keeps slots from jobs outside their capacity block."""

    window: Window
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseWindow:
    """Delete it."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Delete messages of the queue whose news is in the journal."""

    handles: tuple[str, ...]


Action = (
    Remember | Block | Unblock | Comment | MarkDown | PowerDown | PowerUp | ResetDown | Terminate | LaunchGang
    | Drain | Signal | Requeue | OpenWindow | CloseWindow | Forget
)  # fmt: skip
