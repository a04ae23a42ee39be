"""Errors that EC2 gives for requests, with exact texts: ids, filters, pages, dry runs, tokens, networks, launches."""

import json
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from support.clouds import Network, RunningCloud, a_network, running_cloud

from gpucluster.sandbox.aws.ec2.state.values import Timing

pytestmark = pytest.mark.loopback
ZONE, OTHER, GONE = "us-east-1a", "us-east-1b", "0123456789abcdef0"
VALUE, MIX = "InvalidParameterValue", "InvalidParameterCombination"
Row = tuple[str, str, dict[str, Any], str]  # sentence, operation, arguments, code


class World:
    """A network with an internet gateway, and the values for `{name}` in the rows."""

    def __init__(self, cloud: RunningCloud) -> None:
        self.cloud, self.ec2 = cloud, cloud.client("ec2")
        self.network: Network = a_network(cloud)
        vpc, subnet = self.network.vpc, self.network.subnets[ZONE]
        ec2 = self.ec2
        made = {
            "gateway": ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"],
            "loose": ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"],
            "table": ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"],
            "second": ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"],
        }
        ec2.attach_internet_gateway(InternetGatewayId=made["gateway"], VpcId=vpc)
        ec2.associate_route_table(RouteTableId=made["table"], SubnetId=subnet)
        ec2.create_vpc_endpoint(
            VpcId=vpc, ServiceName="com.amazonaws.us-east-1.s3", RouteTableIds=[made["table"]]
        )
        here = [{"Name": "vpc-id", "Values": [vpc]}]
        mains = ec2.describe_route_tables(Filters=[*here, {"Name": "association.main", "Values": ["true"]}])
        own = ec2.describe_security_groups(Filters=[*here, {"Name": "group-name", "Values": ["default"]}])
        self.names = made | {
            "vpc": vpc, "subnet": subnet, "group": self.network.group, "template": self.network.template,
            "image": self.network.image, "main": mains["RouteTables"][0]["RouteTableId"],
            "default": own["SecurityGroups"][0]["GroupId"],
        }  # fmt: skip

    def filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: self.filled(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.filled(v) for v in value]
        return self.names.get(value[1:-1], value) if isinstance(value, str) and value[:1] == "{" else value


@pytest.fixture(scope="module")
def standing() -> Generator[World, None, None]:
    with running_cloud(timing=Timing(pending_s=0.0)) as cloud:
        yield World(cloud)


@pytest.fixture
def world(standing: World) -> World:
    standing.cloud.fresh()
    return standing


def code_of(call: Callable[..., Any], **named: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**named)
    error: Any = caught.value
    assert error.response["ResponseMetadata"]["HTTPStatusCode"] < 500
    return error.response["Error"]["Code"]


def launch(**change: Any) -> dict[str, Any]:
    asked = {
        "ImageId": "{image}",
        "InstanceType": "p5.48xlarge",
        "SubnetId": "{subnet}",
        "MinCount": 1,
        "MaxCount": 1,
    }
    return asked | change


def reserve(**change: Any) -> dict[str, Any]:
    asked = {
        "InstanceType": "p5.48xlarge",
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": ZONE,
        "InstanceCount": 1,
    }
    return asked | change


def rule(**change: Any) -> dict[str, Any]:
    return {
        "IpProtocol": "tcp",
        "FromPort": 22,
        "ToPort": 22,
        "IpRanges": [{"CidrIp": "10.0.0.0/8"}],
        **change,
    }


