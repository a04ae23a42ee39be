"""EFS, FSx for Lustre, Service Quotas and Budgets over HTTP: errors and delays."""

import json
from collections.abc import Callable, Generator
from typing import Any
from urllib.parse import urlencode

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from support.clouds import Network, RunningCloud, a_network, ask, code_of, running_cloud

from gpucluster.plan.model import Market
from gpucluster.plan.names import LUSTRE_PORTS
from gpucluster.sandbox.aws.ec2.state.values import Timing

pytestmark = pytest.mark.loopback
ZONE, OTHER = "us-east-1a", "us-east-1b"
TIMING = Timing(system_s=1.0, target_s=4.0, lustre_s=600.0, link_s=5.0, rules_s=2.0)
ACCOUNT = "123456789012"


@pytest.fixture(scope="module")
def running() -> Generator[tuple[RunningCloud, Network], None, None]:
    with running_cloud(timing=TIMING) as cloud:
        yield cloud, a_network(cloud)


# --- EFS --------------------------------------------------------------------------------------


@pytest.fixture
def system(cloud: RunningCloud) -> str:
    made = cloud.client("efs").create_file_system(CreationToken=f"t{cloud.clock.now}", Encrypted=True)
    assert (made["LifeCycleState"], made["Encrypted"]) == ("creating", True)
    return made["FileSystemId"]


def test_t44_one_mount_target_a_zone_and_it_takes_a_while(cloud: RunningCloud, network: Network, system: str):
    efs, ec2 = cloud.client("efs"), cloud.client("ec2")
    there = {"FileSystemId": system, "SubnetId": network.subnets[ZONE]}
    assert code_of(efs.create_mount_target, **there) == "IncorrectFileSystemLifeCycleState"
    cloud.clock.move(1)
    made = efs.create_mount_target(**there, SecurityGroups=[network.group])
    assert made["LifeCycleState"] == "creating"
    cloud.clock.move(4)
    (seen,) = efs.describe_mount_targets(FileSystemId=system)["MountTargets"]
    assert (seen["LifeCycleState"], seen["AvailabilityZoneName"]) == ("available", ZONE)
    assert seen["IpAddress"].startswith("10.42.0.")
    second = ec2.create_subnet(VpcId=network.vpc, CidrBlock="10.42.7.0/28", AvailabilityZone=ZONE)["Subnet"]
    assert (
        code_of(efs.create_mount_target, FileSystemId=system, SubnetId=second["SubnetId"])
        == "MountTargetConflict"
    )
    efs.create_mount_target(FileSystemId=system, SubnetId=network.subnets[OTHER])
    ec2.delete_subnet(SubnetId=second["SubnetId"])


def test_t44_file_system_in_use_stays_and_a_target_goes_by_and_by(
    cloud: RunningCloud, network: Network, system: str
):
    efs, ec2 = cloud.client("efs"), cloud.client("ec2")
    cloud.clock.move(1)
    group = ec2.create_security_group(GroupName=system, Description="x", VpcId=network.vpc)["GroupId"]
    target = efs.create_mount_target(
        FileSystemId=system, SubnetId=network.subnets[ZONE], SecurityGroups=[group]
    )["MountTargetId"]
    assert code_of(efs.delete_file_system, FileSystemId=system) == "FileSystemInUse"
    assert code_of(ec2.delete_security_group, GroupId=group) == "DependencyViolation"
    efs.delete_mount_target(MountTargetId=target)
    assert code_of(efs.delete_file_system, FileSystemId=system) == "FileSystemInUse", "it is deleting"
    cloud.clock.move(4)
    efs.delete_file_system(FileSystemId=system)
    ec2.delete_security_group(GroupId=group)
    assert code_of(efs.describe_file_systems, FileSystemId=system) == "FileSystemNotFound"


