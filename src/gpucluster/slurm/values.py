"""Nodes, jobs and reservations as slurmctld reports them, in one spelling for all versions of Slurm."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster.slurm.drains import DrainOwner, Reason, drain_owner, health_words, is_lack_of_hardware
from gpucluster.slurm.states import DRAIN_FLAGS, JobState, NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHardware:
    """What slurmctld has configured for a node."""

    cpus: int
    sockets: int
    cores: int  # of a socket
    threads: int  # of a core
    memory_mib: int
    gres: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node. Times are Unix seconds; 0 means unset."""

    name: str
    states: frozenset[str]  # canonical words, `states.canonical`
    reason: str = ""
    reason_at: float = 0.0
    reason_by: str = ""  # the user who set it
    last_busy: float = 0.0
    boot_time: float = 0.0
    address: str = ""
    partitions: tuple[str, ...] = ()
    hardware: NodeHardware | None = None  # None: the answer lacks a part of it
    reservation: str = ""  # the reservation that holds it now
    features: tuple[str, ...] = ()
    comment: str = ""
    version: str = ""  # of slurmctld, such as 24.11; empty: its answer has none

    @property
    def unhealthy(self) -> str:
        """What a health check found on a node that is not drained, because its pool has its most drained nodes; else empty."""
        return health_words(self.comment)

    @property
    def drained(self) -> bool:
        """Whether the node takes no new job; its running jobs go on. FAIL is a drain that only a person sets."""
        return not DRAIN_FLAGS.isdisjoint(self.states)

    @property
    def drain_owner(self) -> DrainOwner:
        """The owner of the reason, also if the drain has ended and its reason stayed."""
        if NodeState.FAIL in self.states:
            return DrainOwner.PERSON
        return drain_owner(self.reason, self.reason_by, drained=self.drained, version=self.version)

    @property
    def drained_by_slurm(self) -> bool:
        """Whether a daemon of Slurm drained the node, with its own user and its own words."""
        return self.drained and self.drain_owner is DrainOwner.SLURM

    @property
    def failed(self) -> bool:
        """Whether Slurm drained the node because something on it failed, for example a Prolog or the end of a step."""
        lack = is_lack_of_hardware(self.reason, self.reason_by, self.version)
        return self.drained_by_slurm and bool(self.reason) and not lack

    @property
    def written(self) -> Reason:
        """The reason as text and writer."""
        return Reason(text=self.reason, by=self.reason_by, version=self.version)

    @property
    def idle(self) -> bool:
        return NodeState.IDLE in self.states and NodeState.COMPLETING not in self.states

    @property
    def takes_jobs(self) -> bool:
        """Whether a node that is up can start another job: idle, not drained, and with the hardware of slurm.conf."""
        return self.idle and not self.drained and NodeState.INVALID_REG not in self.states


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveJob:
    """Where a job runs, or may run. `nodes` of a completing job are those that it has not left yet."""

    id: int
    pending: bool
    partitions: tuple[str, ...]
    nodes: tuple[str, ...] = ()  # empty while pending
    required_nodes: tuple[str, ...] = ()  # --nodelist


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job. Users write its account: treat it as untrusted text. Times are Unix seconds; 0 means unset."""

    id: int
    states: frozenset[str]
    nodes: tuple[str, ...]  # allocated; empty while pending
    node_count: int  # the least that it takes
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
    time_min_s: float | None = None  # --time-min: backfill may start it with a limit as short as this
    restarts: int = 0
    account: str = ""  # the account that Slurm's accounting charges; empty without accounting
    task: str = (
        ""  # of an array: `4_3`. The last task's id is also the id of the whole array; this name is not
    )
    tasks: int = 1  # waiting tasks of an array that are still one job
    exit_code: int = 0  # of the batch script
    exit_signal: int = 0  # the number of the signal that ended the batch script
    required_nodes: tuple[str, ...] = ()  # --nodelist
    excluded_nodes: tuple[str, ...] = ()  # --exclude
    features: str = ""  # --constraint
    reservation: str = ""

    @property
    def configuring(self) -> bool:
        return JobState.CONFIGURING in self.states

    @property
    def running(self) -> bool:
        return JobState.RUNNING in self.states and not self.configuring

    @property
    def suspended(self) -> bool:
        """Whether its processes are stopped but stay in memory; Slurm shows such nodes as idle."""
        return JobState.SUSPENDED in self.states

    @property
    def pending(self) -> bool:
        return JobState.PENDING in self.states

    @property
    def requeues_on_failure(self) -> bool:
        """Whether Slurm requeues the job when its nodes fail."""
        return self.batch and self.requeueable

    @property
    def shortest_s(self) -> float:
        """The shortest time limit with which Slurm may start it."""
        limits = (limit for limit in (self.time_limit_s, self.time_min_s) if limit is not None)
        return min(limits, default=float("inf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmReservation:
    """A reservation of scontrol's; not a capacity reservation of the cloud."""

    name: str
    starts_at: float
    ends_at: float
    nodes: tuple[str, ...]
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    partition: str = ""
    flags: tuple[str, ...] = ()
    whole: bool = True  # False: it holds only some cores of its nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmView:
    """Nodes and jobs at one time. Nodes are read first: a job here had its nodes at `at` or later."""

    at: float
    nodes: Mapping[str, SlurmNode]
    jobs: tuple[SlurmJob, ...]
    reservations: tuple[SlurmReservation, ...] = ()  # of any origin
    started_at: float | None = None  # of slurmctld; None: not read, or not known