def tagged(kind: str, *tags: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": k, "Value": v} for k, v in tags]}]


TARGET = {"CapacityReservationTarget": {"CapacityReservationId": f"cr-{GONE}"}}
MALFORMED: list[Row] = [
    ("an instance", "describe_instances", {"InstanceIds": ["x"]}, "InvalidInstanceID.Malformed"),
    ("an instance to end", "terminate_instances", {"InstanceIds": ["x"]}, "InvalidInstanceID.Malformed"),
    ("a volume", "describe_volumes", {"VolumeIds": ["x"]}, "InvalidVolumeID.Malformed"),
    ("a group", "describe_security_groups", {"GroupIds": ["x"]}, "InvalidGroupId.Malformed"),
    ("a template", "describe_launch_templates", {"LaunchTemplateIds": ["x"]}, "InvalidLaunchTemplateId.Malformed"),
    ("a table", "delete_route_table", {"RouteTableId": "x"}, "InvalidRouteTableId.Malformed"),
    ("an interface", "delete_network_interface", {"NetworkInterfaceId": "x"}, "InvalidNetworkInterfaceId.Malformed"),
    ("a NAT gateway", "delete_nat_gateway", {"NatGatewayId": "x"}, "NatGatewayMalformed"),
    ("an image of a launch", "run_instances", launch(ImageId="x"), "InvalidAMIID.Malformed"),
    ("a reservation", "cancel_capacity_reservation", {"CapacityReservationId": "x"},
     "InvalidCapacityReservationId.Malformed"),
    ("a template that is gone", "describe_launch_templates", {"LaunchTemplateIds": [f"lt-{GONE}"]},
     "InvalidLaunchTemplateId.NotFound"),
]  # fmt: skip
LISTS: list[Row] = [
    ("a filter that EC2 does not have", "describe_vpcs", {"Filters": [{"Name": "colour", "Values": ["x"]}]}, VALUE),
    ("the same, where moto breaks", "describe_security_groups", {"Filters": [{"Name": "colour", "Values": ["x"]}]}, VALUE),
    ("the same, where moto is silent", "describe_vpc_endpoints", {"Filters": [{"Name": "colour", "Values": ["x"]}]}, VALUE),
    ("reservations by their id", "describe_capacity_reservations",
     {"Filters": [{"Name": "capacity-reservation-id", "Values": [f"cr-{GONE}"]}]}, VALUE),
    ("a filter that the sandbox lacks", "describe_subnets",
     {"Filters": [{"Name": "outpost-arn", "Values": ["x"]}]}, "UnsupportedOperation"),
    ("a page of a million", "describe_subnets", {"MaxResults": 1_000_000}, VALUE),
    ("a token of nobody", "describe_subnets", {"NextToken": "x"}, VALUE),
]  # fmt: skip
NETWORKS: list[Row] = [
    ("a subnet without a range", "create_subnet", {"VpcId": "{vpc}"}, "MissingParameter"),
    ("a subnet of no range", "create_subnet", {"VpcId": "{vpc}", "CidrBlock": "10.42.7.0"}, VALUE),
    ("a subnet that is too small", "create_subnet", {"VpcId": "{vpc}", "CidrBlock": "10.42.7.0/29"}, "InvalidSubnet.Range"),
    ("a subnet in no zone of here", "create_subnet",
     {"VpcId": "{vpc}", "CidrBlock": "10.42.8.0/24", "AvailabilityZone": "eu-west-1a"}, VALUE),
    ("a network that grows by no range", "associate_vpc_cidr_block", {"VpcId": "{vpc}"}, "UnsupportedOperation"),
    ("a group that looks like an id", "create_security_group",
     {"GroupName": "sg-x", "Description": "x", "VpcId": "{vpc}"}, VALUE),
    ("a port that there is not", "authorize_security_group_ingress",
     {"GroupId": "{group}", "IpPermissions": [rule(ToPort=99999)]}, VALUE),
    ("no rule at all", "revoke_security_group_egress", {"GroupId": "{group}"}, "MissingParameter"),
    ("a rule that becomes nothing", "modify_security_group_rules",
     {"GroupId": "{group}", "SecurityGroupRules": [{"SecurityGroupRuleId": f"sgr-{GONE}"}]}, "MissingParameter"),
    ("a route to no range", "create_route",
     {"RouteTableId": "{table}", "DestinationCidrBlock": "x", "GatewayId": "{gateway}"}, VALUE),
    ("a route to two targets", "create_route",
     {"RouteTableId": "{table}", "DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "{gateway}",
      "NatGatewayId": f"nat-{GONE}"}, MIX),
    ("a route to a gateway of no network", "create_route",
     {"RouteTableId": "{table}", "DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "{loose}"}, VALUE),
    ("an interface at no address", "create_network_interface",
     {"SubnetId": "{subnet}", "PrivateIpAddress": "here"}, VALUE),
    ("the local route", "delete_route", {"RouteTableId": "{table}", "DestinationCidrBlock": "10.42.0.0/16"}, VALUE),
    ("a second table of a subnet", "associate_route_table", {"RouteTableId": "{second}", "SubnetId": "{subnet}"},
     "Resource.AlreadyAssociated"),
    ("the main table", "delete_route_table", {"RouteTableId": "{main}"}, "DependencyViolation"),
    ("the network's own group", "delete_security_group", {"GroupId": "{default}"}, "CannotDelete"),
    ("a second gateway", "attach_internet_gateway", {"InternetGatewayId": "{loose}", "VpcId": "{vpc}"}, VALUE),
    ("an endpoint twice", "create_vpc_endpoint",
     {"VpcId": "{vpc}", "ServiceName": "com.amazonaws.us-east-1.s3", "RouteTableIds": ["{table}"]}, "RouteAlreadyExists"),
    ("an endpoint of another Region", "create_vpc_endpoint",
     {"VpcId": "{vpc}", "ServiceName": "com.amazonaws.eu-west-1.s3"}, "InvalidServiceName"),
    ("an endpoint with a group that is gone", "create_vpc_endpoint",
     {"VpcId": "{vpc}", "ServiceName": "com.amazonaws.us-east-1.ec2", "VpcEndpointType": "Interface",
      "SubnetIds": ["{subnet}"], "SecurityGroupIds": [f"sg-{GONE}"]}, "InvalidGroup.NotFound"),
]  # fmt: skip
LAUNCHES: list[Row] = [
    ("a tag twice", "run_instances", launch(TagSpecifications=tagged("instance", ("a", "1"), ("a", "2"))), VALUE),
    ("a kind twice", "run_instances", launch(TagSpecifications=tagged("instance", ("a", "1")) * 2), VALUE),
    ("a key of 129", "run_instances", launch(TagSpecifications=tagged("instance", ("k" * 129, "1"))), VALUE),
    ("a value of 257", "create_tags", {"Resources": ["{vpc}"], "Tags": [{"Key": "k", "Value": "v" * 257}]}, VALUE),
    ("a token of 65", "run_instances", launch(ClientToken="t" * 65), VALUE),
    ("a zone that is not the subnet's", "run_instances", launch(Placement={"AvailabilityZone": OTHER}), VALUE),
    ("a template by name and by id", "run_instances",
     launch(LaunchTemplate={"LaunchTemplateId": "{template}", "LaunchTemplateName": "x"}), MIX),
    ("a preference beside a target", "run_instances",
     launch(CapacityReservationSpecification=TARGET | {"CapacityReservationPreference": "open"}), MIX),
    ("65 hops", "run_instances", launch(MetadataOptions={"HttpPutResponseHopLimit": 65}), VALUE),
    ("no such way to stop", "run_instances", launch(InstanceInitiatedShutdownBehavior="explode"), VALUE),
    ("no such disk", "run_instances",
     launch(BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeType": "gp9"}}]), VALUE),
    ("a price below nothing", "run_instances",
     launch(InstanceMarketOptions={"MarketType": "spot", "SpotOptions": {"MaxPrice": "-1"}}), VALUE),
    ("a spot request that lasts", "run_instances",
     launch(InstanceMarketOptions={"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "persistent"}}),
     "UnsupportedOperation"),
    ("a placement that is none", "create_placement_group", {"GroupName": "x", "Strategy": "heap"}, VALUE),
    ("a group's name of 256", "create_placement_group", {"GroupName": "x" * 256, "Strategy": "cluster"}, VALUE),
    ("partitions of a cluster", "create_placement_group",
     {"GroupName": "x", "Strategy": "cluster", "PartitionCount": 3}, MIX),
    ("a template of a bad name", "create_launch_template",
     {"LaunchTemplateName": "a b c", "LaunchTemplateData": {"ImageId": "{image}"}},
     "InvalidLaunchTemplateName.MalformedException"),
    ("a template's tags of another kind", "create_launch_template",
     {"LaunchTemplateName": "abc", "LaunchTemplateData": {"ImageId": "{image}"},
      "TagSpecifications": tagged("instance", ("a", "1"))}, VALUE),
    ("a version of no source", "create_launch_template_version",
     {"LaunchTemplateId": "{template}", "SourceVersion": "99", "LaunchTemplateData": {"EbsOptimized": True}},
     "InvalidLaunchTemplateId.VersionNotFound"),
]  # fmt: skip
RESERVED: list[Row] = [
    ("no instance", "create_capacity_reservation", reserve(InstanceCount=0), VALUE),
    ("more than a thousand at once", "create_capacity_reservation", reserve(InstanceCount=1001), VALUE),
    ("a zone of elsewhere", "create_capacity_reservation", reserve(AvailabilityZone="eu-west-1a"), VALUE),
    ("no such machine", "create_capacity_reservation", reserve(InstanceType="p9.huge"), VALUE),
    ("an end that is over", "create_capacity_reservation",
     reserve(EndDateType="limited", EndDate=datetime(2020, 1, 1, tzinfo=UTC)), VALUE),
    ("a bound without an end", "create_capacity_reservation", reserve(EndDateType="limited"), MIX),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sentence", "operation", "asked", "code"),
    [*MALFORMED, *LISTS, *NETWORKS, *LAUNCHES, *RESERVED],
    ids=lambda v: v.replace(" ", "-") if isinstance(v, str) and " " in v else "",
)
def test_ec2_refuses(world: World, sentence: str, operation: str, asked: dict[str, Any], code: str):
    assert code_of(getattr(world.ec2, operation), **world.filled(asked)) == code
    assert world.cloud.model.describe((), world.cloud.clock.now) == ()


@pytest.mark.parametrize(
    ("operation", "asked"),
    [
        ("create_vpc", {"CidrBlock": "10.9.0.0/16"}),
        ("create_placement_group", {"GroupName": "dry", "Strategy": "cluster"}),
        ("create_capacity_reservation", reserve()),
        ("allocate_address", {"Domain": "vpc"}),
        ("delete_launch_template", {"LaunchTemplateId": "{template}"}),
        ("describe_instances", {}),
        ("run_instances", launch()),
        (
            "create_fleet",
            {
                "Type": "instant",
                "LaunchTemplateConfigs": [
                    {
                        "LaunchTemplateSpecification": {"LaunchTemplateId": "{template}", "Version": "1"},
                        "Overrides": [{"SubnetId": "{subnet}"}],
                    }
                ],
                "TargetCapacitySpecification": {
                    "TotalTargetCapacity": 1,
                    "DefaultTargetCapacityType": "on-demand",
                },
            },
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_dry_run_does_nothing(world: World, operation: str, asked: dict[str, Any]):
    ec2 = world.ec2
    before = len(ec2.describe_vpcs()["Vpcs"]), ec2.describe_addresses()["Addresses"]
    assert code_of(getattr(ec2, operation), DryRun=True, **world.filled(asked)) == "DryRunOperation"
    assert (len(ec2.describe_vpcs()["Vpcs"]), ec2.describe_addresses()["Addresses"]) == before
    assert ec2.describe_capacity_reservations()["CapacityReservations"] == []
    assert ec2.describe_placement_groups()["PlacementGroups"] == []
    assert ec2.describe_launch_templates()["LaunchTemplates"]
    assert world.cloud.model.describe((), world.cloud.clock.now) == ()


MANY = [f"i-{number:017x}" for number in range(1001)]


@pytest.mark.parametrize(
    ("operation", "most"), [("describe_instance_status", 100), ("describe_instances", 1000)]
)
def test_t22_one_call_takes_so_many(world: World, operation: str, most: int):
    call = getattr(world.ec2, operation)
    assert code_of(call, InstanceIds=MANY[: most + 1]) == VALUE
    assert code_of(call, InstanceIds=MANY[:most]) == "InvalidInstanceID.NotFound"


def test_t23_one_call_takes_so_many(world: World):
    assert code_of(world.ec2.terminate_instances, InstanceIds=MANY) == VALUE
    assert code_of(world.ec2.terminate_instances, InstanceIds=MANY[:1000]) == "InvalidInstanceID.NotFound"


def test_t17_one_call_takes_so_many(world: World):
    tags = [{"Key": "k", "Value": "v"}]
    assert code_of(world.ec2.create_tags, Resources=MANY, Tags=tags) == VALUE
    assert code_of(world.ec2.create_tags, Resources=MANY[:1000], Tags=tags) == "InvalidInstanceID.NotFound"


def test_dry_run_ends_no_instance(world: World):
    ec2 = world.ec2
    (made,) = ec2.run_instances(**world.filled(launch()))["Instances"]
    asked = {"InstanceIds": [made["InstanceId"]]}
    assert code_of(ec2.terminate_instances, DryRun=True, **asked) == "DryRunOperation"
    (seen,) = ec2.describe_instances(**asked)["Reservations"][0]["Instances"]
    assert seen["State"]["Name"] == "running"


def test_pages_of_a_moto_list_have_each_item_once(world: World):
    ec2 = world.ec2
    all_of_it = {s["SubnetId"] for s in ec2.describe_subnets()["Subnets"]}
    pages = [
        [s["SubnetId"] for s in p["Subnets"]]
        for p in ec2.get_paginator("describe_subnets").paginate(PaginationConfig={"PageSize": 5})
    ]
    assert len(pages[0]) == 5
    assert len(pages) > 1
    assert sorted(one for page in pages for one in page) == sorted(all_of_it)


def test_client_token_creates_one_resource(world: World):
    ec2 = world.ec2
    asked = reserve(ClientToken="mine")
    made, again = (
        ec2.create_capacity_reservation(**asked)["CapacityReservation"]["CapacityReservationId"] for _ in "12"
    )
    assert made == again
    assert len(ec2.describe_capacity_reservations()["CapacityReservations"]) == 1
    refused = code_of(ec2.create_capacity_reservation, **(asked | {"InstanceCount": 2}))
    assert refused == "IdempotentParameterMismatch"
    world.cloud.clock.move(25 * 3600)  # it is forgotten after a day
    assert ec2.create_capacity_reservation(**asked)["CapacityReservation"]["CapacityReservationId"] != made


def test_reservation_ends_once(world: World):
    ec2 = world.ec2
    made = ec2.create_capacity_reservation(**reserve())["CapacityReservation"]["CapacityReservationId"]
    ec2.cancel_capacity_reservation(CapacityReservationId=made)
    assert (
        code_of(ec2.cancel_capacity_reservation, CapacityReservationId=made)
        == "InvalidCapacityReservationState"
    )


def test_t37_roles_inline_policies_have_ten_kibibytes_together(world: World):
    iam = world.cloud.client("iam")
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    iam.create_role(
        RoleName="long", AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    )
    names = [f"arn:aws:s3:::b/{number:0200d}" for number in range(30)]  # six thousand characters
    right = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": names}
    text = json.dumps({"Version": "2012-10-17", "Statement": [right]}, indent=2)
    iam.put_role_policy(RoleName="long", PolicyName="a", PolicyDocument=text)
    iam.put_role_policy(RoleName="long", PolicyName="a", PolicyDocument=text)  # in its own place
    refused = code_of(iam.put_role_policy, RoleName="long", PolicyName="b", PolicyDocument=text)
    assert refused == "LimitExceeded"


def test_t38_secret_has_64_kib_and_takes_no_value_while_it_leaves(world: World):
    secrets = world.cloud.client("secretsmanager")
    secrets.create_secret(Name="leaving", SecretBinary=b"1")
    assert code_of(secrets.put_secret_value, SecretId="leaving", SecretBinary=b"2" * 65537) == (
        "ValidationException"
    )
    token = "t" * 32
    secrets.put_secret_value(SecretId="leaving", SecretBinary=b"2", ClientRequestToken=token)
    again = code_of(secrets.put_secret_value, SecretId="leaving", SecretBinary=b"3", ClientRequestToken=token)
    assert again == "ResourceExistsException"
    assert secrets.get_secret_value(SecretId="leaving")["SecretBinary"] == b"2"
    assert code_of(secrets.delete_secret, SecretId="leaving", RecoveryWindowInDays=3) == (
        "InvalidParameterException"
    )
    secrets.delete_secret(SecretId="leaving")
    assert code_of(secrets.put_secret_value, SecretId="leaving", SecretBinary=b"4") == (
        "InvalidRequestException"
    )
    assert code_of(secrets.get_secret_value, SecretId="leaving") == "InvalidRequestException"


def test_t39_conditions_of_s3_hold_and_versions_hold_a_bucket(world: World):
    s3 = world.cloud.client("s3")
    s3.create_bucket(Bucket="conditions")
    s3.put_bucket_versioning(Bucket="conditions", VersioningConfiguration={"Status": "Enabled"})
    one = {"Bucket": "conditions", "Key": "k", "Body": b"x"}
    s3.put_object(**one, IfNoneMatch="*")
    assert code_of(s3.put_object, **one, IfNoneMatch="*") == "PreconditionFailed"
    assert code_of(s3.put_object, **one, IfMatch='"0"') == "PreconditionFailed"
    with pytest.raises(ClientError, match="NotImplemented"):
        s3.put_object(**one, IfNoneMatch='"0"')
    s3.delete_object(Bucket="conditions", Key="k")
    assert code_of(s3.delete_bucket, Bucket="conditions") == "BucketNotEmpty"


@pytest.mark.parametrize(
    ("service", "operation", "asked"),
    [
        ("ec2", "delete_transit_gateway", {"TransitGatewayId": "tgw-x"}),
        ("kms", "list_grants", {"KeyId": "x"}),
        ("secretsmanager", "tag_resource", {"SecretId": "x", "Tags": [{}]}),
        ("s3", "put_bucket_acl", {"Bucket": "held"}),
    ],
)
def test_exception_in_moto_is_an_unsupported_operation(
    world: World, service: str, operation: str, asked: dict[str, Any], caplog: pytest.LogCaptureFixture
):
    if service == "s3":
        world.cloud.client("s3").create_bucket(Bucket="held")
    assert code_of(getattr(world.cloud.client(service), operation), **asked) == "UnsupportedOperation"
    assert "Traceback" not in caplog.text
