"""Always-on nodes on EKS: what a node group and its launch template say for each market."""

import base64
import json
from email import message_from_string
from typing import Any

import pytest
from moto.iam.aws_managed_policies import aws_managed_policies_data
from ruamel.yaml import YAML
from support import eks_plans
from support.builders import a_kube_plan
from support.declared import Declared
from support.eks_plans import BLOCK, RESERVATION, resources_of

from gpucluster.aws.eks.node_groups import RAID0
from gpucluster.aws.eks.roles import CLUSTER_POLICIES, NODE_POLICIES
from gpucluster.plan.eks import ami_type

GROUP, TEMPLATE = "aws:eks/nodeGroup:NodeGroup", "aws:ec2/launchTemplate:LaunchTemplate"
TUNE, SERVE = "kube-tune-on-demand-p4de-24xlarge-2a", "kube-serve-spot-p4de-24xlarge-2a"


def of(resources: tuple[Declared, ...], kind: str) -> dict[str, Any]:
    return {r.name: r.inputs for r in resources if r.type == kind}


@pytest.fixture(scope="module")
def ordinary() -> tuple[Declared, ...]:
    return resources_of(a_kube_plan())


@pytest.fixture(scope="module")
def prepaid() -> tuple[Declared, ...]:
    return resources_of(eks_plans.prepaid())


def test_each_pool_has_a_group_of_its_always_on_nodes(ordinary: tuple[Declared, ...]) -> None:
    found = {name: one["scalingConfig"] for name, one in of(ordinary, GROUP).items()}
    assert found == {
        "kube-system-m7i-xlarge": {"minSize": 2, "desiredSize": 2, "maxSize": 2},
        TUNE: {"minSize": 4, "desiredSize": 4, "maxSize": 4},
        SERVE: {"minSize": 1, "desiredSize": 1, "maxSize": 1},
    }


def test_image_has_a_release_and_the_driver_where_gpus_are(ordinary: tuple[Declared, ...]) -> None:
    found = {name: (one["amiType"], one["releaseVersion"]) for name, one in of(ordinary, GROUP).items()}
    assert found[TUNE] == found[SERVE] == ("AL2023_x86_64_NVIDIA", "1.36.3-20260903")
    assert found["kube-system-m7i-xlarge"] == ("AL2023_x86_64_STANDARD", "1.36.3-20260903")
    assert ami_type("arm64", 4) == "AL2023_ARM_64_NVIDIA"


def test_nodes_carry_the_labels_and_taints_of_their_pool(ordinary: tuple[Declared, ...]) -> None:
    groups = of(ordinary, GROUP)
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}
    assert groups[TUNE]["taints"] == [taint]
    assert groups[TUNE]["labels"]["gpucluster/pool"] == "tune"
    system = groups["kube-system-m7i-xlarge"]
    assert "taints" not in system, "the charts of add-ons and controllers tolerate nothing"
    assert "gpucluster/pool" not in system["labels"], "no queue counts these nodes"


def test_markets_buy_as_they_should(ordinary: tuple[Declared, ...], prepaid: tuple[Declared, ...]) -> None:
    groups = {**of(ordinary, GROUP), **of(prepaid, GROUP)}
    found = {name: one["capacityType"] for name, one in groups.items()}
    assert found[TUNE] == "ON_DEMAND"
    assert found[SERVE] == "SPOT"
    assert found[f"kube-tune-{BLOCK}-2a"] == "CAPACITY_BLOCK"
    assert found[f"kube-serve-{RESERVATION}-2a"] == "ON_DEMAND"


def test_update_ends_a_scarce_node_before_it_launches_another(
    ordinary: tuple[Declared, ...], prepaid: tuple[Declared, ...]
) -> None:
    """Regression: an update that launches first fails for reserved machines, and for GPUs that are sold out."""
    groups = {**of(ordinary, GROUP), **of(prepaid, GROUP)}
    found = {name: one["updateConfig"] for name, one in groups.items()}
    assert {one["maxUnavailable"] for one in found.values()} == {1}
    ways = {name: one["updateStrategy"] for name, one in found.items()}
    assert ways.pop("kube-system-m7i-xlarge") == "DEFAULT"
    assert set(ways.values()) == {"MINIMAL"}


def test_reservation_is_targeted_by_id(prepaid: tuple[Declared, ...]) -> None:
    templates = of(prepaid, TEMPLATE)
    for name in (BLOCK, RESERVATION):
        (one,) = (template for key, template in templates.items() if name in key)
        target = one["capacityReservationSpecification"]["capacityReservationTarget"]
        assert target == {"capacityReservationId": name}
        assert "placement" not in one, "reserved capacity has its place (T27)"


def test_template_of_a_block_names_market_and_machine(prepaid: tuple[Declared, ...]) -> None:
    """EKS refuses the machine in the group if the template has it, and a block needs its market in the template."""
    name = f"kube-tune-{BLOCK}-2a"
    template = of(prepaid, TEMPLATE)[name]
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert template["instanceType"] == "p5.48xlarge"
    assert "instanceTypes" not in of(prepaid, GROUP)[name]


def test_only_blocks_have_market_and_machine_in_the_template(ordinary: tuple[Declared, ...]) -> None:
    for template in of(ordinary, TEMPLATE).values():
        assert template.keys() & {"instanceMarketOptions", "instanceType"} == set()


