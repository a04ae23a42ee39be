"""The API front end over HTTP, besides instances: placement groups, EFA's cards, addresses, gateways, volumes."""

import json
from collections.abc import Callable, Generator
from typing import Any

import pytest
from support.clouds import Network, RunningCloud, a_network, code_of, running_cloud
from support.launches import launch_call, with_changes

from gpucluster.cloud.aws import AwsCloud
from gpucluster.plan.model import Interface, InterfaceKind, Market
from gpucluster.sandbox.aws.ec2.state.values import Timing

pytestmark = pytest.mark.loopback
ZONE, OTHER = "us-east-1a", "us-east-1b"
MIX, VALUE = "InvalidParameterCombination", "InvalidParameterValue"
Launch = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def running() -> Generator[tuple[RunningCloud, Network], None, None]:
    with running_cloud(timing=Timing(pending_s=1.0, ending_s=5.0, linger_s=60.0, gateway_s=5.0)) as cloud:
        yield cloud, a_network(cloud)


@pytest.fixture
def launch(ec2: Any, cloud: RunningCloud, network: Network) -> Launch:
    def run(zone: str = ZONE, **change: Any) -> list[dict[str, Any]]:
        asked: dict[str, Any] = {
            "ImageId": network.image, "InstanceType": "p5.48xlarge", "SubnetId": network.subnets[zone],
            "MinCount": 1, "MaxCount": 1,
        }  # fmt: skip
        made = ec2.run_instances(**{k: v for k, v in {**asked, **change}.items() if v is not None})[
            "Instances"
        ]
        cloud.clock.move(2)
        return made

    return run


def free_in(ec2: Any, subnet: str) -> int:
    return ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["AvailableIpAddressCount"]


def cards(network: Network, *asked: tuple[int, int, str], **more: Any) -> dict[str, Any]:
    """Return NetworkInterfaces of a launch by (card, device, kind), and no subnet beside them."""
    made = [
        {"NetworkCardIndex": c, "DeviceIndex": d, "InterfaceType": k, "SubnetId": network.subnets[ZONE],
         "Groups": [network.group], **more}
        for c, d, k in asked
    ]  # fmt: skip
    return {"NetworkInterfaces": made, "SubnetId": None}


# --- placement and topology -------------------------------------------------------------------


def test_t27_placement_group_is_made_once_and_goes_when_its_members_have_ended(
    cloud: RunningCloud, ec2: Any, launch: Launch
):
    tags = [{"ResourceType": "placement-group", "Tags": [{"Key": "k", "Value": "v"}]}]
    made = ec2.create_placement_group(GroupName="g", Strategy="cluster", TagSpecifications=tags)
    assert made["PlacementGroup"]["State"] == "available"
    assert (
        code_of(ec2.create_placement_group, GroupName="g", Strategy="cluster")
        == "InvalidPlacementGroup.Duplicate"
    )
    (one,) = launch(Placement={"GroupName": "g"})
    assert one["Placement"]["GroupName"] == "g"
    assert code_of(ec2.delete_placement_group, GroupName="g") == "InvalidPlacementGroup.InUse"
    ec2.terminate_instances(InstanceIds=[one["InstanceId"]])
    assert code_of(ec2.delete_placement_group, GroupName="g") == "InvalidPlacementGroup.InUse", (
        "it still ends"
    )
    cloud.clock.move(6)
    ec2.delete_placement_group(GroupName="g")
    assert code_of(ec2.describe_placement_groups, GroupNames=["g"]) == "InvalidPlacementGroup.Unknown"


def test_t27_group_is_of_one_zone_and_takes_no_capacity_that_was_reserved_outside_it(
    cloud: RunningCloud, ec2: Any, launch: Launch
):
    ec2.create_placement_group(GroupName="h", Strategy="cluster")
    launch(Placement={"GroupName": "h"})
    assert code_of(launch, Placement={"GroupName": "h"}, zone=OTHER) == "InvalidParameterCombination"
    assert code_of(launch, Placement={"GroupName": "x"}) == "InvalidPlacementGroup.Unknown"
    held = cloud.model.reserve("p5.48xlarge", ZONE, 2)
    target = {"CapacityReservationTarget": {"CapacityReservationId": held}}
    refused = code_of(launch, Placement={"GroupName": "h"}, CapacityReservationSpecification=target)
    assert refused == "InsufficientInstanceCapacity"


