"""A participant of a shared VPC uses its subnets but cannot change them. The same holds for a shared reservation (T50)."""

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import pytest
from support.clouds import RunningCloud, code_of, error_of, running_cloud

pytestmark = pytest.mark.loopback
OWNER = "210987654321"
VPC, SUBNET, OTHER = "vpc-0123456789abcdef0", "subnet-0123456789abcdef0", "subnet-0123456789abcdef1"


@dataclass(frozen=True)
class SharedVpc:
    """The ids of the owner's resources, created before the subnets were shared."""

    table: str
    acl: str
    gateway: str
    endpoint: str
    default_group: str


@pytest.fixture(scope="module")
def cloud() -> Generator[RunningCloud]:
    with running_cloud() as found:
        yield found


@pytest.fixture(scope="module")
def shared(cloud: RunningCloud) -> SharedVpc:
    moto, ec2 = cloud.api.moto, cloud.client("ec2")
    moto.make_vpc(
        VPC, "10.60.0.0/16", {SUBNET: ("us-east-1a", "10.60.0.0/20"), OTHER: ("us-east-1b", "10.60.16.0/20")}
    )
    of_vpc = [{"Name": "vpc-id", "Values": [VPC]}]
    ec2.create_tags(Resources=[VPC, SUBNET], Tags=[{"Key": "Name", "Value": "the owner's"}])
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=VPC)
    endpoint = ec2.create_vpc_endpoint(VpcId=VPC, ServiceName="com.amazonaws.us-east-1.s3")["VpcEndpoint"][
        "VpcEndpointId"
    ]
    found = SharedVpc(
        table=ec2.describe_route_tables(Filters=of_vpc)["RouteTables"][0]["RouteTableId"],
        acl=ec2.describe_network_acls(Filters=of_vpc)["NetworkAcls"][0]["NetworkAclId"],
        gateway=gateway,
        endpoint=endpoint,
        default_group=ec2.describe_security_groups(Filters=of_vpc)["SecurityGroups"][0]["GroupId"],
    )
    moto.share_vpc(VPC, OWNER)
    return found


def test_participant_reads_the_network_without_the_tags_of_the_owner(
    cloud: RunningCloud, shared: SharedVpc
) -> None:
    ec2 = cloud.client("ec2")
    (vpc,) = ec2.describe_vpcs(VpcIds=[VPC])["Vpcs"]
    subnets = ec2.describe_subnets(SubnetIds=[SUBNET, OTHER])["Subnets"]
    assert (vpc["OwnerId"], {one["OwnerId"] for one in subnets}) == (OWNER, {OWNER})
    zones = {one["SubnetId"]: one["AvailabilityZone"] for one in subnets}
    assert zones == {SUBNET: "us-east-1a", OTHER: "us-east-1b"}
    assert [one.get("Tags", []) for one in (vpc, *subnets)] == [[], [], []]
    named = [{"Name": "tag:Name", "Values": ["the owner's"]}]
    assert ec2.describe_subnets(Filters=named)["Subnets"] == []
    for name in ("enableDnsSupport", "enableDnsHostnames"):
        assert ec2.describe_vpc_attribute(VpcId=VPC, Attribute=name)[name[0].upper() + name[1:]]["Value"]
    assert ec2.describe_route_tables(RouteTableIds=[shared.table])["RouteTables"]


CHANGES: dict[str, Callable[[SharedVpc], dict[str, Any]]] = {
    "create_subnet": lambda _: {"VpcId": VPC, "CidrBlock": "10.60.32.0/20"},
    "delete_subnet": lambda _: {"SubnetId": SUBNET},
    "modify_subnet_attribute": lambda _: {"SubnetId": SUBNET, "MapPublicIpOnLaunch": {"Value": True}},
    "create_subnet_cidr_reservation": lambda _: {"SubnetId": SUBNET, "Cidr": "10.60.0.10/32", "ReservationType": "explicit"},
    "delete_vpc": lambda _: {"VpcId": VPC},
    "modify_vpc_attribute": lambda _: {"VpcId": VPC, "EnableDnsSupport": {"Value": False}},
    "create_route_table": lambda _: {"VpcId": VPC},
    "create_route": lambda one: {"RouteTableId": one.table, "DestinationCidrBlock": "0.0.0.0/0", "GatewayId": one.gateway},
    "associate_route_table": lambda one: {"RouteTableId": one.table, "SubnetId": SUBNET},
    "create_network_acl": lambda _: {"VpcId": VPC},
    "create_network_acl_entry": lambda one: {
        "NetworkAclId": one.acl, "RuleNumber": 1, "Protocol": "-1", "RuleAction": "deny", "Egress": False, "CidrBlock": "0.0.0.0/0",
    },
    "detach_internet_gateway": lambda one: {"InternetGatewayId": one.gateway, "VpcId": VPC},
    "delete_internet_gateway": lambda one: {"InternetGatewayId": one.gateway},
    "create_nat_gateway": lambda _: {"SubnetId": SUBNET, "ConnectivityType": "private"},
    "create_vpc_endpoint": lambda _: {"VpcId": VPC, "ServiceName": "com.amazonaws.us-east-1.s3"},
    "delete_vpc_endpoints": lambda one: {"VpcEndpointIds": [one.endpoint]},
    "create_tags": lambda _: {"Resources": [SUBNET], "Tags": [{"Key": "a", "Value": "b"}]},
    "delete_security_group": lambda one: {"GroupId": one.default_group},
    "authorize_security_group_ingress": lambda one: {
        "GroupId": one.default_group, "IpPermissions": [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}],
    },
}  # fmt: skip


