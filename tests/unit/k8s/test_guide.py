"""The guide of a rendered tree on EKS: what `pulumi up` creates is among the program's resources, and no more is left to a person."""

import re
from collections.abc import Iterator

import pytest
from support import eks_plans
from support.builders import a_kube_plan
from support.declared import Declared
from support.eks_plans import resources_of
from support.kube import MONITORED, TRAINED, Change, files

from gpucluster import k8s
from gpucluster.k8s.waves import WAVES
from gpucluster.plan.model import KubernetesOnAws

CREATED, NEEDED = "`pulumi up` creates:", "It does not create these. They must exist before the first wave:"
DATA = "storage:\n  - {mount: /data, fsx_lustre: {zone: us-west-2a, size: 2400GiB}}\n"
NOTHING_ELASTIC = ("{min: 1, max: 6}", "1")


def page(plan: KubernetesOnAws) -> str:
    return next(one.content.decode() for one in k8s.render(plan) if one.path == "k8s/README.md")


def lines(plan: KubernetesOnAws, title: str) -> list[str]:
    """The list after the title."""
    block = page(plan).partition(f"{title}\n\n")[2].partition("\n\n")[0]
    return [line.removeprefix("- ") for line in block.splitlines()]


def values(resources: tuple[Declared, ...], kind: str, key: str) -> list[str]:
    return [r.inputs[key] for r in resources if r.type.rpartition(":")[2] == kind]


def backed(resources: tuple[Declared, ...]) -> Iterator[tuple[str, list[str]]]:
    """Yield the words of a line, and what of it the program declares: each word in backquotes must be there."""
    yield "the EKS cluster", [*values(resources, "Cluster", "name"), *values(resources, "Addon", "addonName")]
    yield "the node group", values(resources, "NodeGroup", "nodeGroupName")
    groups = [g for r in resources for g in r.inputs.get("kubernetesGroups", [])]
    people = [
        r.inputs["principalArn"] for r in resources if r.inputs.get("type") == "STANDARD"
    ]  # others are of nodes
    yield "an access entry", [*people, *groups]
    yield (
        "for Karpenter",
        [*values(resources, "InstanceProfile", "name"), *values(resources, "Queue", "name")],
    )
    pods = [f"{r.inputs['namespace']}/{r.inputs['serviceAccount']}" for r in resources if r.type.endswith(":PodIdentityAssociation")]  # fmt: skip
    yield "a pod identity association", pods


def test_every_created_thing_is_a_resource_of_the_program() -> None:
    plan = eks_plans.everything()
    resources = resources_of(plan)
    known = dict(backed(resources))
    policies = " ".join(values(resources, "RolePolicy", "policy"))
    for line in lines(plan, CREATED):
        words = next((words for start, words in known.items() if line.startswith(start)), None)
        if words is None:
            assert line == "the file system of `/data`: FSx for Lustre"
            continue
        for word in re.findall("`([^`]+)`", line):
            place = f"arn:aws:s3:::{word.removeprefix('s3://')}/*"
            assert word in words or (word.startswith("s3://") and place in policies), line
    assert values(resources, "LustreFileSystem", "storageCapacity") == [2400]


def test_every_resource_with_a_name_is_in_the_guide() -> None:
    """Karpenter's association is in its line, by no name."""
    plan = eks_plans.everything()
    text = " ".join(lines(plan, CREATED))
    for words in dict(backed(resources_of(plan))).values():
        assert words
        assert [word for word in words if word != "karpenter/karpenter" and f"`{word}`" not in text] == []


def test_nodes_are_those_of_the_node_groups() -> None:
    plan = eks_plans.everything()
    sizes = {r.inputs["nodeGroupName"]: r.inputs["scalingConfig"]["desiredSize"] for r in resources_of(plan) if r.type.endswith(":NodeGroup")}  # fmt: skip
    for line in lines(plan, CREATED):
        if found := re.match(r"the node group `(.+)`: (\d+) node", line):
            assert int(found[2]) == sizes.pop(found[1])
    assert not sizes


def test_guide_leaves_out_what_the_program_does_not_make() -> None:
    text = " ".join(lines(a_kube_plan(NOTHING_ELASTIC, (DATA, "")), CREATED))
    assert "Karpenter" not in text
    assert "file system" not in text
    assert "pod identity association" not in text


def test_groups_without_members_are_left_to_a_person() -> None:
    plan = eks_plans.everything()
    assert "people in the groups `gpucluster:serving` (none are in `teams[].members` of the spec)" in lines(plan, NEEDED)  # fmt: skip
    both = next(line for line in lines(a_kube_plan(), NEEDED) if line.startswith("people"))
    assert "`gpucluster:research`" in both


def test_owner_of_a_cluster_that_exists_makes_all_of_it() -> None:
    text = page(a_kube_plan(("control_plane: eks", "existing: {context: prod, eks_name: prod}")))
    assert CREATED not in text
    assert "\nThese must exist before the first wave:\n" in text
    assert (
        "- an IAM role for Karpenter's controller, with the policies of Karpenter's guide for the cluster `prod`, and an association of EKS Pod Identity with the service account `karpenter/karpenter`\n"
        in text
    )
    assert (
        "- the IAM role `kube-kubernetes-node` for nodes that Karpenter makes, with an access entry of the type EC2_LINUX; the controller's role may pass it\n"
        in text
    )


@pytest.mark.parametrize("changes", [(), (MONITORED, TRAINED)], ids=["usual", "all"])
def test_guide_names_the_waves_that_are_there(changes: tuple[Change, ...]) -> None:
    texts = files(*changes)
    there = {path.partition("/")[0] for path in texts}
    waves = [wave.folder for wave in WAVES if wave.folder in there]
    _, _, rest = texts["README.md"].partition("## The waves\n\n")
    assert re.findall(r"^- `(.*?)`", rest.partition("\n\n")[0], re.MULTILINE) == waves
