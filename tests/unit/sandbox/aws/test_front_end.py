"""EC2's front end through real boto3: the facts of docs/facts/aws.md by id, and the reads of providers."""

import base64
from collections.abc import Generator
from typing import Any

import pytest
from support.clouds import Network, RunningCloud, a_network, code_of, error_of, running_cloud

from gpucluster.sandbox.aws.ec2.state.values import Timing

pytestmark = pytest.mark.loopback
UNKNOWN = "i-0123456789abcdef0"
TAGS = [{"Key": "gpucluster:cluster", "Value": "burst"}, {"Key": "gpucluster:role", "Value": "node"}]


@pytest.fixture(scope="module")
def running() -> Generator[tuple[RunningCloud, Network], None, None]:
    with running_cloud(timing=Timing(pending_s=1.0, ending_s=5.0, linger_s=60.0)) as cloud:
        content = {"UserData": base64.b64encode(b"#cloud-config\n").decode()}
        created = [{"ResourceType": "instance", "Tags": [{"Key": "from", "Value": "template"}]}]
        yield cloud, a_network(cloud, TagSpecifications=created, **content)


@pytest.fixture
def launch(ec2: Any, network: Network) -> Any:
    def run(**change: Any) -> list[dict[str, Any]]:
        asked: dict[str, Any] = {
            "LaunchTemplate": {"LaunchTemplateId": network.template, "Version": "1"},
            "SubnetId": network.subnets["us-east-1a"],
            "MinCount": 1,
            "MaxCount": 1,
        }
        asked |= change
        return ec2.run_instances(**{k: v for k, v in asked.items() if v is not None})["Instances"]

    return run


def status_of(error: Any) -> int:
    return error.response["ResponseMetadata"]["HTTPStatusCode"]


# --- launching --------------------------------------------------------------------------------


def test_t01_same_token_gives_the_same_instance_and_other_parameters_a_mismatch(launch: Any, ec2: Any):
    (one,) = launch(ClientToken="t")
    (again,) = launch(ClientToken="t")
    assert one["InstanceId"] == again["InstanceId"]
    assert code_of(launch, ClientToken="t", InstanceType="p4d.24xlarge") == "IdempotentParameterMismatch"
    assert len(ec2.describe_instances()["Reservations"]) == 1


def test_t02_token_is_zonal_when_the_request_names_a_subnet(launch: Any, network: Network):
    (one,) = launch(ClientToken="t")
    (other,) = launch(ClientToken="t", SubnetId=network.subnets["us-east-1b"])
    assert one["InstanceId"] != other["InstanceId"]
    assert other["Placement"]["AvailabilityZone"] == "us-east-1b"


def test_t05_fewer_come_without_an_error_and_below_the_least_none(cloud: RunningCloud, launch: Any, ec2: Any):
    cloud.model.set_capacity(zone="us-east-1a", free=3)
    assert code_of(launch, MinCount=8, MaxCount=8) == "InsufficientInstanceCapacity"
    assert len(launch(MaxCount=8)) == 3
    assert len(ec2.describe_instances()["Reservations"]) == 1


def test_t06_no_capacity_is_a_500_that_sdks_retry_and_that_names_other_zones(
    cloud: RunningCloud, launch: Any, network: Network
):
    cloud.model.set_capacity(zone="us-east-1a", free=0)
    error = error_of(launch)
    assert status_of(error) == 500
    assert "us-east-1b" in error.response["Error"]["Message"]


def test_t06_sdks_own_retries_are_counted(cloud: RunningCloud, network: Network):
    import boto3
    from botocore.config import Config

    session: Any = boto3.Session()
    key = cloud.api.operator
    eager = session.client(
        "ec2", region_name="us-east-1", endpoint_url=cloud.endpoint, aws_access_key_id=key.access_key,
        aws_secret_access_key=key.secret, config=Config(retries={"mode": "standard", "total_max_attempts": 2}),
    )  # fmt: skip
    cloud.model.set_capacity(free=0)
    template = {"LaunchTemplateId": network.template, "Version": "1"}
    subnet = network.subnets["us-east-1a"]
    assert (
        code_of(eager.run_instances, LaunchTemplate=template, SubnetId=subnet, MinCount=1, MaxCount=1)
        == "InsufficientInstanceCapacity"
    )
    assert [c.action for c in cloud.model.trail] == ["RunInstances"] * 2


