"""Messages between a node and the elastic daemon, over HTTP on the head's registration port.

POST /v1/node    body: a munge credential made by uid 0; its payload is a NodeReport as JSON
    200 NodeAnswer | 403 {"error"} not an instance of this cluster | 503 {"error"} try again later
POST /v1/failed  body: a NodeReport as plain JSON, for a machine without a key; accepted only from
    the address of an instance of this cluster that has not registered. 204 | 403
POST /v1/run     body: a munge credential as of /v1/node; its payload is a RunQuestion as JSON
    200 RunAnswer | 403 | 503
Every heartbeat is the same POST /v1/node again: it reports the state, not an event.
"""

from dataclasses import dataclass
from enum import StrEnum


class NodePhase(StrEnum):
    """The state of the agent."""

    BOOTING = "booting"
    UP = "up"  # slurmd was started for the incarnation
    FAILED = "failed"  # a step failed permanently; its detail is the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the agent: guard, bundle, key, name, slurmd."""

    name: str
    ok: bool
    seconds: float
    detail: str = ""


class NoticeKind(StrEnum):
    """Notices that a machine receives from the cloud."""

    SPOT = "spot"  # the instance will be reclaimed
    REBALANCE = "rebalance"  # the instance may be reclaimed
    MAINTENANCE = "maintenance"  # a scheduled event of the cloud


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A notice from the metadata service, or from the queue. Equal notices from both count as one."""

    kind: NoticeKind
    at: float | None = None  # time of the effect; None: unknown
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFault:
    """A line `NVRM: Xid` of the kernel's log, or several equal lines."""

    xid: int
    device: str  # PCI address
    count: int
    last_at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A job's heartbeat file on this node: its owner and the time of the last touch."""

    job: int
    uid: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """The report of a node. `nonce` makes each credential unique; `boot_id` is the kernel's or the machine's."""

    instance_id: str
    nonce: str
    boot_id: str
    phase: NodePhase
    incarnation: int  # the incarnation for which slurmd was last started; 0 = never
    steps: tuple[Step, ...]
    tail: str = ""  # last lines of the journal of agent and slurmd, after a failed step or in a late boot
    notices: tuple[Notice, ...] = ()
    faults: tuple[GpuFault, ...] = ()
    heartbeats: tuple[Beat, ...] = ()
    watched: bool = False  # the metadata service was read, so an empty list means that there is no notice
    clock: float = 0.0  # the node's own clock, seconds since the epoch; heartbeats have its times
    without_script: tuple[
        int, ...
    ] = ()  # of the last answer's `batch_jobs`, those without a batch script here
    slurmd_down_s: float | None = None  # seconds since slurmd ended; None: it runs or restarts


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """The daemon's answer. slurmd must run as `node`: it starts with -b if `incarnation` is new."""

    node: str
    incarnation: int
    controller: str  # host:port for --conf-server
    heartbeat_s: float
    hosts: tuple[str, ...] = ()  # lines "address name" of the cluster's running nodes
    awaited: bool = (
        False  # Slurm does not have the node yet: the next report must hold the tail of the journal
    )
    interruption: str = ""  # of this machine: KIND or KIND SECONDS; SECONDS is the Unix time of its end
    batch_jobs: tuple[
        int, ...
    ] = ()  # jobs whose batch script slurmctld has running on this node for some time
    ends: bool = False  # the machine powers off if slurmctld shows its node powered down


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuestion:
    """A job that starts on the node: how many of its runs began before this one? `restarts` is Slurm's own count."""

    instance_id: str
    nonce: str
    job: int
    restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswer:
    """The runs of the job that began before this one."""

    begun: int


# --- between the agent, the daemon and an operator, on the head: files with one JSON object -------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBundle:
    """The bundle that the agent does not apply yet (names.HELD_BUNDLE). Empty: no bundle is held."""

    bundle: str = ""  # its digest
    nodes: tuple[str, ...] = ()  # the nodes that it removes or changes; the daemon drains them
    waits_for: str = ""  # for people: nodes and jobs

    @property
    def reason(self) -> str:
        """The words of a drain of these nodes."""
        return f"bundle {self.bundle[:12]} removes or changes it, and is applied when its jobs have ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerWatch:
    """What the agent's watchdog saw of slurmctld (names.CONTROLLER_WATCH). Times are Unix seconds."""

    silent_since: float | None = None  # it runs and does not answer since then
    restarts: tuple[float, ...] = ()  # the last ones


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRelease:
    """The operator's order to apply one held bundle now (names.BUNDLE_RELEASE)."""

    bundle: str  # the whole digest: the order applies to no other bundle
    by: str
    at: float  # Unix time