def test_t28_topology_has_layers_of_running_instances_and_leaves_the_others_out(
    cloud: RunningCloud, ec2: Any, launch: Launch, network: Network
):
    (one,) = launch()
    (p6,) = launch(InstanceType="p6-b200.48xlarge")
    launch(InstanceType="m7i.large")
    late = ec2.run_instances(
        ImageId=network.image,
        InstanceType="p5.48xlarge",
        SubnetId=network.subnets[ZONE],
        MinCount=1,
        MaxCount=1,
    )["Instances"][0]["InstanceId"]
    seen = {i["InstanceId"]: len(i["NetworkNodes"]) for i in ec2.describe_instance_topology()["Instances"]}
    assert late not in seen
    assert seen == {one["InstanceId"]: 3, p6["InstanceId"]: 4}


def test_t28_pages_have_up_to_a_hundred_entries(ec2: Any, launch: Launch):
    made = {launch()[0]["InstanceId"] for _ in range(3)}
    first = ec2.describe_instance_topology(MaxResults=2)
    rest = ec2.describe_instance_topology(MaxResults=2, NextToken=first["NextToken"])
    assert [len(page["Instances"]) for page in (first, rest)] == [2, 1]
    assert {i["InstanceId"] for page in (first, rest) for i in page["Instances"]} == made
    assert code_of(ec2.describe_instance_topology, MaxResults=101) == "InvalidParameterValue"


def test_t28_groups_exist_and_are_at_most_a_hundred(ec2: Any):
    assert code_of(ec2.describe_instance_topology, GroupNames=["g"]) == "InvalidPlacementGroup.Unknown"
    many = [f"g{n}" for n in range(101)]
    assert code_of(ec2.describe_instance_topology, GroupNames=many) == "InvalidParameterValue"


def test_t28_at_most_a_hundred_ids_and_no_page_with_them(ec2: Any):
    ids = [f"i-{n:017x}" for n in range(101)]
    assert code_of(ec2.describe_instance_topology, InstanceIds=ids) == "InvalidParameterValue"
    assert (
        code_of(ec2.describe_instance_topology, InstanceIds=ids[:1], MaxResults=5)
        == "InvalidParameterCombination"
    )


# --- network cards ----------------------------------------------------------------------------


def test_t29_every_card_has_its_interface_and_only_those_with_an_address_take_one(
    ec2: Any, launch: Launch, network: Network
):
    before = free_in(ec2, network.subnets[ZONE])
    layout = [(0, 0, "interface"), (0, 1, "efa-only"), *((c, 0, "efa-only") for c in range(1, 32))]
    (one,) = launch(**cards(network, *layout))
    assert [(i["Attachment"]["NetworkCardIndex"], i["InterfaceType"]) for i in one["NetworkInterfaces"]][:3] == [
        (0, "interface"), (0, "efa-only"), (1, "efa-only")
    ]  # fmt: skip
    assert len(one["NetworkInterfaces"]) == 33
    assert before - free_in(ec2, network.subnets[ZONE]) == 1
    (other,) = launch(**cards(network, (0, 0, "interface"), (1, 0, "efa"), (2, 0, "efa")))
    assert len({i["PrivateIpAddress"] for i in other["NetworkInterfaces"]}) == 3
    assert before - free_in(ec2, network.subnets[ZONE]) == 4


@pytest.mark.parametrize(
    ("machine", "layout", "code"),
    [
        pytest.param(machine, layout, code, id=sentence.replace(" ", "-"))
        for sentence, machine, layout, code in [
            ("a pair twice", "p5.48xlarge", [(0, 0, "interface"), (1, 0, "efa"), (1, 0, "efa")], VALUE),
            ("no primary", "p5.48xlarge", [(1, 0, "efa")], VALUE),
            ("a primary without an address", "p5.48xlarge", [(0, 0, "efa-only")], MIX),
            ("EFA on the ENA card", "p6-b300.48xlarge", [(0, 0, "interface"), (0, 1, "efa-only")], MIX),
            ("a machine without EFA", "m7i.large", [(0, 0, "efa")], MIX),
            ("a card too many", "p4d.24xlarge", [(0, 0, "interface"), (4, 0, "efa")], VALUE),
            ("three on a card of two", "p5.48xlarge", [(0, 0, "interface"), (0, 1, "efa"), (0, 2, "interface")],
             "AttachmentLimitExceeded"),
        ]
    ],
)  # fmt: skip
def test_t29_wrong_mix_of_cards_is_refused(
    launch: Launch, network: Network, machine: str, layout: list[Any], code: str
):
    assert code_of(launch, InstanceType=machine, **cards(network, *layout)) == code


