"""Tests of changed inputs and of those that replace the resource."""

from typing import Any

import pytest

from gpucluster.catalog.properties import aws_properties
from gpucluster.gitops.properties import Difference, difference

ROLE, BUDGET = "aws:iam/role:Role", "aws:budgets/budget:Budget"
TEMPLATE, INSTANCE = "aws:ec2/launchTemplate:LaunchTemplate", "aws:ec2/instance:Instance"
NONE = Difference((), ())


@pytest.mark.parametrize(
    ("token", "old", "new"),
    [
        pytest.param(TEMPLATE, {"vpcSecurityGroupIds": ["a", "b"]}, {"vpcSecurityGroupIds": ["b", "a"]}, id="order of a set"),
        pytest.param(TEMPLATE, {"networkInterfaces": [{"securityGroups": ["a", "b"]}]}, {"networkInterfaces": [{"securityGroups": ["b", "a"]}]}, id="order of a set inside a list"),
        pytest.param(ROLE, {"assumeRolePolicy": '{"a": 1}'}, {"assumeRolePolicy": '{"a":1}'}, id="spacing of a document"),
        pytest.param(BUDGET, {"limitAmount": "100"}, {"limitAmount": "100.0"}, id="form of a decimal number"),
        pytest.param(ROLE, {"description": ""}, {}, id="empty and unset"),
        pytest.param(ROLE, {"arn": "a"}, {"arn": "b"}, id="an output"),
    ],
)  # fmt: skip
def test_equal_values_are_no_change(token: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    assert difference(aws_properties()[token], old, new) == NONE


@pytest.mark.parametrize(
    ("token", "old", "new", "replaces"),
    [
        pytest.param(TEMPLATE, {"blockDeviceMappings": [1, 2]}, {"blockDeviceMappings": [2, 1]}, False, id="order of a list"),
        pytest.param(TEMPLATE, {"vpcSecurityGroupIds": ["a"]}, {"vpcSecurityGroupIds": ["a", "a"]}, False, id="an item twice"),
        pytest.param(ROLE, {"maxSessionDuration": 0}, {"maxSessionDuration": False}, False, id="zero and false"),
        pytest.param(ROLE, {"unheardOf": 1}, {"unheardOf": 2}, True, id="unknown property"),
        pytest.param(INSTANCE, {"rootBlockDevice": {"volumeSize": 8}}, {"rootBlockDevice": {"volumeSize": 9}}, False, id="field that updates"),
        pytest.param(INSTANCE, {"rootBlockDevice": {"encrypted": False}}, {"rootBlockDevice": {"encrypted": True}}, True, id="field that replaces"),
        pytest.param(INSTANCE, {"ebsBlockDevices": [{"iops": 1}]}, {"ebsBlockDevices": [{"iops": 2}]}, True, id="field of a list that replaces"),
    ],
)  # fmt: skip
def test_changes_update_or_replace(
    *, token: str, old: dict[str, Any], new: dict[str, Any], replaces: bool
) -> None:
    (name,) = old
    assert difference(aws_properties()[token], old, new) == Difference((name,), (name,) if replaces else ())
