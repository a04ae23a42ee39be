"""Roles and instance profiles of head and nodes."""

from typing import TYPE_CHECKING

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws.events import Events
from gpucluster.aws.network import Network
from gpucluster.aws.policies import HeadScope, NodeScope, head_policy, node_policy, trust_ec2
from gpucluster.aws.storage import Storage
from gpucluster.plan.model import ClusterPlan, Market

if TYPE_CHECKING:
    from gpucluster.aws.pools import Pools


class NodeIdentity(pulumi.ComponentResource):
    """The nodes' role: the bundle and the key, nothing else."""

    profile: Output[str]  # name
    profile_arn: Output[str]
    role_arn: Output[str]

    def __init__(self, cluster: str, storage: Storage, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:NodeIdentity", cluster, None, opts)
        policy = Output.all(storage.bucket_arn, storage.secret_arn).apply(
            lambda arns: node_policy(NodeScope(bucket=arns[0], secret=arns[1]))
        )
        role, profile = _role(self, f"{cluster}-node", policy)
        self.role_arn, self.profile, self.profile_arn = role.arn, profile.name, profile.arn
        self.register_outputs({"role": role.arn})


class HeadIdentity(pulumi.ComponentResource):
    """The head's role: launch and end this cluster's nodes, and keep its objects."""

    profile: Output[str]

    def __init__(
        self,
        plan: ClusterPlan,
        *,
        image: Output[str],
        network: Network,
        storage: Storage,
        node: NodeIdentity,
        pools: "Pools",
        events: Events,
        opts: ResourceOptions,
    ) -> None:
        super().__init__("gpucluster:aws:HeadIdentity", plan.name, None, opts)
        sources = [source for pool in plan.pools for source in pool.sources]
        held = sorted({s.reservation for s in sources if s.reservation is not None})
        spot = any(s.market is Market.SPOT for s in sources)
        fleet = any(len(s.machines) > 1 for s in sources)
        scope = Output.all(
            vpc=network.vpc_arn,
            image=image,
            subnets=list(network.subnet_arns.values()),
            node_group=network.node_group_arn,
            templates=list(pools.arns.values()),
            node_role=node.role_arn,
            bucket=storage.bucket_arn,
            secret=storage.secret_arn,
            queue=events.queue_arn,
        )
        wide = {"cluster": plan.name, "spot": spot, "fleet": fleet, "reservations": held}
        policy = scope.apply(lambda arns: head_policy(HeadScope(**wide, **arns)))
        role, profile = _role(self, f"{plan.name}-head", policy)
        self.profile = profile.name
        self.register_outputs({"role": role.arn})


def _role(
    parent: pulumi.ComponentResource, name: str, policy: Output[str]
) -> tuple[aws.iam.Role, aws.iam.InstanceProfile]:
    """A role with one inline policy, and the profile that hands it to an instance."""
    child = ResourceOptions(parent=parent)
    role = aws.iam.Role(name, assume_role_policy=trust_ec2(), opts=child)
    aws.iam.RolePolicy(name, role=role.name, policy=policy, opts=child)
    return role, aws.iam.InstanceProfile(name, role=role.name, opts=child)
