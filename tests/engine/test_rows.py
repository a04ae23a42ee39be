"""Tests of every resource type against the sandbox's cloud, without the engine: create, read, update, delete.

All tests share one cloud, because each test creates the resources that it needs.
"""

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from support.engine_stack import REGION, Cluster, a_cluster

from gpucluster.engine.data_sources import LookupRefusedError, look_up
from gpucluster.sandbox.provider.check import check
from gpucluster.sandbox.provider.cloud import Cloud
from gpucluster.sandbox.provider.crud import Crud, HalfMadeError
from gpucluster.sandbox.provider.diff import diff
from gpucluster.sandbox.provider.table import TYPES

ZONE = f"{REGION}a"
EVERYONES = {"gpucluster:cluster": "rows"}


@dataclass(frozen=True)
class Bench:
    """The operations of the table, with Check first as in the engine. Resources are deleted in reverse order."""

    crud: Crud
    messages: list[str] = field(default_factory=list[str])
    made: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def checked(self, token: str, inputs: Mapping[str, Any], olds: Mapping[str, Any] | None = None) -> Any:
        found = check(
            TYPES[token], inputs, olds or {}, name="rows", seed=token.encode(), default_tags=EVERYONES
        )
        assert found.failures == ()
        return found.inputs

    def make(self, token: str, **inputs: Any) -> tuple[str, dict[str, Any]]:
        """Return id and outputs, and check that a read shows no difference."""
        checked = self.checked(token, inputs)
        identifier, outputs = self.crud.create(TYPES[token], checked, 20, self.messages.append)
        self.made.append((token, identifier, checked))
        self.assert_no_difference(token, identifier, checked)
        return identifier, outputs

    def change(self, token: str, identifier: str, olds: Mapping[str, Any], **inputs: Any) -> dict[str, Any]:
        """Return the outputs of an update that replaces nothing and leaves no difference."""
        before, after = self.checked(token, olds), self.checked(token, inputs)
        found = diff(TYPES[token], before, after)
        assert found.changed
        assert found.replaces == ()
        outputs = self.crud.update(TYPES[token], identifier, before, after, 20)
        self.assert_no_difference(token, identifier, after)
        return outputs

    def assert_no_difference(self, token: str, identifier: str, checked: dict[str, Any]) -> None:
        seen = self.crud.read(TYPES[token], identifier, checked, checked)
        assert seen is not None
        found = diff(TYPES[token], seen.inputs, checked).changed
        assert {k: (seen.inputs.get(k), checked.get(k)) for k in found} == {}

    def end(self) -> None:
        """Delete everything in reverse order, twice: the second time is no error."""
        while self.made:
            token, identifier, checked = self.made.pop()
            for _ in range(2):
                self.crud.delete(TYPES[token], identifier, checked, 20)
            assert self.crud.read(TYPES[token], identifier, checked, checked) is None, f"{token} still exists"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    with a_cluster(tmp_path_factory.mktemp("rows"), Path("no-engine-here")) as made:
        yield made


