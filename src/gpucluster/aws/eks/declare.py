"""The components of an EKS cluster in their order."""

from pulumi import Output, ResourceOptions

from gpucluster.aws.eks.access import Access
from gpucluster.aws.eks.addons import Addons
from gpucluster.aws.eks.cluster import Cluster
from gpucluster.aws.eks.karpenter import Karpenter
from gpucluster.aws.eks.node_groups import NodeGroups
from gpucluster.aws.eks.pod_identity import Pods
from gpucluster.aws.eks.policies import trust_service
from gpucluster.aws.eks.roles import NODE_POLICIES, declare_role
from gpucluster.aws.encryption import Key
from gpucluster.aws.network import Network
from gpucluster.plan.eks import RIGHTS
from gpucluster.plan.iam_policies import JobsScope, jobs_policy
from gpucluster.plan.model import AwsPlan
from gpucluster.plan.model.eks import EksControlPlane
from gpucluster.plan.model.kubernetes import Kubernetes, PodIdentity
from gpucluster.plan.names import pods_role

KUBE_SYSTEM = "kube-system"
# Of node groups. EKS makes an access entry for it, so Karpenter's nodes have another role with an entry of ours.
NODE_GROUP_ROLE = "node-groups"


def declare_eks(
    plan: AwsPlan,
    part: Kubernetes,
    plane: EksControlPlane,
    *,
    network: Network,
    key: Key,
    own_bucket: Output[str] | None = None,
    opts: ResourceOptions,
) -> Cluster:
    """Declare the cluster and all that EKS runs in it. Beside Slurm, `own_bucket` is the ARN of the bucket that pods must not use."""
    cluster = Cluster(plan, plane, part.version, network=network, key=key, opts=opts)
    Access(plan.name, cluster.name, plane.entries, opts)
    nodes = declare_role(
        plan, NODE_GROUP_ROLE, trust=trust_service("ec2.amazonaws.com"), parent=cluster, managed=NODE_POLICIES
    )
    pods = Pods(plan, cluster, network.vpc_context.account)
    rights = {
        name: pods.role(name, KUBE_SYSTEM, account, managed=(policy,))
        for name, (policy, account) in RIGHTS.items()
    }
    early, late = ([one for one in plane.addons if one.on_nodes is on_nodes] for on_nodes in (False, True))
    first = Addons(plan.name, "early", early, name=cluster.name, roles=rights, after=[], opts=opts)
    groups = NodeGroups(
        plan,
        plane.groups,
        part.version,
        cluster=cluster.name,
        role=nodes,
        network=network,
        key=key,
        after=first.ready,
        opts=opts,
    )
    # Not after the groups of pools: without their capacity the cluster would have no DNS.
    Addons(plan.name, "late", late, name=cluster.name, roles=rights, after=groups.system, opts=opts)
    if any(pool.elastic for pool in part.pools):
        Karpenter(plan, part, cluster, pods=pods, network=network, key=key, opts=opts)
    for identity in part.pod_identities:
        _identity(plan, identity, pods, own_bucket)
    return cluster


def _identity(plan: AwsPlan, identity: PodIdentity, pods: Pods, own_bucket: Output[str] | None) -> None:
    """Declare the role of a team's service account with places in S3. The statements are those of jobs of Slurm."""
    word = pods_role(identity.namespace, identity.service_account)
    rights = Output.from_input(own_bucket).apply(
        lambda own: jobs_policy(JobsScope(own_bucket=own, read=identity.read, write=identity.write))
    )
    role = pods.role(word, identity.namespace, identity.service_account, inline=rights)
    pods.associate(word, identity.namespace, identity.service_account, role)