def test_t07_unknown_machine_and_one_that_the_zone_lacks(cloud: RunningCloud, launch: Any):
    assert code_of(launch, InstanceType="p9.huge") == "InvalidParameterValue"
    cloud.model.capacity.withdraw("p5.48xlarge", "us-east-1a")
    assert code_of(launch) == "Unsupported"


def test_t11_sixth_launch_within_a_second_is_a_503(cloud: RunningCloud, launch: Any):
    cloud.fresh(buckets=True)
    for _ in range(5):
        launch()
    error = error_of(launch)
    assert (error.response["Error"]["Code"], status_of(error)) == ("RequestLimitExceeded", 503)
    cloud.clock.move(0.5)
    assert len(launch()) == 1


def test_t11_unfiltered_list_has_a_smaller_bucket(cloud: RunningCloud, ec2: Any):
    cloud.fresh(buckets=True)
    for _ in range(50):
        cloud.model.admit("DescribeInstances", cloud.clock.now, unfiltered=True)
    assert code_of(ec2.describe_instances) == "RequestLimitExceeded"
    assert ec2.describe_instances(Filters=[{"Name": "tag:a", "Values": ["b"]}])["Reservations"] == []


def test_t12_lost_reply_leaves_the_instances(cloud: RunningCloud, launch: Any, ec2: Any):
    from botocore.exceptions import HTTPClientError

    cloud.model.faults.lose_reply("RunInstances")
    with pytest.raises(HTTPClientError):
        launch(ClientToken="t")
    assert len(launch(ClientToken="t")) == 1
    assert len(ec2.describe_instances()["Reservations"]) == 1


def test_t15_template_is_resolved_by_its_explicit_version(launch: Any, ec2: Any, network: Network):
    made = ec2.create_launch_template_version(
        LaunchTemplateId=network.template,
        LaunchTemplateData={"ImageId": network.image, "InstanceType": "m7i.large"},
    )
    number = str(made["LaunchTemplateVersion"]["VersionNumber"])
    template = {"LaunchTemplateId": network.template}
    assert launch()[0]["InstanceType"] == "p5.48xlarge"
    assert launch(LaunchTemplate={**template, "Version": number})[0]["InstanceType"] == "m7i.large"
    assert launch(LaunchTemplate={**template, "Version": "$Latest"})[0]["InstanceType"] == "m7i.large"
    assert launch(LaunchTemplate=template)[0]["InstanceType"] == "p5.48xlarge"
    assert (
        code_of(launch, LaunchTemplate={**template, "Version": "99"})
        == "InvalidLaunchTemplateId.VersionNotFound"
    )
    assert (
        code_of(launch, LaunchTemplate={"LaunchTemplateId": "lt-00000000000000000"})
        == "InvalidLaunchTemplateId.NotFound"
    )


def test_t16_user_data_has_16_kib(launch: Any, network: Network):
    plain = {"LaunchTemplate": None, "ImageId": network.image, "InstanceType": "m7i.large"}
    launch(UserData="x" * 16384, **plain)
    assert code_of(launch, UserData="x" * 16385, **plain) == "InvalidParameterValue"