@pytest.fixture
def bench(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Generator[Bench]:
    for name, value in cluster.target.environment.items():
        monkeypatch.setenv(name, value)
    made = Bench(Crud(Cloud(REGION, default_tags=EVERYONES)))
    yield made
    made.end()


@pytest.fixture
def messages(bench: Bench) -> list[str]:
    """Return the progress messages of waits."""
    return bench.messages


VPC = "aws:ec2/vpc:Vpc"
SUBNET = "aws:ec2/subnet:Subnet"
GATEWAY = "aws:ec2/internetGateway:InternetGateway"
EIP = "aws:ec2/eip:Eip"
NAT = "aws:ec2/natGateway:NatGateway"
TABLE = "aws:ec2/routeTable:RouteTable"
ROUTE = "aws:ec2/route:Route"
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
PLACEMENT = "aws:ec2/placementGroup:PlacementGroup"
VOLUME = "aws:ebs/volume:Volume"
ATTACHMENT = "aws:ec2/volumeAttachment:VolumeAttachment"
INSTANCE = "aws:ec2/instance:Instance"
EFS = "aws:efs/fileSystem:FileSystem"
TARGET = "aws:efs/mountTarget:MountTarget"
ACCESS_POINT = "aws:efs/accessPoint:AccessPoint"
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
LINK = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
BUCKET = "aws:s3/bucket:Bucket"
SECRET = "aws:secretsmanager/secret:Secret"
BUDGET = "aws:budgets/budget:Budget"
ROLE = "aws:iam/role:Role"
POLICY = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def a_network(bench: Bench, cidr: str) -> tuple[str, str]:
    vpc, _ = bench.make(VPC, cidrBlock=f"{cidr}.0.0/16", enableDnsSupport=True, enableDnsHostnames=True)
    subnet, _ = bench.make(SUBNET, vpcId=vpc, cidrBlock=f"{cidr}.0.0/24", availabilityZone=ZONE)
    return vpc, subnet


def test_route_changes_its_nat_gateway_in_place(bench: Bench) -> None:
    vpc, subnet = a_network(bench, "10.1")
    bench.make(GATEWAY, vpcId=vpc)
    first, second = (nat_of(bench, subnet) for _ in range(2))
    table, _ = bench.make(TABLE, vpcId=vpc)
    wanted = {"routeTableId": table, "destinationCidrBlock": "0.0.0.0/0"}
    route, _ = bench.make(ROUTE, **wanted, natGatewayId=first)
    changed = bench.change(ROUTE, route, {**wanted, "natGatewayId": first}, **wanted, natGatewayId=second)
    assert changed["natGatewayId"] == second


def nat_of(bench: Bench, subnet: str) -> str:
    address, outputs = bench.make(EIP, domain="vpc", tags={"Name": "a"})
    bench.change(EIP, address, {"domain": "vpc", "tags": {"Name": "a"}}, domain="vpc", tags={"Name": "b"})
    wanted = {"allocationId": address, "subnetId": subnet}
    nat, seen = bench.make(NAT, **wanted)
    assert seen["publicIp"] == outputs["publicIp"]
    bench.change(NAT, nat, wanted, **wanted, tags={"Name": "b"})
    return nat


def test_interface_endpoint_changes_subnets_groups_and_policy_in_place(bench: Bench) -> None:
    vpc, subnet = a_network(bench, "10.2")
    other, _ = bench.make(SUBNET, vpcId=vpc, cidrBlock="10.2.1.0/24", availabilityZone=f"{REGION}b")
    groups = [bench.make(GROUP, vpcId=vpc, description="d", name=name)[0] for name in ("one", "two")]
    wanted = {
        "vpcId": vpc,
        "serviceName": f"com.amazonaws.{REGION}.secretsmanager",
        "vpcEndpointType": "Interface",
        "privateDnsEnabled": True,
    }
    before = {**wanted, "subnetIds": [subnet], "securityGroupIds": [groups[0]]}
    endpoint, _ = bench.make(ENDPOINT, **before)
    after = {**wanted, "subnetIds": [other, subnet], "securityGroupIds": [groups[1]]}
    moved = bench.change(ENDPOINT, endpoint, before, **after)
    assert (set(moved["subnetIds"]), moved["securityGroupIds"]) == ({other, subnet}, [groups[1]])
    policy = '{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}]}'
    guarded = bench.change(ENDPOINT, endpoint, after, **after, policy=policy, tags={"Name": "x"})
    assert json.loads(guarded["policy"]) == json.loads(policy)


def test_placement_group_changes_its_tags_in_place(bench: Bench) -> None:
    group, outputs = bench.make(PLACEMENT, strategy="cluster")
    assert group == outputs["name"]
    bench.change(PLACEMENT, group, {"strategy": "cluster"}, strategy="cluster", tags={"Name": "x"})


def image_of(bench: Bench) -> str:
    return bench.crud.cloud.ec2.describe_images(Owners=["self"])["Images"][0]["ImageId"]


def a_machine(bench: Bench, subnet: str, **more: Any) -> str:
    return bench.make(INSTANCE, ami=image_of(bench), instanceType="m7i.large", subnetId=subnet, **more)[0]


def test_volume_grows_in_place_and_attaches_to_another_machine(bench: Bench) -> None:
    _, subnet = a_network(bench, "10.3")
    machines = [a_machine(bench, subnet) for _ in range(2)]
    wanted = {"availabilityZone": ZONE, "encrypted": True, "type": "gp3"}
    volume, _ = bench.make(VOLUME, **wanted, size=10)
    for machine in machines:
        attached = {"deviceName": "/dev/sdf", "volumeId": volume, "instanceId": machine}
        identifier, _ = bench.make(ATTACHMENT, **attached)
        token, _, checked = bench.made.pop()
        bench.crud.delete(TYPES[token], identifier, checked, 20)
    bench.change(VOLUME, volume, {**wanted, "size": 10}, **wanted, size=20, tags={"Name": "x"})
    assert bench.crud.cloud.ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0]["Size"] == 20


