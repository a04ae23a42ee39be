"""A customer-managed key that is missing or disabled: each service refuses as AWS does, after or before its answer (T51)."""

import json
from collections.abc import Generator
from typing import Any

import pytest
from support.clouds import Network, RunningCloud, a_network, code_of, error_of, running_cloud

from gpucluster.cloud.aws import view

pytestmark = pytest.mark.loopback
INVALID = "Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state"
MISSING = "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000"


@pytest.fixture(scope="module")
def cloud() -> Generator[RunningCloud]:
    with running_cloud() as found:
        yield found


@pytest.fixture(scope="module")
def network(cloud: RunningCloud) -> Network:
    return a_network(cloud)


def a_key(cloud: RunningCloud, *, disabled: bool = False) -> str:
    kms = cloud.client("kms")
    arn = kms.create_key()["KeyMetadata"]["Arn"]
    if disabled:
        kms.disable_key(KeyId=arn.rpartition("/")[2])  # moto takes no ARN here
    return arn


def launched(cloud: RunningCloud, network: Network, **ebs: Any) -> Any:
    """Return the instance as EC2 lists it after a launch. The launch itself always succeeds."""
    ec2 = cloud.client("ec2")
    (made,) = ec2.run_instances(
        LaunchTemplate={"LaunchTemplateId": network.template, "Version": "1"},
        SubnetId=network.subnets["us-east-1a"],
        BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"Encrypted": True, **ebs}}],
        MinCount=1,
        MaxCount=1,
    )["Instances"]
    assert made["State"]["Name"] == "pending"
    (found,) = ec2.describe_instances(InstanceIds=[made["InstanceId"]])["Reservations"][0]["Instances"]
    return found


def test_instance_with_a_valid_key_runs_and_names_it(cloud: RunningCloud, network: Network) -> None:
    key = a_key(cloud.fresh())
    found = launched(cloud, network, KmsKeyId=key)
    assert found["State"]["Name"] in ("pending", "running")
    volume = found["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    assert cloud.client("ec2").describe_volumes(VolumeIds=[volume])["Volumes"][0]["KmsKeyId"] == key


@pytest.mark.parametrize("missing", [True, False], ids=["missing", "disabled"])
def test_instance_with_a_bad_key_ends_after_the_answer(
    cloud: RunningCloud, network: Network, missing: bool
) -> None:
    cloud.fresh()
    found = launched(cloud, network, KmsKeyId=MISSING if missing else a_key(cloud, disabled=True))
    assert found["State"]["Name"] == "terminated"
    assert (found["StateReason"]["Code"], found["StateReason"]["Message"]) == (
        INVALID.partition(":")[0],
        INVALID,
    )
    assert view(found).key_refused


def test_default_key_of_the_account_counts_without_a_named_key(cloud: RunningCloud, network: Network) -> None:
    ec2, key = cloud.fresh().client("ec2"), a_key(cloud, disabled=True)
    assert ec2.get_ebs_default_kms_key_id()["KmsKeyId"] == "alias/aws/ebs"
    ec2.modify_ebs_default_kms_key_id(KmsKeyId=key)
    try:
        assert launched(cloud, network)["StateReason"]["Message"] == INVALID
    finally:
        ec2.reset_ebs_default_kms_key_id()
    assert launched(cloud, network)["State"]["Name"] != "terminated"


def test_volume_with_a_bad_key_becomes_an_error(cloud: RunningCloud) -> None:
    ec2, key = cloud.fresh().client("ec2"), a_key(cloud, disabled=True)
    made = ec2.create_volume(AvailabilityZone="us-east-1a", Size=1, Encrypted=True, KmsKeyId=key)
    assert made["State"] == "creating"
    assert ec2.describe_volumes(VolumeIds=[made["VolumeId"]])["Volumes"][0]["State"] == "error"


def test_file_systems_refuse_a_bad_key(cloud: RunningCloud, network: Network) -> None:
    key = a_key(cloud.fresh(), disabled=True)
    efs, fsx = cloud.client("efs"), cloud.client("fsx")
    assert code_of(efs.create_file_system, CreationToken="k", Encrypted=True, KmsKeyId=key) == "BadRequest"
    lustre: dict[str, Any] = {
        "FileSystemType": "LUSTRE",
        "StorageCapacity": 1200,
        "SubnetIds": [network.subnets["us-east-1a"]],
        "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
    }
    assert code_of(fsx.create_file_system, **lustre, KmsKeyId=key) == "BadRequest"


def test_secret_and_bucket_refuse_a_disabled_key(cloud: RunningCloud) -> None:
    key = a_key(cloud.fresh())
    s3, secrets, kms = cloud.client("s3"), cloud.client("secretsmanager"), cloud.client("kms")
    s3.create_bucket(Bucket="keyed")
    default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    rules = [{"ApplyServerSideEncryptionByDefault": default, "BucketKeyEnabled": True}]
    s3.put_bucket_encryption(Bucket="keyed", ServerSideEncryptionConfiguration={"Rules": rules})
    s3.put_object(Bucket="keyed", Key="a", Body=b"a")
    secrets.create_secret(Name="keyed", KmsKeyId=key, SecretString="a")
    kms.disable_key(KeyId=key.rpartition("/")[2])
    assert code_of(s3.put_object, Bucket="keyed", Key="a", Body=b"b") == "KMS.DisabledException"
    assert code_of(s3.get_object, Bucket="keyed", Key="a") == "KMS.DisabledException"
    assert code_of(secrets.get_secret_value, SecretId="keyed") == "DecryptionFailure"
    kms.enable_key(KeyId=key.rpartition("/")[2])
    assert s3.get_object(Bucket="keyed", Key="a")["Body"].read() == b"a"


def test_alias_resolves_to_the_key(cloud: RunningCloud) -> None:
    key = a_key(cloud.fresh())
    cloud.client("kms").create_alias(AliasName="alias/of-this-test", TargetKeyId=key)
    for named in ("alias/of-this-test", "arn:aws:kms:us-east-1:123456789012:alias/of-this-test", key):
        found = cloud.api.moto.key(named)
        assert found is not None
        assert (found.arn, found.state, found.manager) == (key, "Enabled", "CUSTOMER")
    assert cloud.api.moto.key("alias/none") is None


# --- rights of the caller on the key ---------------------------------------------------------------

USES = ("kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext")
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    ],
}


