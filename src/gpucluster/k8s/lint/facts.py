"""Facts that the linter needs in addition to the manifests: the nodes of the pools, and the cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpucluster.k8s.lint.custom_resources import CustomResource
from gpucluster.k8s.manifest import Manifest

ANY: frozenset[str] = frozenset()  # a label whose value is known only on the running node


class Distribution(StrEnum):
    """The operator of the control plane. It decides which API versions are on."""

    EKS = "eks"  # no alpha, no beta that is off by default
    UPSTREAM = (
        "upstream"  # kubeadm or similar, or unknown: beta versions are off by default, and can be turned on
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint that every node of a pool carries."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """One pool as the scheduler sees its nodes. Quantities have Kubernetes' form: `95`, `1000Gi`."""

    name: str
    max_nodes: int
    allocatable: Mapping[str, str]  # of one node: cpu, memory, nvidia.com/gpu, vpc.amazonaws.com/efa, ...
    daemons: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # the part of `allocatable` that daemonsets request
    labels: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])  # key -> values
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """An object that exists in the cluster without a manifest, because a chart makes it. Cluster-scoped: no namespace."""

    kind: str
    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`pools` is None when the pools are unknown. The rules about nodes are then reported as not checked."""

    kubernetes: str  # "1.36"
    distribution: Distribution = Distribution.UPSTREAM
    pools: tuple[PoolFacts, ...] | None = None
    present: tuple[Present, ...] = ()
    by_hand: frozenset[str] = frozenset()  # kinds whose objects a person makes, so that no manifest has them
    whole: bool = True  # False: the manifests are a part of a cluster, so a missing object may exist there
    limits: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, Mapping[str, str]]
    )  # namespace -> the limits that its LimitRange gives to a container without them
    resources: tuple[CustomResource, ...] = ()  # in addition to those of the catalog
    pod_rules: tuple[Manifest, ...] = ()  # namespaces and admission policies that the manifests need not hold