def test_t30_group_that_is_wrong_for_the_fabric_is_not_refused(launch: Launch, network: Network):
    assert launch(**cards(network, (0, 0, "interface"), (0, 1, "efa-only")))


def test_t31_several_interfaces_get_no_public_address(ec2: Any, launch: Launch, network: Network):
    asked = cards(network, (0, 0, "interface"), (1, 0, "efa-only"))
    asked["NetworkInterfaces"][0]["AssociatePublicIpAddress"] = True
    assert code_of(launch, **asked) == "InvalidParameterCombination"
    subnet = network.subnets[ZONE]
    ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": True})
    try:
        assert "PublicIpAddress" in launch()[0]
        assert "PublicIpAddress" not in launch(**cards(network, (0, 0, "interface"), (1, 0, "efa-only")))[0]
    finally:
        ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": False})


def test_t31_template_with_interfaces_takes_its_subnet_from_a_fleet_and_not_from_a_launch(
    ec2: Any, network: Network
):
    nics = [
        {"NetworkCardIndex": 0, "DeviceIndex": 0, "Groups": [network.group]},
        {"NetworkCardIndex": 0, "DeviceIndex": 1, "InterfaceType": "efa-only", "Groups": [network.group]},
    ]
    data = {"ImageId": network.image, "InstanceType": "p5.48xlarge", "NetworkInterfaces": nics}
    made = ec2.create_launch_template(LaunchTemplateName="cards", LaunchTemplateData=data)["LaunchTemplate"]
    named = {"LaunchTemplateId": made["LaunchTemplateId"], "Version": "1"}
    subnet = network.subnets[ZONE]
    asked = {"LaunchTemplate": named, "SubnetId": subnet, "MinCount": 1, "MaxCount": 1}
    assert code_of(ec2.run_instances, **asked) == "InvalidParameterCombination"
    config = {"LaunchTemplateSpecification": named, "Overrides": [{"SubnetId": subnet}]}
    fleet = ec2.create_fleet(
        Type="instant", LaunchTemplateConfigs=[config],
        TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
    )  # fmt: skip
    assert fleet["Errors"] == []
    (one,) = ec2.describe_instances(InstanceIds=fleet["Instances"][0]["InstanceIds"])["Reservations"][0][
        "Instances"
    ]
    assert (one["SubnetId"], len(one["NetworkInterfaces"])) == (subnet, 2)


def test_t31_launch_of_the_daemon_has_interfaces_and_placement_group(
    cloud: RunningCloud, ec2: Any, network: Network
):
    """The request overrides the list of the template, as the daemon does. A repeated request returns the same instance."""
    ec2.create_placement_group(GroupName="of-the-pool", Strategy="cluster")
    kinds = (InterfaceKind.ENA, InterfaceKind.EFA_ONLY)
    cards = tuple(Interface(card=0, device=n, kind=kind) for n, kind in enumerate(kinds))
    asked = launch_call(
        token="t31", count=2, template_id=network.template, template_version=1, subnet_id=network.subnets[ZONE],
        zone=ZONE, machine="p5.48xlarge", market=Market.ON_DEMAND, tags={"k": "v"}, interfaces=cards,
        security_group=network.group, placement_group="of-the-pool",
    )  # fmt: skip
    data = {
        "ImageId": network.image, "InstanceType": "p5.48xlarge",
        "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [network.group]}],
    }  # fmt: skip
    made = ec2.create_launch_template(LaunchTemplateName="listed", LaunchTemplateData=data)["LaunchTemplate"]
    asked = with_changes(asked, template_id=made["LaunchTemplateId"])
    port = AwsCloud("us-east-1", lambda _: cloud.client("ec2"))
    ids = port.launch(asked)
    assert set(port.launch(asked)) == set(ids)
    cloud.clock.move(2)
    found = ec2.describe_instances(InstanceIds=list(ids))["Reservations"][0]["Instances"]
    assert [[n["InterfaceType"] for n in i["NetworkInterfaces"]] for i in found] == [
        ["interface", "efa-only"]
    ] * 2
    assert {i["Placement"]["GroupName"] for i in found} == {"of-the-pool"}


