"""The operator's policies: complete, limited, within IAM's sizes; and a boundary that fits the roles."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from support.aws_plans import aws
from support.builders import a_plan
from support.iam_reference import actions as known_actions
from support.judged_stacks import EVERY, ON_EKS, STACKS, judged
from support.operators import a_scope

from gpucluster.aws import operator_documents
from gpucluster.aws.operator_documents import (
    MANAGED_MAX,
    PolicyRole,
    documents,
    size,
)
from gpucluster.aws.operator_policies import OperatorScope, unknown_actions
from gpucluster.catalog.calls import call_facts
from gpucluster.errors import GpuclusterError
from gpucluster.plan import names
from gpucluster.plan.model import SiteNetwork, SlurmOnAws
from gpucluster.sandbox.aws.iam.policies import Need, allows

MADE_ON_EKS = {
    "eks:CreateCluster",
    "kms:CreateKey",
}  # the reference has no type for them; the tag limits them
# Actions with a resource type that are allowed on everything, and why
ON_ANYTHING: Mapping[str, str] = {
    "servicequotas:GetServiceQuota": "it reads one number, and its quota has no ARN before the first request",
    "elasticfilesystem:CreateFileSystem": "the reference has no type for it; the tag of the request limits it",
}


@cache
def scope_of(name: str) -> OperatorScope:
    """Run the program of a stack once."""
    return a_scope(EVERY[name]())


def roles_of(name: str) -> list[PolicyRole]:
    """The policies that a spec has: commands need `access.ssm`, and EKS has no boundary."""
    plan = scope_of(name).plan
    some = [PolicyRole.PLAN, PolicyRole.APPLY, *([PolicyRole.BOUNDARY] if name in STACKS else [])]
    return [*some, PolicyRole.COMMANDS] if isinstance(plan, SlurmOnAws) and plan.access.ssm else some


@cache
def statements(name: str, role: PolicyRole) -> list[dict[str, Any]]:
    return [s for one in documents(role, scope_of(name)) for s in json.loads(one.text)["Statement"]]


@pytest.mark.parametrize("name", EVERY)
def test_apply_has_every_call_of_the_declared_types(name: str) -> None:
    scope, facts = scope_of(name), call_facts()
    rows = [facts.types[token] for token in scope.declared]
    needed = {a for row in rows for a in (*row.create, *row.read, *row.update, *row.delete)}
    allowed = {a for s in statements(name, PolicyRole.APPLY) for a in s["Action"]}
    bounds = {"iam:DeleteRolePermissionsBoundary", "iam:PutRolePermissionsBoundary"}  # see the test below
    assert needed - allowed - bounds == set()
    assert needed - {a for s in statements(name, PolicyRole.PLAN) for a in s["Action"]} != set()


@pytest.mark.parametrize("name", EVERY)
def test_types_that_the_spec_does_not_have_get_no_rights(name: str) -> None:
    declared = scope_of(name).declared
    services = {a.partition(":")[0] for s in statements(name, PolicyRole.APPLY) for a in s["Action"]}
    assert ("fsx" in services) == any("fsx/" in token for token in declared) or "site" in name
    assert ("budgets" in services) == any("budgets/" in token for token in declared)


@pytest.mark.parametrize("name", EVERY)
def test_plan_only_reads(name: str) -> None:
    levels = {a: level(a) for s in statements(name, PolicyRole.PLAN) for a in s["Action"]}
    assert {a for a, found in levels.items() if found not in ("List", "Read")} <= {"kms:Decrypt"}
    assert "secretsmanager:GetSecretValue" not in levels


def level(action: str) -> str:
    service, _, name = action.partition(":")
    assert known_actions(action)
    from support.iam_reference import _reference

    return _reference()[service]["privileges"][name]["access_level"]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("role", [PolicyRole.PLAN, PolicyRole.APPLY])
def test_what_can_be_limited_is_limited(name: str, role: PolicyRole) -> None:
    """An action on every resource is one that takes no resource type at all."""
    facts = call_facts()
    wide = {a for s in statements(name, role) if s["Resource"] == ["*"] for a in s["Action"]}
    assert {a for a in wide if facts.kinds[a]} - ON_ANYTHING.keys() == set()
    writes = {a for a in wide if level(a) not in ("List", "Read")}
    assert writes <= {"ec2:DeleteSubnetCidrReservation", "elasticfilesystem:CreateFileSystem"} | MADE_ON_EKS
    for one in statements(name, role):
        if one["Resource"] == ["*"] and MADE_ON_EKS & {*one["Action"]}:
            tag = {f"aws:RequestTag/{names.TAG_CLUSTER}": scope_of(name).plan.name}
            assert one["Condition"] == {"StringEquals": tag}


def test_file_systems_of_the_site_are_looked_up_by_id() -> None:
    """They have no tag of the cluster: `pulumi preview` of a spec with `efs: {id: ...}` was refused."""
    for role in (PolicyRole.PLAN, PolicyRole.APPLY):
        found = {s["Sid"]: s for s in statements("site's VPC", role)}
        assert found["SiteEfs"]["Resource"] == [
            "arn:aws:elasticfilesystem:us-east-2:*:file-system/fs-00000000000000001"
        ]
        assert "elasticfilesystem:DescribeFileSystems" in found["SiteEfs"]["Action"]
        assert found["SiteLustre"]["Resource"] == ["arn:aws:fsx:us-east-2:*:file-system/fs-00000000000000002"]
        assert "Condition" not in found["SiteEfs"]


@pytest.mark.parametrize("action", ["ModifyNetworkInterfaceAttribute", "RunInstances"])
def test_in_a_vpc_of_the_site_only_interfaces_in_its_subnets_are_changed(action: str) -> None:
    """Regression (X4): `pulumi up` might change the interfaces of others in a VPC that several teams share."""
    policies = [{"Statement": statements("site's VPC", PolicyRole.APPLY)}]
    network = scope_of("site's VPC").plan.aws.network
    assert isinstance(network, SiteNetwork)

    def may(subnet: str) -> bool:
        where = {"ec2:subnet": (f"arn:aws:ec2:us-east-2:210987654321:subnet/{subnet}",)}
        eni = "arn:aws:ec2:us-east-2:123456789012:network-interface/eni-1"
        return allows(policies, Need(action=f"ec2:{action}", resource=eni, context=where))

    assert all(may(one) for span in network.subnets for one in (span.id, span.public_id) if one)
    assert not may("subnet-00000000000000099")


def test_each_action_of_ec2_has_a_limit() -> None:
    assert unknown_actions(call_facts()) == []


@pytest.mark.parametrize("name", EVERY)
def test_documents_fit_and_are_the_same_each_time(name: str) -> None:
    for role in roles_of(name):
        made = documents(role, scope_of(name))
        assert made == documents(role, scope_of(name))
        assert all(one.size <= MANAGED_MAX for one in made)
        sids = [s["Sid"] for one in made for s in json.loads(one.text)["Statement"]]
        assert len(set(sids)) == len(sids)
    if name in STACKS:
        assert len(documents(PolicyRole.BOUNDARY, scope_of(name))) == 1, "a role has one boundary"


@pytest.mark.parametrize("name", ON_EKS)
def test_eks_has_no_boundary_of_ours(name: str) -> None:
    with pytest.raises(GpuclusterError, match="has no boundary: the roles of EKS have AWS's own policies"):
        documents(PolicyRole.BOUNDARY, scope_of(name))


@pytest.mark.parametrize("name", ON_EKS)
def test_on_eks_each_role_goes_to_its_service_and_only_policies_of_the_program_are_attached(
    name: str,
) -> None:
    plan = scope_of(name).plan
    for one in statements(name, PolicyRole.APPLY):
        if "iam:AttachRolePolicy" in one["Action"] and one["Sid"] != "ServicePolicy":
            assert {arn.split(":")[4] for arn in one["Condition"]["ArnEquals"]["iam:PolicyARN"]} == {"aws"}
        if "iam:PassRole" in one["Action"]:
            words = {arn.removeprefix(f"arn:aws:iam::*:role/{plan.name}-")[:13] for arn in one["Resource"]}
            service = one["Condition"]["StringEquals"]["iam:PassedToService"]
            assert ("control-plane" in words) == (service == "eks.amazonaws.com")
            assert not words & {"jobs-???????"}


def test_rights_on_eks_end_at_the_cluster() -> None:
    """A cluster whose name begins alike is another one."""
    boundary = [{"Statement": statements("kube", PolicyRole.APPLY)}]
    base = "arn:aws:eks:us-west-2:123456789012"
    for kind in ("nodegroup", "addon", "access-entry", "podidentityassociation"):
        own, other = (
            Need(action="eks:TagResource", resource=f"{base}:{kind}/{c}/x") for c in ("kube", "kube-2")
        )
        assert allows(boundary, own)
        assert not allows(boundary, other)
    assert not allows(boundary, Need(action="eks:DeleteCluster", resource=f"{base}:cluster/kube-2"))
    key = "arn:aws:kms:us-west-2:123456789012:key/1"
    assert not allows(boundary, Need(action="kms:ScheduleKeyDeletion", resource=key))


def test_size_leaves_out_white_space() -> None:
    assert size('{"a" : [ "b c" ]}\n') == len('{"a":["bc"]}')


def test_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scope = a_scope(a_plan())
    monkeypatch.setattr(operator_documents, "MANAGED_MAX", 600)
    with pytest.raises(GpuclusterError, match="characters, IAM takes 600"):
        documents(PolicyRole.BOUNDARY, scope)
    monkeypatch.setattr(operator_documents, "ATTACHED_MAX", 2)
    monkeypatch.setattr(operator_documents, "MANAGED_MAX", MANAGED_MAX)
    with pytest.raises(GpuclusterError, match="the policy needs 3 documents, IAM attaches 2"):
        documents(PolicyRole.APPLY, scope)


def test_boundary_of_the_spec_is_a_condition() -> None:
    arn = "arn:aws:iam::123456789012:policy/burst-boundary"
    scope = a_scope(aws(boundary=arn)(a_plan()))
    found = [s for one in documents(PolicyRole.APPLY, scope) for s in json.loads(one.text)["Statement"]]
    bound = [s for s in found if {"iam:CreateRole", "iam:PutRolePolicy"} & {*s["Action"]}]
    assert bound != []
    assert {json.dumps(s["Condition"]) for s in bound} == {
        json.dumps({"StringEquals": {"iam:PermissionsBoundary": arn}})
    }
    assert "iam:DeleteRolePermissionsBoundary" not in {a for s in found for a in s["Action"]}


def test_only_machine_roles_are_passed_and_only_to_ec2() -> None:
    for name in STACKS:
        for one in statements(name, PolicyRole.APPLY):
            if "iam:PassRole" in one["Action"]:
                assert one["Action"] == ["iam:PassRole"]
                assert one["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
                assert not any("-jobs-" in arn for arn in one["Resource"])


# --- the boundary ------------------------------------------------------------------------------
def role_needs(name: str) -> Iterator[tuple[str, Need]]:
    """Every right of every role's policy, with the condition keys that make its statement true."""
    for resource in judged(name).resources:
        if resource.type == "aws:iam/rolePolicy:RolePolicy":
            for one in json.loads(resource.inputs["policy"])["Statement"]:
                if one["Effect"] == "Allow":
                    yield from ((resource.name, need) for need in needs_of(one))


