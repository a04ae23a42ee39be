"""Objects of others are never touched; objects that left the spec are listed, and deleted only with --prune."""

from typing import Any

import pytest
from support.cluster import Cluster
from support.kube import AS_TRAINJOB, STATIC, TRAINED
from support.kube_steps import TESTED, kube_steps

from gpucluster import k8s
from gpucluster.errors import StateError
from gpucluster.k8s_apply.status import status
from gpucluster.k8s_apply.steps import Steps
from gpucluster.k8s_apply.up import up
from gpucluster.plan import names


def of_others(**labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research", "labels": labels}}


@pytest.fixture(scope="module")
def small() -> Steps:
    return kube_steps(running=None)


@pytest.mark.parametrize(("labels", "words"), [
    ({}, "Namespace/research exists and has no label gpucluster/cluster"),
    ({names.LABEL_CLUSTER: "other"}, "Namespace/research exists and is of the cluster other"),
])  # fmt: skip
def test_object_of_others_is_refused_before_the_first_change(
    cluster: Cluster, small: Steps, labels: dict[str, str], words: str
) -> None:
    cluster.put(of_others(**labels))
    before = cluster.objects("Namespace")
    with pytest.raises(StateError, match=words) as found:
        up(cluster.access(), small, holder="ann")
    assert "kubectl label namespace research --overwrite gpucluster/cluster=kube" in str(found.value)
    assert cluster.objects("Namespace") == before
    assert cluster.calls(" apply ") == cluster.calls(" upgrade ") == []


def test_object_that_was_given_to_the_cluster_is_applied(cluster: Cluster, small: Steps) -> None:
    """The hint's command is what makes the next run go on."""
    cluster.put(of_others(**{names.LABEL_CLUSTER: "kube"}))
    up(cluster.access(), small, holder="ann")
    assert cluster.objects("Namespace")["research"]["metadata"]["labels"][names.LABEL_TEAM] == "research"


def test_release_of_others_is_refused(cluster: Cluster, small: Steps) -> None:
    row = {
        "name": "kueue",
        "namespace": "kueue-system",
        "revision": 1,
        "status": "deployed",
        "chart": "kueue-0.17.0",
    }
    cluster.change(releases=[{**row, "labels": {}, "values": None}])
    with pytest.raises(StateError, match="kueue in kueue-system") as found:
        up(cluster.access(), small, holder="ann")
    assert "--no-charts" in str(found.value)
    assert cluster.calls(" upgrade ") == cluster.calls(" apply ") == []


def test_release_of_others_is_found_among_many(cluster: Cluster, small: Steps) -> None:
    """A list of helm ends after 256 releases."""
    row = {
        "namespace": "a",
        "revision": 1,
        "status": "deployed",
        "chart": "x-1",
        "labels": {},
        "values": None,
    }
    many = [{**row, "name": f"a-{number}"} for number in range(300)]
    cluster.change(releases=[*many, {**row, "name": "kueue", "namespace": "kueue-system"}])
    with pytest.raises(StateError, match="kueue in kueue-system"):
        up(cluster.access(), small, holder="ann")


def test_without_charts_the_kinds_of_others_are_used(cluster: Cluster, small: Steps) -> None:
    cluster.change(crds=dict.fromkeys(["jobset", "karpenter", "kueue"], "1"))
    assert up(cluster.access(charts=False), small, holder="ann").charts == ()
    assert cluster.calls("helm") == []
    assert "kube-research" in cluster.objects("ClusterQueue")


def test_without_charts_and_their_kinds_the_run_says_what_is_missing(cluster: Cluster, small: Steps) -> None:
    with pytest.raises(StateError, match=r"NodePool \(karpenter.sh/v1\) is not served") as found:
        up(cluster.access(charts=False), small, holder="ann", limit_s=10.0)
    assert "install the charts" in str(found.value)


@pytest.mark.parametrize("prune", [False, True])
def test_what_left_the_spec_is_listed_and_pruned_on_request(
    cluster: Cluster, small: Steps, prune: bool
) -> None:
    marks = {names.LABEL_CLUSTER: "kube", "app.kubernetes.io/managed-by": "gpucluster"}
    cluster.change(crds=dict.fromkeys(["kueue", "karpenter", "jobset"], "1"))
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "kube-gone", "labels": marks},
        "spec": {},
    }
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gone", "labels": marks}}
    foreign = {**queue, "metadata": {"name": "other-gone", "labels": {**marks, names.LABEL_CLUSTER: "other"}}}
    child = {
        **queue,
        "metadata": {
            "name": "child",
            "labels": marks,
            "ownerReferences": [{"uid": "x", "kind": "Y", "name": "z"}],
        },
    }
    cluster.put(queue, space, foreign, child, manager="gpucluster")
    done = up(cluster.access(charts=False), small, holder="ann", prune=prune)
    queues = cluster.objects("ClusterQueue")
    assert ("kube-gone" in queues) is not prune
    assert done.pruned == (("ClusterQueue/kube-gone",) if prune else ())
    assert done.leftovers == (("Namespace/gone",) if prune else ("ClusterQueue/kube-gone", "Namespace/gone"))
    assert {"other-gone", "child"} <= queues.keys()
    assert "gone" in cluster.objects("Namespace")