def test_t44_token_a_zone_and_a_full_subnet_are_refused_in_its_words(
    cloud: RunningCloud, network: Network, system: str
):
    efs, ec2 = cloud.client("efs"), cloud.client("ec2")
    token = efs.describe_file_systems(FileSystemId=system)["FileSystems"][0]["CreationToken"]
    assert code_of(efs.create_file_system, CreationToken=token) == "FileSystemAlreadyExists"
    one_zone = efs.create_file_system(CreationToken="one", AvailabilityZoneName=OTHER)["FileSystemId"]
    cloud.clock.move(1)
    there = {"FileSystemId": one_zone, "SubnetId": network.subnets[ZONE]}
    assert code_of(efs.create_mount_target, **there) == "AvailabilityZonesMismatch"
    taken = cloud.model.interfaces(cloud.clock.now)
    target = efs.create_mount_target(FileSystemId=system, SubnetId=network.subnets[ZONE])
    assert len(cloud.model.interfaces(cloud.clock.now)) == len(taken) + 1
    other = efs.create_file_system(CreationToken="two")["FileSystemId"]
    cloud.clock.move(1)
    again = {"FileSystemId": other, "SubnetId": network.subnets[ZONE], "IpAddress": target["IpAddress"]}
    assert code_of(efs.create_mount_target, **again) == "IpAddressInUse"
    assert code_of(efs.create_file_system, CreationToken="x", AvailabilityZoneName="us-east-1z") == (
        "UnsupportedAvailabilityZone"
    )
    assert (
        ec2.describe_subnets(SubnetIds=[network.subnets[ZONE]])["Subnets"][0]["AvailableIpAddressCount"] < 251
    )


def test_access_points_lifecycles_and_tags_are_kept(cloud: RunningCloud, system: str):
    efs = cloud.client("efs")
    cloud.clock.move(1)
    efs.put_lifecycle_configuration(
        FileSystemId=system, LifecyclePolicies=[{"TransitionToIA": "AFTER_30_DAYS"}]
    )
    seen = efs.describe_lifecycle_configuration(FileSystemId=system)["LifecyclePolicies"]
    assert seen == [{"TransitionToIA": "AFTER_30_DAYS"}]
    user = {"Uid": 1000, "Gid": 1000}
    point = efs.create_access_point(
        ClientToken="p", FileSystemId=system, PosixUser=user, Tags=[{"Key": "a", "Value": "b"}],
        RootDirectory={"Path": "/home"},
    )["AccessPointId"]  # fmt: skip
    efs.tag_resource(ResourceId=point, Tags=[{"Key": "c", "Value": "d"}])
    efs.untag_resource(ResourceId=point, TagKeys=["a"])
    (found,) = efs.describe_access_points(AccessPointId=point)["AccessPoints"]
    assert (found["PosixUser"], found["Tags"]) == (user, [{"Key": "c", "Value": "d"}])
    efs.update_file_system(FileSystemId=system, ThroughputMode="elastic")
    assert efs.describe_file_systems(FileSystemId=system)["FileSystems"][0]["ThroughputMode"] == "elastic"
    efs.delete_access_point(AccessPointId=point)
    assert code_of(efs.describe_access_points, AccessPointId=point) == "AccessPointNotFound"


# --- FSx --------------------------------------------------------------------------------------


@pytest.fixture
def lustre_group(cloud: RunningCloud, network: Network) -> str:
    ec2 = cloud.client("ec2")
    group = ec2.create_security_group(
        GroupName=f"l{cloud.clock.now}", Description="lustre", VpcId=network.vpc
    )["GroupId"]
    pairs = [{"GroupId": group}]
    rules = [
        {"IpProtocol": "tcp", "FromPort": a, "ToPort": b, "UserIdGroupPairs": pairs} for a, b in LUSTRE_PORTS
    ]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=rules)
    return group


Make = Callable[..., dict[str, Any]]