def test_tags_of_the_root_volume_change_in_place(bench: Bench) -> None:
    _, subnet = a_network(bench, "10.4")
    root = {"encrypted": True, "volumeType": "gp3", "volumeSize": 12, "tags": {"Name": "root"}}
    wanted = {"associatePublicIpAddress": True, "rootBlockDevice": root}
    machine = a_machine(bench, subnet, **wanted)
    token, _, checked = bench.made[-1]
    after = {
        **checked,
        "rootBlockDevice": {**root, "tags": {"Name": "other"}},
        "disableApiTermination": False,
    }
    bench.crud.update(TYPES[token], machine, checked, after, 20)
    bench.assert_no_difference(token, machine, after)


def test_efs_mount_target_and_access_point_change_in_place(bench: Bench) -> None:
    vpc, subnet = a_network(bench, "10.5")
    groups = [bench.make(GROUP, vpcId=vpc, description="d", name=name)[0] for name in ("efs", "efs-2")]
    wanted = {"encrypted": True, "throughputMode": "bursting"}
    system, outputs = bench.make(EFS, **wanted)
    assert outputs["dnsName"] == f"{system}.efs.{REGION}.amazonaws.com"
    later = {**wanted, "lifecyclePolicies": [{"transitionToIa": "AFTER_30_DAYS"}], "tags": {"Name": "x"}}
    bench.change(EFS, system, wanted, **later)
    where = {"fileSystemId": system, "subnetId": subnet}
    target, _ = bench.make(TARGET, **where, securityGroups=groups[:1])
    bench.change(TARGET, target, {**where, "securityGroups": groups[:1]}, **where, securityGroups=groups[1:])
    creation = {"ownerUid": 0, "ownerGid": 0, "permissions": "0755"}
    point = {"fileSystemId": system, "rootDirectory": {"path": "/home", "creationInfo": creation}}
    access, _ = bench.make(ACCESS_POINT, **point)
    bench.change(ACCESS_POINT, access, point, **point, tags={"Name": "x"})
    answer = look_up(bench.crud.cloud, "aws:efs/getFileSystem:getFileSystem", {"fileSystemId": system})
    assert (answer["id"], answer["encrypted"], answer["dnsName"]) == (system, True, outputs["dnsName"])


@contextmanager
def lustre_network(bench: Bench, cidr: str) -> Iterator[dict[str, Any]]:
    vpc, subnet = a_network(bench, cidr)
    group, _ = bench.make(GROUP, vpcId=vpc, description="d", name="lustre")
    for first, last in ((988, 988), (1018, 1023)):
        rule = {"securityGroupId": group, "ipProtocol": "tcp", "fromPort": first, "toPort": last}
        for way in (RULE, RULE.replace("Ingress", "Egress")):
            bench.make(way, **rule, referencedSecurityGroupId=group)
    yield {
        "deploymentType": "PERSISTENT_2",
        "storageType": "SSD",
        "perUnitStorageThroughput": 125,
        "subnetIds": subnet,
        "securityGroupIds": [group],
    }


