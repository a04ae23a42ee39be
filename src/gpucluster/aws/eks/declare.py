"""The components of an EKS cluster in their order."""

from pulumi import ResourceOptions

from gpucluster.aws.eks.access import Access
from gpucluster.aws.eks.cluster import Cluster
from gpucluster.aws.eks.node_groups import NodeGroups
from gpucluster.aws.eks.policies import trust_service
from gpucluster.aws.eks.roles import NODE_POLICIES, declare_role
from gpucluster.aws.encryption import Key
from gpucluster.aws.network import Network
from gpucluster.plan.model import AwsPlan
from gpucluster.plan.model.eks import EksControlPlane
from gpucluster.plan.model.kubernetes import Kubernetes

# Of node groups. EKS makes an access entry for it, so Karpenter's nodes have another role with an entry of ours.
STANDING_ROLE = "node-groups"


def declare_eks(
    plan: AwsPlan,
    part: Kubernetes,
    plane: EksControlPlane,
    *,
    network: Network,
    key: Key,
    opts: ResourceOptions,
) -> Cluster:
    """Declare the cluster and all that EKS runs in it."""
    cluster = Cluster(plan, plane, part.version, network=network, key=key, opts=opts)
    Access(plan.name, cluster.name, plane.entries, opts)
    nodes = declare_role(
        plan, STANDING_ROLE, trust=trust_service("ec2.amazonaws.com"), parent=cluster, managed=NODE_POLICIES
    )
    NodeGroups(
        plan,
        plane.groups,
        part.version,
        cluster=cluster.name,
        role=nodes,
        network=network,
        key=key,
        after=[cluster],
        opts=opts,
    )
    return cluster
