"""VPC, subnets, gateway, routes, endpoints."""

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from gpucluster.engine.provider.calls import Call, Cloud, code_of, is_absent, only, retag_ec2
from gpucluster.engine.provider.schema import (
    TAG_PROPERTIES,
    ResourceType,
    computed,
    replaces,
    updates,
)
from gpucluster.engine.provider.shapes import DOCUMENT, FLAG, TEXTS
from gpucluster.engine.provider.values import Value, Values

Seen = Mapping[str, Value] | None


# --- VPC -------------------------------------------------------------------------------------
_VPC_ATTRIBUTES = ("EnableDnsSupport", "EnableDnsHostnames")


def _create_vpc(call: Call) -> str:
    arguments = call.api("cidrBlock", "instanceTenancy") | call.tag_specifications("vpc")
    return call.cloud.ec2.create_vpc(**arguments)["Vpc"]["VpcId"]


def _settle_vpc(call: Call) -> None:
    """One attribute a call (T32)."""
    for name, value in call.api("enableDnsSupport", "enableDnsHostnames").items():
        call.cloud.ec2.modify_vpc_attribute(VpcId=call.id, **{name: {"Value": value}})


def _read_vpc(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = only(cloud.ec2.describe_vpcs(VpcIds=[identifier])["Vpcs"])
    if seen is None:
        return None
    for name in _VPC_ATTRIBUTES:
        attribute = name[0].lower() + name[1:]
        answer = cloud.ec2.describe_vpc_attribute(VpcId=identifier, Attribute=attribute)
        seen[name] = answer[name]["Value"]
    return seen | {"Arn": cloud.ec2_arn("vpc", identifier)}


def _update_vpc(call: Call, changed: frozenset[str]) -> None:
    if changed & {"enableDnsSupport", "enableDnsHostnames"}:
        _settle_vpc(call)
    retag_ec2(call)


VPC = ResourceType(
    name="aws:ec2/vpc:Vpc",
    properties={
        "cidrBlock": replaces("CidrBlock"),
        "instanceTenancy": replaces("InstanceTenancy", default="default"),
        "enableDnsSupport": updates("EnableDnsSupport", FLAG, default=True),
        "enableDnsHostnames": updates("EnableDnsHostnames", FLAG),
        "arn": computed("Arn"),
        "ownerId": computed("OwnerId"),
        **TAG_PROPERTIES,
    },
    create=_create_vpc,
    settle=_settle_vpc,
    read=_read_vpc,
    update=_update_vpc,
    delete=lambda call: call.cloud.ec2.delete_vpc(VpcId=call.id),
)


# --- subnet ----------------------------------------------------------------------------------
def _create_subnet(call: Call) -> str:
    arguments = call.api("vpcId", "cidrBlock", "availabilityZone") | call.tag_specifications("subnet")
    return call.cloud.ec2.create_subnet(**arguments)["Subnet"]["SubnetId"]


def _settle_subnet(call: Call) -> None:
    for name, value in call.api("mapPublicIpOnLaunch").items():
        call.cloud.ec2.modify_subnet_attribute(SubnetId=call.id, **{name: {"Value": value}})


def _read_subnet(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = only(cloud.ec2.describe_subnets(SubnetIds=[identifier])["Subnets"])
    return seen and seen | {"Arn": cloud.ec2_arn("subnet", identifier)}


def _update_subnet(call: Call, changed: frozenset[str]) -> None:
    if "mapPublicIpOnLaunch" in changed:
        _settle_subnet(call)
    retag_ec2(call)


SUBNET = ResourceType(
    name="aws:ec2/subnet:Subnet",
    properties={
        "vpcId": replaces("VpcId"),
        "cidrBlock": replaces("CidrBlock"),
        "availabilityZone": replaces("AvailabilityZone", from_cloud=True),
        "mapPublicIpOnLaunch": updates("MapPublicIpOnLaunch", FLAG, default=False),
        "arn": computed("Arn"),
        **TAG_PROPERTIES,
    },
    create=_create_subnet,
    settle=_settle_subnet,
    read=_read_subnet,
    update=_update_subnet,
    delete=lambda call: call.cloud.ec2.delete_subnet(SubnetId=call.id),
    delete_minutes=20,
)


# --- internet gateway ------------------------------------------------------------------------
def _create_gateway(call: Call) -> str:
    answer = call.cloud.ec2.create_internet_gateway(**call.tag_specifications("internet-gateway"))
    return answer["InternetGateway"]["InternetGatewayId"]


def _settle_gateway(call: Call) -> None:
    call.cloud.ec2.attach_internet_gateway(InternetGatewayId=call.id, VpcId=call.inputs["vpcId"])


def _read_gateway(cloud: Cloud, identifier: str, _: Values) -> Seen:
    answer = cloud.ec2.describe_internet_gateways(InternetGatewayIds=[identifier])
    seen = only(answer["InternetGateways"])
    if seen is None:
        return None
    attached = only(seen["Attachments"]) or {}
    return seen | {"VpcId": attached.get("VpcId"), "Arn": cloud.ec2_arn("internet-gateway", identifier)}


def _update_gateway(call: Call, changed: frozenset[str]) -> None:
    if "vpcId" in changed:
        if call.olds.get("vpcId"):
            _detach_gateway(call, call.olds["vpcId"])
        _settle_gateway(call)
    retag_ec2(call)


def _detach_gateway(call: Call, vpc: str) -> None:
    try:
        call.cloud.ec2.detach_internet_gateway(InternetGatewayId=call.id, VpcId=vpc)
    except ClientError as error:  # a deletion that is repeated finds it detached
        if not is_absent(error) and code_of(error) != "Gateway.NotAttached":
            raise


def _delete_gateway(call: Call) -> None:
    _detach_gateway(call, call.inputs["vpcId"])
    call.cloud.ec2.delete_internet_gateway(InternetGatewayId=call.id)


INTERNET_GATEWAY = ResourceType(
    name="aws:ec2/internetGateway:InternetGateway",
    properties={"vpcId": updates("VpcId"), "arn": computed("Arn"), **TAG_PROPERTIES},
    create=_create_gateway,
    settle=_settle_gateway,
    read=_read_gateway,
    update=_update_gateway,
    delete=_delete_gateway,
)


# --- route table, route, association ---------------------------------------------------------
def _create_route_table(call: Call) -> str:
    answer = call.cloud.ec2.create_route_table(**call.api("vpcId"), **call.tag_specifications("route-table"))
    return answer["RouteTable"]["RouteTableId"]


def _table_of(cloud: Cloud, identifier: str) -> dict[str, Any] | None:
    return only(cloud.ec2.describe_route_tables(RouteTableIds=[identifier])["RouteTables"])


def _read_route_table(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = _table_of(cloud, identifier)
    return seen and seen | {"Arn": cloud.ec2_arn("route-table", identifier)}


ROUTE_TABLE = ResourceType(
    name="aws:ec2/routeTable:RouteTable",
    properties={"vpcId": replaces("VpcId"), "arn": computed("Arn"), **TAG_PROPERTIES},
    create=_create_route_table,
    read=_read_route_table,
    update=lambda call, _: retag_ec2(call),
    delete=lambda call: call.cloud.ec2.delete_route_table(RouteTableId=call.id),
    delete_minutes=5,
)


def _create_route(call: Call) -> str:
    call.cloud.ec2.create_route(**call.api("routeTableId", "destinationCidrBlock", "gatewayId"))
    return f"r-{call.inputs['routeTableId']}-{call.inputs['destinationCidrBlock']}"


def _read_route(cloud: Cloud, _: str, inputs: Values) -> Seen:
    table = _table_of(cloud, inputs["routeTableId"])
    routes: list[dict[str, Any]] = table["Routes"] if table else []
    target = inputs["destinationCidrBlock"]
    found = only([r for r in routes if r.get("DestinationCidrBlock") == target])
    return found and found | {"RouteTableId": inputs["routeTableId"]}


def _update_route(call: Call, _: frozenset[str]) -> None:
    call.cloud.ec2.replace_route(**call.api("routeTableId", "destinationCidrBlock", "gatewayId"))


def _delete_route(call: Call) -> None:
    call.cloud.ec2.delete_route(**call.api("routeTableId", "destinationCidrBlock"))


ROUTE = ResourceType(
    name="aws:ec2/route:Route",
    properties={
        "routeTableId": replaces("RouteTableId"),
        "destinationCidrBlock": replaces("DestinationCidrBlock"),
        "gatewayId": updates("GatewayId"),
    },
    create=_create_route,
    read=_read_route,
    update=_update_route,
    delete=_delete_route,
    delete_first=True,  # one route a destination
    delete_minutes=5,
)


def _associate(call: Call) -> str:
    return call.cloud.ec2.associate_route_table(**call.api("routeTableId", "subnetId"))["AssociationId"]


def _read_association(cloud: Cloud, identifier: str, inputs: Values) -> Seen:
    table = _table_of(cloud, inputs["routeTableId"])
    every: list[dict[str, Any]] = table["Associations"] if table else []
    return only([a for a in every if a["RouteTableAssociationId"] == identifier])


ROUTE_TABLE_ASSOCIATION = ResourceType(
    name="aws:ec2/routeTableAssociation:RouteTableAssociation",
    properties={"routeTableId": replaces("RouteTableId"), "subnetId": replaces("SubnetId")},
    create=_associate,
    read=_read_association,
    delete=lambda call: call.cloud.ec2.disassociate_route_table(AssociationId=call.id),
    delete_first=True,  # a subnet has one
    delete_minutes=5,
)


# --- endpoint --------------------------------------------------------------------------------
def _create_endpoint(call: Call) -> str:
    arguments = call.api("vpcId", "serviceName", "vpcEndpointType", "routeTableIds", "policy")
    arguments |= call.tag_specifications("vpc-endpoint")
    return call.cloud.ec2.create_vpc_endpoint(**arguments)["VpcEndpoint"]["VpcEndpointId"]


def _settle_endpoint(call: Call) -> None:
    call.cloud.wait(f"{call.id} available", call.seconds, lambda: _endpoint_state(call) == "available")


def _endpoint_state(call: Call) -> str:
    seen = _read_endpoint(call.cloud, call.id, {})
    return str(seen["State"]).lower() if seen else "gone"


def _read_endpoint(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = only(cloud.ec2.describe_vpc_endpoints(VpcEndpointIds=[identifier])["VpcEndpoints"])
    if seen is None or str(seen.get("State")).lower() in ("deleted", "deleting"):
        return None
    return seen | {"Arn": cloud.ec2_arn("vpc-endpoint", identifier)}


def _update_endpoint(call: Call, changed: frozenset[str]) -> None:
    arguments: dict[str, Any] = {}
    if "routeTableIds" in changed:
        want, had = set(call.inputs.get("routeTableIds") or ()), set(call.olds.get("routeTableIds") or ())
        arguments |= {"AddRouteTableIds": sorted(want - had), "RemoveRouteTableIds": sorted(had - want)}
    if "policy" in changed:
        arguments |= (
            {"PolicyDocument": call.inputs["policy"]} if call.inputs.get("policy") else {"ResetPolicy": True}
        )
    if arguments:
        call.cloud.ec2.modify_vpc_endpoint(VpcEndpointId=call.id, **arguments)
    retag_ec2(call)


def _delete_endpoint(call: Call) -> None:
    answer = call.cloud.ec2.delete_vpc_endpoints(VpcEndpointIds=[call.id])
    refused = [u for u in answer.get("Unsuccessful", []) if not u["Error"]["Code"].endswith("NotFound")]
    if refused:  # this API fails inside a 200
        raise ClientError({"Error": refused[0]["Error"]}, "DeleteVpcEndpoints")

    def gone() -> bool:
        try:
            return _read_endpoint(call.cloud, call.id, {}) is None
        except ClientError as error:
            if is_absent(error):
                return True
            raise

    call.cloud.wait(f"{call.id} gone", call.seconds, gone)


VPC_ENDPOINT = ResourceType(
    name="aws:ec2/vpcEndpoint:VpcEndpoint",
    properties={
        "vpcId": replaces("VpcId"),
        "serviceName": replaces("ServiceName"),
        "vpcEndpointType": replaces("VpcEndpointType", default="Gateway"),
        "routeTableIds": updates("RouteTableIds", TEXTS),
        "policy": updates("PolicyDocument", DOCUMENT, from_cloud=True),
        "arn": computed("Arn"),
        **TAG_PROPERTIES,
    },
    create=_create_endpoint,
    settle=_settle_endpoint,
    read=_read_endpoint,
    update=_update_endpoint,
    delete=_delete_endpoint,
    delete_minutes=10,
)


ROWS = (VPC, SUBNET, INTERNET_GATEWAY, ROUTE_TABLE, ROUTE, ROUTE_TABLE_ASSOCIATION, VPC_ENDPOINT)
