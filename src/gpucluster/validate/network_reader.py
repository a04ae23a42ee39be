"""Read what EC2 says of the cluster's network: subnets, routes, NAT gateways, endpoints, network ACLs and attributes of the VPC."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpucluster.plan import names

_LISTS = {  # operation -> (list in its answer, parameter of its filters)
    "describe_subnets": ("Subnets", "Filters"),
    "describe_route_tables": ("RouteTables", "Filters"),
    "describe_nat_gateways": ("NatGateways", "Filter"),
    "describe_vpc_endpoints": ("VpcEndpoints", "Filters"),
    "describe_network_acls": ("NetworkAcls", "Filters"),
}
_ATTRIBUTES = ("enableDnsSupport", "enableDnsHostnames")


def read_network(ec2: Any, vpcs: Sequence[str]) -> Mapping[str, Any]:
    """All of the cluster's own VPC."""
    lists = {member: _listed(ec2, operation, [_inside(vpcs)]) for operation, (member, _) in _LISTS.items()}
    return {**lists, "VpcAttributes": [_attributes(ec2, vpc) for vpc in vpcs]}


def read_endpoints(ec2: Any, cluster: str, vpcs: Sequence[str]) -> Mapping[str, Any]:
    """The cluster's endpoints in a VPC of the site."""
    tagged = {"Name": f"tag:{names.TAG_CLUSTER}", "Values": [cluster]}
    return {"VpcEndpoints": _listed(ec2, "describe_vpc_endpoints", [tagged, _inside(vpcs)])}


def _inside(vpcs: Sequence[str]) -> Mapping[str, Any]:
    return {"Name": "vpc-id", "Values": list(vpcs)}


def _listed(ec2: Any, operation: str, filters: Sequence[Mapping[str, Any]]) -> list[Any]:
    member, parameter = _LISTS[operation]
    pages = ec2.get_paginator(operation).paginate(**{parameter: list(filters)})
    return [item for page in pages for item in page[member]]


def _attributes(ec2: Any, vpc: str) -> Mapping[str, Any]:
    """EC2 answers one attribute a call, under its name with a capital letter."""
    found: dict[str, Any] = {"VpcId": vpc}
    for name in _ATTRIBUTES:
        answer = ec2.describe_vpc_attribute(VpcId=vpc, Attribute=name)
        member = name[0].upper() + name[1:]
        found[member] = answer[member]["Value"]
    return found
