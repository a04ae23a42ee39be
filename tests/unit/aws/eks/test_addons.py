"""Add-ons of EKS: pinned versions, the order around nodes, and the rights that each has."""

import json
from dataclasses import replace
from typing import Any

import pytest
from moto.iam.aws_managed_policies import aws_managed_policies_data
from support import eks_plans
from support.builders import a_kube_plan
from support.declared import Declared
from support.eks_permissions import ATTACHED, ROLE_POLICIES
from support.eks_plans import resources_of

from gpucluster.aws.eks.addons import RIGHTS
from gpucluster.catalog import eks_addon_versions
from gpucluster.plan.eks import ADDONS
from gpucluster.plan.model import eks_of
from gpucluster.plan.model.eks import Addon

ADDON = "aws:eks/addon:Addon"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return of(resources_of(a_kube_plan()))


def of(resources: tuple[Declared, ...]) -> dict[str, Any]:
    return {r.inputs["addonName"]: r.inputs for r in resources if r.type == ADDON}


def test_every_addon_has_a_pinned_version(found: dict[str, Any]) -> None:
    pins = eks_addon_versions("1.36")
    assert {name: one["addonVersion"] for name, one in found.items()} == {name: pins[name] for name in found}


@pytest.mark.parametrize("version", ["1.35", "1.36"])
def test_catalog_has_every_addon(version: str) -> None:
    assert eks_addon_versions(version).keys() == ADDONS.keys()


def test_version_without_pins_takes_the_default_of_eks() -> None:
    plane = eks_of(a_kube_plan(('"1.36"', '"1.34"')))
    assert plane is not None
    assert {one.version for one in plane.addons} == {None}


def test_driver_follows_the_storage_of_the_spec(found: dict[str, Any]) -> None:
    assert "aws-fsx-csi-driver" in found
    assert "aws-efs-csi-driver" not in found
    without = a_kube_plan(
        ("storage:\n  - {mount: /data, fsx_lustre: {zone: us-west-2a, size: 2400GiB}}\n", "")
    )
    assert "aws-fsx-csi-driver" not in of(resources_of(without))


def test_network_policies_are_enforced(found: dict[str, Any]) -> None:
    """By default the add-on ignores them."""
    assert json.loads(found["vpc-cni"]["configurationValues"])["enableNetworkPolicy"] == "true"


def test_nodes_hold_few_addresses_for_pods(found: dict[str, Any]) -> None:
    """By default a node holds those of a whole spare interface: 50 of a large machine. `check` counts what we set."""
    env = json.loads(found["vpc-cni"]["configurationValues"])["env"]
    assert env == {"MINIMUM_IP_TARGET": "16", "WARM_IP_TARGET": "4"}


def test_dcgm_server_of_the_monitoring_agent_runs_on_nodes_with_gpus(found: dict[str, Any]) -> None:
    """It tolerates no taint by default, and without it the agent reports each GPU as sick."""
    values = json.loads(found["eks-node-monitoring-agent"]["configurationValues"])
    assert values == {"dcgmAgent": {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}}


def test_our_configuration_wins(found: dict[str, Any]) -> None:
    ways = {(one["resolveConflictsOnCreate"], one["resolveConflictsOnUpdate"]) for one in found.values()}
    assert ways == {("OVERWRITE", "OVERWRITE")}


def test_addons_that_nodes_need_to_join_come_first() -> None:
    plane = eks_of(a_kube_plan())
    assert plane is not None
    early = {one.name for one in plane.addons if not one.on_nodes}
    assert early == {"vpc-cni", "kube-proxy", "eks-pod-identity-agent"}


def test_addon_of_another_name_gets_no_right() -> None:
    plan = eks_plans.with_plane(addons=(Addon(name="coredns", version=None, on_nodes=True),))
    (one,) = of(resources_of(plan)).values()
    assert one.keys() & {"podIdentityAssociations", "addonVersion"} == set()


# policy of AWS -> an action that the add-on cannot do without
NEEDS = {
    "AmazonEBSCSIDriverPolicyV2": "ec2:AttachVolume",
    "AmazonEKS_CNI_Policy": "ec2:AssignPrivateIpAddresses",
}


@pytest.mark.parametrize(("name", "policy"), [(name, policy) for name, (policy, _) in RIGHTS.items()])
def test_addon_has_its_policy_by_pod_identity_and_no_node_has_it(
    name: str, policy: str, found: dict[str, Any]
) -> None:
    known = json.loads(aws_managed_policies_data)[policy]
    assert known["Path"] == "/"
    actions = [action for one in known["Document"]["Statement"] for action in one["Action"]]
    assert NEEDS[policy] in actions
    (identity,) = found[name]["podIdentityAssociations"]
    assert identity == {"roleArn": f"arn:aws:iam:us-east-2:123456789012:role/kube-{name}", "serviceAccount": RIGHTS[name][1]}  # fmt: skip
    attached = [
        r.inputs
        for r in resources_of(replace(a_kube_plan()))
        if r.type.endswith(":RolePolicyAttachment") and r.inputs["policyArn"].endswith(f"/{policy}")
    ]
    assert [one["role"] for one in attached] == [f"name-of-kube-{name}"]


def test_page_of_permissions_has_each_policy_of_aws() -> None:
    assert sorted(ATTACHED) == sorted(ROLE_POLICIES)