def test_lustre_grows_in_place_and_links_a_bucket(bench: Bench) -> None:
    with lustre_network(bench, "10.6") as wanted:
        system, outputs = bench.make(LUSTRE, **wanted, storageCapacity=1200)
        assert outputs["mountName"]
        assert outputs["dnsName"]
        bench.change(LUSTRE, system, {**wanted, "storageCapacity": 1200}, **wanted, storageCapacity=2400)
        bucket, _ = bench.make(BUCKET, bucket="rows-data")
        link = {"fileSystemId": system, "fileSystemPath": "/data", "dataRepositoryPath": f"s3://{bucket}/d"}
        both = {"autoImportPolicy": {"events": ["NEW"]}, "autoExportPolicy": {"events": ["NEW", "CHANGED"]}}
        joined, _ = bench.make(LINK, **link, s3=both)
        bench.change(LINK, joined, {**link, "s3": both}, **link, s3={"autoImportPolicy": {"events": ["NEW"]}})


def test_deleted_role_detaches_the_site_s_boundary_and_policy(bench: Bench) -> None:
    iam = bench.crud.cloud.iam
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    arn = iam.create_policy(PolicyName="site", PolicyDocument=document)["Policy"]["Arn"]
    trust = {"assumeRolePolicy": document}
    role, _ = bench.make(ROLE, **trust)
    bench.change(ROLE, role, trust, **trust, permissionsBoundary=arn)
    bench.change(ROLE, role, {**trust, "permissionsBoundary": arn}, **trust, description="x")
    bench.make(POLICY, role=role, policyArn=arn)
    bench.end()
    iam.delete_policy(PolicyArn=arn)  # refused while it is attached
    assert iam.list_policies(Scope="Local")["Policies"] == []


def test_budget_changes_addresses(bench: Bench) -> None:
    def notice(address: str, threshold: float) -> dict[str, Any]:
        return {
            "comparisonOperator": "GREATER_THAN",
            "threshold": threshold,
            "thresholdType": "PERCENTAGE",
            "notificationType": "ACTUAL",
            "subscriberEmailAddresses": [address],
        }

    filters = [{"name": "TagKeyValue", "values": ["user:gpucluster:cluster$rows"]}]
    wanted = {"budgetType": "COST", "limitUnit": "USD", "timeUnit": "MONTHLY", "costFilters": filters}
    before = {**wanted, "limitAmount": "100", "notifications": [notice("a@example.org", 80)]}
    budget, _ = bench.make(BUDGET, **before)
    after = {**wanted, "limitAmount": "200.5", "notifications": [notice("b@example.org", 80.0)]}
    changed = bench.change(BUDGET, budget, before, **after)
    assert changed["limitAmount"] == "200.5"
    assert [n["subscriberEmailAddresses"] for n in changed["notifications"]] == [["b@example.org"]]


def test_template_sets_interfaces_and_placement(bench: Bench) -> None:
    cards = [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface", "securityGroups": ["sg-1"]},
        {"networkCardIndex": 1, "deviceIndex": 0, "interfaceType": "efa-only", "securityGroups": ["sg-1"]},
    ]
    before = {"imageId": "ami-1", "networkInterfaces": cards[:1]}
    template, _ = bench.make(TEMPLATE, **before)
    after = {"imageId": "ami-1", "networkInterfaces": cards, "placement": {"groupName": "g"}}
    outputs = bench.change(TEMPLATE, template, before, **after)
    assert outputs["latestVersion"] == 2
    assert outputs["networkInterfaces"] == cards


def test_lookups_return_the_site_s_network(bench: Bench) -> None:
    vpc, subnet = a_network(bench, "10.7")
    found = look_up(bench.crud.cloud, "aws:ec2/getVpc:getVpc", {"id": vpc})
    assert (found["enableDnsSupport"], found["enableDnsHostnames"], found["id"]) == (True, True, vpc)
    seen = look_up(bench.crud.cloud, "aws:ec2/getSubnet:getSubnet", {"id": subnet})
    assert (seen["vpcId"], seen["availabilityZone"], seen["availableIpAddressCount"]) == (vpc, ZONE, 251)