def test_efa_has_an_interface_on_each_card_in_the_group_with_its_own_rules(
    ordinary: tuple[Declared, ...], prepaid: tuple[Declared, ...]
) -> None:
    kinds = [one["interfaceType"] for one in of(ordinary, TEMPLATE)[TUNE]["networkInterfaces"]]
    assert kinds == ["interface", "efa-only", "efa-only", "efa-only", "efa-only"]
    block = of(prepaid, TEMPLATE)[f"kube-tune-{BLOCK}-2a"]["networkInterfaces"]
    assert len(block) == len({(one["networkCardIndex"], one["deviceIndex"]) for one in block}) == 33
    for template in of(ordinary, TEMPLATE).values():
        for one in template.get("networkInterfaces", []):
            assert one["securityGroups"] == ["securityGroup-kube-kubernetes-node"]
            assert "subnetId" not in one, "EKS sets the subnet"
        groups = template.get("vpcSecurityGroupIds")
        assert (groups is None) == ("networkInterfaces" in template), "one of both (T31)"


def test_gang_without_reserved_place_gets_a_placement_group(ordinary: tuple[Declared, ...]) -> None:
    assert of(ordinary, TEMPLATE)[TUNE]["placement"]["groupName"]
    assert "placement" not in of(ordinary, TEMPLATE)[SERVE], "its GPUs are sliced, and one node is no gang"


def test_template_has_nothing_that_eks_refuses(
    ordinary: tuple[Declared, ...], prepaid: tuple[Declared, ...]
) -> None:
    refused = {"iamInstanceProfile", "instanceInitiatedShutdownBehavior", "imageId", "hibernationOptions"}
    templates = {**of(ordinary, TEMPLATE), **of(prepaid, TEMPLATE)}
    assert {name: keys for name, one in templates.items() if (keys := one.keys() & refused)} == {}


def test_pods_do_not_reach_the_role_of_their_node(ordinary: tuple[Declared, ...]) -> None:
    for template in of(ordinary, TEMPLATE).values():
        options = template["metadataOptions"]
        assert (options["httpTokens"], options["httpPutResponseHopLimit"]) == ("required", 1)
        assert template["blockDeviceMappings"][0]["ebs"]["encrypted"] == "true"


def test_launched_resources_have_the_tags_of_the_cluster(ordinary: tuple[Declared, ...]) -> None:
    for template in of(ordinary, TEMPLATE).values():
        for one in template["tagSpecifications"]:
            assert one["tags"]["gpucluster:cluster"] == "kube"
            assert one["tags"]["gpucluster:role"] == "kubernetes-node"


def test_local_disks_become_one_file_system(ordinary: tuple[Declared, ...]) -> None:
    """nodeadm reads a part of this type; EKS adds its own part with the name and the address of the cluster."""
    text = base64.b64decode(of(ordinary, TEMPLATE)[TUNE]["userData"]).decode()
    assert text == RAID0
    (part,) = list(message_from_string(text).walk())[1:]
    assert part.get_content_type() == "application/node.eks.aws"
    config = YAML(typ="safe").load(part.get_payload())
    assert (config["apiVersion"], config["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig")
    assert config["spec"]["instance"]["localStorage"]["strategy"] == "RAID0"
    assert "userData" not in of(ordinary, TEMPLATE)["kube-system-m7i-xlarge"]


def test_key_of_the_site_encrypts_the_disks() -> None:
    templates = of(resources_of(eks_plans.with_aws(kms_key="alias/research")), TEMPLATE)
    assert {one["blockDeviceMappings"][0]["ebs"]["kmsKeyId"] for one in templates.values()} != {None}


def test_name_of_a_group_fits_eks() -> None:
    """At most 63 characters of letters, digits, `-` and `_`."""
    for plan in (a_kube_plan(), eks_plans.prepaid()):
        for name, one in of(resources_of(plan), GROUP).items():
            assert len(one["nodeGroupName"]) <= 63, name
            assert "." not in one["nodeGroupName"]


# policy of AWS -> an action that it must allow, for the need that `aws/eks/roles.py` names
NEEDS = {
    "AmazonEKSClusterPolicy": "ec2:DescribeInstanceTopology",
    "AmazonEKSWorkerNodePolicy": "ec2:DescribeInstances",
    "AmazonEC2ContainerRegistryPullOnly": "ecr:BatchGetImage",
}


@pytest.mark.parametrize("name", [*CLUSTER_POLICIES, *NODE_POLICIES])
def test_policy_of_aws_exists_and_serves_its_need(name: str) -> None:
    """moto carries AWS's own list of managed policies."""
    found = json.loads(aws_managed_policies_data)[name]
    assert found["Path"] == "/"
    actions = [action for one in found["Document"]["Statement"] for action in one["Action"]]
    assert NEEDS[name] in actions


def test_nodes_have_no_right_beside_these(ordinary: tuple[Declared, ...]) -> None:
    attached = of(ordinary, "aws:iam/rolePolicyAttachment:RolePolicyAttachment")
    found = {name for name in attached if name.startswith("kube-node-groups")}
    assert found == {f"kube-node-groups-{policy}" for policy in NODE_POLICIES}
    assert "kube-node-groups" not in of(ordinary, "aws:iam/rolePolicy:RolePolicy")
