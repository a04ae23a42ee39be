"""`status`: what is there, what differs, and why something waits."""

from typing import Any

import pytest
from support.cluster import Cluster

from gpucluster.cli.k8s_text import lines
from gpucluster.errors import StateError
from gpucluster.k8s_apply.status import Status, await_settled, status
from gpucluster.k8s_apply.steps import Steps
from gpucluster.k8s_apply.up import up

GANG = {"kind": "JobSet", "name": "tune", "apiVersion": "jobset.x-k8s.io/v1alpha2", "uid": "x"}


@pytest.fixture
def applied(cluster: Cluster, bound: Steps) -> Cluster:
    up(cluster.access(), bound, holder="ann@desk")
    return cluster


def read(cluster: Cluster, steps: Steps) -> Status:
    return status(cluster.access(), steps)


def queued(**conditions: Any) -> dict[str, Any]:
    rows = [{"type": name, **row} for name, row in conditions.items()]
    metadata = {"name": "jobset-tune", "namespace": "research", "ownerReferences": [GANG]}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": metadata,
        "status": {"conditions": rows},
    }


def edited(cluster: Cluster, key: str, **spec: Any) -> None:
    objects = cluster.values()["objects"]
    objects[key]["spec"].update(spec)
    cluster.change(objects=objects)


CONTROLLER = "apps/v1|Deployment|kueue-system|kueue-controller"
NO_WEBHOOK = (
    'Error from server (InternalError): error when creating "STDIN": Internal error occurred: failed calling webhook "mclusterqueue.kb.io":'
    ' failed to call webhook: Post "https://kueue-webhook-service.kueue-system.svc:443/mutate?timeout=10s": no endpoints available for'
    ' service "kueue-webhook-service"'
)
QUEUE = "kueue.x-k8s.io/v1beta2|ClusterQueue||kube-research"


def test_applied_cluster_is_settled(applied: Cluster, bound: Steps) -> None:
    before = applied.versions()
    found = read(applied, bound)
    assert (found.applied, found.unsettled) == (bound.digest, ())
    assert {one.state for one in found.charts} == {"deployed"}
    assert applied.versions() == before
    assert applied.calls("--dry-run=server") != []


def test_empty_cluster_misses_everything(cluster: Cluster, bound: Steps) -> None:
    found = read(cluster, bound)
    assert found.applied == ""
    assert [one.state for one in found.charts] == ["missing"] * 5
    assert sum(len(wave.missing) for wave in found.waves) == len(bound.objects)


def test_what_was_deleted_and_edited_is_named(applied: Cluster, bound: Steps) -> None:
    edited(applied, QUEUE, cohortName="other")
    objects = applied.values()["objects"]
    del objects["v1|Service|serving|chat"]
    applied.change(objects=objects)
    found = read(applied, bound)
    assert found.unsettled == ("serving/Service/chat is missing", "ClusterQueue/kube-research differs")
    up(applied.access(), bound, holder="ann@desk")  # mends both
    assert read(applied, bound).unsettled == ()


def test_refused_object_is_named_with_the_words_of_the_server(applied: Cluster, bound: Steps) -> None:
    applied.change(invalid={"kube-serving": "no"})
    (words,) = read(applied, bound).unsettled
    assert words.startswith(
        'ClusterQueue/kube-serving (kubectl apply: The ClusterQueue "kube-serving" is invalid'
    )


def test_webhook_that_is_away_leaves_the_rest_of_the_status(applied: Cluster, bound: Steps) -> None:
    """Regression: without Kueue's controller `k8s status` told nothing, also not that its pods are gone."""
    objects = applied.values()["objects"]
    objects[CONTROLLER]["spec"]["replicas"] = 0
    applied.change(objects=objects)
    applied.plant("--dry-run=server", NO_WEBHOOK, times=1000)
    before = applied.elapsed
    found = read(applied, bound)
    assert applied.elapsed - before < 200, "each folder is not awaited again"
    assert [one.state for one in found.charts if one.name == "kueue"] == [
        "deployed, but kueue-system/Deployment/kueue-controller is scaled to 0"
    ]
    assert all("failed calling webhook" in words for wave in found.waves for words in wave.unread)
    assert any(line.startswith("30-queues is not compared: ") for line in found.unsettled)


def test_objects_of_a_chart_that_may_not_be_read_are_said(applied: Cluster, bound: Steps) -> None:
    denied = 'Error: query: failed to query with labels: secrets is forbidden: User "ann" cannot list resource "secrets"'
    applied.plant("get manifest kueue", denied, times=1000)
    (said,) = read(applied, bound).unsettled
    assert said.startswith(
        "the chart kueue is deployed, but its objects are not compared: helm get: Error: query"
    )