def needs_of(statement: Mapping[str, Any]) -> Iterator[Need]:
    context: dict[str, tuple[str, ...]] = {}
    for wanted in statement.get("Condition", {}).values():
        for key, values in wanted.items():
            head, slash, tag = key.partition("/")
            first = values if isinstance(values, str) else values[0]
            context[head.lower() + slash + tag] = (first.replace("*", "x"),)
    texts = statement["Resource"]
    for action in statement["Action"]:
        for resource in [texts] if isinstance(texts, str) else texts:
            yield Need(action=action, resource=drawn(resource.replace("*", "x")), context=context)


def drawn(resource: str) -> str:
    """The ARN with the characters that Pulumi adds to names: the judged stacks have none."""
    for end in ("-munge-AbCdEf", "-munge"):
        if resource.endswith(end):
            return resource[: -len(end)] + "-munge-abcdefg-AbCdEf"
    service = resource.split(":")[2] if resource.startswith("arn:") else ""
    if service == "s3" and not resource.startswith("arn:aws:s3:::example"):
        bucket, slash, key = resource.partition("/")
        return f"{bucket}-abcdefg{slash}{key}"
    if service in ("iam", "sqs") and "aws-service-role" not in resource:
        return f"{resource}-abcdefg"
    return resource


@pytest.mark.parametrize("name", STACKS)
def test_boundary_allows_what_each_role_needs(name: str) -> None:
    boundary = [{"Statement": statements(name, PolicyRole.BOUNDARY)}]
    checked = list(role_needs(name))
    assert len(checked) > 20
    assert [(role, need) for role, need in checked if not allows(boundary, need)] == []


