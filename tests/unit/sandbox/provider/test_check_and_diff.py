"""Tests of Check, Diff and Read by the table."""

from typing import Any

import pytest

from gpucluster.engine.values import UNKNOWN
from gpucluster.sandbox.provider.check import DEFAULTED, check
from gpucluster.sandbox.provider.diff import diff
from gpucluster.sandbox.provider.observe import foreseen, observed
from gpucluster.sandbox.provider.table import TYPES

VPC = TYPES["aws:ec2/vpc:Vpc"]
ROLE = TYPES["aws:iam/role:Role"]
RULE = TYPES["aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"]
TEMPLATE = TYPES["aws:ec2/launchTemplate:LaunchTemplate"]
SECRET = TYPES["aws:secretsmanager/secret:Secret"]
CLUSTER = {"gpucluster:cluster": "burst"}


def checked(kind: Any, news: dict[str, Any], olds: dict[str, Any] | None = None, seed: bytes = b"1") -> Any:
    return check(kind, news, olds or {}, name="burst", seed=seed, default_tags=CLUSTER)


REFUSED: list[tuple[str, Any, dict[str, Any], str, str]] = [
    ("an unknown property", VPC, {"cidrBlok": "10.0.0.0/16"}, "cidrBlok", "the stand-in for AWS does not know 'cidrBlok' of aws:ec2/vpc:Vpc"),
    ("an output that is set", VPC, {"arn": "x"}, "arn", "'arn' of aws:ec2/vpc:Vpc is an output"),
    ("a wrong kind", VPC, {"enableDnsSupport": "yes"}, "enableDnsSupport", "enableDnsSupport: expected bool, found str"),
    ("an unknown nested property", TEMPLATE, {"metadataOptions": {"httpToken": "required"}}, "metadataOptions", "metadataOptions.httpToken: the stand-in for AWS does not know this property"),
    ("a property that only AWS has", TEMPLATE, {"cpuOptions": {"coreCount": 2}}, "cpuOptions", "cpuOptions: the stand-in for AWS does not support this property"),
    ("tagsAll is the provider's", VPC, {"tagsAll": {"a": "b"}}, "tagsAll", "the stand-in for AWS does not know 'tagsAll' of aws:ec2/vpc:Vpc"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "news", "key", "reason"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_check_rejects_by_name(kind: Any, news: dict[str, Any], key: str, reason: str) -> None:
    assert [(f.property, f.reason) for f in checked(kind, news).failures] == [(key, reason)]


def test_check_completes_defaults_and_default_tags() -> None:
    inputs = checked(VPC, {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "b"}}).inputs
    assert inputs["tagsAll"] == {"gpucluster:cluster": "burst", "Name": "b"}
    assert inputs["enableDnsSupport"] is True
    assert inputs[DEFAULTED] == ["enableDnsSupport", "instanceTenancy"]


def test_generated_name_is_stable_and_depends_on_seed() -> None:
    first = checked(ROLE, {"assumeRolePolicy": "{}"}).inputs
    assert first["name"].startswith("burst-")
    assert checked(ROLE, {"assumeRolePolicy": "{}"}, first, seed=b"2").inputs["name"] == first["name"]
    assert checked(ROLE, {"assumeRolePolicy": "{}"}, seed=b"2").inputs["name"] != first["name"]


@pytest.mark.parametrize("kind", [k for k in TYPES.values() if k.autoname], ids=lambda k: k.name)
def test_long_name_is_shortened_before_suffix(kind: Any) -> None:
    found = check(kind, {}, {}, name="n" * 600, seed=b"1", default_tags={}).inputs[kind.autoname.property]
    assert len(found) == kind.autoname.longest


def test_unknown_tags_stay_unknown() -> None:
    assert checked(VPC, {"tags": UNKNOWN}).inputs["tagsAll"] is UNKNOWN


HEAD = TYPES["aws:ec2/instance:Instance"]
TARGET = TYPES["aws:efs/mountTarget:MountTarget"]
DIFFS: list[tuple[str, Any, dict[str, Any], dict[str, Any], tuple[str, ...], tuple[str, ...], bool]] = [
    ("nothing", VPC, {"cidrBlock": "a"}, {"cidrBlock": "a"}, (), (), False),
    ("in place", VPC, {"enableDnsSupport": True}, {"enableDnsSupport": False}, ("enableDnsSupport",), (), False),
    ("a new one beside the old", VPC, {"cidrBlock": "a"}, {"cidrBlock": "b"}, ("cidrBlock",), ("cidrBlock",), False),
    ("a rule of another group is created first", RULE, {"securityGroupId": "a"}, {"securityGroupId": "b"}, ("securityGroupId",), ("securityGroupId",), False),
    ("a mount target is deleted first", TARGET, {"subnetId": "a"}, {"subnetId": "b"}, ("subnetId",), ("subnetId",), True),
    ("a group's description is frozen", TYPES["aws:ec2/securityGroup:SecurityGroup"], {"description": "a"}, {"description": "b", DEFAULTED: ["name"]}, ("description",), ("description",), False),
    ("a name of the program's own goes first", ROLE, {"name": "a", "path": "/"}, {"name": "a", "path": "/x/", DEFAULTED: []}, ("path",), ("path",), True),
    ("a drawn name stands beside the old", ROLE, {"name": "a", "path": "/"}, {"name": "a", "path": "/x/", DEFAULTED: ["name"]}, ("path",), ("path",), False),
    ("a template's data makes a version", TEMPLATE, {"userData": "a"}, {"userData": "b"}, ("userData",), (), False),
    ("a root volume grows in place", HEAD, {"rootBlockDevice": {"encrypted": True, "volumeSize": 8}}, {"rootBlockDevice": {"encrypted": True, "volumeSize": 16}}, ("rootBlockDevice",), (), False),
    ("a root volume is encrypted at its creation", HEAD, {"rootBlockDevice": {"encrypted": False}}, {"rootBlockDevice": {"encrypted": True}}, ("rootBlockDevice",), ("rootBlockDevice",), False),
    ("what is unknown may change", VPC, {"cidrBlock": "a"}, {"cidrBlock": UNKNOWN}, ("cidrBlock",), ("cidrBlock",), False),
    ("what only we know", SECRET, {"recoveryWindowInDays": 30}, {"recoveryWindowInDays": 0}, ("recoveryWindowInDays",), (), False),
    ("an output is no input", VPC, {"arn": "a"}, {"arn": "b"}, (), (), False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "olds", "news", "changed", "replaces", "first"),
    [r[1:] for r in DIFFS],
    ids=[r[0] for r in DIFFS],
)
def test_diff_follows_table(
    *, kind: Any, olds: Any, news: Any, changed: tuple[str, ...], replaces: tuple[str, ...], first: bool
) -> None:
    found = diff(kind, olds, news)
    assert (found.changed, found.replaces, found.delete_first) == (changed, replaces, first)


# properties that an ordinary change of configuration must never replace
IN_PLACE = {
    "aws:s3/bucket:Bucket": {"forceDestroy", "tags"},
    "aws:secretsmanager/secret:Secret": {"description", "recoveryWindowInDays", "tags"},
    "aws:ec2/vpc:Vpc": {"enableDnsHostnames", "enableDnsSupport", "tags"},
    "aws:ec2/instance:Instance": {
        "instanceType",
        "userDataBase64",
        "iamInstanceProfile",
        "metadataOptions",
        "tags",
    },
    "aws:iam/role:Role": {"assumeRolePolicy", "description", "maxSessionDuration"},
    "aws:iam/instanceProfile:InstanceProfile": {"role"},
}


@pytest.mark.parametrize("name", sorted(IN_PLACE))
def test_ordinary_changes_replace_nothing(name: str) -> None:
    kind = TYPES[name]
    assert {p for p in IN_PLACE[name] if kind.properties[p].change != "update"} == set()


SEEN_VPC = {
    "CidrBlock": "10.0.0.0/16",
    "InstanceTenancy": "default",
    "EnableDnsSupport": True,
    "EnableDnsHostnames": True,
    "Arn": "arn",
    "Tags": [{"Key": "gpucluster:cluster", "Value": "burst"}, {"Key": "Name", "Value": "burst"}],
}


def vpc_inputs(**change: Any) -> dict[str, Any]:
    return checked(
        VPC, {"cidrBlock": "10.0.0.0/16", "enableDnsHostnames": True, "tags": {"Name": "burst"}} | change
    ).inputs


def test_unchanged_resource_shows_no_difference() -> None:
    inputs = vpc_inputs()
    assert observed(VPC, SEEN_VPC, inputs, CLUSTER).inputs == inputs


TAGS_SEEN: list[tuple[str, dict[str, str], tuple[str, ...]]] = [
    ("untouched", {"gpucluster:cluster": "burst", "Name": "burst"}, ()),
    ("one changed", {"gpucluster:cluster": "burst", "Name": "other"}, ("tags", "tagsAll")),
    ("one more", {"gpucluster:cluster": "burst", "Name": "burst", "x": "y"}, ("tags", "tagsAll")),
    ("one gone", {"gpucluster:cluster": "burst"}, ("tags", "tagsAll")),
    ("a default tag changed", {"gpucluster:cluster": "evil", "Name": "burst"}, ("tags", "tagsAll")),
    ("a default tag gone", {"Name": "burst"}, ("tagsAll",)),
]


@pytest.mark.parametrize(("tags", "changed"), [r[1:] for r in TAGS_SEEN], ids=[r[0] for r in TAGS_SEEN])
def test_drift_of_tags_is_found(tags: dict[str, str], changed: tuple[str, ...]) -> None:
    seen = {**SEEN_VPC, "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}
    found = observed(VPC, seen, vpc_inputs(), CLUSTER)
    assert diff(VPC, found.inputs, vpc_inputs()).changed == changed


def test_drift_of_unsupported_field_is_found() -> None:
    inputs = checked(TEMPLATE, {"imageId": "ami-1", "userData": "a"}).inputs
    seen = {
        "LaunchTemplateName": inputs["name"],
        "ImageId": "ami-1",
        "UserData": "a",
        "KernelId": "aki-1",
        "Tags": [],
    }
    found = observed(TEMPLATE, seen, inputs, {})
    assert "kernelId" in diff(TEMPLATE, found.inputs, inputs).changed


def test_value_chosen_by_cloud_is_no_difference() -> None:
    subnet = TYPES["aws:ec2/subnet:Subnet"]
    inputs = checked(subnet, {"vpcId": "v", "cidrBlock": "c"}).inputs
    seen = {"VpcId": "v", "CidrBlock": "c", "AvailabilityZone": "z", "MapPublicIpOnLaunch": False,
            "Tags": [{"Key": "gpucluster:cluster", "Value": "burst"}]}  # fmt: skip
    found = observed(subnet, seen, inputs, CLUSTER)
    assert found.outputs["availabilityZone"] == "z"
    assert diff(subnet, found.inputs, inputs).changed == ()


def test_preview_of_create_has_unknown_outputs() -> None:
    outputs = foreseen(TEMPLATE, {"imageId": "ami-1"}, None)
    assert (outputs["arn"], outputs["latestVersion"], outputs["imageId"]) == (UNKNOWN, UNKNOWN, "ami-1")


def test_preview_of_update_keeps_stable_outputs() -> None:
    outputs = foreseen(TEMPLATE, {"imageId": "ami-2"}, {"arn": "a", "latestVersion": 1})
    assert (outputs["arn"], outputs["latestVersion"]) == ("a", UNKNOWN)