@pytest.mark.parametrize(
    ("token", "arguments", "message"),
    [
        ("aws:ec2/getVpc:getVpc", {"id": "vpc-00000000"}, f"there is no vpc-00000000 in {REGION}"),
        ("aws:ec2/getSubnet:getSubnet", {"id": "subnet-00000000"}, "there is no subnet-00000000"),
        ("aws:efs/getFileSystem:getFileSystem", {"fileSystemId": "fs-00000000"}, "there is no fs-00000000"),
        (
            "aws:ec2/getVpc:getVpc",
            {"default": True},
            "getVpc: expected the argument 'id' alone, found default",
        ),
    ],
)
def test_failed_lookup_names_resource(
    bench: Bench, token: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(LookupRefusedError, match=message):
        look_up(bench.crud.cloud, token, arguments)


# --- the previous resource is still being deleted ------------------------------------------
def test_t42_creation_waits_for_address_of_terminating_instance(bench: Bench, cluster: Cluster) -> None:
    _, subnet = a_network(bench, "10.21")
    first, model, messages = a_machine(bench, subnet, privateIp="10.21.0.10"), cluster.api.model, list[str]()
    usual = model.timing
    model.timing = replace(usual, ending_s=3600.0)
    bench.crud.cloud.ec2.terminate_instances(InstanceIds=[first])

    def report(line: str) -> None:
        messages.append(line)
        model.timing = replace(usual, linger_s=1.0)

    wanted = {
        "ami": image_of(bench),
        "instanceType": "m7i.large",
        "subnetId": subnet,
        "privateIp": "10.21.0.10",
    }
    second, _ = bench.crud.create(TYPES[INSTANCE], checked := bench.checked(INSTANCE, wanted), 20, report)
    bench.made.append((INSTANCE, second, checked))
    model.timing = usual
    assert second != first
    assert messages[0] == f"waiting for the address 10.21.0.10: {first} is shutting-down"


def test_t42_address_of_running_instance_is_refused_at_once(bench: Bench, messages: list[str]) -> None:
    _, subnet = a_network(bench, "10.22")
    first = a_machine(bench, subnet, privateIp="10.22.0.10")
    with pytest.raises(RuntimeError, match=rf"InvalidIPAddress\.InUse.*it is used by {first} is running"):
        a_machine(bench, subnet, privateIp="10.22.0.10")
    assert messages == []


def test_t42_wait_for_address_has_timeout(bench: Bench, cluster: Cluster) -> None:
    _, subnet = a_network(bench, "10.23")
    first = a_machine(bench, subnet, privateIp="10.23.0.10")
    bench.crud.cloud.ec2.terminate_instances(InstanceIds=[first])
    wanted = {
        "ami": image_of(bench),
        "instanceType": "m7i.large",
        "subnetId": subnet,
        "privateIp": "10.23.0.10",
    }
    with pytest.raises(RuntimeError, match=r"not free after 0\.2 s"):
        bench.crud.create(TYPES[INSTANCE], bench.checked(INSTANCE, wanted), 0.2)


def test_t44_creation_waits_for_deleted_mount_target(bench: Bench) -> None:
    _, subnet = a_network(bench, "10.24")
    system, _ = bench.make(EFS, encrypted=True)
    first, _ = bench.make(TARGET, fileSystemId=system, subnetId=subnet)
    bench.crud.cloud.efs.delete_mount_target(MountTargetId=first)
    second, _ = bench.make(TARGET, fileSystemId=system, subnetId=subnet)
    assert second != first
    with pytest.raises(ClientError, match="MountTargetConflict"):
        bench.make(TARGET, fileSystemId=system, subnetId=subnet)


def test_t38_creation_waits_for_name_of_deleted_secret(bench: Bench) -> None:
    secrets = bench.crud.cloud.secrets
    wanted = {"name": "rows-again", "recoveryWindowInDays": 0}
    for _ in range(2):
        token, (identifier, _) = SECRET, bench.make(SECRET, **wanted)
        _, _, checked = bench.made.pop()
        bench.crud.delete(TYPES[token], identifier, checked, 20)
    with pytest.raises(ClientError, match="scheduled for deletion"):
        secrets.create_secret(Name="rows-again")


def test_t39_creation_waits_for_deleted_bucket(bench: Bench, cluster: Cluster) -> None:
    cluster.api.model.faults.next_error("CreateBucket", "OperationAborted", times=2, status=409)
    assert bench.make(BUCKET, bucket="rows-again")[0] == "rows-again"


def test_t24_volume_detaches_from_terminating_instance_without_stop(bench: Bench, cluster: Cluster) -> None:
    _, subnet = a_network(bench, "10.25")
    machine, model = a_machine(bench, subnet), cluster.api.model
    volume, _ = bench.make(VOLUME, availabilityZone=ZONE, encrypted=True, type="gp3", size=10)
    attached = {"deviceName": "/dev/sdf", "volumeId": volume, "instanceId": machine}
    identifier, _ = bench.make(ATTACHMENT, **attached, stopInstanceBeforeDetaching=True)
    token, _, checked = bench.made.pop()
    usual = model.timing
    model.timing = replace(usual, ending_s=1.0)
    bench.crud.cloud.ec2.terminate_instances(InstanceIds=[machine])
    bench.crud.delete(TYPES[token], identifier, checked, 20)
    model.timing = usual
    assert bench.crud.cloud.ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0]["Attachments"] == []