def test_t17_tags_apply_to_named_types_and_extend_the_template(launch: Any, ec2: Any):
    (one,) = launch(TagSpecifications=[{"ResourceType": "instance", "Tags": TAGS}])
    of_ec2 = {"aws:ec2launchtemplate:id", "aws:ec2launchtemplate:version"}  # T54
    assert {t["Key"] for t in one["Tags"]} == {"gpucluster:cluster", "gpucluster:role", "from"} | of_ec2
    volume = one["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    assert ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0].get("Tags", []) == []


@pytest.mark.parametrize(
    ("sentence", "change", "code"),
    [
        ("51 tags", {"TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": str(n), "Value": ""} for n in range(51)]}]}, "TagLimitExceeded"),
        ("Amazon's own prefix", {"TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "aws:x", "Value": ""}]}]}, "InvalidParameterValue"),
        ("a kind that the call does not make", {"TagSpecifications": [{"ResourceType": "spot-instances-request", "Tags": TAGS}]}, "InvalidParameterValue"),
        ("an unknown image (T18)", {"ImageId": "ami-00000000"}, "InvalidAMIID.NotFound"),
        ("an unknown key pair (T19)", {"KeyName": "nobody"}, "InvalidKeyPair.NotFound"),
        ("an unknown group", {"SecurityGroupIds": ["sg-00000000000000000"]}, "InvalidGroup.NotFound"),
        ("an unknown subnet", {"SubnetId": "subnet-00000000000000000"}, "InvalidSubnetID.NotFound"),
        ("an unknown profile (T36)", {"IamInstanceProfile": {"Name": "nobody"}}, "InvalidParameterValue"),
        ("interfaces beside a subnet (T31)", {"NetworkInterfaces": [{"DeviceIndex": 0}]}, "InvalidParameterCombination"),
        ("fewer than one", {"MinCount": 2, "MaxCount": 1}, "InvalidParameterValue"),
        ("one address for two", {"PrivateIpAddress": "10.42.0.10", "MinCount": 2, "MaxCount": 2}, "InvalidParameterCombination"),
        ("an address of AWS's own", {"PrivateIpAddress": "10.42.0.2"}, "InvalidParameterValue"),
        ("a dry run that would pass", {"DryRun": True}, "DryRunOperation"),
    ],
)  # fmt: skip
def test_launch_that_ec2_refuses(launch: Any, ec2: Any, sentence: str, change: dict[str, Any], code: str):
    assert code_of(launch, **change) == code, sentence
    assert ec2.describe_instances()["Reservations"] == []


def test_dry_run_is_no_launch_in_the_log(cloud: RunningCloud, launch: Any):
    """Tests count launches by the log, and the daemon tries each of its launches."""
    assert code_of(launch, DryRun=True) == "DryRunOperation"
    assert code_of(launch, DryRun=True, ImageId="ami-00000000") == "InvalidAMIID.NotFound"
    actions = [one.action for one in cloud.model.trail if one.action.startswith("RunInstances")]
    assert actions == ["RunInstances (dry run)"] * 2


def test_head_is_launched_with_requests_of_a_provider(
    cloud: RunningCloud, launch: Any, ec2: Any, network: Network
):
    iam = cloud.client("iam")
    trust = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]}'
    iam.create_role(RoleName="face-role", AssumeRolePolicyDocument=trust)
    profile = iam.create_instance_profile(InstanceProfileName="face-head")["InstanceProfile"]
    assert "no associated IAM Roles" in str(error_of(launch, IamInstanceProfile={"Name": "face-head"}))
    iam.add_role_to_instance_profile(InstanceProfileName="face-head", RoleName="face-role")
    (head,) = launch(
        LaunchTemplate=None,
        ImageId=network.image,
        InstanceType="m7i.2xlarge",
        PrivateIpAddress="10.42.0.10",
        IamInstanceProfile={"Name": "face-head"},
        UserData="#cloud-config\n",
        SecurityGroupIds=[network.group],
        MetadataOptions={
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "enabled",
        },
        BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 20, "VolumeType": "gp3"}}],
        TagSpecifications=[{"ResourceType": "instance", "Tags": TAGS}],
    )
    cloud.clock.move(2)
    seen = ec2.describe_instances(InstanceIds=[head["InstanceId"]])["Reservations"][0]["Instances"][0]
    assert seen["PrivateIpAddress"] == "10.42.0.10"
    assert seen["IamInstanceProfile"] == {"Arn": profile["Arn"], "Id": profile["InstanceProfileId"]}
    assert seen["MetadataOptions"]["HttpTokens"] == "required"
    assert seen["SecurityGroups"] == [{"GroupId": network.group, "GroupName": "nodes"}]
    attribute = ec2.describe_instance_attribute(InstanceId=head["InstanceId"], Attribute="userData")
    assert base64.b64decode(attribute["UserData"]["Value"]) == b"#cloud-config\n"
    (volume,) = ec2.describe_volumes(
        Filters=[{"Name": "attachment.instance-id", "Values": [head["InstanceId"]]}]
    )["Volumes"]
    assert (volume["Size"], volume["VolumeType"]) == (20, "gp3")
    assert code_of(launch, PrivateIpAddress="10.42.0.10") == "InvalidIPAddress.InUse"


