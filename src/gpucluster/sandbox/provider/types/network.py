"""VPCs, subnets and internet gateways."""

from collections.abc import Mapping

from botocore.exceptions import ClientError

from gpucluster.engine.aws_account import code_of, is_absent
from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.calls import retag_ec2
from gpucluster.sandbox.provider.cloud import Cloud, only
from gpucluster.sandbox.provider.schema import TAG_PROPERTIES, Call, ResourceType, computed, replaces, updates
from gpucluster.sandbox.provider.shapes import FLAG

Seen = Mapping[str, Value] | None


# --- VPC -------------------------------------------------------------------------------------
_VPC_ATTRIBUTES = ("EnableDnsSupport", "EnableDnsHostnames")


def _create_vpc(call: Call) -> str:
    arguments = call.api("cidrBlock", "instanceTenancy") | call.tag_specifications("vpc")
    return call.cloud.ec2.create_vpc(**arguments)["Vpc"]["VpcId"]


def _complete_vpc(call: Call) -> None:
    """Set attributes. AWS accepts one attribute for each call (T32)."""
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
        _complete_vpc(call)
    if "instanceTenancy" in changed:
        call.cloud.ec2.modify_vpc_tenancy(VpcId=call.id, **call.api("instanceTenancy"))
    retag_ec2(call)


def _not_to_default(olds: Values, news: Values) -> bool:
    """Return whether the tenancy can change in place: only from dedicated to default."""
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
    complete=_complete_vpc,
    read=_read_vpc,
    update=_update_vpc,
    delete=lambda call: call.cloud.ec2.delete_vpc(VpcId=call.id),
)


# --- subnet ----------------------------------------------------------------------------------
def _create_subnet(call: Call) -> str:
    arguments = call.api("vpcId", "cidrBlock", "availabilityZone") | call.tag_specifications("subnet")
    return call.cloud.ec2.create_subnet(**arguments)["Subnet"]["SubnetId"]


def _complete_subnet(call: Call) -> None:
    for name, value in call.api("mapPublicIpOnLaunch").items():
        call.cloud.ec2.modify_subnet_attribute(SubnetId=call.id, **{name: {"Value": value}})


def _read_subnet(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = only(cloud.ec2.describe_subnets(SubnetIds=[identifier])["Subnets"])
    return seen and seen | {"Arn": cloud.ec2_arn("subnet", identifier)}


def _update_subnet(call: Call, changed: frozenset[str]) -> None:
    if "mapPublicIpOnLaunch" in changed:
        _complete_subnet(call)
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
    complete=_complete_subnet,
    read=_read_subnet,
    update=_update_subnet,
    delete=lambda call: call.cloud.ec2.delete_subnet(SubnetId=call.id),
    delete_minutes=20,
)


# --- reserved addresses of a subnet ----------------------------------------------------------
def _reserve(call: Call) -> str:
    answer = call.cloud.ec2.create_subnet_cidr_reservation(
        **call.api("subnetId", "cidrBlock", "reservationType")
    )
    return answer["SubnetCidrReservation"]["SubnetCidrReservationId"]


def _read_reservation(cloud: Cloud, identifier: str, inputs: Values) -> Seen:
    answer = cloud.ec2.get_subnet_cidr_reservations(SubnetId=inputs["subnetId"])
    every = answer["SubnetIpv4CidrReservations"]
    return only([one for one in every if one["SubnetCidrReservationId"] == identifier])


def _release(call: Call) -> None:
    call.cloud.ec2.delete_subnet_cidr_reservation(SubnetCidrReservationId=call.id)


RESERVATION = ResourceType(
    name="aws:ec2/subnetCidrReservation:SubnetCidrReservation",
    properties={
        "subnetId": replaces("SubnetId"),
        "cidrBlock": replaces("Cidr"),
        "reservationType": replaces("ReservationType"),
        "ownerId": computed("OwnerId"),
    },
    create=_reserve,
    read=_read_reservation,
    delete=_release,
)


# --- internet gateway ------------------------------------------------------------------------
def _create_gateway(call: Call) -> str:
    answer = call.cloud.ec2.create_internet_gateway(**call.tag_specifications("internet-gateway"))
    return answer["InternetGateway"]["InternetGatewayId"]


def _complete_gateway(call: Call) -> None:
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
        _complete_gateway(call)
    retag_ec2(call)


def _detach_gateway(call: Call, vpc: str) -> None:
    try:
        call.cloud.ec2.detach_internet_gateway(InternetGatewayId=call.id, VpcId=vpc)
    except ClientError as error:  # a repeated deletion finds it detached
        if not is_absent(error) and code_of(error) != "Gateway.NotAttached":
            raise


def _delete_gateway(call: Call) -> None:
    _detach_gateway(call, call.inputs["vpcId"])
    call.cloud.ec2.delete_internet_gateway(InternetGatewayId=call.id)


INTERNET_GATEWAY = ResourceType(
    name="aws:ec2/internetGateway:InternetGateway",
    properties={"vpcId": updates("VpcId"), "arn": computed("Arn"), **TAG_PROPERTIES},
    create=_create_gateway,
    complete=_complete_gateway,
    read=_read_gateway,
    update=_update_gateway,
    delete=_delete_gateway,
)


ROWS = (VPC, SUBNET, RESERVATION, INTERNET_GATEWAY)
