"""What EC2 refuses to a participant of a shared VPC: it uses the subnets, and only the owner changes the network (T50)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from gpucluster.sandbox.aws.ec2.state.values import InstanceLaunch, Refusal
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto

# Calls that create, change or delete what belongs to the owner of the VPC. A participant may describe all of it.
OF_THE_OWNER = frozenset(
    {
        "AssociateDhcpOptions", "AssociateRouteTable", "AssociateSubnetCidrBlock", "AssociateVpcCidrBlock",
        "AttachInternetGateway", "AttachVpnGateway",
        "CreateEgressOnlyInternetGateway", "CreateNatGateway", "CreateNetworkAcl", "CreateNetworkAclEntry",
        "CreateRoute", "CreateRouteTable", "CreateSubnet", "CreateSubnetCidrReservation", "CreateTags",
        "CreateTransitGatewayVpcAttachment", "CreateVpcEndpoint", "CreateVpcPeeringConnection",
        "DeleteInternetGateway", "DeleteNetworkAcl", "DeleteNetworkAclEntry", "DeleteRoute", "DeleteRouteTable",
        "DeleteSubnet", "DeleteTags", "DeleteVpc", "DeleteVpcEndpoints",
        "DetachInternetGateway", "DetachVpnGateway", "DisassociateRouteTable", "DisassociateSubnetCidrBlock",
        "DisassociateVpcCidrBlock",
        "ModifySubnetAttribute", "ModifyVpcAttribute", "ModifyVpcEndpoint", "ModifyVpcTenancy",
        "ReplaceNetworkAclAssociation", "ReplaceNetworkAclEntry", "ReplaceRoute", "ReplaceRouteTableAssociation",
    }
)  # fmt: skip
_GROUP_RULES = frozenset(
    {
        "AuthorizeSecurityGroupEgress", "AuthorizeSecurityGroupIngress", "DeleteSecurityGroup",
        "ModifySecurityGroupRules", "RevokeSecurityGroupEgress", "RevokeSecurityGroupIngress",
    }
)  # fmt: skip


def check(operation: str, asked: Mapping[str, Any], moto: Moto) -> None:
    """Refuse a call that changes a network, a group or an endpoint of another account."""
    if operation not in OF_THE_OWNER | _GROUP_RULES:
        return
    named = asked.get("GroupId") if operation in _GROUP_RULES else _without_tags(asked)
    for name in _texts(named):
        if moto.owner_of(name) != ACCOUNT:
            raise _refusal(operation)


def check_launch(spec: InstanceLaunch, moto: Moto) -> None:
    """Refuse a launch with a security group of the owner: also its default group, which is not the participant's."""
    theirs = [name for name in spec.groups if moto.owner_of(name) != ACCOUNT]
    if theirs:
        raise _refusal("RunInstances")


def _refusal(operation: str) -> Refusal:
    """The code and the second sentence are those that participants report; see T50."""
    return Refusal(
        "UnauthorizedOperation",
        f"You are not authorized to perform {operation} operation. A subnet in this vpc is shared but the provided "
        "object is not owned by you",
        status=403,
    )


def _without_tags(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in asked.items() if name not in ("Tags", "TagSpecifications")}


def _texts(value: Any) -> Iterator[str]:
    """Every text in the parameters: an id may be in a list, as in CreateTags."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for one in cast(Mapping[str, Any], value).values() for text in _texts(one))
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        yield from (text for one in cast(Iterable[Any], value) for text in _texts(one))
