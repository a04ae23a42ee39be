"""Refusals of EC2 that moto lacks: deletions of resources in use (T42, T43), and values over a limit (T16, T32)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpucluster.sandbox.aws.ec2.launch import USER_DATA_LIMIT
from gpucluster.sandbox.aws.ec2.state.values import Interface, Refusal
from gpucluster.sandbox.aws.moto_state import Moto, decoded

Guard = Callable[[Mapping[str, Any], Moto, Sequence[Interface]], None]


def security_group(asked: Mapping[str, Any], moto: Moto, interfaces: Sequence[Interface]) -> None:
    """Refuse to delete a group that an interface uses, also a lingering one, or that a rule of another group names."""
    groups = moto.groups()
    group_id = asked.get("GroupId") or next(
        (g.id for g in groups.values() if g.name == asked.get("GroupName")), ""
    )
    if group_id in groups and groups[group_id].name == "default":
        raise Refusal(
            "CannotDelete", f'the specified group: "{group_id}" name: "default" cannot be deleted by a user'
        )
    using = [i.id for i in interfaces if group_id in i.groups]
    naming = [g.id for g in groups.values() if g.id != group_id and group_id in g.named]
    if using or naming:
        raise Refusal("DependencyViolation", f"resource {group_id} has a dependent object")


def subnet(asked: Mapping[str, Any], moto: Moto, interfaces: Sequence[Interface]) -> None:
    """Refuse to delete a subnet with an address in use."""
    subnet_id = asked.get("SubnetId", "")
    ours = [i.id for i in interfaces if i.subnet.id == subnet_id]
    others = [eni for eni, where, _ in moto.interfaces() if where == subnet_id]
    if ours or others:
        raise Refusal(
            "DependencyViolation", f"The subnet '{subnet_id}' has dependencies and cannot be deleted."
        )


def vpc(asked: Mapping[str, Any], moto: Moto, interfaces: Sequence[Interface]) -> None:
    """Refuse to delete a VPC with subnets, interfaces, gateways, endpoints or other groups than its own."""
    vpc_id = asked.get("VpcId", "")
    groups = [g.id for g in moto.groups().values() if g.vpc == vpc_id and g.name != "default"]
    ours = [i.id for i in interfaces if i.subnet.vpc == vpc_id]
    inside = [
        *moto.subnets_of(vpc_id),
        *groups,
        *ours,
        *moto.attached_gateways(vpc_id),
        *moto.endpoints(vpc_id),
    ]
    if inside:
        raise Refusal("DependencyViolation", f"The vpc '{vpc_id}' has dependencies and cannot be deleted.")


def gateway(asked: Mapping[str, Any], moto: Moto, interfaces: Sequence[Interface]) -> None:
    """Refuse to detach an internet gateway while public addresses are mapped in the VPC."""
    vpc_id = asked.get("VpcId", "")
    if any(i.subnet.vpc == vpc_id and i.public_address is not None for i in interfaces):
        raise Refusal(
            "DependencyViolation",
            f"Network {vpc_id} has some mapped public address(es). Please unmap those public address(es) before "
            "detaching the gateway.",
        )


def interface(asked: Mapping[str, Any], moto: Moto, interfaces: Sequence[Interface]) -> None:
    """Refuse to delete an attached interface, or an interface of a service (T42)."""
    del moto
    name = asked.get("NetworkInterfaceId", "")
    mine = next((i for i in interfaces if i.id == name), None)
    if mine is not None and mine.service:
        raise Refusal("OperationNotPermitted", f"You are not allowed to manage '{name}': {mine.service}.")
    if mine is not None:
        raise Refusal("InvalidNetworkInterface.InUse", f"Interface: [{name}] in use.")


def vpc_attribute(asked: Mapping[str, Any], moto: Moto, interfaces: Sequence[Interface]) -> None:
    """Refuse two attributes in one call (T32); the code is not verified."""
    del moto, interfaces
    if "EnableDnsSupport" in asked and "EnableDnsHostnames" in asked:
        raise Refusal("InvalidParameterCombination", "Fields for multiple attribute types specified.")


def template_user_data(asked: Mapping[str, Any], moto: Moto, interfaces: Sequence[Interface]) -> None:
    """Refuse more than 16 KB before base64; a template has another code (T16)."""
    del moto, interfaces
    content: Mapping[str, Any] = asked.get("LaunchTemplateData") or {}
    text = content.get("UserData")
    if text is not None and len(decoded(text)) > USER_DATA_LIMIT:
        raise Refusal("InvalidUserData.Malformed", "User data is limited to 16384 bytes")


GUARDS: Mapping[str, Guard] = {
    "DeleteSecurityGroup": security_group,
    "DeleteSubnet": subnet,
    "DeleteVpc": vpc,
    "DeleteNetworkInterface": interface,
    "DetachInternetGateway": gateway,
    "ModifyVpcAttribute": vpc_attribute,
    "CreateLaunchTemplate": template_user_data,
    "CreateLaunchTemplateVersion": template_user_data,
}
