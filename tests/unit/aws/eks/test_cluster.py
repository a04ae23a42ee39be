"""The control plane of EKS: who reaches it, who may use it, what protects its secrets, and its second zone."""

import json
from dataclasses import replace
from typing import Any

import pytest
from support import eks_plans
from support.audited_edits import Change
from support.builders import a_kube_plan, kubernetes_of
from support.declared import Declared
from support.eks_plans import resources_of

from gpucluster.aws.eks.policies import SECRETS_KEY, secrets_policy
from gpucluster.aws.program import declare
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import OwnNetwork, eks_of
from gpucluster.plan.model.eks import AccessEntry, EksControlPlane
from gpucluster.plan.security_rules import CONTROL_PLANE, rules
from gpucluster.sandbox.aws.iam.policies import Need, allows

ADMIN, BOTH, PERSON = eks_plans.ADMIN, eks_plans.BOTH, eks_plans.PERSON


@pytest.fixture(scope="module")
def least() -> tuple[Declared, ...]:
    return resources_of(a_kube_plan())


@pytest.fixture(scope="module")
def every() -> tuple[Declared, ...]:
    return resources_of(eks_plans.everything())


def of(resources: tuple[Declared, ...], kind: str) -> dict[str, Any]:
    return {r.name: r.inputs for r in resources if r.type == kind}


def cluster(resources: tuple[Declared, ...]) -> dict[str, Any]:
    return of(resources, "aws:eks/cluster:Cluster")["kube"]


def test_api_server_has_no_public_address_by_default(least: tuple[Declared, ...]) -> None:
    network = cluster(least)["vpcConfig"]
    assert (network["endpointPrivateAccess"], network["endpointPublicAccess"]) == (True, False)
    assert "publicAccessCidrs" not in network


def test_public_range_opens_the_public_address_for_it_alone(every: tuple[Declared, ...]) -> None:
    network = cluster(every)["vpcConfig"]
    assert (network["endpointPublicAccess"], network["publicAccessCidrs"]) == (True, ["198.51.100.0/24"])


def test_private_range_is_a_rule_of_the_group_of_the_control_plane() -> None:
    found = {
        (rule.peer, rule.ports)
        for rule in rules(eks_plans.everything())
        if rule.group == CONTROL_PLANE and not rule.out
    }
    assert found == {("kubernetes-node", (443, 443)), ("10.0.0.0/8", (443, 443))}


def test_machines_of_the_vpc_reach_an_api_server_without_ranges() -> None:
    """Regression: only nodes reached it, so nobody could apply the waves."""
    found = {rule.peer for rule in rules(a_kube_plan()) if rule.group == CONTROL_PLANE and not rule.out}
    assert found == {"kubernetes-node", "10.60.0.0/16"}


def test_people_come_in_by_access_entries_alone(every: tuple[Declared, ...]) -> None:
    access = cluster(every)["accessConfig"]
    assert access == {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True}


def test_admins_change_nothing_that_replaces_the_cluster(
    least: tuple[Declared, ...], every: tuple[Declared, ...]
) -> None:
    fixed = ("accessConfig", "bootstrapSelfManagedAddons", "encryptionConfig", "name")
    assert {k: cluster(least)[k] for k in fixed} == {k: cluster(every)[k] for k in fixed}


def test_each_principal_has_one_entry_with_all_its_groups(every: tuple[Declared, ...]) -> None:
    entries = of(every, "aws:eks/accessEntry:AccessEntry").values()
    found = {one["principalArn"]: one.get("kubernetesGroups") for one in entries if one["type"] == "STANDARD"}
    assert found == {ADMIN: None, BOTH: ["gpucluster:research"], PERSON: ["gpucluster:research"]}


def test_only_admins_have_the_policy_of_admins(every: tuple[Declared, ...]) -> None:
    found = of(every, "aws:eks/accessPolicyAssociation:AccessPolicyAssociation").values()
    assert {one["principalArn"] for one in found} == {ADMIN, BOTH}
    assert {one["policyArn"].rpartition("/")[2] for one in found} == {"AmazonEKSClusterAdminPolicy"}
    assert {one["accessScope"]["type"] for one in found} == {"cluster"}


def test_entries_of_two_accounts_have_two_names() -> None:
    other = ADMIN.replace("123456789012", "210987654321")
    plan = eks_plans.with_plane(entries=(AccessEntry(principal=ADMIN), AccessEntry(principal=other)))
    entries = of(resources_of(plan), "aws:eks/accessEntry:AccessEntry")
    assert {ADMIN, other} <= {one["principalArn"] for one in entries.values()}


def test_secrets_have_a_key_that_rotates_and_that_the_control_plane_may_use(
    least: tuple[Declared, ...],
) -> None:
    (key,) = of(least, "aws:kms/key:Key").values()
    assert (key["enableKeyRotation"], key["deletionWindowInDays"]) == (True, 30)
    assert cluster(least)["encryptionConfig"]["resources"] == ["secrets"]
    arn = cluster(least)["encryptionConfig"]["provider"]["keyArn"]
    policy = of(least, "aws:iam/rolePolicy:RolePolicy")["kube-control-plane"]["policy"]
    assert policy == secrets_policy(arn)


