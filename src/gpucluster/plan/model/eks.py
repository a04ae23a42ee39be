"""The control plane of EKS in a plan: its API server, who may use it, and what EKS itself installs and runs."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gpucluster.plan.model.aws import Subnet
from gpucluster.plan.model.values import Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessEntry:
    """An IAM role or user that the API server admits. EKS has one entry for each principal."""

    principal: str  # ARN
    groups: tuple[str, ...] = ()  # of Kubernetes, for RBAC bindings; sorted
    admin: bool = False  # may do everything in the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class EksControlPlane:
    """An EKS cluster with the plan's name."""

    kind: ClassVar[Literal["eks"]] = "eks"
    distribution: ClassVar[Distribution] = Distribution.EKS

    private_from: tuple[str, ...] = ()  # private ranges that reach the API server, besides the nodes
    public_from: tuple[str, ...] = ()  # public ranges; empty: the API server has no public address
    entries: tuple[AccessEntry, ...] = ()  # sorted by principal
    spare: Subnet | None = None  # in a second zone, for the control plane alone: EKS needs two zones
