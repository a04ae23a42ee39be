"""Facts and defaults of a cluster on EKS that the spec's rules and the resolver share. Pure."""

import ipaddress
from collections.abc import Sequence

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


def is_private(span: str) -> bool:
    """Whether the range reaches the API server through the VPC."""
    network = ipaddress.IPv4Network(span)
    return any(network.subnet_of(one) for one in _PRIVATE)


def other_zone(used: Sequence[str], known: Sequence[str]) -> str | None:
    """The first zone of the region that the network does not use."""
    return next((zone for zone in known if zone not in used), None)