def test_key_of_the_site_replaces_our_own() -> None:
    plan = eks_plans.with_aws(kms_key="alias/research")
    resources = resources_of(plan)
    assert of(resources, "aws:kms/key:Key") == {}
    assert cluster(resources)["encryptionConfig"]["provider"]["keyArn"].startswith("arn:aws:kms:")


@pytest.mark.parametrize("action", SECRETS_KEY)
def test_control_plane_uses_its_key_and_no_other(action: str) -> None:
    """Each action of the statement `Secrets`: envelope encryption of secrets encrypts and decrypts data keys."""
    key = "arn:aws:kms:us-west-2:123456789012:key/0123abcd-0123-0123-0123-0123456789ab"
    document = json.loads(secrets_policy(key))
    assert allows([document], Need(action=action, resource=key))
    assert not allows([document], Need(action=action, resource=key[:-1] + "c"))


def test_every_log_of_the_control_plane_is_kept_for_a_limited_time(least: tuple[Declared, ...]) -> None:
    """EKS creates the group without a retention if it does not exist."""
    (logs,) = of(least, "aws:cloudwatch/logGroup:LogGroup").values()
    assert logs == {"name": "/aws/eks/kube/cluster", "retentionInDays": 90}
    assert cluster(least)["enabledClusterLogTypes"] == [
        "api",
        "audit",
        "authenticator",
        "controllerManager",
        "scheduler",
    ]


def test_one_zone_of_the_spec_gets_a_second_one_for_the_control_plane(least: tuple[Declared, ...]) -> None:
    """EKS refuses a cluster with subnets in one zone."""
    subnets = of(least, "aws:ec2/subnet:Subnet")
    used = cluster(least)["vpcConfig"]["subnetIds"]
    assert used == ["subnet-kube-us-west-2a", "subnet-kube-us-west-2b"]
    assert subnets["kube-us-west-2b"]["cidrBlock"] == "10.60.32.0/19"


def _zones(old: str, new: str) -> tuple[Change, ...]:
    """The zones of the network, and the place of its file system."""
    return ("zones: [us-west-2a]", f"zones: {old}"), ("zone: us-west-2a, size", f"zone: {new}, size")


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        (_zones("[us-west-2a]", "us-west-2a"), _zones("[us-west-2b]", "us-west-2b"), "kube-us-west-2a"),
        (_zones("[us-west-2a, us-west-2b]", "us-west-2a"), _zones("[us-west-2a]", "us-west-2a"), "kube-us-west-2b"),
    ],
)  # fmt: skip
def test_zone_that_leaves_keeps_its_way_out(
    before: tuple[Change, ...], after: tuple[Change, ...], left: str
) -> None:
    """Regression: the nodes of the add-ons stay in the zone, and `pulumi up` removed its route: no image, no call of AWS."""
    for changes in (before, after):
        resources = resources_of(a_kube_plan(*changes))
        joined = of(resources, "aws:ec2/routeTableAssociation:RouteTableAssociation")[left]
        assert joined["subnetId"] == f"subnet-{left}"
        routes = of(resources, "aws:ec2/route:Route").values()
        (out,) = (one for one in routes if one["routeTableId"] == joined["routeTableId"])
        (gateway,) = of(resources, "aws:ec2/natGateway:NatGateway")
        assert out["destinationCidrBlock"] == "0.0.0.0/0"
        assert out["natGatewayId"].endswith(gateway)
        (s3,) = of(resources, "aws:ec2/vpcEndpoint:VpcEndpoint").values()
        assert joined["routeTableId"] in s3["routeTableIds"]


def test_second_zone_that_joins_keeps_its_subnet() -> None:
    one = a_kube_plan()
    both = a_kube_plan(("zones: [us-west-2a]", "zones: [us-west-2a, us-west-2b]"))
    assert isinstance(both.aws.network, OwnNetwork)
    assert eks_of(both) is not None
    plane = kubernetes_of(both).control_plane
    assert isinstance(plane, EksControlPlane)
    assert plane.spare is None
    name, kind = "kube-us-west-2b", "aws:ec2/subnet:Subnet"
    before, after = (of(resources_of(plan), kind)[name] for plan in (one, both))
    assert {k: v for k, v in before.items() if k != "tags"} == {k: v for k, v in after.items() if k != "tags"}


def test_only_private_subnets_have_the_tag_for_karpenter(least: tuple[Declared, ...]) -> None:
    """The cluster's own tag is on public subnets, too, where a node would have no way out."""
    tag = "gpucluster:role"
    tagged = {name for name, one in of(least, "aws:ec2/subnet:Subnet").items() if tag in one["tags"]}
    assert tagged == {"kube-us-west-2a"}


def test_kubernetes_that_exists_makes_no_resource() -> None:
    plan = a_kube_plan(("control_plane: eks", "existing: {context: prod, eks_name: prod}"))
    assert eks_of(plan) is None
    with pytest.raises(GpuclusterError, match="names a Kubernetes that exists") as caught:
        declare(plan)
    assert caught.value.exit_code == 2


def test_bindings_name_the_file_systems(least: tuple[Declared, ...]) -> None:
    plan = replace(a_kube_plan(), storage=())
    assert "aws:fsx/lustreFileSystem:LustreFileSystem" in {one.type for one in least}
    assert "aws:fsx/lustreFileSystem:LustreFileSystem" not in {one.type for one in resources_of(plan)}
