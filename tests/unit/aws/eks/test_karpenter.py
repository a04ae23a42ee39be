"""Karpenter on AWS: each action of its controller is needed, and nothing of another cluster is within its reach."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.builders import a_kube_plan
from support.declared import Declared
from support.eks_permissions import (
    BY_EC2,
    DOCUMENT,
    EC2,
    NEEDS,
    OWN,
    REQUEST,
    SCOPE,
    TO_EC2,
    Context,
    tags,
)
from support.eks_plans import resources_of, with_aws
from support.permissions import rights_of, without

from gpucluster.aws.eks.karpenter_policy import READS, karpenter_policy
from gpucluster.catalog import kubernetes_charts
from gpucluster.plan import names
from gpucluster.plan.store_policies import PATTERNS
from gpucluster.sandbox.aws.iam.policies import Need, allows, check

TEMPLATES = Path(__file__).parents[4] / "templates/k8s"
REFUSED: list[tuple[str, str, str, Context]] = [
    ("end a node of a node group", "ec2:TerminateInstances", f"{EC2}:instance/i-9", {"aws:resourcetag/kubernetes.io/cluster/kube": ("owned",)}),
    ("end a node of another cluster", "ec2:TerminateInstances", f"{EC2}:instance/i-9", tags("resourcetag", "other")),
    ("end a node of Slurm", "ec2:TerminateInstances", f"{EC2}:instance/i-9", {"aws:resourcetag/gpucluster:cluster": ("kube",)}),
    ("launch without its tags", "ec2:RunInstances", f"{EC2}:instance/*", {}),
    ("boot an image of somebody", "ec2:RunInstances", "arn:aws:ec2:us-west-2::image/ami-9", {"ec2:owner": ("210987654321",)}),
    ("launch into another subnet", "ec2:RunInstances", f"{EC2}:subnet/subnet-9", REQUEST),
    ("launch in another group", "ec2:RunInstances", f"{EC2}:security-group/sg-9", REQUEST),
    ("launch from a template of Slurm", "ec2:RunInstances", f"{EC2}:launch-template/lt-9", {"aws:resourcetag/gpucluster:cluster": ("kube",)}),
    ("use a reservation of others", "ec2:CreateFleet", f"{EC2}:capacity-reservation/cr-9", REQUEST),
    ("tag what exists", "ec2:CreateTags", f"{EC2}:instance/i-9", REQUEST),
    ("give a node another pool", "ec2:CreateTags", f"{EC2}:instance/i-1", {**OWN, "aws:tagkeys": ("karpenter.sh/nodepool",)}),
    ("pass another role", "iam:PassRole", "arn:aws:iam::123456789012:role/admin", TO_EC2),
    ("pass the role to another service", "iam:PassRole", SCOPE.node_role, {"iam:passedtoservice": ("lambda.amazonaws.com",)}),
    ("make a profile", "iam:CreateInstanceProfile", SCOPE.profile, {}),
    ("read another queue", "sqs:ReceiveMessage", f"{SCOPE.queue}-other", {}),
    ("read the site's parameters", "ssm:GetParameter", "arn:aws:ssm:us-west-2:123456789012:parameter/x", {}),
    ("use the key for objects in S3", "kms:Decrypt", str(SCOPE.key), {"kms:viaservice": ("s3.us-west-2.amazonaws.com",)}),
    ("use the key without EC2", "kms:Decrypt", str(SCOPE.key), {}),
    ("grant the key to somebody", "kms:CreateGrant", str(SCOPE.key), BY_EC2),
    ("use another key", "kms:Decrypt", "arn:aws:kms:us-west-2:123456789012:key/other", BY_EC2),
    ("look into another region", "ec2:DescribeInstances", "*", {"aws:requestedregion": ("eu-west-1",)}),
]  # fmt: skip


def test_each_action_has_its_need() -> None:
    assert set(rights_of(DOCUMENT)) == NEEDS.keys()
    check(json.loads(DOCUMENT))


@pytest.mark.parametrize(("sid", "action"), NEEDS, ids=[f"{sid}-{action}" for sid, action in NEEDS])
def test_need_is_met_and_refused_without_the_action(sid: str, action: str) -> None:
    why, resource, context = NEEDS[sid, action]
    need = Need(action=action, resource=resource, context=context)
    assert allows([json.loads(DOCUMENT)], need), why
    assert not allows([json.loads(without(DOCUMENT, sid, action))], need), why


@pytest.mark.parametrize(("action", "on", "context"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_is_not_its_own_is_refused(action: str, on: str, context: Context) -> None:
    assert not allows([json.loads(DOCUMENT)], Need(action=action, resource=on, context=context))


def test_only_lists_and_prices_use_all_resources() -> None:
    wide = {s["Sid"] for s in json.loads(DOCUMENT)["Statement"] if s["Resource"] == ["*"]}
    assert wide == {"See", "Prices", "Profiles"}
    assert [action for _, action in rights_of(DOCUMENT) if "*" in action] == []


def test_reads_are_those_of_the_pinned_version() -> None:
    """Regression: two that Karpenter 1.14.1 never calls with our NodeClasses (`EC2API` in its pkg/aws/sdk.go)."""
    calls = (
        "CapacityReservations", "Images", "InstanceStatus", "InstanceTypeOfferings", "InstanceTypes", "Instances",
        "LaunchTemplates", "SecurityGroups", "SpotPriceHistory", "Subnets",
    )  # fmt: skip
    assert kubernetes_charts()["karpenter"].version == "1.14.1"
    assert tuple(f"ec2:Describe{one}" for one in calls) == READS
    assert "placementGroup" not in (TEMPLATES / "nodeclass.yaml.j2").read_text()
    assert "enableZonalShift" not in (TEMPLATES / "values-karpenter.yaml.j2").read_text()


def test_policy_fits_the_size_limit_of_a_role() -> None:
    many = replace(SCOPE, reservations=[f"cr-{n:017x}" for n in range(50)], subnets=[f"{EC2}:subnet/subnet-{n:017x}" for n in range(6)])  # fmt: skip
    assert len(karpenter_policy(many)) < 10_240


def test_right_for_spot_needs_a_spot_source() -> None:
    assert "spot" not in karpenter_policy(replace(SCOPE, spot=False)).lower().replace("describespot", "")


# --- resources ---------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def found() -> tuple[Declared, ...]:
    return resources_of(a_kube_plan())


def of(resources: tuple[Declared, ...], kind: str) -> dict[str, Any]:
    return {r.name: r.inputs for r in resources if r.type.rpartition(":")[2] == kind}


def test_names_are_those_of_the_waves(found: tuple[Declared, ...]) -> None:
    role = names.kubernetes_node_role("kube")
    assert of(found, "Role")["kube-karpenter-node"]["name"] == role
    assert of(found, "InstanceProfile")["kube-karpenter-node"]["name"] == role
    assert of(found, "Queue")["kube-interruptions"]["name"] == names.interruption_queue("kube")


def test_nodes_of_karpenter_may_join(found: tuple[Declared, ...]) -> None:
    """EKS makes an entry for the role of node groups itself, and admits no second one for it."""
    entry = of(found, "AccessEntry")["kube-karpenter-node"]
    assert entry["type"] == "EC2_LINUX"
    groups = {one["nodeRoleArn"] for one in of(found, "NodeGroup").values()}
    assert entry["principalArn"] not in groups


def test_queue_gets_the_notices_of_ec2(found: tuple[Declared, ...]) -> None:
    patterns = [
        json.loads(one["eventPattern"])
        for name, one in of(found, "EventRule").items()
        if name.startswith("kube-interruptions-")
    ]
    assert len(patterns) == len(PATTERNS)
    assert all(one in patterns for one in PATTERNS.values())
    assert of(found, "Queue")["kube-interruptions"]["sqsManagedSseEnabled"] is True


def test_controller_has_its_role_by_pod_identity(found: tuple[Declared, ...]) -> None:
    identity = of(found, "PodIdentityAssociation")["kube-karpenter"]
    assert (identity["namespace"], identity["serviceAccount"]) == ("karpenter", "karpenter")
    policy = of(found, "RolePolicy")["kube-karpenter"]["policy"]
    assert {sid for sid, _ in rights_of(policy)} == {sid for sid, _ in NEEDS} - {"VolumeKey", "VolumeGrant"}


def test_controller_may_use_the_key_of_the_disks_of_its_nodes() -> None:
    found = of(resources_of(with_aws(kms_key="alias/research")), "RolePolicy")["kube-karpenter"]["policy"]
    assert {sid for sid, _ in rights_of(found)} == {sid for sid, _ in NEEDS}
    (key,) = {one for s in json.loads(found)["Statement"] if s["Sid"] == "VolumeKey" for one in s["Resource"]}
    assert key.startswith("arn:aws:kms:")


def test_cluster_of_always_on_nodes_has_no_karpenter() -> None:
    plan = a_kube_plan(
        ("{min: 1, max: 6}", "1"), ("nvidia.com/mig-1g.10gb: 28", "nvidia.com/mig-1g.10gb: 14")
    )
    kinds = {one.type for one in resources_of(plan)}
    assert "aws:sqs/queue:Queue" not in kinds
    assert "gpucluster:aws:EksKarpenter" not in kinds
