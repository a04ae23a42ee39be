"""The observation that the daemon reads, and the actions that it may take. Plain values without effects.

Terms. *Slot*: a Slurm node of a pool, with or without an instance. *Incarnation*: the time from one power-up of the
slot by Slurm to the next; numbered, never reused. *Request*: one RunInstances and its token. *Gang*:
the slots of one starting job in one zone that lack an instance. *Block*: drained and powered down, with our reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpucluster.cloud.port import Instance, QueueNotice, Reservation
from gpucluster.elastic.abilities import Dependency, Loss
from gpucluster.elastic.events import Entry, LaunchRequest
from gpucluster.plan.messages import HeldBundle, NodeReport
from gpucluster.slurm.values import SlurmJob, SlurmReservation, SlurmView


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudView:
    """The cloud's list of instances. An instance that is not listed may still exist (T20, T21)."""

    at: float
    instances: Mapping[str, Instance]
    absent_since: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # ids that are in memory and missing in the list


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedReport:
    """The last report of an instance's agent."""

    report: NodeReport
    at: float
    since: float  # first report with this phase and incarnation


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """An act that the daemon decides pass after pass. `act`: the action's class. `target`: a slot, an instance or a job's id. Times are Unix seconds."""

    act: str
    target: str
    since: float  # the first pass that decided it
    last: float  # the last one
    times: int = 1  # passes that decided it
    error: str = ""  # of the last try; empty: it succeeded, or has no result yet


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTrial:
    """EC2's answer to the last dry run of an offer: why it refuses the call; empty words: it would take it."""

    at: float
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One observation. A field that is None is unknown now, and no rule uses it. Without `cloud`, `lost` names EC2."""

    slurm: SlurmView | None
    cloud: CloudView | None
    reports: Mapping[str, ReceivedReport] = field(default_factory=dict[str, ReceivedReport])  # by instance
    queue_notices: tuple[QueueNotice, ...] = ()  # notices of the queue, each until it is in the journal
    # EC2's capacity reservations by id, and when they were read; None: with the instances. They stay known while EC2 is lost.
    reservations: Mapping[str, Reservation] = field(default_factory=dict[str, Reservation])
    reservations_at: float | None = None
    lost: Mapping[Dependency, Loss] = field(default_factory=dict[Dependency, Loss])
    unrestored: str = ""  # why the copy of a lost journal is not read
    halted: str = ""  # why no launch is permitted; empty: launches are permitted
    listening_since: float = 0.0  # when the daemon began to listen: no agent could report before
    held: HeldBundle | None = field(
        default_factory=HeldBundle
    )  # the bundle that the agent does not apply yet; None: not known
    repeats: tuple[Repeat, ...] = ()  # for people; no rule reads it


# --- actions -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEvents:
    """Write events to the journal; the first action of a pass."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Drain powered-down slots, so that Slurm places no job there and calls no hook."""

    slots: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Undrain:
    """Remove our drain."""

    slots: tuple[str, ...]
    reason: str  # for the log


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """Write a comment to the jobs."""

    jobs: tuple[int, ...]
    reason: str
    again: bool = False  # the comment is already set; slurmctld saves its state after an update


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkDown:
    """Set nodes DOWN. Their starting and running jobs are requeued or failed at once."""

    slots: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDown:
    """Power down nodes once their jobs are over."""

    slots: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerUp:
    """Ask Slurm to resume slots that no job needs now: always-on nodes, spares and kept nodes."""

    slots: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetDown:
    """Change DOWN and powered-down nodes back to IDLE and powered down."""

    slots: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminate:
    """Terminate instances."""

    instances: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGang:
    """Make one RunInstances call. `repeat`: the outcome is unknown, and the identical call is made again."""

    request: LaunchRequest
    repeat: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Drain nodes that are up. Only the owner that the reason names removes the drain."""

    slots: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Signal the batch scripts of jobs; recorded afterwards as JobsSignalled."""

    jobs: tuple[int, ...]
    signal: str
    instance: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """A run of a job as it was seen. A later run has another start or other nodes."""

    job: int
    started_at: float
    nodes: tuple[str, ...]

    @classmethod
    def of(cls, job: SlurmJob) -> "JobRun":
        return cls(job=job.id, started_at=job.started_at, nodes=job.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """Requeue jobs; those that were requeued are recorded afterwards as JobsRequeued."""

    runs: tuple[JobRun, ...]
    instance: str
    reason: str
    held: bool = False  # True: the jobs stay held until a person releases them

    @property
    def jobs(self) -> tuple[int, ...]:
        return tuple(run.job for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReservation:
    """Create or change a Slurm reservation that keeps jobs off slots while their capacity block is not usable."""

    reservation: SlurmReservation
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReservation:
    """Delete a Slurm reservation."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteMessages:
    """Delete messages of the queue after their notices are in the journal."""

    handles: tuple[str, ...]


# What a daemon may do that cannot read the control object, with its records: LOSSES[Dependency.CONTROL] of `abilities`.
WITHOUT_CONTROL = (RecordEvents, DeleteMessages, Comment, Drain, Signal, Requeue, PowerDown)
Action = (
    RecordEvents | Block | Undrain | Comment | MarkDown | PowerDown | PowerUp | ResetDown | Terminate | LaunchGang
    | Drain | Signal | Requeue | SetReservation | DeleteReservation | DeleteMessages
)  # fmt: skip