def test_t36_instance_with_new_profile_is_created_once(bench: Bench, cluster: Cluster) -> None:
    _, subnet = a_network(bench, "10.26")
    words = "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
    cluster.api.model.faults.next_error("RunInstances", "InvalidParameterValue", times=2, message=words)
    machine = a_machine(bench, subnet)
    where = [{"Name": "subnet-id", "Values": [subnet]}]
    found = bench.crud.cloud.ec2.describe_instances(Filters=where)["Reservations"]
    assert [i["InstanceId"] for r in found for i in r["Instances"]] == [machine]


# --- a customer-managed key ------------------------------------------------------------------
ENCRYPTION = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"


def test_resources_keep_the_key_that_they_name(bench: Bench) -> None:
    """Each read shows the key, so a second `up` changes nothing."""
    key = bench.crud.cloud.client("kms").create_key()["KeyMetadata"]["Arn"]
    _, subnet = a_network(bench, "10.26")
    a_machine(bench, subnet, rootBlockDevice={"encrypted": True, "volumeType": "gp3", "kmsKeyId": key})
    _, volume = bench.make(VOLUME, availabilityZone=ZONE, encrypted=True, type="gp3", size=10, kmsKeyId=key)
    _, file_system = bench.make(EFS, encrypted=True, kmsKeyId=key)
    secret, _ = bench.make(SECRET, recoveryWindowInDays=0)
    changed = bench.change(SECRET, secret, {"recoveryWindowInDays": 0}, recoveryWindowInDays=0, kmsKeyId=key)
    assert [found["kmsKeyId"] for found in (volume, file_system, changed)] == [key] * 3
    bucket, _ = bench.make(BUCKET)
    default = {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": key}
    rules = [{"applyServerSideEncryptionByDefault": default, "bucketKeyEnabled": True}]
    bench.make(ENCRYPTION, bucket=bucket, rules=rules)


def test_machine_with_a_disabled_key_ends_the_update_with_ec2s_reason(bench: Bench) -> None:
    kms = bench.crud.cloud.client("kms")
    key = kms.create_key()["KeyMetadata"]
    kms.disable_key(KeyId=key["KeyId"])
    _, subnet = a_network(bench, "10.27")
    root = {"encrypted": True, "volumeType": "gp3", "kmsKeyId": key["Arn"]}
    with pytest.raises(
        HalfMadeError, match=r"is terminated: Client\.InvalidKMSKey\.InvalidState: The KMS key"
    ):
        a_machine(bench, subnet, rootBlockDevice=root)
