"""Tests of error attribution: a failed resource and an error code give the pool and the spec field."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from support.builders import on_aws

from gpucluster.catalog import load as load_catalog
from gpucluster.engine.error_attribution import explainer, field_of
from gpucluster.plan.model import SlurmOnAws
from gpucluster.plan.resolve import resolve
from gpucluster.spec import load as load_spec

STACKS = Path(__file__).parents[3] / "stacks"
INSTANCE = "aws:ec2/instance:Instance"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


@cache
def research() -> SlurmOnAws:
    return on_aws(resolve(load_spec(STACKS / "research.yaml"), load_catalog()))


def refused(code: str, action: str, text: str = "no") -> str:
    """Return an error in botocore's format."""
    return f"An error occurred ({code}) when calling the {action} operation: {text}"


def from_go(code: str, action: str, text: str = "no") -> str:
    """Return an error in the format of the real provider."""
    return f"operation error EC2: {action}, https response error StatusCode: 400, RequestID: 1, api error {code}: {text}"


FIELDS = [
    ("a pool's launch template", TEMPLATE, "research-h200-on-demand-p5en.48xlarge", "pools[h200].capacity[1].machines"),
    ("a pool's placement group", "aws:ec2/placementGroup:PlacementGroup", "research-h200-us-east-1a", "pools[h200].capacity"),
    ("the head", INSTANCE, "research-head", "head.machine"),
    ("an address of a login machine", "aws:ec2/eip:Eip", "research-login-1", "login.count"),
    ("an address of a NAT gateway", "aws:ec2/eip:Eip", "research-nat-us-east-1a", "aws.network.nat"),
    ("a login machine", INSTANCE, "research-login-1", "login.machine"),
    ("the head's disk", "aws:ebs/volume:Volume", "research-state", "head.state"),
    ("the disk of an export", "aws:ebs/volume:Volume", "research-nfs-apps", "storage[/apps].nfs"),
    ("an EFS", "aws:efs/fileSystem:FileSystem", "research-efs-home", "storage[/home].efs"),
    ("a mount target in a zone", "aws:efs/mountTarget:MountTarget", "research-efs-home-us-east-1b", "storage[/home].efs"),
    ("a Lustre", "aws:fsx/lustreFileSystem:LustreFileSystem", "research-lustre-data", "storage[/data].fsx_lustre"),
    ("a link of a Lustre", "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation", "research-lustre-data-sets", "storage[/data].fsx_lustre"),
    ("a subnet", "aws:ec2/subnet:Subnet", "research-us-east-1a", "aws.network.zones"),
    ("what no wish names", "aws:s3/bucket:Bucket", "research", ""),
    ("a template of another cluster's name", TEMPLATE, "x", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "field"), [row[1:] for row in FIELDS], ids=[row[0] for row in FIELDS]
)
def test_resource_maps_to_spec_field(kind: str, name: str, field: str) -> None:
    assert field_of(research(), kind, name) == field


def test_pool_with_common_name_prefix_is_not_matched() -> None:
    plan = research()
    first = plan.pools[0]
    long = replace(first, name=f"{first.name}-big")
    group = f"research-{long.name}-us-east-1a"
    both = replace(plan, pools=(first, long))
    assert field_of(both, "aws:ec2/placementGroup:PlacementGroup", group) == f"pools[{long.name}].capacity"


SAID = [
    ("an address that its last owner still has", INSTANCE, "research-head", from_go("InvalidIPAddress.InUse", "RunInstances", "Address 10.50.0.10 is in use."), "head.machine: the address is still held: EC2 gives it back minutes after the end of what had it", "the same command again in some minutes"),
    ("quota", INSTANCE, "research-head", refused("VcpuLimitExceeded", "RunInstances"), "head.machine: the account's quota does not allow it", "ask for more in Service Quotas, or make head.machine smaller"),
    ("quota, by the real provider", INSTANCE, "research-login-1", from_go("VcpuLimitExceeded", "RunInstances"), "login.machine: the account's quota", "make login.machine smaller"),
    ("quota of addresses", "aws:ec2/eip:Eip", "research-nat-us-east-1a", refused("AddressLimitExceeded", "AllocateAddress"), "aws.network.nat: the account's quota", "Service Quotas"),
    ("permission", TEMPLATE, "research-h200-spot-p5en.48xlarge", refused("UnauthorizedOperation", "CreateLaunchTemplate"), "pools[h200].capacity[0].machines: whoever runs this may not do it", "allow CreateLaunchTemplate to whoever runs this"),
    ("a role that may not be made", "aws:iam/role:Role", "research-head", refused("AccessDenied", "CreateRole"), "whoever runs this may not do it", "allow CreateRole"),
    ("an unknown image", INSTANCE, "research-head", refused("InvalidAMIID.NotFound", "RunInstances", "The image id '[ami-1]' does not exist"), "aws.image: there is no such image in the region", "gpucluster image build, or another image in aws.image"),
    ("an image that nobody built", "", "", f"no machine image fits name=gpucluster-ubuntu-24.04-slurm-{research().slurm.version} owners=self in us-east-1", "aws.image (of the head and the pools h100, h200, small): there is no such image", "gpucluster image build"),
    ("a subnet without addresses", INSTANCE, "research-head", refused("InsufficientFreeAddressesInSubnet", "RunInstances"), "head.machine, in aws.network.cidr: the subnet has no free address", "a larger range"),
    ("a mount target without an address", "aws:efs/mountTarget:MountTarget", "research-efs-home-us-east-1b", refused("NoFreeAddressesInSubnet", "CreateMountTarget"), "storage[/home].efs, in aws.network.cidr: the subnet has no free address", "fewer machines"),
    ("a reservation that is not there", TEMPLATE, "research-h100-cr-0123456789abcdef0-p5.48xlarge", refused("InvalidCapacityReservationId.NotFound", "CreateLaunchTemplate", "cr-0123456789abcdef0"), "pools[h100].capacity[0].id: the reservation is not there", "compare pools[h100].capacity[0].id"),
    ("none left", INSTANCE, "research-head", refused("InsufficientInstanceCapacity", "RunInstances"), "head.machine: the cloud has none left now", "another machine or zone in head.machine"),
    ("something in the way", "aws:ec2/vpc:Vpc", "research", refused("DependencyViolation", "DeleteVpc"), "aws.network.cidr: something that this stack does not know still uses it", "remove what uses it"),
    ("too fast", TEMPLATE, "research-h200-spot-p5en.48xlarge", refused("RequestLimitExceeded", "CreateLaunchTemplate"), "pools[h200].capacity[0].machines: the cloud was asked too fast", "it goes on from here"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "words", "said", "step"), [row[1:] for row in SAID], ids=[row[0] for row in SAID]
)
def test_error_names_spec_field(kind: str, name: str, words: str, said: str, step: str) -> None:
    told = explainer(research())(kind, name, words)
    assert told.startswith(said), told
    assert words in told, "the cloud's own words stay"
    assert step in told.partition("next: ")[2], told


def test_unknown_error_keeps_cloud_message_with_field() -> None:
    words = refused("InvalidParameterValue", "CreateLaunchTemplate", "odd")
    assert (
        explainer(research())(TEMPLATE, "research-h200-spot-p5en.48xlarge", words)
        == f"pools[h200].capacity[0].machines: {words}"
    )
    assert explainer(research())("aws:s3/bucket:Bucket", "research", words) == words
