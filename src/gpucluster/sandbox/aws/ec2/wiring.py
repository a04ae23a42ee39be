"""What EC2 refuses of subnets, routes, rules, endpoints and templates, and moto would not. Codes: its API reference,
and what providers quote of it."""

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.moto_state import Moto

Wiring = Callable[[Mapping[str, Any], Moto], None]
_SUBNET_BITS = (16, 28)
_TARGETS = (
    "CarrierGatewayId", "CoreNetworkArn", "EgressOnlyInternetGatewayId", "GatewayId", "InstanceId", "LocalGatewayId",
    "NatGatewayId", "NetworkInterfaceId", "TransitGatewayId", "VpcEndpointId", "VpcPeeringConnectionId",
)  # fmt: skip
_TEMPLATE_NAME = re.compile(r"[a-zA-Z0-9().\-/_]{3,128}")
_GROUP_TEXT = re.compile(r"[a-zA-Z0-9 ._\-:/()#,@\[\]+=&;{}!$*]{1,255}")
_PORTS = range(-1, 65536)


def subnet(asked: Mapping[str, Any], moto: Moto) -> None:
    """Refuse a range of a wrong size, or a zone outside the Region."""
    cidr, zone = asked.get("CidrBlock"), asked.get("AvailabilityZone")
    if not cidr:
        raise Refusal("MissingParameter", "Either 'cidrBlock' or 'ipv4IpamPoolId' should be provided.")
    low, high = _SUBNET_BITS
    if not low <= _range(str(cidr), "cidrBlock").prefixlen <= high:
        raise Refusal("InvalidSubnet.Range", f"The CIDR '{cidr}' is invalid.")
    if zone is not None and zone not in moto.zones():
        raise Refusal(
            "InvalidParameterValue",
            f"Value ({zone}) for parameter availabilityZone is invalid. Subnets can currently only be created in the "
            f"following availability zones: {', '.join(moto.zones())}.",
        )


def more_of_a_vpc(asked: Mapping[str, Any], moto: Moto) -> None:
    """Accept a second range; the sandbox has no IPv6."""
    del moto
    if not asked.get("CidrBlock"):
        raise Refusal("UnsupportedOperation", "the sandbox's networks have ranges of IPv4 that are named")
    _range(str(asked["CidrBlock"]), "cidrBlock")


def route(asked: Mapping[str, Any], moto: Moto) -> None:
    """Refuse a route with several targets, or with a target in another network."""
    _range(str(asked.get("DestinationCidrBlock") or "0.0.0.0/0"), "destinationCidrBlock")
    targets = [name for name in _TARGETS if asked.get(name)]
    if len(targets) > 1:
        raise Refusal(
            "InvalidParameterCombination",
            f"The parameter {targets[0]} cannot be used with the parameter {targets[1]}",
        )
    table, gateway = moto.route_tables().get(str(asked.get("RouteTableId"))), str(asked.get("GatewayId", ""))
    where = moto.gateway_vpcs()
    if table is not None and gateway in where and where[gateway] != table.vpc:
        raise Refusal(
            "InvalidParameterValue",
            f"route table {table.id} and network gateway {gateway} belong to different networks",
        )


def no_route(asked: Mapping[str, Any], moto: Moto) -> None:
    """Refuse to delete the local route."""
    table = moto.route_tables().get(str(asked.get("RouteTableId")))
    cidr = str(asked.get("DestinationCidrBlock", ""))
    if table is not None and cidr == table.local:
        raise Refusal("InvalidParameterValue", f"cannot remove local route {cidr} in route table {table.id}")


def association(asked: Mapping[str, Any], moto: Moto) -> None:
    """Refuse a second route table for a subnet."""
    tables, wanted = moto.route_tables(), str(asked.get("RouteTableId"))
    name = str(asked.get("SubnetId"))
    taken = [t.id for t in tables.values() if name in t.subnets and t.id != wanted]
    if wanted in tables and taken:
        raise Refusal(
            "Resource.AlreadyAssociated",
            f"the specified association for route table {wanted} conflicts with an existing association",
        )


def no_table(asked: Mapping[str, Any], moto: Moto) -> None:
    """Refuse to delete the main route table; it is deleted with the VPC."""
    table = moto.route_tables().get(str(asked.get("RouteTableId")))
    if table is not None and table.main:
        raise Refusal(
            "DependencyViolation", f"The routeTable '{table.id}' has dependencies and cannot be deleted."
        )


def gateway(asked: Mapping[str, Any], moto: Moto) -> None:
    """Refuse a second internet gateway for a VPC."""
    name, wanted = str(asked.get("VpcId")), str(asked.get("InternetGatewayId"))
    if [g for g, vpc in moto.gateway_vpcs().items() if vpc == name and g != wanted]:
        raise Refusal("InvalidParameterValue", f"Network {name} already has an internet gateway attached")


def group(asked: Mapping[str, Any], moto: Moto) -> None:
    """Refuse a group name that looks like an id, or that has other characters than EC2 allows."""
    del moto
    name, text = str(asked.get("GroupName", "")), str(asked.get("Description", ""))
    if name.startswith("sg-") or not _GROUP_TEXT.fullmatch(name) or not _GROUP_TEXT.fullmatch(text):
        raise Refusal("InvalidParameterValue", "Invalid security group name or description")


