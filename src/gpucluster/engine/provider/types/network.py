"""VPC, subnets, internet gateway."""

from collections.abc import Mapping

from botocore.exceptions import ClientError

from gpucluster.engine.provider.calls import Call, Cloud, code_of, is_absent, only, retag_ec2
from gpucluster.engine.provider.schema import (
    TAG_PROPERTIES,
    ResourceType,
    computed,
    replaces,
    updates,
)
from gpucluster.engine.provider.shapes import FLAG
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
    if "instanceTenancy" in changed:
        call.cloud.ec2.modify_vpc_tenancy(VpcId=call.id, **call.api("instanceTenancy"))
    retag_ec2(call)


def _not_to_default(olds: Values, news: Values) -> bool:
    """The one way that AWS knows is from dedicated to default."""
    return (olds.get("instanceTenancy"), news.get("instanceTenancy")) != ("dedicated", "default")


VPC = ResourceType(
    name="aws:ec2/vpc:Vpc",
    properties={
        "cidrBlock": replaces("CidrBlock"),
        "instanceTenancy": updates("InstanceTenancy", default="default", anew_when=_not_to_default),
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


ROWS = (VPC, SUBNET, INTERNET_GATEWAY)