@pytest.fixture
def make(cloud: RunningCloud, network: Network, lustre_group: str) -> Make:
    def create(**change: Any) -> dict[str, Any]:
        lustre = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125}
        asked: dict[str, Any] = {
            "FileSystemType": "LUSTRE", "StorageCapacity": 1200, "SubnetIds": [network.subnets[ZONE]],
            "SecurityGroupIds": [lustre_group], "LustreConfiguration": lustre,
        }  # fmt: skip
        return cloud.client("fsx").create_file_system(**{**asked, **change})["FileSystem"]

    return create


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"StorageCapacity": 1300}, "BadRequest"),
        ({"StorageCapacity": 3600}, "BadRequest"),
        ({"LustreConfiguration": {"DeploymentType": "PERSISTENT_2"}}, "BadRequest"),
        ({"LustreConfiguration": {"DeploymentType": "SCRATCH_2"}, "StorageCapacity": 3600}, "BadRequest"),
        ({"SubnetIds": ["subnet-0123456789abcdef0"]}, "InvalidNetworkSettings"),
    ],
)
def test_t45_sizes_throughput_and_subnet_must_fit(cloud: RunningCloud, make: Make, change: Any, code: str):
    cloud.clock.move(2)
    assert code_of(make, **change) == code


def test_t45_group_must_let_lustre_through_by_rules_that_are_not_young(
    cloud: RunningCloud, network: Network, make: Make
):
    assert code_of(make, SecurityGroupIds=[network.group]) == "InvalidNetworkSettings"
    assert code_of(make) == "InvalidNetworkSettings", "its rules are a second old"
    cloud.clock.move(2)
    assert make()["Lifecycle"] == "CREATING"


def test_t45_it_is_creating_for_ten_minutes_grows_only_and_holds_its_network(
    cloud: RunningCloud, network: Network, make: Make, lustre_group: str
):
    fsx, ec2, s3 = cloud.client("fsx"), cloud.client("ec2"), cloud.client("s3")
    cloud.clock.move(2)
    made = make(ClientRequestToken="once", Tags=[{"Key": "a", "Value": "b"}])
    name = made["FileSystemId"]
    assert make(ClientRequestToken="once", Tags=[{"Key": "a", "Value": "b"}])["FileSystemId"] == name
    assert code_of(make, ClientRequestToken="once") == "IncompatibleParameterError"
    s3.create_bucket(Bucket="data")
    link = {"FileSystemId": name, "FileSystemPath": "/d", "DataRepositoryPath": "s3://data/x"}
    assert code_of(fsx.create_data_repository_association, **link) == "BadRequest", "it is not there yet"
    cloud.clock.move(599)
    assert state_of(fsx, name) == "CREATING"
    cloud.clock.move(1)
    assert state_of(fsx, name) == "AVAILABLE"
    assert "SecurityGroupIds" not in fsx.describe_file_systems(FileSystemIds=[name])["FileSystems"][0]
    assert code_of(ec2.delete_security_group, GroupId=lustre_group) == "DependencyViolation"
    fsx.update_file_system(FileSystemId=name, StorageCapacity=2400)
    assert code_of(fsx.update_file_system, FileSystemId=name, StorageCapacity=1200) == "BadRequest"
    one = fsx.create_data_repository_association(**link)["Association"]["AssociationId"]
    assert (
        code_of(fsx.create_data_repository_association, **{**link, "FileSystemPath": "/d/e"}) == "BadRequest"
    )
    cloud.clock.move(5)
    (seen,) = fsx.describe_data_repository_associations(AssociationIds=[one])["Associations"]
    assert seen["Lifecycle"] == "AVAILABLE"
    fsx.delete_file_system(FileSystemId=name)
    assert state_of(fsx, name) == "DELETING"
    cloud.clock.move(5)
    assert code_of(fsx.describe_file_systems, FileSystemIds=[name]) == "FileSystemNotFound"
    assert code_of(fsx.describe_data_repository_associations, AssociationIds=[one]) == (
        "DataRepositoryAssociationNotFound"
    )
    ec2.delete_security_group(GroupId=lustre_group)


def state_of(fsx: Any, name: str) -> str:
    return fsx.describe_file_systems(FileSystemIds=[name])["FileSystems"][0]["Lifecycle"]


# --- roles ------------------------------------------------------------------------------------


