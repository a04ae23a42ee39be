"""What must exist before a resource of EKS, from the offline planner."""

import pytest
from support import eks_plans
from support.builders import a_kube_plan
from support.planned import names_of, one

from gpucluster.engine.offline import planner
from gpucluster.engine.offline.model import Planned
from gpucluster.gitops.model import Kind
from gpucluster.gitops.resources import compare


@pytest.fixture(scope="module")
def planned() -> Planned:
    return planner.run("gpucluster.aws.program:declare", a_kube_plan())


@pytest.mark.parametrize("addon", ["coredns", "aws-ebs-csi-driver", "eks-node-monitoring-agent"])
def test_addon_waits_for_the_system_nodes_alone(planned: Planned, addon: str) -> None:
    """Regression: a group of GPUs without capacity left the cluster without DNS and drivers."""
    before = names_of(one(planned, f"Addon kube-{addon}").dependencies)
    assert {word for word in before if word.startswith("NodeGroup")} == {"NodeGroup kube-system-m7i-xlarge"}


def test_nodes_need_the_rules_of_their_groups_until_they_are_drained(planned: Planned) -> None:
    """Pulumi deletes in the other order: EKS drains nodes while they reach the API server and it reaches their kubelets."""
    groups = [r for r in planned.resources if r.type.endswith(":NodeGroup")]
    assert len(groups) == 3
    needed = {
        "SecurityGroupIngressRule kube-control-plane-nodes",
        "SecurityGroupIngressRule kube-kubernetes-node-control-plane-10250",
        "SecurityGroupEgressRule kube-kubernetes-node-out",
    }
    for group in groups:
        assert needed <= names_of(group.dependencies), group.name


def test_update_of_a_group_has_time_for_each_of_its_nodes(planned: Planned) -> None:
    """The provider's hour was too short for groups with many nodes: `pulumi up` failed while EKS went on."""
    found = {r.name: r.timeouts.update for r in planned.resources if r.type.endswith(":NodeGroup")}
    assert sorted(found.values()) == ["100m", "140m", "220m"]
    assert found["kube-system-m7i-xlarge"] == "140m"


def test_zone_that_is_added_later_is_no_update_of_the_control_plane(planned: Planned) -> None:
    """EKS refuses subnets of another zone than those of the cluster's creation, so `pulumi up` failed after each added zone."""
    assert one(planned, "Cluster kube").ignore_changes == ("vpcConfig.subnetIds",)


def test_another_key_of_the_secrets_is_no_silent_update(planned: Planned) -> None:
    """Regression: the provider passes over another key, and `pulumi up` deleted the key that the cluster uses."""
    assert one(planned, "Cluster kube").replace_on_changes == ("encryptionConfig",)
    assert not one(planned, "Cluster kube").delete_before_replace, (
        "the name is in use: it fails before any deletion"
    )


def test_zone_that_is_added_later_replaces_no_node_group() -> None:
    """The group of the system was deleted first: the cluster was without DNS, drivers and controllers for minutes."""
    alone, more = (
        planner.run(
            "gpucluster.aws.program:declare", a_kube_plan(("zones: [us-west-2a]", f"zones: [{zones}]"))
        )
        for zones in ("us-west-2a", "us-west-2a, us-west-2b, us-west-2c")
    )
    assert [one for one in compare(alone, more) if one.kind not in {Kind.ADDED, Kind.CHANGED}] == []
    ignored = {r.name: r.ignore_changes for r in more.resources if r.type.endswith(":NodeGroup")}
    assert ignored.pop("kube-system-m7i-xlarge") == ("subnetIds",)
    assert set(ignored.values()) == {()}  # a group of a pool has its zone in its name


def test_role_and_profile_of_a_fixed_name_are_deleted_before_they_are_replaced(planned: Planned) -> None:
    """IAM's names hold for all Regions: an edit of `aws.region` made the new role while the old one had its name."""
    kinds = ("aws:iam/role:Role", "aws:iam/instanceProfile:InstanceProfile")
    iam = [one for one in planned.resources if one.type in kinds]
    named = {one.name for one in iam if "name" in one.properties}
    assert named == {"kube-karpenter-node"}
    assert {one.name for one in iam if one.delete_before_replace} == named
    assert all(one.delete_before_replace for one in iam if one.name in named)


def test_group_of_a_capacity_block_is_replaced_instead_of_updated() -> None:
    """EKS updates it only while it has no nodes."""
    planned = planner.run("gpucluster.aws.program:declare", eks_plans.prepaid())
    found = {r.name: r.replace_on_changes for r in planned.resources if r.type.endswith(":NodeGroup")}
    block = found.pop(next(name for name in found if "cr-" in name and name.startswith("kube-tune")))
    slices = 'labels["nvidia.com/mig.config"]'
    assert set(block) == {"launchTemplate", "releaseVersion", "version", slices}
    assert set(found.values()) == {(slices,)}, "no GPU is sliced again while pods use it"
