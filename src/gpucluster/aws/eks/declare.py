"""The components of an EKS cluster in their order."""

from pulumi import ResourceOptions

from gpucluster.aws.eks.access import Access
from gpucluster.aws.eks.cluster import Cluster
from gpucluster.aws.encryption import Key
from gpucluster.aws.network import Network
from gpucluster.plan.model import AwsPlan
from gpucluster.plan.model.eks import EksControlPlane
from gpucluster.plan.model.kubernetes import Kubernetes


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
    return cluster
