"""Nodes of Kubernetes pools: reservations and capacity blocks, the image, network policies."""

from typing import Any

import pytest
from support.builders import a_kube_plan
from support.kube import Change, files, objects

from gpucluster import k8s
from gpucluster.k8s.lint import check, facts
from gpucluster.k8s.lint.read import read

RESERVATION = "cr-0123456789abcdef0"
ELASTIC = ("    nodes: 4\n", "    nodes: {min: 0, max: 4}\n")
EXISTS = (
    "control_plane: eks",
    "existing: {context: prod, eks_name: prod}",
)  # `pulumi up` creates the nodes of EKS
IN_A_ZONE: tuple[Change, ...] = (("required: block", "required: zone"),)
ANYWHERE: tuple[Change, ...] = (("    topology: {required: block}\n", ""),)


def _from(text: str) -> Change:
    return ("{from: on-demand, machines: [p4de.24xlarge]}", text)


def _requirements(found: dict[str, Any], name: str) -> dict[str, list[str]]:
    needed = found[f"NodePool/{name}"]["spec"]["template"]["spec"]["requirements"]
    return {one["key"]: one["values"] for one in needed}


def test_pods_of_nobody_avoid_elastic_nodes_without_gpus() -> None:
    """Regression: a pod of kube-system or of a chart kept such a node, because Karpenter removes only nodes without pods."""
    cpus = "  - {name: small, nodes: {min: 0, max: 2}, capacity: [{from: spot, machines: [m7i.2xlarge]}]}\n"
    quota = ("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/mig-1g.10gb: 28, cpu: 4}")
    found = objects(files(("pools:\n", f"pools:\n{cpus}"), quota))
    taint = {"key": "gpucluster/pool", "value": "small", "effect": "PreferNoSchedule"}
    assert found["NodePool/kube-small-0"]["spec"]["template"]["spec"]["taints"] == [taint]
    toleration = {"key": "gpucluster/pool", "operator": "Exists", "effect": "PreferNoSchedule"}
    assert found["ResourceFlavor/kube-small"]["spec"]["tolerations"] == [toleration]
    always = cpus.replace("{min: 0, max: 2}", "2")
    fixed = objects(files(("pools:\n", f"pools:\n{always}"), quota))
    (flavor,) = (one for key, one in fixed.items() if key.startswith("ResourceFlavor/kube-small"))
    assert "tolerations" not in flavor["spec"]


def test_nodes_of_karpenter_have_the_tags_of_the_site() -> None:
    """Regression: they had only ours, so the costs of elastic nodes had no tag of the site. Ours win, as on node groups."""
    found = objects(files(("region: us-west-2\n", "region: us-west-2\n  tags: {Team: Research, cost: ''}\n")))
    tags = found["EC2NodeClass/kube-serve"]["spec"]["tags"]
    ours = {"gpucluster:cluster": "kube", "gpucluster:pool": "serve", "gpucluster:role": "kubernetes-node"}
    assert tags == {"Team": "Research", "cost": "", **ours}


def test_disks_of_nodes_of_karpenter_have_the_key_of_the_site() -> None:
    """Regression: they had the account's default key, while those of node groups had the key of the spec."""
    key = ("region: us-west-2\n", "region: us-west-2\n  kms_key: alias/research\n")
    keys = [objects(files(*some))["EC2NodeClass/kube-serve"]["spec"]["blockDeviceMappings"][0]["ebs"].get("kmsKeyID") for some in ((), (key,))]  # fmt: skip
    assert keys == [None, "alias/research"]


def test_max_of_nodes_without_gpus_holds_while_many_pods_wait() -> None:
    """Karpenter counts a limit of nodes only between its rounds, so it started a node for each of the pods that waited together."""
    cpus = (
        "  - {name: small, nodes: {min: 0, max: 6}, capacity: [{from: spot, machines: [m7i.2xlarge, m6i.2xlarge], max: 4},"
        " {from: on-demand, machines: [m7i.4xlarge]}]}\n"
    )
    quota = ("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/mig-1g.10gb: 28, cpu: 4}")
    found = objects(files(("pools:\n", f"pools:\n{cpus}"), quota))
    limits = [found[f"NodePool/kube-small-{n}"]["spec"]["limits"] for n in (0, 1)]
    assert limits == [{"cpu": "32", "nodes": "4"}, {"cpu": "32", "nodes": "2"}]


def test_lint_knows_the_taint_of_elastic_nodes_without_gpus() -> None:
    """The toleration of the flavor was one that no pool has."""
    cpus = "  - {name: small, nodes: {min: 0, max: 2}, capacity: [{from: spot, machines: [m7i.2xlarge]}]}\n"
    plan = a_kube_plan(
        ("pools:\n", f"pools:\n{cpus}"),
        ("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/mig-1g.10gb: 28, cpu: 4}"),
    )
    texts = {one.path: one.content.decode() for one in k8s.render(plan)}
    read_in = [
        document
        for path, text in texts.items()
        if path.endswith(".yaml") and "/helm/" not in path
        for document in read(text, path).documents
    ]
    assert "toleration" not in [one.rule for one in check(read_in, facts(plan))]


