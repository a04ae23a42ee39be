"""The sandbox's Karpenter asks EC2 for the disks of its NodeClass, so EC2 judges the key of the site (T51)."""

from collections.abc import Generator
from typing import Any

import pytest
from support.clouds import Network, RunningCloud, a_network, running_cloud
from support.kube import files, objects

from gpucluster.aws.eks.policies import trust_service
from gpucluster.plan import names
from gpucluster.sandbox.kubernetes.karpenter_ec2 import KarpenterEc2, Offering

pytestmark = pytest.mark.loopback
MACHINE = "p4de.24xlarge"


@pytest.fixture(scope="module")
def cloud() -> Generator[RunningCloud]:
    with running_cloud() as found:
        yield found


@pytest.fixture(scope="module")
def network(cloud: RunningCloud) -> Network:
    """A network whose parts have the tags by which a NodeClass finds them, an image of Amazon, and an instance profile."""
    made = a_network(cloud)
    tags = {names.TAG_CLUSTER: "kube", names.TAG_ROLE: names.ROLE_KUBERNETES}
    parts = [made.group, *made.subnets.values()]
    cloud.client("ec2").create_tags(Resources=parts, Tags=[{"Key": k, "Value": v} for k, v in tags.items()])
    cloud.api.moto.register_image("amazon-eks-node-al2023-x86_64-nvidia-1.36-v20260903", owner="amazon")
    iam, name = cloud.client("iam"), names.kubernetes_node_role("kube")
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust_service("ec2.amazonaws.com"))
    iam.create_instance_profile(InstanceProfileName=name)
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    return made


def launched(cloud: RunningCloud, alias: str) -> Any:
    """Return the node as EC2 lists it after a launch."""
    found = objects(files(("region: us-west-2\n", f"region: us-west-2\n  kms_key: {alias}\n")))
    ec2 = cloud.client("ec2")
    offering = Offering(machine=MACHINE, market="on-demand", zone="us-east-1a")
    made = KarpenterEc2(ec2, "kube").launch(
        "claim", found["NodePool/kube-serve-0"], found["EC2NodeClass/kube-serve"], offering
    )
    assert made is not None
    (one,) = ec2.describe_instances(InstanceIds=[made["id"]])["Reservations"][0]["Instances"]
    return one


@pytest.mark.usefixtures("network")
def test_disk_of_a_node_is_that_of_its_node_class(cloud: RunningCloud) -> None:
    kms = cloud.client("kms")
    key = kms.create_key()["KeyMetadata"]["Arn"]
    kms.create_alias(AliasName="alias/good", TargetKeyId=key)
    node = launched(cloud, "alias/good")
    assert node["State"]["Name"] in ("pending", "running"), node["StateReason"]
    volume = node["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    (disk,) = cloud.client("ec2").describe_volumes(VolumeIds=[volume])["Volumes"]
    assert (disk["Encrypted"], disk["KmsKeyId"], disk["Size"], disk["VolumeType"]) == (True, key, 200, "gp3")


@pytest.mark.usefixtures("network")
def test_node_with_a_disabled_key_ends_after_its_launch(cloud: RunningCloud) -> None:
    kms = cloud.client("kms")
    key = kms.create_key()["KeyMetadata"]["Arn"]
    kms.create_alias(AliasName="alias/disabled", TargetKeyId=key)
    kms.disable_key(KeyId=key.rpartition("/")[2])
    node = launched(cloud, "alias/disabled")
    assert node["State"]["Name"] == "terminated"
    assert node["StateReason"]["Code"] == "Client.InvalidKMSKey.InvalidState"
