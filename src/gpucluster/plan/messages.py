"""What a node and the elastic daemon say to each other, over HTTP on the head's registration port.

POST /v1/node    body: a munge credential made by uid 0 whose payload is a NodeReport as JSON
    200 NodeAnswer | 403 {"error"} not one of ours | 503 {"error"} ask again later
POST /v1/failed  body: a NodeReport as plain JSON, for a machine that has no key yet; believed only from
    the address of one of our instances that has not registered. 204 | 403
Every heartbeat is the same POST /v1/node again: a level, not an event.
"""

from dataclasses import dataclass
from enum import StrEnum


class NodePhase(StrEnum):
    """Where the agent stands."""

    BOOTING = "booting"
    UP = "up"  # slurmd was started for `life`
    FAILED = "failed"  # a step failed for good; its detail is the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the agent: guard, bundle, key, name, slurmd."""

    name: str
    ok: bool
    seconds: float
    detail: str = ""


class NoticeKind(StrEnum):
    """What a machine hears of itself."""

    SPOT = "spot"  # it will be taken back
    REBALANCE = "rebalance"  # it may be taken back
    MAINTENANCE = "maintenance"  # a scheduled event of the cloud


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """From the metadata service, or from the queue; the same twice is one."""

    kind: NoticeKind
    at: float | None = None  # when it takes effect; None: not told
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFault:
    """A line `NVRM: Xid` of the kernel's log, or several alike."""

    xid: int
    device: str  # PCI address
    count: int
    last_at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A job's heartbeat file on this node: its owner and when it was touched last."""

    job: int
    uid: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """From the node. `nonce` makes each credential unique; `boot_id` is the kernel's or the machine's."""

    instance_id: str
    nonce: str
    boot_id: str
    phase: NodePhase
    life: int  # the life for which slurmd was last started; 0 = never
    steps: tuple[Step, ...]
    tail: str = ""  # last lines of the journal of agent and slurmd, when a step failed or a boot is late
    notices: tuple[Notice, ...] = ()
    faults: tuple[GpuFault, ...] = ()
    beats: tuple[Beat, ...] = ()
    watched: bool = False  # the metadata service was read: no notice means none
    clock: float = 0.0  # the node's own, seconds since the epoch: beats are told in it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """From the daemon. slurmd is to run as `node` for `life`: started with -b when `life` is new."""

    node: str
    life: int
    controller: str  # host:port for --conf-server
    heartbeat_s: float
    hosts: tuple[str, ...] = ()  # lines "address name" of the cluster's living nodes
    awaited: bool = False  # Slurm does not have the node yet: a tail is of use
    leaving: str = ""  # KIND or KIND SECONDS: this machine is to be left, at the end of its life then
