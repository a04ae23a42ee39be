"""What the linter must know beside the manifests: the nodes that the pools will bring, and the cluster they land on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

ANY: frozenset[str] = frozenset()  # a label whose value only the running node knows


class Distribution(StrEnum):
    """Who runs the control plane: it decides which API versions are on."""

    EKS = "eks"  # no alpha, no beta that is off by default
    UPSTREAM = "upstream"  # kubeadm and the like, or unknown: off by default, can be turned on


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint that every node of a pool carries."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """One pool as its nodes look to the scheduler. Quantities are written as Kubernetes writes them: `95`, `1000Gi`."""

    name: str
    max_nodes: int
    allocatable: Mapping[str, str]  # of one node: cpu, memory, nvidia.com/gpu, vpc.amazonaws.com/efa, ...
    daemons: Mapping[str, str] = field(default_factory=dict[str, str])  # of it, what daemonsets request
    labels: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])  # key -> values
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """An object that the cluster has although no manifest makes it (a chart does). Cluster-scoped: no namespace."""

    kind: str
    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`pools` is None when nobody said which there are: the rules about nodes are then reported as not checked."""

    kubernetes: str  # "1.36"
    distribution: Distribution = Distribution.UPSTREAM
    pools: tuple[PoolFacts, ...] | None = None
    present: tuple[Present, ...] = ()
    whole: bool = True  # False: only a part of a cluster, so what is not found may be there
