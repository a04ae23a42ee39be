"""The control plane of EKS in a plan: its API server, who may use it, and what EKS itself installs and runs."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gpucluster.plan.model.aws import Subnet
from gpucluster.plan.model.pools import Interface
from gpucluster.plan.model.values import Distribution, Market


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessEntry:
    """An IAM role or user that the API server admits. EKS has one entry for each principal."""

    principal: str  # ARN
    groups: tuple[str, ...] = ()  # of Kubernetes, for RBAC bindings; sorted
    admin: bool = False  # may do everything in the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint: pods without a toleration do not run on the node."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Always-on nodes of one source of a pool, or those of the add-ons: a managed node group of EKS."""

    key: str  # its name in EKS
    pool: str  # name of the pool in the spec: a tag of the launch template, which no zone changes; or of `names.SYSTEM_NODES`
    market: Market
    machines: tuple[str, ...]  # in order of preference; they have the same interfaces
    nodes: int
    zones: tuple[str, ...]
    ami: str  # EKS's type of image
    release: str | None  # of the image; None: the newest when EKS creates the group
    reservation: str | None = None
    interfaces: tuple[Interface, ...] = ()  # none: one ordinary interface
    placement: bool = False
    local_disks: bool = False  # they become one file system for pods
    root_gib: int = 200
    labels: dict[str, str]
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Addon:
    """An add-on that EKS installs."""

    name: str
    version: str | None  # None: EKS's default when it installs the add-on
    on_nodes: (
        bool  # its pods run on nodes; without them it stays degraded. Others are there before the first node
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EksControlPlane:
    """An EKS cluster with the plan's name."""

    kind: ClassVar[Literal["eks"]] = "eks"
    distribution: ClassVar[Distribution] = Distribution.EKS

    private_from: tuple[str, ...] = ()  # private ranges that reach the API server, besides the nodes
    public_from: tuple[str, ...] = ()  # public ranges; empty: the API server has no public address
    entries: tuple[AccessEntry, ...] = ()  # sorted by principal
    groups: tuple[NodeGroup, ...] = ()  # the nodes of the add-ons first, then in the order of the pools
    addons: tuple[Addon, ...] = ()
    # In a second zone, for the control plane: EKS needs two zones. No pool is in it.
    spare: Subnet | None = None
