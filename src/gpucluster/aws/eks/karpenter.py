"""What Karpenter needs on AWS: the role of its controller, the role and profile of its nodes, the queue of interruptions."""

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws.eks.cluster import Cluster
from gpucluster.aws.eks.karpenter_policy import KarpenterScope, karpenter_policy
from gpucluster.aws.eks.pod_identity import Pods
from gpucluster.aws.eks.policies import trust_service
from gpucluster.aws.eks.roles import NODE_POLICIES, declare_role
from gpucluster.aws.encryption import Key
from gpucluster.aws.events import declare_queue
from gpucluster.aws.network import Network
from gpucluster.plan.model import AwsPlan
from gpucluster.plan.model.kubernetes import Kubernetes
from gpucluster.plan.model.values import Market
from gpucluster.plan.names import KARPENTER, ROLE_KUBERNETES, interruption_queue, kubernetes_node_role


class Karpenter(pulumi.ComponentResource):
    """Nothing in the cluster: the chart and the NodePools are in the waves, and find these by name."""

    def __init__(
        self,
        plan: AwsPlan,
        part: Kubernetes,
        cluster: Cluster,
        *,
        pods: Pods,
        network: Network,
        key: Key,
        opts: ResourceOptions,
    ) -> None:
        super().__init__("gpucluster:aws:EksKarpenter", plan.name, None, opts)
        child = ResourceOptions(parent=self)
        queue = declare_queue(plan.name, "interruptions", child, name=interruption_queue(plan.name))
        name = kubernetes_node_role(plan.name)
        node = declare_role(
            plan,
            "karpenter-node",
            trust=trust_service("ec2.amazonaws.com"),
            parent=self,
            managed=NODE_POLICIES,
            name=name,  # the waves name it, and they are rendered before it exists
        )
        profile = aws.iam.InstanceProfile(
            f"{plan.name}-karpenter-node",
            name=name,
            role=node.name,
            opts=ResourceOptions(parent=self, delete_before_replace=True),  # as its role
        )
        aws.eks.AccessEntry(
            f"{plan.name}-karpenter-node",
            cluster_name=cluster.name,
            principal_arn=node.arn,
            type="EC2_LINUX",
            opts=child,
        )
        context = network.vpc_context
        known = Output.all(
            cluster_arn=cluster.arn,
            account=context.account,
            subnets=list(context.private_arns.values()),
            group=network.groups.arns[ROLE_KUBERNETES],
            node_role=node.arn,
            profile=profile.arn,
            queue=queue.arn,
            key=key,
        )
        role = pods.role(
            "karpenter",
            KARPENTER,
            KARPENTER,
            inline=known.apply(lambda arns: karpenter_policy(_scope(plan, part, arns))),
        )
        pods.associate("karpenter", KARPENTER, KARPENTER, role)
        self.register_outputs({"queue": queue.url})


def _scope(plan: AwsPlan, part: Kubernetes, arns: Mapping[str, Any]) -> KarpenterScope:
    launches = [launch for pool in part.pools for launch in pool.launches]
    return KarpenterScope(
        cluster=plan.name,
        region=plan.aws.region,
        spot=any(Market.SPOT in launch.markets for launch in launches),
        reservations=sorted({one for launch in launches for one in launch.reservations}),
        **arns,
    )