def test_boto3_waiter_sees_the_running_instance(cloud: RunningCloud, launch: Any, ec2: Any):
    (one,) = launch()
    assert one["State"]["Name"] == "pending"
    cloud.clock.move(2)
    ec2.get_waiter("instance_running").wait(InstanceIds=[one["InstanceId"]], WaiterConfig={"MaxAttempts": 1})
    ec2.get_waiter("instance_status_ok").wait(
        InstanceIds=[one["InstanceId"]], WaiterConfig={"MaxAttempts": 1}
    )


# --- reading and ending -----------------------------------------------------------------------


def test_t21_ids_fail_together_and_filters_are_silent(launch: Any, ec2: Any):
    (one,) = launch()
    assert (
        code_of(ec2.describe_instances, InstanceIds=[one["InstanceId"], UNKNOWN])
        == "InvalidInstanceID.NotFound"
    )
    assert code_of(ec2.describe_instances, InstanceIds=["i-12"]) == "InvalidInstanceID.Malformed"
    assert ec2.describe_instances(Filters=[{"Name": "tag:nobody", "Values": ["x"]}])["Reservations"] == []
    assert (
        code_of(ec2.describe_instances, Filters=[{"Name": "no-such", "Values": ["x"]}])
        == "InvalidParameterValue"
    )


def test_t21_order_is_not_stable(launch: Any, ec2: Any):
    launch(MinCount=12, MaxCount=12)
    orders = {
        tuple(i["InstanceId"] for i in ec2.describe_instances()["Reservations"][0]["Instances"])
        for _ in range(4)
    }
    assert len(orders) > 1


def test_t22_pages_cover_all_once(launch: Any, ec2: Any):
    ids = {i["InstanceId"] for i in launch(MinCount=13, MaxCount=13)}
    first = ec2.describe_instances(MaxResults=5)
    assert len(first["Reservations"][0]["Instances"]) == 5
    pages = ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5})
    seen = [i["InstanceId"] for p in pages for r in p["Reservations"] for i in r["Instances"]]
    assert len(seen) == 13
    assert set(seen) == ids
    assert (
        code_of(ec2.describe_instances, InstanceIds=[seen[0]], MaxResults=5) == "InvalidParameterCombination"
    )
    assert code_of(ec2.describe_instances, NextToken="nonsense") == "InvalidParameterValue"


FILTERS = [
    ("tag:from", "template", 2),
    ("tag:from", "temp*", 2),
    ("tag-key", "from", 2),
    ("instance-state-name", "running", 2),
    ("instance-state-name", "stopped", 0),
    ("availability-zone", "us-east-1b", 1),
    ("client-token", "t1", 1),
    ("instance-type", "p5.4?xlarge", 2),
    ("instance-lifecycle", "spot", 0),
    ("image-id", "ami-[0]*", 0),
]


def test_filters(cloud: RunningCloud, launch: Any, ec2: Any, network: Network):
    launch(ClientToken="t1")
    launch(SubnetId=network.subnets["us-east-1b"])
    cloud.clock.move(2)
    for name, value, found in FILTERS:
        listed = ec2.describe_instances(Filters=[{"Name": name, "Values": [value]}])["Reservations"]
        assert len(listed) == found, (name, value)


