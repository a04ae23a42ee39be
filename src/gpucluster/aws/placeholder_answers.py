"""Answers to the look-ups of an existing VPC that its checks accept. Pure.

Rules about texts and the comparison of rights run the program with placeholders. Without an answer of the account, a
subnet has what the spec expects of it.
"""

from collections.abc import Iterator
from ipaddress import ip_network

from gpucluster.engine.offline import placeholders
from gpucluster.engine.offline.answers import Recording
from gpucluster.plan.model import ClusterPlan, SiteNetwork, SlurmOnAws

SUBNET, VPC = "aws:ec2/getSubnet:getSubnet", "aws:ec2/getVpc:getVpc"
_WIDE = 16  # the largest IPv4 range of a subnet
_FREE = 65_531


def placeholder_answers(plan: ClusterPlan) -> tuple[Recording, ...]:
    """Return the answers for the site's VPC and subnets; none for a network of our own."""
    if not isinstance(plan, SlurmOnAws) or not isinstance(plan.aws.network, SiteNetwork):
        return ()
    return tuple(_answers(plan, plan.aws.network))


def _answers(plan: SlurmOnAws, network: SiteNetwork) -> Iterator[Recording]:
    yield Recording(
        token=VPC,
        arguments={"id": network.vpc},
        answer={
            **placeholders.outputs(VPC, network.vpc, plan.aws.region),
            "enableDnsHostnames": True,
            "enableDnsSupport": True,
            "id": network.vpc,
        },
    )
    cidr = str(ip_network(f"{plan.head.address}/{_WIDE}", strict=False))
    for one in network.subnets:
        for identifier in (one.id, one.public_id):
            if identifier is not None:
                yield Recording(
                    token=SUBNET,
                    arguments={"id": identifier},
                    answer={
                        **placeholders.outputs(SUBNET, identifier, plan.aws.region),
                        "availabilityZone": one.zone,
                        "availableIpAddressCount": _FREE,
                        "cidrBlock": cidr,
                        "id": identifier,
                        "vpcId": network.vpc,
                    },
                )