# --- addresses and gateways -------------------------------------------------------------------


def test_t10_twelfth_address_of_a_small_subnet_is_refused_whoever_took_the_others(
    cloud: RunningCloud, ec2: Any, network: Network, launch: Launch
):
    small = ec2.create_subnet(VpcId=network.vpc, CidrBlock="10.42.9.0/28", AvailabilityZone=ZONE)["Subnet"][
        "SubnetId"
    ]
    assert free_in(ec2, small) == 11
    endpoint = ec2.create_vpc_endpoint(
        VpcId=network.vpc,
        ServiceName="com.amazonaws.us-east-1.sqs",
        VpcEndpointType="Interface",
        SubnetIds=[small],
    )["VpcEndpoint"]
    found = ec2.describe_network_interfaces(Filters=[{"Name": "subnet-id", "Values": [small]}])[
        "NetworkInterfaces"
    ]
    assert [i["PrivateIpAddress"].startswith("10.42.9.") for i in found] == [True]
    assert free_in(ec2, small) == 10
    made = launch(SubnetId=small, MinCount=10, MaxCount=10)
    assert free_in(ec2, small) == 0
    assert code_of(launch, SubnetId=small) == "InsufficientFreeAddressesInSubnet"
    ec2.terminate_instances(InstanceIds=[i["InstanceId"] for i in made])
    cloud.clock.move(6)
    assert free_in(ec2, small) == 0, "interfaces linger"
    assert code_of(ec2.delete_subnet, SubnetId=small) == "DependencyViolation"
    cloud.clock.move(61)
    assert free_in(ec2, small) == 10
    ec2.delete_vpc_endpoints(VpcEndpointIds=[endpoint["VpcEndpointId"]])
    ec2.delete_subnet(SubnetId=small)


def test_t43_nat_gateway_ends_late_and_holds_its_address_until_then(
    cloud: RunningCloud, ec2: Any, network: Network
):
    subnet = network.subnets[ZONE]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    assert code_of(ec2.create_nat_gateway, SubnetId=subnet, AllocationId=address) == "Gateway.NotAttached"
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=network.vpc)
    nat = ec2.create_nat_gateway(SubnetId=subnet, AllocationId=address)["NatGateway"]
    assert nat["State"] == "pending"
    table = ec2.create_route_table(VpcId=network.vpc)["RouteTable"]["RouteTableId"]
    way = {"RouteTableId": table, "DestinationCidrBlock": "0.0.0.0/0"}
    assert code_of(ec2.create_route, **way, NatGatewayId="nat-0123456789abcdef0") == "NatGatewayNotFound"
    ec2.create_route(**way, NatGatewayId=nat["NatGatewayId"])
    cloud.clock.move(5)
    assert state_of(ec2, nat) == "available"
    detach = {"InternetGatewayId": gateway, "VpcId": network.vpc}
    assert code_of(ec2.detach_internet_gateway, **detach) == "DependencyViolation"
    ec2.delete_nat_gateway(NatGatewayId=nat["NatGatewayId"])
    assert state_of(ec2, nat) == "deleting"
    assert code_of(ec2.release_address, AllocationId=address) == "InvalidIPAddress.InUse"
    cloud.clock.move(5)
    assert state_of(ec2, nat) == "deleted"
    ec2.release_address(AllocationId=address)
    ec2.detach_internet_gateway(**detach)
    ec2.delete_internet_gateway(InternetGatewayId=gateway)
    ec2.delete_route_table(RouteTableId=table)


def state_of(ec2: Any, nat: dict[str, Any]) -> str:
    return ec2.describe_nat_gateways(NatGatewayIds=[nat["NatGatewayId"]])["NatGateways"][0]["State"]


def test_address_is_associated_until_instance_or_address_is_deleted(
    cloud: RunningCloud, ec2: Any, launch: Launch
):
    (one,) = launch()
    address = ec2.allocate_address(Domain="vpc")
    ec2.associate_address(AllocationId=address["AllocationId"], InstanceId=one["InstanceId"])
    seen = ec2.describe_instances(InstanceIds=[one["InstanceId"]])["Reservations"][0]["Instances"][0]
    assert seen["PublicIpAddress"] == address["PublicIp"]
    assert code_of(ec2.release_address, AllocationId=address["AllocationId"]) == "InvalidIPAddress.InUse"
    ec2.terminate_instances(InstanceIds=[one["InstanceId"]])
    cloud.clock.move(6)
    ec2.release_address(AllocationId=address["AllocationId"])


