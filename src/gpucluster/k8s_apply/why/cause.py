"""What `gpucluster k8s why` answers with."""

from dataclasses import dataclass
from enum import StrEnum


class CauseKind(StrEnum):
    """What prevents a pod or a workload from running."""

    QUOTA = "quota"  # of a queue
    QUEUE = "queue"
    TOPOLOGY = "topology"
    FLAVOR = "flavor"  # no flavor of the queue takes the pods
    CHECK = "admission check"
    EVICTED = "evicted"
    STOPPED = "stopped"
    LIMIT = "limit"  # of a namespace: ResourceQuota, LimitRange
    POLICY = "policy"  # admission refuses the pods
    GATE = "gate"
    RESOURCES = "resources"
    TAINT = "taint"
    SELECTOR = "selector"
    VOLUME = "volume"
    DEVICE = "device claim"  # a ResourceClaim of dynamic resource allocation
    IMAGE = "image"
    REFERENCE = "reference"  # a Secret, ConfigMap or service account that is missing
    CONTAINER = "container"
    PROBE = "probe"
    NODE = "node"
    MACHINE = "machine"  # Karpenter's
    DELETED = "deleted"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause. `words` are those of the program `by`; `details` are what we read beside them."""

    kind: CauseKind
    subject: str  # the object that waits: research/Pod/tune-0
    by: str
    words: str
    details: tuple[str, ...] = ()
    next_step: str = ""  # a command, or what to change; empty: only to wait
    count: int = 1  # objects with the same cause; `subject` is the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The state of the subject, its pods by their phase, the causes, and kinds that the user may not read."""

    subject: str
    state: str
    pods: dict[str, int]
    causes: tuple[Cause, ...]
    unread: tuple[str, ...]
