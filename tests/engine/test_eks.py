"""A cluster of EKS through the real engine, against the sandbox's EKS: made, unchanged, changed, refused, gone."""

import json
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.builders import a_kube_plan
from support.eks_plans import ADMIN, BOTH, EVERYTHING, PERSON, everything, hybrid
from support.engine_stack import Cluster, cluster_of
from support.operators import as_operator

from gpucluster.aws.operator_documents import PolicyRole
from gpucluster.aws.program import declare
from gpucluster.engine import run
from gpucluster.engine.error_attribution import explainer
from gpucluster.engine.events import Outcome
from gpucluster.engine.run import EngineError
from gpucluster.plan.model import AwsPlan, eks_of

# the SDK drops the coroutines of a failed program
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
OLDER = (*EVERYTHING, ('version: "1.36"', 'version: "1.35"'))
TRUST = {
    "Effect": "Allow",
    "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
    "Action": "sts:AssumeRole",
}


@pytest.fixture
def kube(tmp_path: Path, pulumi: Path, request: pytest.FixtureRequest) -> Generator[Cluster[AwsPlan]]:
    """A cloud with the roles of the people of the plan."""
    plan: AwsPlan = getattr(request, "param", None) or everything()
    with cluster_of(plan, tmp_path / "state", pulumi) as made:
        for arn in (ADMIN, BOTH, PERSON):
            trust = json.dumps({"Version": "2012-10-17", "Statement": [TRUST]})
            made.client("iam").create_role(RoleName=arn.rpartition("/")[2], AssumeRolePolicyDocument=trust)
        yield made


def declared(plan: AwsPlan) -> Any:
    return partial(declare, plan)


def changes(outcome: Outcome) -> list[tuple[str, str, str]]:
    return [(c.op, c.type.rpartition(":")[2], c.name) for c in outcome.changes if not c.follows]


def states(cluster: Cluster[AwsPlan]) -> dict[str, str]:
    """The state of the cluster, of its node groups and add-ons."""
    eks, name = cluster.client("eks"), cluster.plan.name
    found = {name: eks.describe_cluster(name=name)["cluster"]["status"]}
    for group in eks.list_nodegroups(clusterName=name)["nodegroups"]:
        found[group] = eks.describe_nodegroup(clusterName=name, nodegroupName=group)["nodegroup"]["status"]
    for addon in eks.list_addons(clusterName=name)["addons"]:
        found[addon] = eks.describe_addon(clusterName=name, addonName=addon)["addon"]["status"]
    return found


def living(cluster: Cluster[AwsPlan]) -> list[str]:
    pages = cluster.client("ec2").describe_instances(
        Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    )["Reservations"]
    return [one["InstanceId"] for page in pages for one in page["Instances"]]


@pytest.mark.parametrize("kube", [everything(), hybrid()], ids=["alone", "beside Slurm"], indirect=True)
def test_cluster_is_made_settles_and_goes(kube: Cluster[AwsPlan]) -> None:
    """By an operator who has exactly the generated policies."""
    operator, reader = as_operator(kube, PolicyRole.APPLY), as_operator(kube, PolicyRole.PLAN)
    operator.up()
    plane = eks_of(kube.plan)
    assert plane is not None
    assert {*states(kube).values()} == {"ACTIVE"}
    assert {*states(kube)} == {
        kube.plan.name,
        *(g.key for g in plane.groups),
        *(a.name for a in plane.addons),
    }
    head = 0 if kube.plan.slurm is None else 1
    assert len(living(kube)) == head + sum(group.nodes for group in plane.groups)
    principals = kube.client("eks").list_access_entries(clusterName=kube.plan.name)["accessEntries"]
    assert {ADMIN, BOTH, PERSON} <= {*principals}
    assert changes(operator.up()) == []
    assert changes(run.preview_refreshed(reader.target, reader.program)) == []
    if kube.plan.slurm is None:  # with Slurm, `gpucluster down` empties the cluster first
        operator.destroy()
        assert kube.client("eks").list_clusters()["clusters"] == []
        assert living(kube) == []


@pytest.mark.parametrize("kube", [a_kube_plan(*OLDER)], ids=["1.35"], indirect=True)
def test_version_goes_up_in_place(kube: Cluster[AwsPlan]) -> None:
    """The control plane first, then its nodes: the first nodes are replaced by nodes with the new image."""
    kube.up()
    before = living(kube)
    outcome = run.up(kube.target, declared(everything()))
    assert ("update", "Cluster", kube.plan.name) in changes(outcome)
    assert {op for op, _, _ in changes(outcome)} == {"update"}
    seen = kube.client("eks").describe_cluster(name=kube.plan.name)["cluster"]
    assert (seen["version"], seen["status"]) == ("1.36", "ACTIVE")
    assert {*states(kube).values()} == {"ACTIVE"}
    assert not {*before} & {*living(kube)}


def test_node_group_without_capacity_names_the_pool(kube: Cluster[AwsPlan]) -> None:
    """EKS keeps a failed group, so the next `up` fails as well. Another machine in the spec replaces it."""
    kube.api.model.set_capacity("p4de.24xlarge", market="on-demand", free=0)
    explain = explainer(kube.plan)
    for _ in range(2):
        with pytest.raises(EngineError) as failed:
            run.up(kube.target, kube.program, explain=explain)
        assert "pools[tune].capacity[0].machines: the cloud has none left now" in str(failed.value)
        assert "InsufficientInstanceCapacity" in str(failed.value)
    other = a_kube_plan(
        *EVERYTHING,
        ("{from: on-demand, machines: [p4de.24xlarge]}", "{from: on-demand, machines: [p4d.24xlarge]}"),
    )
    outcome = run.up(kube.target, declared(other), explain=explainer(other))
    assert "NodeGroup" in {kind for _, kind, _ in changes(outcome)}
    assert {*states(kube).values()} == {"ACTIVE"}