# --- volumes ----------------------------------------------------------------------------------


def test_volume_attaches_to_one_instance_of_its_zone_and_remains(
    cloud: RunningCloud, ec2: Any, launch: Launch
):
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "k", "Value": "v"}]}]
    volume = ec2.create_volume(AvailabilityZone=ZONE, Size=20, VolumeType="gp3", TagSpecifications=tags)[
        "VolumeId"
    ]
    (one,), (far,) = launch(), launch(zone=OTHER)
    there = {"VolumeId": volume, "Device": "/dev/sdf"}
    assert code_of(ec2.attach_volume, **there, InstanceId=far["InstanceId"]) == "InvalidVolume.ZoneMismatch"
    ec2.attach_volume(**there, InstanceId=one["InstanceId"])
    assert code_of(ec2.attach_volume, **there, InstanceId=one["InstanceId"]) == "VolumeInUse"
    assert code_of(ec2.delete_volume, VolumeId=volume) == "VolumeInUse"
    asked = [{"Name": "attachment.instance-id", "Values": [one["InstanceId"]]}]
    assert {v["VolumeId"] for v in ec2.describe_volumes(Filters=asked)["Volumes"]} > {volume}
    ec2.terminate_instances(InstanceIds=[one["InstanceId"]])
    cloud.clock.move(6)
    (seen,) = ec2.describe_volumes(VolumeIds=[volume])["Volumes"]
    assert (seen["State"], seen["Tags"]) == ("available", [{"Key": "k", "Value": "v"}])
    ec2.create_tags(Resources=[volume], Tags=[{"Key": "l", "Value": "w"}])
    found = ec2.describe_volumes(Filters=[{"Name": "tag:l", "Values": ["w"]}])["Volumes"]
    assert [v["VolumeId"] for v in found] == [volume]
    assert code_of(ec2.modify_volume, VolumeId=volume, Size=10) == "InvalidParameterValue"
    ec2.modify_volume(VolumeId=volume, Size=40)
    assert ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0]["Size"] == 40
    ec2.delete_volume(VolumeId=volume)
    assert code_of(ec2.describe_volumes, VolumeIds=[volume]) == "InvalidVolume.NotFound"


# --- reservations, interfaces in use, news ----------------------------------------------------


def test_t25_reservation_changes_its_count_and_end_and_nothing_else(
    cloud: RunningCloud, ec2: Any, launch: Launch
):
    asked = {"InstanceType": "p5.48xlarge", "InstancePlatform": "Linux/UNIX", "AvailabilityZone": ZONE}
    tags = [{"ResourceType": "capacity-reservation", "Tags": [{"Key": "k", "Value": "v"}]}]
    made = ec2.create_capacity_reservation(
        **asked, InstanceCount=2, InstanceMatchCriteria="targeted", TagSpecifications=tags
    )["CapacityReservation"]
    name = made["CapacityReservationId"]
    assert (made["InstanceMatchCriteria"], made["EndDateType"], made["Tags"]) == (
        "targeted", "unlimited", tags[0]["Tags"]
    )  # fmt: skip
    launch(CapacityReservationSpecification={"CapacityReservationTarget": {"CapacityReservationId": name}})
    modify = ec2.modify_capacity_reservation
    assert code_of(modify, CapacityReservationId=name, InstanceCount=0) == "InvalidParameterValue", (
        "one is used"
    )
    assert code_of(modify, CapacityReservationId=name, InstanceCount=1003) == "InvalidParameterValue"
    modify(CapacityReservationId=name, InstanceCount=3)
    named = [{"Name": "tag:k", "Values": ["v"]}]
    (seen,) = ec2.describe_capacity_reservations(Filters=named)["CapacityReservations"]
    assert (seen["TotalInstanceCount"], seen["AvailableInstanceCount"]) == (3, 2)
    block = cloud.model.reserve("p5.48xlarge", ZONE, 1, block=True)
    assert code_of(modify, CapacityReservationId=block, InstanceCount=2) == "UnsupportedOperation"
    ec2.cancel_capacity_reservation(CapacityReservationId=name)
    assert code_of(modify, CapacityReservationId=name, InstanceCount=2) == "InvalidCapacityReservationState"