def rules(asked: Mapping[str, Any], moto: Moto) -> None:
    """Refuse wrong ports, and a call without a rule."""
    del moto
    found = cast(Sequence[Mapping[str, Any]], asked.get("IpPermissions") or ())
    named = (
        asked.get("SecurityGroupRuleIds") or asked.get("IpProtocol") or asked.get("SourceSecurityGroupName")
    )
    if not found and not named:
        raise Refusal("MissingParameter", "The request must contain the parameter ipPermissions")
    for rule in (*found, asked):
        for port in (rule.get("FromPort"), rule.get("ToPort")):
            if port is not None and int(port) not in _PORTS:
                raise Refusal(
                    "InvalidParameterValue", f"Invalid value '{port}' for a port. Expecting 0 to 65535."
                )


def changed_rules(asked: Mapping[str, Any], moto: Moto) -> None:
    """Refuse a rule change without a new value."""
    del moto
    for one in cast(Sequence[Mapping[str, Any]], asked.get("SecurityGroupRules") or ()):
        if not cast(Mapping[str, Any], one.get("SecurityGroupRule") or {}).get("IpProtocol"):
            raise Refusal("MissingParameter", "The request must contain the parameter ipProtocol")


def endpoint(asked: Mapping[str, Any], moto: Moto) -> None:
    """Refuse an unknown service, unknown groups, and a second gateway endpoint of a service in a table."""
    service, kind = str(asked.get("ServiceName")), str(asked.get("VpcEndpointType") or "Gateway")
    if not service.startswith(f"com.amazonaws.{moto.region}."):
        raise Refusal("InvalidServiceName", f"The Vpc Endpoint Service '{service}' does not exist")
    known = moto.groups()
    for name in cast(Sequence[str], asked.get("SecurityGroupIds") or ()):
        if name not in known:
            raise Refusal("InvalidGroup.NotFound", f"The security group '{name}' does not exist")
    tables = set(cast(Sequence[str], asked.get("RouteTableIds") or ()))
    taken = tables & moto.tables_with_endpoint(service)
    if kind == "Gateway" and taken:
        raise Refusal(
            "RouteAlreadyExists", f"route table {min(taken)} already has a route to the service {service}"
        )


def interface(asked: Mapping[str, Any], moto: Moto) -> None:
    """Refuse a fixed address outside the subnet."""
    place, address = moto.subnet(str(asked.get("SubnetId"))), asked.get("PrivateIpAddress")
    if address is None:
        return
    with suppress(ValueError):
        if ipaddress.ip_address(str(address)) in ipaddress.ip_network(place.cidr):
            return
    raise Refusal(
        "InvalidParameterValue", f"Address {address} does not fall within the subnet's address range"
    )


def template(asked: Mapping[str, Any], moto: Moto) -> None:
    """Refuse a template name with other characters than EC2 allows, and tags of a wrong resource type."""
    name, source = asked.get("LaunchTemplateName"), asked.get("SourceVersion")
    if name is not None and not _TEMPLATE_NAME.fullmatch(str(name)):
        raise Refusal("InvalidLaunchTemplateName.MalformedException", f"The name '{name}' is not valid.")
    for part in cast(Sequence[Mapping[str, Any]], asked.get("TagSpecifications") or ()):
        if part.get("ResourceType") != "launch-template":
            raise Refusal(
                "InvalidParameterValue",
                f"'{part.get('ResourceType')}' is not a valid taggable resource type for this operation.",
            )
    if source is not None:
        moto.template(asked.get("LaunchTemplateId"), asked.get("LaunchTemplateName"), str(source))


def listed_templates(asked: Mapping[str, Any], moto: Moto) -> None:
    """Refuse the list if a name or an id does not exist."""
    for identifier in cast(Sequence[str], asked.get("LaunchTemplateIds") or ()):
        moto.template(identifier, None, None)
    for name in cast(Sequence[str], asked.get("LaunchTemplateNames") or ()):
        moto.template(None, name, None)
    moto.renew_template_tags()


WIRING: Mapping[str, Wiring] = {
    "AssociateRouteTable": association,
    "AssociateVpcCidrBlock": more_of_a_vpc,
    "AttachInternetGateway": gateway,
    "AuthorizeSecurityGroupEgress": rules,
    "AuthorizeSecurityGroupIngress": rules,
    "CreateLaunchTemplate": template,
    "CreateLaunchTemplateVersion": template,
    "CreateNetworkInterface": interface,
    "CreateRoute": route,
    "CreateSecurityGroup": group,
    "CreateSubnet": subnet,
    "CreateVpcEndpoint": endpoint,
    "DeleteRoute": no_route,
    "DeleteRouteTable": no_table,
    "DescribeLaunchTemplates": listed_templates,
    "ModifySecurityGroupRules": changed_rules,
    "ReplaceRoute": route,
    "RevokeSecurityGroupEgress": rules,
    "RevokeSecurityGroupIngress": rules,
}


def _range(text: str, parameter: str) -> ipaddress.IPv4Network:
    with suppress(ValueError):
        if "/" in text:
            return ipaddress.IPv4Network(text, strict=False)
    raise Refusal(
        "InvalidParameterValue",
        f"Value ({text}) for parameter {parameter} is invalid. This is not a valid CIDR block.",
    )