def test_t23_unknown_id_ends_none_and_protection_spares_its_zone(
    cloud: RunningCloud, launch: Any, ec2: Any, network: Network
):
    (guarded,) = launch(DisableApiTermination=True)
    (other,) = launch(SubnetId=network.subnets["us-east-1b"])
    cloud.clock.move(2)
    ids = [guarded["InstanceId"], other["InstanceId"]]
    assert code_of(ec2.terminate_instances, InstanceIds=[*ids, UNKNOWN]) == "InvalidInstanceID.NotFound"
    assert code_of(ec2.terminate_instances, InstanceIds=ids) == "OperationNotPermitted"
    states = {
        i["InstanceId"]: i["State"]["Name"]
        for r in ec2.describe_instances()["Reservations"]
        for i in r["Instances"]
    }
    assert states == {ids[0]: "running", ids[1]: "shutting-down"}
    ec2.modify_instance_attribute(InstanceId=ids[0], DisableApiTermination={"Value": False})
    (change,) = ec2.terminate_instances(InstanceIds=[ids[0]])["TerminatingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")


def test_t24_terminated_is_seen_for_an_hour_with_tags_and_without_address(
    cloud: RunningCloud, launch: Any, ec2: Any
):
    (one,) = launch()
    ec2.terminate_instances(InstanceIds=[one["InstanceId"]])
    cloud.clock.move(5)
    seen = ec2.describe_instances(Filters=[{"Name": "tag:from", "Values": ["template"]}])["Reservations"][0][
        "Instances"
    ][0]
    assert seen["State"]["Name"] == "terminated"
    assert "PrivateIpAddress" not in seen
    assert seen["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    cloud.clock.move(3600)
    assert code_of(ec2.describe_instances, InstanceIds=[one["InstanceId"]]) == "InvalidInstanceID.NotFound"


def test_t24_stopping_gives_up_the_capacity(cloud: RunningCloud, launch: Any, ec2: Any):
    (one,) = launch()
    cloud.clock.move(2)
    ids = [one["InstanceId"]]
    assert code_of(ec2.start_instances, InstanceIds=[UNKNOWN]) == "InvalidInstanceID.NotFound"
    ec2.stop_instances(InstanceIds=ids)
    assert code_of(ec2.start_instances, InstanceIds=ids) == "IncorrectInstanceState"
    cloud.clock.move(5)
    cloud.model.set_capacity(free=0)
    assert code_of(ec2.start_instances, InstanceIds=ids) == "InsufficientInstanceCapacity"
    cloud.model.set_capacity(free=1)
    assert ec2.start_instances(InstanceIds=ids)["StartingInstances"][0]["CurrentState"]["Name"] == "pending"


def test_user_data_and_machine_change_only_while_stopped(cloud: RunningCloud, launch: Any, ec2: Any):
    (one,) = launch()
    cloud.clock.move(2)
    change = {"InstanceId": one["InstanceId"], "UserData": {"Value": b"new"}}
    assert code_of(ec2.modify_instance_attribute, **change) == "IncorrectInstanceState"
    ec2.stop_instances(InstanceIds=[one["InstanceId"]])
    cloud.clock.move(6)
    ec2.modify_instance_attribute(**change)
    assert cloud.model.instance(one["InstanceId"], cloud.clock.now).spec.user_data == b"new"


def test_root_volume_grows_under_its_machine_and_never_shrinks(launch: Any, ec2: Any):
    (one,) = launch()
    volume = one["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    ec2.modify_volume(VolumeId=volume, Size=20, VolumeType="io2")
    (seen,) = ec2.describe_volumes(VolumeIds=[volume])["Volumes"]
    assert (seen["Size"], seen["VolumeType"]) == (20, "io2")
    assert code_of(ec2.modify_volume, VolumeId=volume, Size=10) == "InvalidParameterValue"


def test_tags_of_instances_and_of_others_in_one_call(launch: Any, ec2: Any, network: Network):
    (one,) = launch()
    both = [one["InstanceId"], network.vpc]
    ec2.create_tags(Resources=both, Tags=[{"Key": "k", "Value": "v"}])
    tags = ec2.describe_tags(Filters=[{"Name": "key", "Values": ["k"]}])["Tags"]
    assert {t["ResourceId"] for t in tags} == set(both)
    ec2.delete_tags(Resources=both, Tags=[{"Key": "k"}])
    assert ec2.describe_tags(Filters=[{"Name": "key", "Values": ["k"]}])["Tags"] == []
    assert code_of(ec2.create_tags, Resources=[UNKNOWN], Tags=TAGS) == "InvalidInstanceID.NotFound"


def test_tags_of_a_volume_are_changed_and_read(cloud: RunningCloud, launch: Any, ec2: Any):
    (one,) = launch(TagSpecifications=[{"ResourceType": "volume", "Tags": TAGS}])
    volume = one["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    interface = one["NetworkInterfaces"][0]["NetworkInterfaceId"]
    ec2.create_tags(Resources=[volume, interface], Tags=[{"Key": "k", "Value": "v"}])
    ec2.delete_tags(Resources=[volume], Tags=[{"Key": "gpucluster:role"}])
    tags = ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0]["Tags"]
    assert {t["Key"] for t in tags} == {"gpucluster:cluster", "k"}
    found = ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [interface]}])["Tags"]
    assert [(t["Key"], t["ResourceType"]) for t in found] == [("k", "network-interface")]