class Operator:
    """A role that creates file systems and volumes. Each test sets its permissions on keys."""

    def __init__(self, cloud: RunningCloud) -> None:
        self._iam = cloud.client("iam")
        role = self._iam.create_role(RoleName="storage", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]
        self._key = cloud.api.ring.session("storage", role["RoleId"], "i-0000000000000000a", cloud.clock.now)
        self._cloud = cloud

    def may(self, *actions: str, service: str) -> Any:
        """Give the role these actions on keys through one service. Return a client with the role's key."""
        via = {"StringEquals": {"kms:ViaService": f"{service}.us-east-1.amazonaws.com"}}
        allowed = ["elasticfilesystem:*", "fsx:*", "ec2:*", "iam:CreateServiceLinkedRole"]
        statements: list[dict[str, Any]] = [{"Effect": "Allow", "Action": allowed, "Resource": "*"}]
        if actions:
            statements.append({"Effect": "Allow", "Action": actions, "Resource": "*", "Condition": via})
        text = json.dumps({"Version": "2012-10-17", "Statement": statements})
        self._iam.put_role_policy(RoleName="storage", PolicyName="storage", PolicyDocument=text)
        return self.client(service)

    def client(self, service: str) -> Any:
        return self._cloud.client("efs" if service == "elasticfilesystem" else service, self._key)


@pytest.fixture(scope="module")
def operator(cloud: RunningCloud) -> Operator:
    return Operator(cloud)


def creation(service: str, key: str, network: Network, token: str) -> dict[str, Any]:
    if service == "elasticfilesystem":
        return {"CreationToken": token, "Encrypted": True, "KmsKeyId": key}
    return {
        "FileSystemType": "LUSTRE",
        "StorageCapacity": 1200,
        "SubnetIds": [network.subnets["us-east-1a"]],
        "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
        "KmsKeyId": key,
        "ClientRequestToken": token,
    }


@pytest.mark.parametrize("service", ["elasticfilesystem", "fsx"])
@pytest.mark.parametrize("lacking", USES)
def test_file_system_with_a_key_needs_each_right_on_it(
    cloud: RunningCloud, network: Network, operator: Operator, service: str, lacking: str
) -> None:
    key, rest = a_key(cloud.fresh()), [one for one in USES if one != lacking]
    asked = creation(service, key, network, f"{service}-{lacking.rpartition(':')[2]}")
    error = error_of(operator.may(*rest, service=service).create_file_system, **asked).response["Error"]
    assert error["Code"] == "AccessDeniedException"
    assert lacking in error["Message"]


@pytest.mark.parametrize("service", ["elasticfilesystem", "fsx"])
def test_rights_through_another_service_do_not_count(
    cloud: RunningCloud, network: Network, operator: Operator, service: str
) -> None:
    key = a_key(cloud.fresh())
    operator.may(*USES, service="ec2")
    asked = creation(service, key, network, "via")
    assert code_of(operator.client(service).create_file_system, **asked) == "AccessDeniedException"


def test_efs_with_every_right_and_one_with_the_key_of_aws_are_made(
    cloud: RunningCloud, network: Network, operator: Operator
) -> None:
    key = a_key(cloud.fresh())
    whole = operator.may(*USES, service="elasticfilesystem")
    made = whole.create_file_system(**creation("elasticfilesystem", key, network, "whole"))
    assert made["KmsKeyId"] == key
    none = operator.may(service="elasticfilesystem")
    assert none.create_file_system(CreationToken="plain", Encrypted=True)["Encrypted"]


def test_volume_needs_rights_through_ec2_and_fails_after_the_answer(
    cloud: RunningCloud, operator: Operator
) -> None:
    asked: dict[str, Any] = {"AvailabilityZone": "us-east-1a", "Size": 1, "Encrypted": True}
    uses = (*USES, "kms:ReEncryptFrom", "kms:ReEncryptTo")
    for service, state in (("ec2", "available"), ("elasticfilesystem", "error")):
        operator.may(*uses, service=service)
        ec2 = operator.client("ec2")
        made = ec2.create_volume(**asked, KmsKeyId=a_key(cloud.fresh()))
        assert ec2.describe_volumes(VolumeIds=[made["VolumeId"]])["Volumes"][0]["State"] == state