def test_every_kind_of_a_tree_is_looked_for(bound: Steps) -> None:
    assert {(one["apiVersion"], one["kind"]) for one in bound.objects} <= k8s.kinds().keys()


def test_runtime_stays_while_a_trainjob_needs_it(cluster: Cluster) -> None:
    """Kubeflow Trainer v2.3.0 does not keep a runtime that is in use, and a gang without its runtime cannot restart."""
    cluster.change(crds=dict.fromkeys(["kubeflow-trainer"], "1"))
    up(cluster.access(), kube_steps(TRAINED, STATIC), holder="ann")
    (old,) = cluster.objects("ClusterTrainingRuntime")
    image = ("registry.example.org/train:2.0'", "registry.example.org/train:2.1'")
    steps = kube_steps((TRAINED[0], TRAINED[1].replace(*image)), STATIC)
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "own", "namespace": "research"},
        "spec": {"runtimeRef": {"name": old}},
    }
    cluster.put(job)
    done = up(cluster.access(), steps, holder="ann", prune=True)
    assert (done.pruned, done.leftovers) == ((), (f"ClusterTrainingRuntime/{old}",))
    cluster.put({**job, "status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    done = up(cluster.access(), steps, holder="ann", prune=True)
    assert (done.pruned, done.leftovers) == ((f"ClusterTrainingRuntime/{old}",), ())
    assert len(cluster.objects("ClusterTrainingRuntime")) == 1


def test_runtime_goes_with_its_gang(cluster: Cluster) -> None:
    cluster.change(crds=dict.fromkeys(["kubeflow-trainer"], "1"))
    up(cluster.access(), kube_steps(TRAINED, STATIC, running=(AS_TRAINJOB,)), holder="ann")
    done = up(cluster.access(), kube_steps(TRAINED, STATIC, running=None), holder="ann", prune=True)
    gone = {ref.split("/")[1] for ref in done.pruned}
    assert {"TrainJob", "TrainingRuntime"} <= gone
    assert cluster.objects("TrainingRuntime") == {}


def copy_of(steps: Steps, kind: str, name: str) -> dict[str, Any]:
    """What a member makes of a rendered manifest."""
    one = next(one for one in steps.objects if one["kind"] == kind)
    return {**one, "metadata": {**one["metadata"], "name": name}}


def test_copy_of_a_manifest_is_of_who_made_it(cluster: Cluster, bound: Steps) -> None:
    """Regression: --prune deleted it, because it has the labels of the spec."""
    up(cluster.access(), bound, holder="ann")
    cluster.put(copy_of(bound, "JobSet", "mine"))
    cluster.put(copy_of(bound, "JobSet", "old"), manager="gpucluster")
    done = up(cluster.access(), bound, holder="ann", prune=True)
    assert (done.pruned, done.leftovers) == (("research/JobSet/old",), ())
    assert cluster.objects("JobSet").keys() == {"tune", "mine"}


def test_test_of_nccl_that_somebody_started_is_wanted(cluster: Cluster) -> None:
    """Regression: --prune deleted the objects of tests/, because no wave has them."""
    steps = kube_steps(running=(TESTED,))
    up(cluster.access(), steps, holder="ann")
    cluster.put(*steps.tests, manager="gpucluster")
    assert len(cluster.objects("JobSet")) == 1 + len(steps.tests) > 1
    done = up(cluster.access(), steps, holder="ann", prune=True)
    assert (done.pruned, done.leftovers) == ((), ())


GROUPED = (
    ("team: serving", "team: research"),
    (
        "{nvidia.com/mig-1g.10gb: 1}",
        "{nvidia.com/gpu: 8}\n    nodes: 2\n    worker_command: [serve, --worker]",
    ),
    ("{min: 2, max: 8}", "{min: 1, max: 2}"),
)


def test_chart_that_left_the_spec_is_told_and_pruned_when_nothing_needs_it(
    cluster: Cluster, bound: Steps
) -> None:
    """Regression: neither `status` nor --prune knew of a chart that the spec no longer needs."""
    up(cluster.access(), kube_steps(running=GROUPED), holder="ann")
    mine = {**job("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1"), "spec": {}}
    cluster.put(mine)
    done = up(cluster.access(), bound, holder="ann")
    assert done.leftovers[-1] == "the chart lws in lws-system"
    assert status(cluster.access(), bound).leftovers[-1] == "the chart lws in lws-system"
    done = up(cluster.access(), bound, holder="ann", prune=True)
    assert done.leftovers[-1] == "the chart lws in lws-system, for research/LeaderWorkerSet/own"
    objects = cluster.values()["objects"]
    del objects["leaderworkerset.x-k8s.io/v1|LeaderWorkerSet|research|own"]
    cluster.change(objects=objects)
    done = up(cluster.access(), bound, holder="ann", prune=True)
    assert (done.pruned, done.leftovers) == (("the chart lws",), ())
    assert "lws" not in [row["name"] for row in cluster.values()["releases"]]
    assert status(cluster.access(), bound).leftovers == ()


def test_karpenter_stays_as_long_as_it_has_machines(cluster: Cluster) -> None:
    """Without Karpenter nobody would end them, also if they are of the spec."""
    up(cluster.access(), kube_steps(running=None), holder="ann")
    marks = {names.LABEL_CLUSTER: "kube", "karpenter.sh/nodepool": "kube-serve-0"}
    machine = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "m-1", "labels": marks},
    }
    cluster.put(machine)
    cluster.change(stuck=["m-1"])
    done = up(cluster.access(), kube_steps(STATIC, running=None), holder="ann", prune=True)
    assert done.leftovers[-1].startswith("the chart karpenter in karpenter, for ")
    assert "NodeClaim/m-1" in done.leftovers[-1]