def test_groups_and_profile_change_in_place(cloud: RunningCloud, launch: Any, ec2: Any, network: Network):
    iam = cloud.client("iam")
    iam.create_role(RoleName="later-role", AssumeRolePolicyDocument="{}")
    iam.create_instance_profile(InstanceProfileName="later")
    iam.add_role_to_instance_profile(InstanceProfileName="later", RoleName="later-role")
    (one,) = launch()
    here = [{"Name": "instance-id", "Values": [one["InstanceId"]]}]
    ec2.associate_iam_instance_profile(InstanceId=one["InstanceId"], IamInstanceProfile={"Name": "later"})
    (had,) = ec2.describe_iam_instance_profile_associations(Filters=here)["IamInstanceProfileAssociations"]
    assert had["IamInstanceProfile"]["Arn"].endswith("/later")
    ec2.disassociate_iam_instance_profile(AssociationId=had["AssociationId"])
    assert (
        ec2.describe_iam_instance_profile_associations(Filters=here)["IamInstanceProfileAssociations"] == []
    )
    group = ec2.create_security_group(GroupName="later", Description="x", VpcId=network.vpc)["GroupId"]
    ec2.modify_instance_attribute(InstanceId=one["InstanceId"], Groups=[group])
    assert code_of(ec2.delete_security_group, GroupId=group) == "DependencyViolation"
    assert (
        code_of(ec2.modify_instance_attribute, InstanceId=one["InstanceId"], EbsOptimized={"Value": True})
        == "UnsupportedOperation"
    )


def test_console_output_comes_from_the_launcher(launch: Any, ec2: Any):
    (one,) = launch()
    output = ec2.get_console_output(InstanceId=one["InstanceId"])["Output"]
    assert output == f"console of {one['InstanceId']}\n"


def test_another_region_is_refused(cloud: RunningCloud):
    import boto3

    session: Any = boto3.Session()
    key = cloud.api.operator
    other = session.client("ec2", region_name="eu-west-1", endpoint_url=cloud.endpoint, aws_access_key_id=key.access_key, aws_secret_access_key=key.secret)  # fmt: skip
    assert "us-east-1" in str(error_of(other.describe_vpcs))


# --- taking down ------------------------------------------------------------------------------


def test_t42_group_goes_when_the_last_interface_has_gone(
    cloud: RunningCloud, launch: Any, ec2: Any, network: Network
):
    group = ec2.create_security_group(GroupName="short", Description="x", VpcId=network.vpc)["GroupId"]
    (one,) = launch(SecurityGroupIds=[group])
    ec2.terminate_instances(InstanceIds=[one["InstanceId"]])
    cloud.clock.move(10)
    assert code_of(ec2.delete_security_group, GroupId=group) == "DependencyViolation"
    (left,) = ec2.describe_network_interfaces(Filters=[{"Name": "group-id", "Values": [group]}])[
        "NetworkInterfaces"
    ]
    assert "Attachment" not in left
    cloud.clock.move(60)
    ec2.delete_security_group(GroupId=group)


