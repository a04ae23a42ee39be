"""A mount target waits for deleted ones that still use its zone or hold the file system in another VPC (T44)."""

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from gpucluster.sandbox.provider.cloud import Cloud
from gpucluster.sandbox.provider.schema import Call
from gpucluster.sandbox.provider.types.efs import MOUNT_TARGET

CONFLICT = ClientError({"Error": {"Code": "MountTargetConflict", "Message": "exists"}}, "CreateMountTarget")
SUBNET = {"SubnetId": "subnet-1", "VpcId": "vpc-1", "AvailabilityZone": "us-east-1a"}


def target(state: str, *, vpc: str = "vpc-1", zone: str = "us-east-1a") -> dict[str, str]:
    return {"LifeCycleState": state, "VpcId": vpc, "AvailabilityZoneName": zone}


class Efs:
    """EFS refuses the first creation. Later it lists the targets that are left."""

    def __init__(self, left: list[dict[str, str]]) -> None:
        self.left, self.calls = left, 0

    def create_mount_target(self, **_: Any) -> dict[str, str]:
        self.calls += 1
        if self.calls == 1:
            raise CONFLICT
        return {"MountTargetId": "fsmt-2"}

    def describe_mount_targets(self, **_: Any) -> dict[str, Any]:
        return {"MountTargets": self.left}


def made(left: list[dict[str, str]]) -> str:
    """The id of a mount target that is created while EFS has the `left` ones."""
    ec2 = SimpleNamespace(describe_subnets=lambda **_: {"Subnets": [SUBNET]})
    cloud = Cloud("us-east-1", {"efs": Efs(left), "ec2": ec2})
    inputs = {"fileSystemId": "fs-1", "subnetId": "subnet-1"}
    return MOUNT_TARGET.create(Call(cloud, MOUNT_TARGET, "", inputs, 20))


@pytest.mark.parametrize(
    "left",
    [
        pytest.param([], id="gone before the look"),
        pytest.param([target("deleting")], id="deleting"),
        pytest.param([target("deleted")], id="deleted"),
        pytest.param([target("deleting", vpc="vpc-2")], id="deleting in another VPC"),
        pytest.param([target("available", zone="us-east-1b")], id="another zone"),
    ],
)
def test_creation_waits_when_nothing_that_stays_is_in_the_way(left: list[dict[str, str]]) -> None:
    assert made(left) == "fsmt-2"


@pytest.mark.parametrize(
    "left",
    [
        pytest.param([target("available")], id="same zone"),
        pytest.param([target("creating")], id="created by another"),
        pytest.param([target("available", vpc="vpc-2", zone="us-east-1b")], id="another VPC"),
        pytest.param([target("available"), target("deleting", zone="us-east-1b")], id="deleting elsewhere"),
    ],
)
def test_creation_fails_at_once_when_another_mount_target_stays(left: list[dict[str, str]]) -> None:
    with pytest.raises(ClientError, match="MountTargetConflict"):
        made(left)
