"""Rights of pods: a role for each service account of a team, which only its pods in one namespace of one cluster assume."""

import json
from dataclasses import replace
from typing import Any

import pytest
from support import eks_plans
from support.builders import a_kube_plan
from support.declared import Declared
from support.eks_plans import resources_of
from support.permissions import RIGHTS, rights_of

from gpucluster.aws.eks.policies import trust_pods
from gpucluster.plan.model.kubernetes import PodIdentity
from gpucluster.plan.names import pods_role
from gpucluster.sandbox.aws.iam.policies import Need, allows
from gpucluster.spec.fields import MAX_NAME

TRAINER = pods_role("research", "trainer")
CLUSTER = "arn:aws:eks:us-west-2:123456789012:cluster/kube"


@pytest.fixture(scope="module")
def found() -> tuple[Declared, ...]:
    return resources_of(eks_plans.everything())


def of(resources: tuple[Declared, ...], kind: str) -> dict[str, Any]:
    return {r.name: r.inputs for r in resources if r.type.rpartition(":")[2] == kind}


def test_each_service_account_has_an_association(found: tuple[Declared, ...]) -> None:
    (one,) = of(found, "PodIdentityAssociation").keys() - {"kube-karpenter"}
    assert one == f"kube-{TRAINER}"
    made = of(found, "PodIdentityAssociation")[one]
    assert (made["namespace"], made["serviceAccount"]) == ("research", "trainer")
    assert made["roleArn"].endswith(f":role/kube-{TRAINER}")


def test_cluster_without_accounts_has_no_role_of_teams() -> None:
    plan = a_kube_plan()
    assert not plan.kubernetes.pod_identities
    assert of(resources_of(plan), "PodIdentityAssociation").keys() == {"kube-karpenter"}


def test_accounts_whose_names_run_together_have_roles_of_their_own() -> None:
    """`a-b` of the namespace `c` and `b` of `c-a`: one name would give one account the other's rights."""
    names = [("c", "a-b"), ("c-a", "b"), ("c", "a"), ("d", "a")]
    identities = tuple(
        PodIdentity(team=n, namespace=n, service_account=a, read=("s3://example-data",)) for n, a in names
    )
    plan = a_kube_plan()
    plan = replace(plan, kubernetes=replace(plan.kubernetes, pod_identities=identities))
    made = of(resources_of(plan), "PodIdentityAssociation").values()
    found = {one["roleArn"]: (one["namespace"], one["serviceAccount"]) for one in made}
    assert sorted(found.values()) == sorted([*names, ("karpenter", "karpenter")])


def test_longest_names_leave_room_for_the_suffix_of_pulumi() -> None:
    """IAM takes 64 characters, and Pulumi adds 8 to the name of a role."""
    assert len(f"{'c' * MAX_NAME}-{pods_role('n' * 63, 'a' * 253)}") + 8 <= 64


def test_rights_are_those_of_jobs_of_slurm(found: tuple[Declared, ...]) -> None:
    """The same words in the spec give the same statements; a table ties each to its need in S3."""
    rights = rights_of(of(found, "RolePolicy")[f"kube-{TRAINER}"]["policy"])
    assert set(rights) <= RIGHTS.keys()
    assert {action for _, action in rights} == {
        *("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListBucket"),
    }


@pytest.mark.parametrize(
    ("action", "on", "may"),
    [
        ("s3:GetObject", "example-data/sets/a", True),
        ("s3:PutObject", "example-data/sets/a", False),
        ("s3:PutObject", "example-data/checkpoints/a", True),
        ("s3:GetObject", "other/a", False),
    ],
)
def test_pods_use_their_places_alone(action: str, on: str, may: bool, found: tuple[Declared, ...]) -> None:
    document = json.loads(of(found, "RolePolicy")[f"kube-{TRAINER}"]["policy"])
    assert allows([document], Need(action=action, resource=f"arn:aws:s3:::{on}")) is may


def test_trust_names_cluster_namespace_and_service_account() -> None:
    (statement,) = json.loads(trust_pods("123456789012", CLUSTER, "research", "trainer"))["Statement"]
    assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert statement["Action"] == ["sts:AssumeRole", "sts:TagSession"]
    assert statement["Condition"] == {
        "StringEquals": {
            "aws:SourceAccount": "123456789012",
            "aws:RequestTag/kubernetes-namespace": "research",
            "aws:RequestTag/kubernetes-service-account": "trainer",
        },
        "ArnEquals": {"aws:SourceArn": CLUSTER},
    }


def test_every_role_of_pods_has_such_a_trust(found: tuple[Declared, ...]) -> None:
    trusts = {
        name: one["assumeRolePolicy"]
        for name, one in of(found, "Role").items()
        if "pods.eks" in one["assumeRolePolicy"]
    }
    assert trusts.keys() == {
        "kube-aws-ebs-csi-driver",
        "kube-karpenter",
        f"kube-{TRAINER}",
        "kube-vpc-cni",
    }
    for trust in trusts.values():
        (statement,) = json.loads(trust)["Statement"]
        assert statement["Condition"].keys() == {"StringEquals", "ArnEquals"}


def test_boundary_of_the_site_limits_every_role() -> None:
    boundary = "arn:aws:iam::123456789012:policy/bound"
    roles = of(resources_of(eks_plans.with_aws(boundary=boundary)), "Role")
    assert len(roles) >= 5
    assert {one.get("permissionsBoundary") for one in roles.values()} == {boundary}


def test_pods_beside_slurm_never_reach_the_bucket_of_the_cluster() -> None:
    """Who writes the bundle is root on every machine of Slurm. The fault: the policy had no Deny in a hybrid cluster."""
    resources = resources_of(eks_plans.hybrid())
    document = json.loads(of(resources, "RolePolicy")[f"kube-{TRAINER}"]["policy"])
    (deny,) = [one for one in document["Statement"] if one["Effect"] == "Deny"]
    (bucket,) = of(resources, "BucketPolicy")
    assert deny["Action"] == "s3:*"
    assert [one.removesuffix("/*").rpartition("/")[2] for one in deny["Resource"]] == [bucket, bucket]


def test_clusters_of_slurm_and_eks_have_disjoint_node_pools_in_one_vpc() -> None:
    resources = resources_of(eks_plans.hybrid())
    assert len(of(resources, "Vpc")) == 1
    groups = {one["nodeGroupName"].partition("-")[0] for one in of(resources, "NodeGroup").values()}
    assert groups == {"system", "tune", "serve"}