OTHER = "arn:aws:ec2:us-east-2:123456789012"
REFUSED = [
    Need(action="iam:CreateUser", resource="*"),
    Need(action="iam:PutRolePolicy", resource="arn:aws:iam::123456789012:role/burst-head-abcdefg"),
    Need(action="iam:PassRole", resource="arn:aws:iam::123456789012:role/admin", context={"iam:passedtoservice": ("ec2.amazonaws.com",)}),
    Need(action="sts:AssumeRole", resource="arn:aws:iam::123456789012:role/admin"),
    Need(action="ec2:TerminateInstances", resource=f"{OTHER}:instance/i-1", context={"aws:resourcetag/gpucluster:cluster": ("other",)}),
    Need(action="ec2:RunInstances", resource=f"{OTHER}:instance/*", context={"ec2:instancetype": ("t3.micro",)}),
    Need(action="ec2:CreateTags", resource=f"{OTHER}:instance/i-1", context={"aws:requesttag/gpucluster:cluster": ("burst",)}),
    Need(action="s3:PutObject", resource="arn:aws:s3:::burst-abcdefg/bundle.tar.gz"),
    Need(action="s3:GetObject", resource="arn:aws:s3:::burst-2-abcdefg/bundle.tar.gz"),
    Need(action="secretsmanager:GetSecretValue", resource="arn:aws:secretsmanager:us-east-2:123456789012:secret:other-AbCdEf"),
    Need(action="kms:ScheduleKeyDeletion", resource="arn:aws:kms:us-east-2:123456789012:key/1"),
    Need(action="kms:Decrypt", resource="arn:aws:kms:us-east-2:123456789012:key/1"),
]  # fmt: skip


@pytest.mark.parametrize("name", ["burst", "every kind", "own key", "standby"])
@pytest.mark.parametrize("need", REFUSED, ids=lambda need: need.action)
def test_boundary_refuses_the_rest(name: str, need: Need) -> None:
    assert not allows([{"Statement": statements(name, PolicyRole.BOUNDARY)}], need)