@pytest.mark.parametrize("call", sorted(CHANGES))
def test_participant_cannot_change_resources_of_the_owner(
    cloud: RunningCloud, shared: SharedVpc, call: str
) -> None:
    error = error_of(getattr(cloud.client("ec2"), call), **CHANGES[call](shared)).response["Error"]
    assert error["Code"] == "UnauthorizedOperation"
    assert "is not owned by you" in error["Message"]


def launched(cloud: RunningCloud, **more: Any) -> dict[str, Any]:
    image = cloud.api.moto.image_named("gpucluster-ubuntu-24.04-slurm-24.11")
    return {
        "ImageId": image, "InstanceType": "p5.48xlarge", "SubnetId": SUBNET, "MinCount": 1, "MaxCount": 1, **more,
    }  # fmt: skip


def test_launch_needs_a_group_of_the_participant(cloud: RunningCloud, shared: SharedVpc) -> None:
    ec2 = cloud.fresh().client("ec2")
    assert code_of(ec2.run_instances, **launched(cloud)) == "UnauthorizedOperation"
    theirs = launched(cloud, SecurityGroupIds=[shared.default_group])
    assert code_of(ec2.run_instances, **theirs) == "UnauthorizedOperation"
    ours = ec2.create_security_group(GroupName="ours", Description="ours", VpcId=VPC)["GroupId"]
    (made,) = ec2.run_instances(**launched(cloud, SecurityGroupIds=[ours]))["Instances"]
    assert made["SubnetId"] == SUBNET
    ec2.create_tags(Resources=[made["InstanceId"], ours], Tags=[{"Key": "subnet", "Value": SUBNET}])


def test_shared_reservation_is_used_and_not_changed(cloud: RunningCloud, shared: SharedVpc) -> None:
    ec2, name = cloud.fresh().client("ec2"), "cr-0123456789abcdef0"
    cloud.control.reserve("p5.48xlarge", "us-east-1a", 1, id=name, owner=OWNER)
    (found,) = ec2.describe_capacity_reservations(CapacityReservationIds=[name])["CapacityReservations"]
    assert found["OwnerId"] == OWNER
    assert code_of(ec2.cancel_capacity_reservation, CapacityReservationId=name) == "UnauthorizedOperation"
    assert (
        code_of(ec2.modify_capacity_reservation, CapacityReservationId=name, InstanceCount=9)
        == "UnauthorizedOperation"
    )
    group = ec2.create_security_group(GroupName="reserved", Description="reserved", VpcId=VPC)["GroupId"]
    target = {"CapacityReservationTarget": {"CapacityReservationId": name}}
    (made,) = ec2.run_instances(
        **launched(cloud, SecurityGroupIds=[group], CapacityReservationSpecification=target)
    )["Instances"]
    assert made["CapacityReservationId"] == name
    assert json.dumps(found, default=str).count(OWNER) >= 1


@pytest.mark.parametrize(
    "named",
    [
        "alias/site-of-the-scenario",
        "arn:aws:kms:us-east-1:123456789012:alias/second-site",
        "arn:aws:kms:us-east-1:123456789012:key/0123abcd-0123-0123-0123-0123456789ab",
    ],
)
def test_key_is_made_under_the_name_of_a_spec(cloud: RunningCloud, named: str) -> None:
    cloud.api.moto.make_key(named)
    found = cloud.client("kms").describe_key(KeyId=named)["KeyMetadata"]
    assert (found["KeyManager"], found["KeyState"], found["KeySpec"]) == (
        "CUSTOMER",
        "Enabled",
        "SYMMETRIC_DEFAULT",
    )
    if ":key/" in named:
        assert found["Arn"] == named