def test_queue_has_quota_use_and_pending(applied: Cluster, bound: Steps) -> None:
    objects = applied.values()["objects"]
    flavor = next(
        one["metadata"]["name"]
        for one in bound.objects
        if one["kind"] == "ResourceFlavor" and one["metadata"]["name"].startswith("kube-tune")
    )
    usage = [{"name": flavor, "resources": [{"name": "nvidia.com/gpu", "total": "8", "borrowed": "0"}]}]
    objects[QUEUE]["status"] = {"flavorsUsage": usage, "pendingWorkloads": 3, "admittedWorkloads": 1}
    applied.change(objects=objects)
    queue = next(one for one in read(applied, bound).queues if one.name == "kube-research")
    assert (queue.admitted, queue.pending) == (1, 3)
    assert ("nvidia.com/gpu", "32", "8") in [(use.resource, use.quota, use.used) for use in queue.uses]


@pytest.mark.parametrize(("conditions", "state", "why"), [
    ({}, "queued", "Kueue has set no condition on it"),
    ({"QuotaReserved": {"status": "False", "message": "insufficient quota"}}, "queued", "insufficient quota"),
    ({"QuotaReserved": {"status": "True"}, "Admitted": {"status": "True"}, "PodsReady": {"status": "False", "message": "Not all pods are ready"}}, "starting", "Not all pods are ready"),
    ({"Admitted": {"status": "True"}, "PodsReady": {"status": "True"}}, "running", ""),
    ({"Admitted": {"status": "False"}, "Evicted": {"status": "True", "message": "preempted"}}, "queued", "preempted"),
])  # fmt: skip
def test_gang_and_why_it_waits(applied: Cluster, bound: Steps, conditions: Any, state: str, why: str) -> None:
    applied.put(queued(**conditions))
    gang = next(one for one in read(applied, bound).workloads if one.name == "research/tune")
    assert (gang.state, gang.why) == (state, why)


def test_wait_ends_with_what_is_missing(applied: Cluster, bound: Steps) -> None:
    await_settled(applied.access(), bound, 0.0)
    edited(applied, QUEUE, cohortName="other")
    with pytest.raises(StateError, match="ClusterQueue/kube-research differs"):
        await_settled(applied.access(), bound, 0.0)


def test_text_has_a_line_for_each_thing(applied: Cluster, bound: Steps) -> None:
    applied.put(queued(QuotaReserved={"status": "False", "message": "insufficient\x1b[31m quota"}))
    text = list(lines(read(applied, bound)))
    assert text[0] == f"the tree {bound.digest[:12]} is applied"
    assert any(line.split()[:4] == ["chart", "kueue", "0.19.2", "kueue-0.19.2"] for line in text)
    assert any(line.split()[:3] == ["wave", "30-queues", "12"] for line in text)
    assert any(line.startswith("pool") and "kube-serve-0" in line for line in text)
    assert any(
        line.startswith("workload") and "research/tune" in line and "insufficient" in line for line in text
    )
    assert not any("\x1b" in line for line in text)


def test_what_the_user_may_not_patch_is_told_once_for_each_resource(applied: Cluster, bound: Steps) -> None:
    """Each object was `differs (Forbidden)`, after twice as many calls as there are objects."""
    kinds = {one["kind"] for wave in bound.waves if wave.wave.folder == "30-queues" for one in wave.objects}
    plurals = {"Topology": "topologies", "WorkloadPriorityClass": "workloadpriorityclasses"}
    applied.change(forbidden={kind: plurals.get(kind, f"{kind.lower()}s") for kind in kinds})
    edited(applied, QUEUE, cohortName="other")
    applied.forget_calls()
    found = read(applied, bound)
    (wave,) = (one for one in found.waves if one.folder == "30-queues")
    assert wave.changed == ()
    assert "you may not patch clusterqueues (2)" in wave.unread
    assert "30-queues is not compared: you may not patch clusterqueues (2)" in found.unsettled
    assert any("not compared: you may not patch clusterqueues (2)" in line for line in lines(found))
    assert len(applied.calls("--dry-run=server")) == len([one for one in found.waves if one.objects])


def test_what_the_user_may_patch_is_compared_beside_what_not(applied: Cluster, bound: Steps) -> None:
    applied.change(forbidden={"LocalQueue": "localqueues"}, invalid={"kube-serving": "no"})
    edited(applied, QUEUE, cohortName="other")
    (wave,) = (one for one in read(applied, bound).waves if one.folder == "30-queues")
    assert wave.unread == ("you may not patch localqueues (2)",)
    assert [name.split(" ")[0] for name in wave.changed] == [
        "ClusterQueue/kube-serving",
        "ClusterQueue/kube-research",
    ]


@pytest.mark.parametrize(
    "call",
    [
        "get --ignore-not-found",
        "--dry-run=server",
        "get values",
        "get NodePool.v1",
        "get ClusterQueue.v1",
        "get Workload.v1",
        "--show-managed-fields",
    ],
)
def test_api_server_away_for_a_moment_is_asked_again(applied: Cluster, bound: Steps, call: str) -> None:
    """Most reads of `status` were not repeated."""
    words = "The connection to the server 10.0.0.1:443 was refused - did you specify the right host or port?"
    applied.plant(call, words, skip=1 if call == "get --ignore-not-found" else 0)
    assert read(applied, bound).unsettled == ()
    assert [row["times"] for row in applied.values()["faults"]] == [0]
