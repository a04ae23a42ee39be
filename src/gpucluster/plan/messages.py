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


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """From the node. `nonce` makes each credential unique; `boot_id` is the kernel's or the machine's."""

    instance_id: str
    nonce: str
    boot_id: str
    phase: NodePhase
    life: int  # the life for which slurmd was last started; 0 = never
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """From the daemon. slurmd is to run as `node` for `life`: started with -b when `life` is new."""

    node: str
    life: int
    controller: str  # host:port for --conf-server
    heartbeat_s: float
    hosts: tuple[str, ...] = ()  # lines "address name" of the cluster's living nodes