def test_t37_role_goes_when_nothing_hangs_on_it(cloud: RunningCloud):
    iam = cloud.client("iam")
    allow: dict[str, Any] = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    iam.create_role(
        RoleName="t37", AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    )
    document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    iam.put_role_policy(RoleName="t37", PolicyName="p", PolicyDocument=document)
    iam.create_instance_profile(InstanceProfileName="t37")
    iam.add_role_to_instance_profile(InstanceProfileName="t37", RoleName="t37")
    assert code_of(iam.delete_instance_profile, InstanceProfileName="t37") == "DeleteConflict"
    assert code_of(iam.delete_role, RoleName="t37") == "DeleteConflict", "it is in a profile"
    iam.remove_role_from_instance_profile(InstanceProfileName="t37", RoleName="t37")
    assert code_of(iam.delete_role, RoleName="t37") == "DeleteConflict", "it has a policy"
    iam.delete_role_policy(RoleName="t37", PolicyName="p")
    iam.delete_role(RoleName="t37")
    iam.delete_instance_profile(InstanceProfileName="t37")


# --- quotas and budgets -----------------------------------------------------------------------


def test_t09_quota_is_returned_by_its_code(cloud: RunningCloud):
    quotas = cloud.client("service-quotas")
    cloud.model.set_quota("P", Market.ON_DEMAND, 191)
    found = quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-417A185B")["Quota"]
    assert (found["Value"], found["QuotaName"]) == (191.0, "Running On-Demand P instances")
    listed = (
        quotas.get_paginator("list_service_quotas").paginate(ServiceCode="ec2").build_full_result()["Quotas"]
    )
    assert {q["QuotaCode"]: q["Value"] for q in listed}["L-417A185B"] == 191.0
    assert len(listed) == 7
    unknown = {"ServiceCode": "ec2", "QuotaCode": "L-00000000"}
    assert code_of(quotas.get_service_quota, **unknown) == "NoSuchResourceException"