def test_t42_interface_in_use_or_of_a_service_is_not_deleted_by_hand(
    cloud: RunningCloud, ec2: Any, launch: Launch, network: Network
):
    (one,) = launch()
    mine = one["NetworkInterfaces"][0]["NetworkInterfaceId"]
    assert code_of(ec2.delete_network_interface, NetworkInterfaceId=mine) == "InvalidNetworkInterface.InUse"
    efs = cloud.client("efs")
    system = efs.create_file_system(CreationToken="t42")["FileSystemId"]
    cloud.clock.move(5)
    target = efs.create_mount_target(FileSystemId=system, SubnetId=network.subnets[OTHER])
    theirs = {"NetworkInterfaceId": target["NetworkInterfaceId"]}
    assert code_of(ec2.delete_network_interface, **theirs) == "OperationNotPermitted"
    assert code_of(ec2.delete_subnet, SubnetId=network.subnets[OTHER]) == "DependencyViolation"
    assert code_of(ec2.delete_vpc, VpcId=network.vpc) == "DependencyViolation"
    efs.delete_mount_target(MountTargetId=target["MountTargetId"])


def test_t41_state_changes_are_sent_to_matching_rules(cloud: RunningCloud, ec2: Any, launch: Launch):
    queue = cloud.client("sqs").create_queue(QueueName="states")["QueueUrl"]
    arn = "arn:aws:sqs:us-east-1:123456789012:states"
    events = cloud.client("events")
    pattern = {"source": ["aws.ec2"], "detail": {"state": ["shutting-down", "terminated"]}}
    rule = events.put_rule(Name="states", EventPattern=json.dumps(pattern))["RuleArn"]
    events.put_targets(Rule="states", Targets=[{"Id": "q", "Arn": arn}])
    said = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage",
            "Resource": arn, "Condition": {"ArnEquals": {"aws:SourceArn": rule}}}  # fmt: skip
    policy = json.dumps({"Version": "2012-10-17", "Statement": [said]})
    cloud.client("sqs").set_queue_attributes(QueueUrl=queue, Attributes={"Policy": policy})
    cloud.api.deliver(cloud.clock.now)  # what other tests left behind finds no way in after this
    cloud.client("sqs").purge_queue(QueueUrl=queue)
    (one,) = launch()
    ec2.terminate_instances(InstanceIds=[one["InstanceId"]])
    cloud.clock.move(6)
    ec2.describe_instances()
    cloud.api.deliver(cloud.clock.now)
    found = cloud.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    told = [json.loads(m["Body"])["detail"] for m in found]
    assert [(t["instance-id"], t["state"]) for t in told] == [
        (one["InstanceId"], "shutting-down"), (one["InstanceId"], "terminated")
    ]  # fmt: skip


def test_attributes_of_a_queue_change_without_its_policy(cloud: RunningCloud):
    """moto removes a policy that SetQueueAttributes does not name; AWS keeps it."""
    sqs = cloud.client("sqs")
    said = {"Sid": "a", "Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [said]})

    def policy_of(queue: str) -> Any:
        shown = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
        return json.loads(shown["Policy"])["Statement"] if shown.get("Policy") else None

    queue = sqs.create_queue(QueueName="kept")["QueueUrl"]
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"Policy": policy})
    assert sqs.create_queue(QueueName="kept")["QueueUrl"] == queue  # it exists: this changes nothing
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"MessageRetentionPeriod": "60"})
    assert policy_of(queue) == [said]
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"Policy": ""})
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"MessageRetentionPeriod": "3600"})
    assert not policy_of(queue)
    other = sqs.create_queue(QueueName="made-with", Attributes={"Policy": policy})["QueueUrl"]
    sqs.set_queue_attributes(QueueUrl=other, Attributes={"MessageRetentionPeriod": "60"})
    assert policy_of(other) == [said]


def test_t28_port_reads_the_switches_of_more_than_a_hundred_machines_and_of_no_unsupported_type(
    cloud: RunningCloud, ec2: Any, launch: Launch
):
    (one,) = launch()
    (plain,) = launch(InstanceType="m7i.large")
    port = AwsCloud("us-east-2", lambda _: ec2)
    found = port.network_nodes([one["InstanceId"], plain["InstanceId"]])
    assert {i: len(nodes) for i, nodes in found.items()} == {one["InstanceId"]: 3}
    assert port.network_nodes([]) == {}
