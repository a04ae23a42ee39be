"""A security group reads all of its rules, as upstream does. A rule that no program declared is in the outputs only (decision 0008)."""

from types import SimpleNamespace
from typing import Any, cast

from gpucluster.sandbox.provider.check import check
from gpucluster.sandbox.provider.cloud import Cloud
from gpucluster.sandbox.provider.diff import diff
from gpucluster.sandbox.provider.observe import Observed, foreseen, observed
from gpucluster.sandbox.provider.types.groups import SECURITY_GROUP

NEWS = {"name": "burst-head", "description": "The head of a gpucluster", "vpcId": "vpc-1"}
INPUTS = check(SECURITY_GROUP, NEWS, {}, name="burst-head", seed=b"1", default_tags={}).inputs
NO_PEER: dict[str, Any] = {
    "cidrBlocks": [],
    "ipv6CidrBlocks": [],
    "prefixListIds": [],
    "securityGroups": [],
    "self": False,
    "description": "",
}
SSH = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}


def seen(ingress: list[dict[str, Any]], egress: list[dict[str, Any]]) -> Observed:
    """What a refresh reads of a group with these permissions of DescribeSecurityGroups."""
    group = {"GroupName": "burst-head", "Description": NEWS["description"], "VpcId": "vpc-1", "OwnerId": "1"}
    answer = {"SecurityGroups": [group | {"IpPermissions": ingress, "IpPermissionsEgress": egress}]}
    ec2 = SimpleNamespace(describe_security_groups=lambda **_: answer)
    cloud = cast(Cloud, SimpleNamespace(ec2=ec2, ec2_arn=lambda *words: ":".join(words)))
    found = SECURITY_GROUP.read(cloud, "sg-1", INPUTS)
    assert found is not None
    return observed(SECURITY_GROUP, found, INPUTS, {})


def test_foreign_rule_is_an_output_and_no_difference() -> None:
    found = seen([{**SSH, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}], [])
    rule = NO_PEER | {"protocol": "tcp", "fromPort": 22, "toPort": 22, "cidrBlocks": ["0.0.0.0/0"]}
    assert found.outputs["ingress"] == [rule]
    assert {"ingress", "egress"} & found.inputs.keys() == set()
    assert diff(SECURITY_GROUP, found.inputs, INPUTS).changed == ()


def test_rules_of_one_protocol_ports_and_description_are_one() -> None:
    ssh = SSH | {
        "IpRanges": [{"CidrIp": "10.1.0.0/16"}, {"CidrIp": "10.0.0.0/16", "Description": "office"}],
        "Ipv6Ranges": [{"CidrIpv6": "::/0"}],
        "PrefixListIds": [{"PrefixListId": "pl-1"}],
        "UserIdGroupPairs": [{"GroupId": "sg-2"}, {"GroupId": "sg-1"}],
    }
    every = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-1"}]}
    found = seen([ssh], [every]).outputs
    port = {"protocol": "tcp", "fromPort": 22, "toPort": 22}
    assert found["ingress"] == [
        NO_PEER
        | port
        | {
            "cidrBlocks": ["10.1.0.0/16"],
            "ipv6CidrBlocks": ["::/0"],
            "prefixListIds": ["pl-1"],
            "securityGroups": ["sg-2"],
            "self": True,
        },
        NO_PEER | port | {"cidrBlocks": ["10.0.0.0/16"], "description": "office"},
    ]
    assert found["egress"] == [NO_PEER | {"protocol": "-1", "fromPort": 0, "toPort": 0, "self": True}]


def test_update_in_place_keeps_the_rules_that_are_known() -> None:
    olds = seen([{**SSH, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}], []).outputs
    assert foreseen(SECURITY_GROUP, INPUTS, olds)["ingress"] == olds["ingress"]


def test_program_sets_no_rules_in_a_group() -> None:
    rules = [{"protocol": "tcp"}]
    news = NEWS | {"ingress": rules, "egress": rules}
    found = check(SECURITY_GROUP, news, {}, name="burst-head", seed=b"1", default_tags={})
    reason = "the stand-in for AWS does not support this property"
    assert [(f.property, f.reason) for f in found.failures] == [
        ("egress", f"egress: {reason}"),
        ("ingress", f"ingress: {reason}"),
    ]