def test_budget_keeps_its_values(cloud: RunningCloud):
    budgets = cloud.client("budgets")
    limit = {"Amount": "100", "Unit": "USD"}
    budget = {"BudgetName": "b", "BudgetLimit": limit, "TimeUnit": "MONTHLY", "BudgetType": "COST"}
    notice = {"NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "Threshold": 80.0}
    people = [{"SubscriptionType": "EMAIL", "Address": "a@example.org"}]
    named = {"AccountId": ACCOUNT, "BudgetName": "b"}
    budgets.create_budget(
        AccountId=ACCOUNT,
        Budget=budget,
        NotificationsWithSubscribers=[{"Notification": notice, "Subscribers": people}],
    )
    assert code_of(budgets.create_budget, AccountId=ACCOUNT, Budget=budget) == "DuplicateRecordException"
    assert budgets.describe_budget(**named)["Budget"]["BudgetLimit"] == limit
    assert (
        budgets.describe_subscribers_for_notification(**named, Notification=notice)["Subscribers"] == people
    )
    budgets.update_budget(
        AccountId=ACCOUNT, NewBudget={**budget, "BudgetLimit": {"Amount": "200", "Unit": "USD"}}
    )
    assert budgets.describe_budget(**named)["Budget"]["BudgetLimit"]["Amount"] == "200"
    budgets.delete_notification(**named, Notification=notice)
    assert budgets.describe_notifications_for_budget(**named)["Notifications"] == []
    budgets.delete_budget(**named)
    assert code_of(budgets.describe_budget, **named) == "NotFoundException"


# --- requests are judged by botocore's models -------------------------------------------------

BAD_REQUESTS = [
    ("ec2", "DescribeVpcs", {"VpcIdd": "vpc-1"}, "UnknownParameter"),
    ("ec2", "DeleteVpc", {}, "MissingParameter"),
    ("ec2", "CreateVolume", {"AvailabilityZone": ZONE, "Size": "many"}, "InvalidParameterValue"),
    ("ec2", "MakeCoffee", {}, "InvalidAction"),
    ("iam", "GetRole", {}, "MissingParameter"),
    ("iam", "GetRole", {"RoleName": "x", "Rolename": "y"}, "UnknownParameter"),
]


@pytest.mark.parametrize(("service", "operation", "fields", "code"), BAD_REQUESTS)
def test_invalid_query_parameter_is_refused_by_name(
    cloud: RunningCloud, service: str, operation: str, fields: dict[str, str], code: str
):
    version = {"ec2": "2016-11-15", "iam": "2010-05-08"}[service]
    text = urlencode({"Action": operation, "Version": version, **fields})
    kind = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    status, body = ask(*signed(cloud, service, text.encode(), kind))
    assert status == 400
    assert f"<Code>{code}</Code>" in body.decode()


@pytest.mark.parametrize(
    ("service", "target", "asked", "words"),
    [
        ("secretsmanager", "secretsmanager.CreateSecret", {"Nome": "x"}, "ValidationException"),
        ("secretsmanager", "secretsmanager.CreateSecret", {"Name": 7}, "ValidationException"),
        ("events", "AWSEvents.PutRule", {"Name": ""}, "ValidationException"),
        ("fsx", "AWSSimbaAPIService_v20180301.CreateFileSystem", {}, "ValidationException"),
        ("budgets", "AWSBudgetServiceGateway.Brew", {}, "UnknownOperationException"),
        ("sqs", "AmazonSQS.CreateQueue", [], "SerializationException"),
    ],
)
def test_invalid_json_parameter_is_refused_by_name(
    cloud: RunningCloud, service: str, target: str, asked: Any, words: str
):
    kind = {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"}
    status, body = ask(*signed(cloud, service, json.dumps(asked).encode(), kind))
    assert (status, json.loads(body)["__type"]) == (400, words)


def signed(cloud: RunningCloud, service: str, body: bytes, headers: dict[str, str]) -> tuple[Any, ...]:
    key = cloud.api.operator
    request = AWSRequest(method="POST", url=cloud.endpoint + "/", data=body, headers=headers)
    SigV4Auth(Credentials(key.access_key, key.secret), service, "us-east-1").add_auth(request)
    return cloud.endpoint + "/", "POST", body, dict(request.headers.items())


@pytest.mark.parametrize(
    ("service", "call", "arguments"),
    [
        ("ec2", "get_spot_placement_scores", {"TargetCapacity": 1}),
        ("ec2", "create_snapshot", {"VolumeId": "vol-0123456789abcdef0"}),
        ("fsx", "create_backup", {}),
        ("efs", "put_account_preferences", {"ResourceIdType": "LONG_ID"}),
        ("iam", "simulate_principal_policy", {"PolicySourceArn": f"arn:aws:iam::{ACCOUNT}:role/x", "ActionNames": ["a:b"]}),
    ],
)  # fmt: skip
def test_unsupported_operation_is_refused_by_name(
    cloud: RunningCloud, service: str, call: str, arguments: dict[str, Any]
):
    client = cloud.client(service)
    with pytest.raises(ClientError, match="the sandbox has no ") as caught:
        getattr(client, call)(**arguments)
    error: Any = caught.value
    assert error.response["Error"]["Code"] == "UnsupportedOperation"


def _many(count: int) -> list[dict[str, str]]:
    return [{"Key": f"k{number}", "Value": "v"} for number in range(count)]


def _object_tags(cloud: RunningCloud, count: int) -> Callable[[], Any]:
    s3 = cloud.client("s3")
    s3.create_bucket(Bucket="tagged")
    tagging = "&".join(f"{t['Key']}={t['Value']}" for t in _many(count))
    return lambda: s3.put_object(Bucket="tagged", Key="one", Body=b"", Tagging=tagging)


def _later_object_tags(cloud: RunningCloud, count: int) -> Callable[[], Any]:
    s3 = cloud.client("s3")
    s3.create_bucket(Bucket="tagged")
    s3.put_object(Bucket="tagged", Key="one", Body=b"")
    return lambda: s3.put_object_tagging(Bucket="tagged", Key="one", Tagging={"TagSet": _many(count)})


def _bucket_tags(cloud: RunningCloud, count: int) -> Callable[[], Any]:
    s3 = cloud.client("s3")
    s3.create_bucket(Bucket="tagged")
    return lambda: s3.put_bucket_tagging(Bucket="tagged", Tagging={"TagSet": _many(count)})


def _queue_tags(cloud: RunningCloud, count: int) -> Callable[[], Any]:
    tags = {t["Key"]: t["Value"] for t in _many(count)}
    return lambda: cloud.client("sqs").create_queue(QueueName="tagged", tags=tags)


TAGGED: dict[str, tuple[Callable[[RunningCloud, int], Callable[[], Any]], int, str]] = {
    "an S3 object": (_object_tags, 10, "BadRequest"),
    "an S3 object that exists": (_later_object_tags, 10, "BadRequest"),
    "an S3 bucket": (_bucket_tags, 50, "BadRequest"),
    "a queue": (_queue_tags, 50, "InvalidParameterValue"),
    "a secret": (
        lambda cloud, count: lambda: cloud.client("secretsmanager").create_secret(Name="tagged", Tags=_many(count)),
        50,
        "InvalidParameterException",
    ),
    "a file system": (
        lambda cloud, count: lambda: cloud.client("efs").create_file_system(
            CreationToken=f"tagged-{count}", Tags=_many(count)
        ),
        50,
        "BadRequest",
    ),
    "a rule": (
        lambda cloud, count: lambda: cloud.client("events").put_rule(
            Name="tagged", EventPattern="{}", Tags=_many(count)
        ),
        50,
        "LimitExceededException",
    ),
    "a key": (
        lambda cloud, count: lambda: cloud.client("kms").create_key(
            Tags=[{"TagKey": one["Key"], "TagValue": one["Value"]} for one in _many(count)]
        ),
        50,
        "TagException",
    ),
    "a log group": (
        lambda cloud, count: lambda: cloud.client("logs").create_log_group(
            logGroupName=f"tagged-{count}", tags={one["Key"]: one["Value"] for one in _many(count)}
        ),
        50,
        "InvalidParameterException",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAGGED)
def test_t17_one_tag_more_than_the_service_takes(name: str):
    call, most, code = TAGGED[name]
    with running_cloud() as cloud:
        call(cloud, most)()
    with running_cloud() as cloud:
        assert code_of(call(cloud, most + 1)) == code


def _small_subnet(cloud: RunningCloud) -> tuple[str, str]:
    """A subnet with 11 free addresses. The test uses the last one."""
    ec2 = cloud.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    made = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/28", AvailabilityZone=ZONE)
    return made["Subnet"]["SubnetId"], "10.9.0.14"


def _drawn_by_targets(cloud: RunningCloud, subnet: str, count: int) -> set[str]:
    efs, found = cloud.client("efs"), set[str]()
    for number in range(count):
        system = efs.create_file_system(CreationToken=f"draw-{number}")["FileSystemId"]
        cloud.clock.move(5)
        found.add(efs.create_mount_target(FileSystemId=system, SubnetId=subnet)["IpAddress"])
    return found


def test_t10_mount_target_can_draw_the_address_of_a_head():
    """AWS chooses any free address for a service that names none."""
    with running_cloud(timing=TIMING) as cloud:
        subnet, address = _small_subnet(cloud)
        assert address in _drawn_by_targets(cloud, subnet, 11)


def test_t10_reserved_address_is_for_those_who_name_it():
    with running_cloud(timing=TIMING) as cloud:
        subnet, address = _small_subnet(cloud)
        ec2 = cloud.client("ec2")
        made = ec2.create_subnet_cidr_reservation(
            SubnetId=subnet, Cidr=f"{address}/32", ReservationType="explicit"
        )["SubnetCidrReservation"]
        assert address not in _drawn_by_targets(cloud, subnet, 10)
        efs = cloud.client("efs")
        system = efs.create_file_system(CreationToken="full")["FileSystemId"]
        cloud.clock.move(5)
        full = {"FileSystemId": system, "SubnetId": subnet}
        assert code_of(efs.create_mount_target, **full) == "NoFreeAddressesInSubnet"
        assert efs.create_mount_target(**full, IpAddress=address)["IpAddress"] == address
        (seen,) = ec2.get_subnet_cidr_reservations(SubnetId=subnet)["SubnetIpv4CidrReservations"]
        assert (seen["Cidr"], seen["ReservationType"]) == (f"{address}/32", "explicit")
        ec2.delete_subnet_cidr_reservation(SubnetCidrReservationId=made["SubnetCidrReservationId"])
