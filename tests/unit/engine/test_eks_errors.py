"""Refusals of EKS name the field of the spec. The words are those of the sandbox's EKS, which quote the service."""

import pytest
from support.builders import a_kube_plan
from support.eks_plans import ADMIN, BLOCK, BOTH, PERSON, PREPAID, everything, hybrid

from gpucluster.engine.error_attribution import explainer, field_of
from gpucluster.plan.model import AwsPlan, eks_of
from gpucluster.plan.names import pods_role, principal_word

GROUP, ENTRY = "aws:eks/nodeGroup:NodeGroup", "aws:eks/accessEntry:AccessEntry"
CLUSTER, ADDON = "aws:eks/cluster:Cluster", "aws:eks/addon:Addon"
POLICY = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"


def refused(code: str, text: str) -> str:
    return f"An error occurred ({code}) when calling the X operation: {text}"


def group_names(plan: AwsPlan) -> dict[str, str]:
    """Pool -> name of the resource of its first node group."""
    plane = eks_of(plan)
    assert plane is not None
    return {one.pool: f"{plan.name}-{one.key}" for one in reversed(plane.groups)}


@pytest.mark.parametrize("plan", [everything(), hybrid()], ids=["alone", "beside Slurm"])
def test_resource_of_eks_maps_to_the_spec(plan: AwsPlan) -> None:
    groups = group_names(plan)
    for kind in (GROUP, "aws:ec2/launchTemplate:LaunchTemplate"):
        assert field_of(plan, kind, groups["tune"]) == "pools[tune].capacity[0].machines"
        assert field_of(plan, kind, groups["system"]) == "kubernetes.system"
    admins = {
        one: field_of(plan, ENTRY, f"{plan.name}-{principal_word(one)}") for one in (ADMIN, BOTH, PERSON)
    }
    assert admins == {
        ADMIN: "kubernetes.admins",
        BOTH: "kubernetes.admins",
        PERSON: "kubernetes.teams[].members",
    }
    part = plan.kubernetes
    assert part is not None
    (account,) = (one for one in part.pod_identities if one.service_account == "trainer")
    word = pods_role(account.namespace, account.service_account)
    kind = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
    found = field_of(plan, kind, f"{plan.name}-{word}")
    assert found == "kubernetes.teams[research].service_accounts[trainer]"


def test_node_group_of_a_pool_with_parts_maps_to_the_spec() -> None:
    """An elastic pool with EFA is one part for each zone: the search for its name ended without the cloud's words."""
    plan = a_kube_plan(("    nodes: 4\n", "    nodes: {min: 2, max: 4}\n"))
    told = explainer(plan)(GROUP, group_names(plan)["tune"], refused("ResourceLimitExceededException", "no"))
    assert told.startswith("pools[tune].capacity[0].machines: ")


WORDS = principal_word(PERSON)
SAID = [
    (CLUSTER, "kube", refused("InvalidParameterException", "unsupported Kubernetes version"), "kubernetes.version: EKS does not have this version", "a version that EKS supports in kubernetes.version"),
    (CLUSTER, "kube", refused("InvalidParameterException", "Unsupported Kubernetes minor version update from 1.34 to 1.36"), "kubernetes.version: EKS goes one minor version up", "the next minor version in kubernetes.version"),
    (CLUSTER, "kube", refused("InvalidParameterException", "Subnets specified must be in at least two different AZs"), "aws.network.zones: EKS needs two zones", "aws.network.zones"),
    (CLUSTER, "kube", refused("UnsupportedAvailabilityZoneException", "Cannot create cluster because the availability zone us-east-1e does not have capacity"), "aws.network.zones: EKS needs two zones", "aws.network.zones"),
    (CLUSTER, "kube", refused("InvalidParameterException", "The following CIDRs are not allowed in publicAccessCidrs: [10.0.0.0/8]"), "kubernetes.api_from: EKS does not take these ranges", "kubernetes.api_from"),
    (ADDON, "kube-coredns", refused("InvalidParameterException", "Addon version specified is not supported"), "kubernetes.version: EKS does not have this version of the add-on", "describe-addon-versions"),
    (ADDON, "kube-coredns", refused("ResourceInUseException", "Addon already exists."), "kubernetes.version: the add-on was installed without this stack", "delete-addon --preserve"),
    (ENTRY, f"kube-{WORDS}", refused("InvalidParameterException", "The specified principalArn is invalid: invalid principal."), "kubernetes.teams[].members: the account has no such role", "take it out of kubernetes.teams[].members"),
    (ENTRY, f"kube-{WORDS}", refused("ResourceInUseException", "The specified access entry resource is already in use on this cluster."), "kubernetes.teams[].members: the cluster admits this principal already", "delete-access-entry"),
    (POLICY, f"kube-{principal_word(ADMIN)}", refused("ResourceNotFoundException", "The specified principalArn could not be found."), "kubernetes.admins: the access entry was deleted by hand", "pulumi refresh"),
    ("aws:cloudwatch/logGroup:LogGroup", "kube-control-plane", "operation error CloudWatch Logs: CreateLogGroup, https response error StatusCode: 400, ResourceAlreadyExistsException: The specified log group already exists", "a control plane of this name has written logs after its log group was deleted", "aws logs delete-log-group"),
    ("aws:iam/role:Role", "kube-karpenter-node", "operation error IAM: CreateRole, https response error StatusCode: 409, EntityAlreadyExists: Role with name kube-kubernetes-node already exists.", "the account has this role already", "another name of the cluster"),
    (GROUP, group_names(everything())["tune"], "kube:x is CREATE_FAILED: Could not launch On-Demand Instances. VcpuLimitExceeded - no", "pools[tune].capacity[0].machines: the account's quota does not allow it, and EKS keeps the node group as failed", "Service Quotas; then `pulumi up --replace URN`"),
    (GROUP, group_names(everything())["tune"], "kube:x is CREATE_FAILED: Could not launch On-Demand Instances. InsufficientInstanceCapacity - no", "pools[tune].capacity[0].machines: the cloud has none left now, and EKS keeps the node group as failed", "another machine or zone in pools[tune].capacity[0].machines"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "words", "said", "step"), SAID, ids=[row[2][:90] for row in SAID])
def test_refusal_of_eks_names_the_field(kind: str, name: str, words: str, said: str, step: str) -> None:
    told = explainer(everything())(kind, name, words)
    assert told.startswith(said), told
    assert words in told
    assert step in told.partition("next: ")[2]


def test_block_that_has_not_begun_names_its_id() -> None:
    """The words were those of a reservation that is not there, and no reservation of a Kubernetes pool had its field."""
    plan = a_kube_plan(*PREPAID)
    words = f"kube:x is CREATE_FAILED: Could not launch Capacity Block Instances. InvalidCapacityReservationState.PendingActivation - The capacity reservation '{BLOCK}' is not active yet."
    told = explainer(plan)(GROUP, group_names(plan)["tune"], words)
    assert told.startswith("pools[tune].capacity[0].id: the reservation has not begun"), told
    assert told.endswith("next: after its start `pulumi up --replace URN`, with the URN of the node group")
