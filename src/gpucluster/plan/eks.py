"""Facts and defaults of a cluster on EKS that the spec's rules and the resolver share. Pure."""

import ipaddress
from collections.abc import Mapping, Sequence

from gpucluster.plan.defaults import Default

# https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html, "Subnet requirements for clusters"
LEAST_ZONES = 2
LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")  # every type that EKS has
LOG_DAYS = Default(
    90, "long enough to look into what somebody did; CloudWatch keeps logs for ever by default"
)
KEY_DAYS = Default(
    30,
    "the longest time that KMS waits before it deletes a key: without it nobody can read the cluster's secrets",
)


# Ranges that a VPC or the networks behind it have: RFC 1918, and RFC 6598 of carriers, which AWS takes for VPCs, too
_PRIVATE = tuple(
    ipaddress.IPv4Network(one) for one in ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")
)
# "The block cannot include reserved addresses" (EKS user guide, "Configure network access to cluster API server endpoint").
# Documentation ranges are not here: examples name them in the place of public ones.
_RESERVED = (
    *(ipaddress.IPv4Network(one) for one in ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")),
    *_PRIVATE,
)
_ANYWHERE = ipaddress.IPv4Network("0.0.0.0/0")  # EKS takes it, and it is its default

# The VPC CNI holds addresses for pods that may come. Its default is a whole spare interface, up to 50 addresses of a large machine
# (aws/amazon-vpc-cni-k8s, docs/eni-and-ip-target.md).
POD_ADDRESSES = Default(16, "the daemons of a node with GPUs and a gang's pod need about 12 addresses")
WARM_ADDRESSES = 4  # beside those in use, once a node uses more
PLANE_ADDRESSES = 6  # in each subnet, of EKS's own interfaces: the least that its user guide asks for ("Subnet requirements for clusters")
SYSTEM_MACHINE = "m7i.xlarge"
SYSTEM_MACHINE_REASON = (
    "DNS, storage controllers, Karpenter, Kueue and the GPU operator need about 3 CPUs and 8 GiB, and no GPU"
)
SYSTEM_COUNT = Default(2, "one node can end while the controllers run on the other")

_AMI = {  # (architecture, GPUs) -> EKS's type of image
    ("amd64", True): "AL2023_x86_64_NVIDIA",
    ("amd64", False): "AL2023_x86_64_STANDARD",
    ("arm64", True): "AL2023_ARM_64_NVIDIA",
    ("arm64", False): "AL2023_ARM_64_STANDARD",
}


EBS, EFS, FSX = "aws-ebs-csi-driver", "aws-efs-csi-driver", "aws-fsx-csi-driver"
# add-on -> whether its pods run on nodes. The first ones must exist before a node joins: without network and pod identity
# it does not become ready.
ADDONS = {
    "vpc-cni": False,
    "kube-proxy": False,
    "eks-pod-identity-agent": False,
    "coredns": True,
    "eks-node-monitoring-agent": True,
    EBS: True,
    EFS: True,
    FSX: True,
}

# The rights of an add-on beside those of its node: AWS's policy, and the service account that gets it by pod identity.
# The FSx and EFS drivers mount file systems that exist, which needs no call of AWS.
RIGHTS: Mapping[str, tuple[str, str]] = {
    EBS: ("AmazonEBSCSIDriverPolicyV2", "ebs-csi-controller-sa"),
    "vpc-cni": ("AmazonEKS_CNI_Policy", "aws-node"),
}


def ami_type(arch: str, gpus: int) -> str:
    """The type of image for nodes of an architecture, with or without GPUs."""
    return _AMI[arch, gpus > 0]


def is_private(span: str) -> bool:
    """Whether the range reaches the API server through the VPC."""
    network = ipaddress.IPv4Network(span)
    return any(network.subnet_of(one) for one in _PRIVATE)


def reserved_within(span: str) -> str | None:
    """A range of reserved addresses for which EKS refuses a public range; None if it takes the range."""
    network = ipaddress.IPv4Network(span)
    if network == _ANYWHERE or is_private(span):
        return None
    return next((str(one) for one in _RESERVED if network.overlaps(one)), None)


def other_zone(used: Sequence[str], known: Sequence[str]) -> str | None:
    """The first zone of the region that the network does not use."""
    return next((zone for zone in known if zone not in used), None)