def test_many_sources_are_tried_in_their_order() -> None:
    """Regression: from the 11th source on all had the weight 1. Of equal weights Karpenter tries the last name first."""
    source = "{from: spot, machines: [p4de.24xlarge], max: 1}"
    many = _from(", ".join([source] * 40))
    found = objects(files(("    nodes: 4\n", "    nodes: {min: 0, max: 40}\n"), many, running=ANYWHERE))
    weights = [found[f"NodePool/kube-tune.2a-{place}"]["spec"]["weight"] for place in range(40)]
    assert weights == sorted(set(weights), reverse=True)
    assert (weights[0], weights[-1]) == (100, 61)


def test_karpenter_launches_into_the_reservation_of_the_spec() -> None:
    source = f"{{from: reservation, id: {RESERVATION}, machines: [p5.48xlarge]}}"
    found = objects(files(ELASTIC, _from(source), running=ANYWHERE))
    assert found["EC2NodeClass/kube-tune.2a"]["spec"]["capacityReservationSelectorTerms"] == [
        {"id": RESERVATION}
    ]
    needed = _requirements(found, "kube-tune.2a-0")
    assert needed["karpenter.sh/capacity-type"] == ["reserved"]
    assert needed["karpenter.k8s.aws/capacity-reservation-id"] == [RESERVATION]
    assert "capacityReservationSelectorTerms" not in found["EC2NodeClass/kube-serve"]["spec"]


def test_on_demand_after_a_reservation_is_one_nodepool() -> None:
    """Karpenter takes reserved capacity first. The label with the id is only on reserved nodes, so it is no requirement."""
    both = f"{{from: reservation, id: {RESERVATION}, machines: [p5.48xlarge]}}, {{from: on-demand, machines: [p5.48xlarge]}}"
    found = objects(files(ELASTIC, _from(both), running=ANYWHERE))
    needed = _requirements(found, "kube-tune.2a-0")
    assert needed["karpenter.sh/capacity-type"] == ["reserved", "on-demand"]
    assert "karpenter.k8s.aws/capacity-reservation-id" not in needed
    assert "NodePool/kube-tune.2a-1" not in found


@pytest.mark.parametrize(
    ("market", "sentence"),
    [
        (
            "capacity-block",
            f"pool tune: 4 nodes in us-west-2a (4 capacity-block `{RESERVATION}`, p5.48xlarge)",
        ),
        ("reservation", f"pool tune: 4 nodes in us-west-2a (4 reservation `{RESERVATION}`, p5.48xlarge)"),
    ],
)
def test_always_on_nodes_of_prepaid_capacity_are_in_the_guide(market: str, sentence: str) -> None:
    source = _from(f"{{from: {market}, id: {RESERVATION}, machines: [p5.48xlarge]}}")
    texts = files(EXISTS, source, running=IN_A_ZONE)
    assert sentence in texts["README.md"]
    assert not [key for key in objects(texts) if key.startswith("NodePool/kube-tune")]


def test_always_on_nodes_fill_the_sources_in_order() -> None:
    two = f"{{from: reservation, id: {RESERVATION}, machines: [p4de.24xlarge], max: 3}}, {{from: on-demand, machines: [p4de.24xlarge]}}"
    page = files(EXISTS, _from(two), running=IN_A_ZONE)["README.md"]
    assert f"(3 reservation `{RESERVATION}`, p4de.24xlarge; 1 on-demand, p4de.24xlarge)" in page


@pytest.mark.parametrize(
    ("version", "image", "alias"),
    [
        ("1.36", "", "al2023@v20260903"),
        ("1.36", "1.36.4-20261101", "al2023@v20261101"),
        ("1.35", "v20260903", "al2023@v20260903"),
    ],
)
def test_nodes_have_the_image_of_a_release(version: str, image: str, alias: str) -> None:
    """Regression: `al2023@latest`, with which the nodes of one gang could differ in the driver."""
    line = f'  version: "{version}"\n' + (f"  node_image: {image}\n" if image else "")
    spec = objects(files(('  version: "1.36"\n', line)))["EC2NodeClass/kube-serve"]["spec"]
    assert spec["amiSelectorTerms"] == [{"alias": alias}]


def test_guide_asks_the_owner_of_a_cluster_for_network_policies() -> None:
    """On EKS the add-on `vpc-cni` enforces them (tests/unit/aws/eks/test_addons.py)."""
    other = files(EXISTS, running=IN_A_ZONE)
    assert "a CNI that enforces NetworkPolicies" in other["README.md"]
    assert "a CNI that enforces NetworkPolicies" not in files()["README.md"]
