"""What a network stands on, whoever made it: a VPC, and subnets by zone."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi
from pulumi import Output

from gpucluster.plan.model import ClusterPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """VPC and subnets; `ready` is what must be there before a machine reaches beyond the VPC."""

    vpc_id: Output[str]
    vpc_arn: Output[str]
    private: Mapping[str, Output[str]]  # zone -> subnet id
    private_arns: Mapping[str, Output[str]]
    public: Mapping[str, Output[str]]
    ready: list[pulumi.Resource] = field(default_factory=list[pulumi.Resource])


def kept_zones(plan: ClusterPlan) -> frozenset[str]:
    """Zones whose subnet a Lustre of ours hangs on, which stays when the cluster goes. An EFS stays without targets."""
    return frozenset(m.lustre.zone for m in plan.storage if m.lustre is not None and m.lustre.id is None)