def job(kind: str, api_version: str) -> dict[str, Any]:
    """What a member makes."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "own", "namespace": "research"}}


@pytest.mark.parametrize("prune", [False, True])
def test_policies_of_a_team_stay_with_its_namespace(cluster: Cluster, bound: Steps, prune: bool) -> None:
    """Regression: --prune of a removed team deleted its network policies and limits, and its pods ran on without them."""
    up(cluster.access(), bound, holder="ann")
    gone = [
        {
            **one,
            "metadata": {
                **one["metadata"],
                "namespace": "gone",
                "labels": {**one["metadata"]["labels"], names.LABEL_TEAM: "gone"},
            },
        }
        for one in bound.objects
        if one["metadata"].get("namespace") == "research" and one["kind"] in POLICIES
    ]
    space = next(one for one in bound.objects if one["kind"] == "Namespace")
    marks = {**space["metadata"]["labels"], names.LABEL_TEAM: "gone"}
    guard = {
        **gone[0],
        "apiVersion": GUARD,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "gone", "labels": marks},
    }
    cluster.put(*gone, guard, {**space, "metadata": {"name": "gone", "labels": marks}}, manager="gpucluster")
    done = up(cluster.access(), bound, holder="ann", prune=prune)
    assert done.pruned == ()
    words = ", a policy of a namespace that stays"
    assert {"gone/LimitRange/team" + words, "gone/NetworkPolicy/default-deny" + words} <= set(done.leftovers)
    assert "ValidatingAdmissionPolicy/gone" + words in done.leftovers
    assert done.leftovers[0] == "Namespace/gone"
    assert len([one for one in done.leftovers if words in one]) == len(gone) + 1
    without = cluster.values()["objects"]
    del without["v1|Namespace||gone"]
    cluster.change(objects=without)
    done = up(cluster.access(), bound, holder="ann", prune=True)
    assert len(done.pruned) == len(gone) + 1


GUARD = "admissionregistration.k8s.io/v1"
POLICIES = ("LimitRange", "NetworkPolicy", "ResourceQuota", "Role", "RoleBinding")


def test_policy_that_left_the_spec_goes_while_its_team_stays(cluster: Cluster, bound: Steps) -> None:
    up(cluster.access(), bound, holder="ann")
    policy = next(one for one in bound.objects if one["kind"] == "NetworkPolicy")
    cluster.put({**policy, "metadata": {**policy["metadata"], "name": "old"}}, manager="gpucluster")
    done = up(cluster.access(), bound, holder="ann", prune=True)
    assert len(done.pruned) == 1
    assert done.leftovers == ()