def test_t42_groups_that_name_each_other_hold_each_other(ec2: Any, network: Network):
    one, two = (
        ec2.create_security_group(GroupName=name, Description="x", VpcId=network.vpc)["GroupId"]
        for name in ("m1", "m2")
    )
    for group, other in ((one, two), (two, one)):
        pair = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": other}]}]
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=pair)
    assert code_of(ec2.delete_security_group, GroupId=one) == "DependencyViolation"
    ec2.revoke_security_group_ingress(
        GroupId=two, IpPermissions=[{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": one}]}]
    )
    ec2.delete_security_group(GroupId=one)
    ec2.delete_security_group(GroupId=two)


def test_security_group_that_refers_to_itself_can_be_deleted(ec2: Any, network: Network):
    group = ec2.create_security_group(GroupName="self", Description="x", VpcId=network.vpc)["GroupId"]
    ec2.authorize_security_group_ingress(
        GroupId=group, IpPermissions=[{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    )
    ec2.delete_security_group(GroupId=group)


def test_t43_network_goes_from_the_inside_out(cloud: RunningCloud, ec2: Any):
    network = a_network(cloud)
    subnet = network.subnets["us-east-1a"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=network.vpc)
    ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": True})
    template = {"LaunchTemplateId": network.template, "Version": "1"}
    (one,) = ec2.run_instances(LaunchTemplate=template, SubnetId=subnet, MinCount=1, MaxCount=1)["Instances"]
    assert one["PublicIpAddress"]
    assert (
        code_of(ec2.detach_internet_gateway, InternetGatewayId=gateway, VpcId=network.vpc)
        == "DependencyViolation"
    )
    assert code_of(ec2.delete_subnet, SubnetId=subnet) == "DependencyViolation"
    assert code_of(ec2.delete_vpc, VpcId=network.vpc) == "DependencyViolation"
    ec2.terminate_instances(InstanceIds=[one["InstanceId"]])
    cloud.clock.move(70)
    ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=network.vpc)
    ec2.delete_security_group(GroupId=network.group)
    for each in network.subnets.values():
        assert code_of(ec2.delete_vpc, VpcId=network.vpc) == "DependencyViolation"
        ec2.delete_subnet(SubnetId=each)
    ec2.delete_vpc(VpcId=network.vpc)


# --- orders -----------------------------------------------------------------------------------


def test_scenario_is_set_by_the_operator_endpoint(cloud: RunningCloud, launch: Any):
    control = cloud.control
    control.set_capacity(zone="us-east-1a", market="on-demand", free=1)
    (one,) = launch()
    assert code_of(launch) == "InsufficientInstanceCapacity"
    control.clear()
    control.next_error("RunInstances", "VcpuLimitExceeded", message="no more")
    assert code_of(launch) == "VcpuLimitExceeded"
    control.withdraw("p5.48xlarge")
    assert code_of(launch) == "Unsupported"
    (shown,) = control.instances()
    assert (shown["id"], shown["machine"]) == (one["InstanceId"], "p5.48xlarge")
    assert [c["code"] for c in control.trail() if c["action"] == "RunInstances"] == [
        "",
        "InsufficientInstanceCapacity",
        "VcpuLimitExceeded",
        "Unsupported",
    ]


def test_invalid_scenario_is_refused_with_a_reason(cloud: RunningCloud):
    from gpucluster.errors import GpuclusterError
    from gpucluster.sandbox.aws.scenario_client import SandboxControl

    with pytest.raises(GpuclusterError, match="invalid literal"):
        cloud.control.set_capacity(free="many")  # type: ignore[arg-type]
    with pytest.raises(GpuclusterError, match="refused"):
        SandboxControl(cloud.endpoint, "AKIAINVENTED00000001", "x").set_capacity(free=0)
    with pytest.raises(GpuclusterError, match="does not answer"):
        SandboxControl("http://127.0.0.1:9", "a", "b").trail()
