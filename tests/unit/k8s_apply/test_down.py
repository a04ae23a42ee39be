"""`down`: the order, what stays, what blocks."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.cluster import Cluster
from support.cluster.helm import IN_TEMPLATES
from support.cluster.state import OF_CHARTS
from support.kube_steps import TESTED, kube_steps

from gpucluster import catalog, k8s
from gpucluster.errors import StateError
from gpucluster.k8s.releases import WITH_DEFINITIONS
from gpucluster.k8s_apply.charts_removal import GROUPS
from gpucluster.k8s_apply.down import Emptied, down
from gpucluster.k8s_apply.others import KINDS, OF_ADMINS, secrets
from gpucluster.k8s_apply.steps import Steps
from gpucluster.k8s_apply.up import up
from gpucluster.plan import names

RECORDED = Path(__file__).parents[2] / "recorded/chart-definitions.json"
MARKS = {names.LABEL_CLUSTER: "kube", "karpenter.sh/nodepool": "kube-serve-0"}
KARPENTER = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 1}, "metadata": {
    "name": "karpenter", "namespace": "karpenter", "labels": {"app.kubernetes.io/name": "karpenter"}}}  # fmt: skip


def job(api_version: str, kind: str) -> dict[str, Any]:
    """What a team makes beside the spec."""
    metadata = {"name": "own", "namespace": "research"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {}}


def machine(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": MARKS, "finalizers": ["karpenter.sh/termination"]},
    }


@pytest.fixture
def running(cluster: Cluster, bound: Steps) -> Cluster:
    """All of the spec's objects, as `up` leaves them, with two machines."""
    releases = [
        {"name": one.name, "namespace": one.namespace, "revision": 1, "status": "deployed", "chart": "x",
         "labels": {names.LABEL_CLUSTER: "kube"}, "values": None} for one in bound.releases]  # fmt: skip
    cluster.change(releases=releases, crds={one.name: one.version for one in bound.releases})
    cluster.put(*bound.objects, KARPENTER, machine("m-1"), machine("m-2"))
    return cluster


def empty(cluster: Cluster, steps: Steps, **more: Any) -> Emptied:
    return down(cluster.access(), steps, holder="ann@desk", **more)


def test_machines_end_while_karpenter_runs_and_data_stays(running: Cluster, bound: Steps) -> None:
    done = empty(running, bound)
    left = running.objects()
    kinds = {name.partition("/")[0] for name in left}
    assert kinds == {"Namespace", "PersistentVolume", "PersistentVolumeClaim", "Deployment"}
    assert "Deployment/karpenter" in left
    assert done.charts == ("kueue", "karpenter", "jobset", "gpu-operator", "aws-efa-k8s-device-plugin")
    assert running.values()["releases"] == []
    assert set(done.retained) >= {
        "research/PersistentVolumeClaim/data",
        "Namespace/research",
        "PersistentVolume/kube-research.data",
    }


def test_order_of_the_deletions(running: Cluster, bound: Steps) -> None:
    empty(running, bound, delete_data=True)
    told = [line for line in running.said if line.startswith(("deleting", "uninstalling"))]
    assert [line.partition(":")[0] for line in told] == [
        "deleting gangs and services", "deleting node pools and their machines", "deleting node classes", "deleting claims and volumes",
        "deleting queues", "deleting roles, limits and policies", "deleting namespaces", "uninstalling the chart kueue",
        "uninstalling the chart karpenter", "uninstalling the chart jobset", "uninstalling the chart gpu-operator", "uninstalling the chart aws-efa-k8s-device-plugin",
    ]  # fmt: skip
    assert running.objects().keys() == {"Deployment/karpenter"}  # which the real helm uninstalls


def test_machine_that_does_not_go_is_named_and_its_class_stays(running: Cluster, bound: Steps) -> None:
    running.change(stuck=["m-2"])
    with pytest.raises(StateError, match=r"not done after 20 s: the end of node pools") as found:
        empty(running, bound, limit_s=20.0)
    assert "gpucluster k8s down kube" in str(found.value)
    assert {
        "EC2NodeClass/kube-serve",
        "NodeClaim/m-2",
        "ClusterQueue/kube-research",
    } <= running.objects().keys()
    assert running.values()["releases"] != []
    running.change(stuck=[])
    empty(running, bound)
    assert running.objects("NodeClaim") == {}


def test_without_karpenter_nothing_is_deleted(running: Cluster, bound: Steps) -> None:
    objects = running.values()["objects"]
    del objects["apps/v1|Deployment|karpenter|karpenter"]
    running.change(objects=objects)
    with pytest.raises(StateError, match="2 NodeClaims and 1 NodePools are there") as found:
        empty(running, bound)
    assert "gpucluster k8s up kube" in str(found.value)
    assert running.calls(" delete ") == []


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [*KINDS, *OF_ADMINS],
)
def test_what_is_not_in_the_spec_is_named_first(
    running: Cluster, bound: Steps, api_version: str, kind: str
) -> None:
    """Regression: a CronJob between two runs went with its namespace, without a word."""
    running.change(crds={**running.values()["crds"], "kubeflow-trainer": "2.3.0", "lws": "0.9.0"})
    running.put(job(api_version, kind))
    with pytest.raises(StateError) as found:
        empty(running, bound)
    words = (
        f"the namespaces of the teams have what is not in the spec: research/{kind}/own; nothing was deleted"
    )
    assert found.value.message == words
    assert found.value.next_step == "wait for it, delete it, or repeat with --delete-others"
    assert running.calls(" delete ") == []
    empty(running, bound, delete_others=True)
    assert "own" not in running.objects(kind)
    assert any(line.startswith("deleting what is not in the spec: ") for line in running.said)


def test_claim_of_a_team_keeps_its_namespace(running: Cluster, bound: Steps) -> None:
    mine = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "mine", "namespace": "research"},
        "spec": {},
    }
    running.put(mine)
    done = empty(running, bound, delete_data=True)
    assert done.retained == ("Namespace/research",)
    assert running.objects("PersistentVolumeClaim").keys() == {"mine"}


@pytest.mark.parametrize(
    "kind",
    [
        "ClusterQueue",
        "MultiKueueConfig",  # the catalog has no schema of it
    ],
)
def test_chart_that_others_need_stays(running: Cluster, bound: Steps, kind: str) -> None:
    other = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {"name": "theirs", "labels": {}},
        "spec": {},
    }
    running.put(other)
    done = empty(running, bound)
    assert done.charts_left == (f"kueue in kueue-system, for {kind}/theirs",)
    assert "theirs" in running.objects(kind)


def test_karpenter_stays_for_a_capacity_buffer_of_others(running: Cluster, bound: Steps) -> None:
    metadata = {"name": "spare", "namespace": "batch"}
    running.put(
        {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": metadata}
    )
    assert empty(running, bound).charts_left == ("karpenter in karpenter, for batch/CapacityBuffer/spare",)


def test_release_of_others_stays(running: Cluster, bound: Steps) -> None:
    running.change(releases=[{**row, "labels": {}} for row in running.values()["releases"]])
    assert empty(running, bound).charts == ()
    assert len(running.values()["releases"]) == 5


def test_load_balancer_that_does_not_go_is_named_and_the_next_run_goes_on(
    running: Cluster, bound: Steps
) -> None:
    balancer = job("v1", "Service")
    balancer["metadata"]["finalizers"] = ["service.kubernetes.io/load-balancer-cleanup"]
    running.put(balancer)
    running.change(stuck=["Service/own"])
    words = r"the end of what is not in the spec: research/Service/own \(service\.kubernetes\.io/load-balancer-cleanup\)"
    with pytest.raises(StateError, match=words):
        empty(running, bound, delete_others=True)
    assert "research" in running.objects("Namespace")
    assert running.objects("NodePool"), "machines end after the pods"
    running.change(stuck=[])
    empty(running, bound, delete_data=True)
    assert set(running.objects()) == {"Deployment/karpenter"}


def test_claim_that_a_pod_of_others_mounts_keeps_the_run_waiting(running: Cluster, bound: Steps) -> None:
    claim = running.objects("PersistentVolumeClaim")["data"]["metadata"]
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim["name"]}}
    metadata = {"name": "debug", "namespace": claim["namespace"], "ownerReferences": [{"uid": "uid-x"}]}
    running.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"volumes": [volume]}})
    with pytest.raises(StateError, match=r"the end of claims and volumes: \S+/PersistentVolumeClaim/data"):
        empty(running, bound, delete_data=True)
    assert claim["namespace"] in running.objects("Namespace")


def test_down_of_nothing(cluster: Cluster, bound: Steps) -> None:
    assert empty(cluster, bound) == Emptied(0, (), (), ())
    assert cluster.objects() == {}


def test_up_after_down(running: Cluster, bound: Steps) -> None:
    empty(running, bound, delete_data=True)
    up(running.access(), bound, holder="ann@desk")
    assert set(running.objects()) >= {f"{one['kind']}/{one['metadata']['name']}" for one in bound.objects}


def test_every_chart_has_its_groups() -> None:
    """Regression: lws 0.9 also defines DisaggregatedSets, and Karpenter CapacityBuffers: `down` uninstalled both below them."""
    recorded = json.loads(RECORDED.read_text())
    versions = {name: row.version for name, row in catalog.kubernetes_charts().items()}
    assert {name: row["version"] for name, row in recorded.items()} == versions, "tools/record_definitions.py"
    defined = {name: {*row["crds"], *row["templates"]} for name, row in recorded.items()}
    groups = {
        name: tuple(sorted({kind.partition("/")[0] for kind in kinds})) for name, kinds in defined.items()
    }
    assert groups == GROUPS
    needed = {
        kind[0].partition("/")[0] for kind in k8s.kinds() if kind not in catalog.kubernetes_facts().served
    }
    of_others = {"monitoring.coreos.com"}  # the Prometheus operator, which a spec with `monitoring` expects
    assert sorted(name for name, row in recorded.items() if row["crds"]) == sorted(WITH_DEFINITIONS)
    assert needed - of_others <= {group for groups in GROUPS.values() for group in groups}


def test_stand_ins_know_the_definitions_of_the_charts() -> None:
    recorded = json.loads(RECORDED.read_text())
    in_templates = {name for name, row in recorded.items() if row["templates"]}
    assert set(IN_TEMPLATES) == in_templates
    for name, row in recorded.items():
        made = {
            f"{version.partition('/')[0]}/{kind}"
            for version, kinds in OF_CHARTS[name].items()
            for kind in kinds
        }
        assert made <= {*row["crds"], *row["templates"]}
        assert {kind.partition("/")[0] for kind in made} == set(GROUPS[name])


def pod(name: str, grace: int | None) -> dict[str, Any]:
    """A pod of the gang, which has a finalizer as that of a Job."""
    spec = {"nodeName": "node-1"} if grace is None else {"terminationGracePeriodSeconds": grace}
    labels = {names.LABEL_CLUSTER: "kube"}
    metadata = {
        "name": name,
        "namespace": "research",
        "labels": labels,
        "ownerReferences": [{"uid": "uid-job"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(("grace", "limit"), [
    (None, 600),
    (480, 600),
    (630, 750),  # a gang of the templates
    (900, 1020),
])  # fmt: skip
def test_pods_get_their_grace_to_end(running: Cluster, bound: Steps, grace: int | None, limit: int) -> None:
    """Regression: `down` ended after 600 s, while the pods of a gang still wrote their checkpoints."""
    running.put(pod("tune-0", grace), pod("tune-1", None))
    with pytest.raises(StateError, match=f"not done after {limit} s: the end of pods: research/Pod/tune-0"):
        empty(running, bound)


def test_limit_that_is_given_holds_for_pods(running: Cluster, bound: Steps) -> None:
    running.put(pod("tune-0", 7200))
    with pytest.raises(StateError, match="not done after 20 s: the end of pods"):
        empty(running, bound, limit_s=20.0)


def test_copy_of_a_gang_is_of_a_team(running: Cluster, bound: Steps) -> None:
    """Regression: it has the labels of the spec, and `down` deleted it without a word."""
    gang = next(one for one in bound.objects if one["kind"] == "JobSet")
    running.put({**gang, "metadata": {**gang["metadata"], "name": "mine"}})
    with pytest.raises(StateError, match="research/JobSet/mine; nothing was deleted"):
        empty(running, bound)
    empty(running, bound, delete_others=True)
    assert running.objects("JobSet") == {}


def test_copy_of_a_gang_in_another_namespace_stays_with_its_chart(running: Cluster, bound: Steps) -> None:
    gang = next(one for one in bound.objects if one["kind"] == "JobSet")
    running.put({**gang, "metadata": {**gang["metadata"], "namespace": "own"}})
    running.put({**pod("own-0", 30), "metadata": {**pod("own-0", 30)["metadata"], "namespace": "own"}})
    done = empty(running, bound)
    assert done.charts_left == ("jobset in jobset-system, for own/JobSet/tune",)
    assert running.objects("JobSet").keys() == {"tune"}


def test_test_of_nccl_ends_with_the_gangs(running: Cluster) -> None:
    steps = kube_steps(running=(TESTED,))
    running.put(*steps.tests)
    empty(running, steps)
    assert running.objects("JobSet") == {}


def test_kinds_are_those_that_a_role_may_create(bound: Steps) -> None:
    """A kind that a team may create, and that `down` does not look for, would go with its namespace."""
    rules = [rule for one in bound.objects if one["kind"] == "Role" for rule in one["rules"]]
    may = {
        (group, resource)
        for rule in rules
        if "create" in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if "/" not in resource
    }
    known = {(version.rpartition("/")[0], f"{kind.lower()}s") for version, kind in KINDS}
    assert known - may == {("apps", "daemonsets")}
    assert may <= known


def test_what_belongs_to_a_namespace_is_of_nobody(running: Cluster) -> None:
    """Each namespace has the certificates of the API server, and the workloads name Secrets that the team creates."""
    owned = {**job("apps/v1", "ReplicaSet")}
    owned["metadata"] = {**owned["metadata"], "ownerReferences": [{"uid": "uid-of-a-deployment"}]}
    running.put(
        owned,
        named("v1", "ConfigMap", "kube-root-ca.crt"),
        named("v1", "ServiceAccount", "default"),
        named("v1", "Secret", "registry"),
    )
    empty(running, kube_steps(running=(TESTED,)), delete_data=True)  # refused if one of them is of others
    assert running.objects("Namespace") == {}


def named(api_version: str, kind: str, name: str) -> dict[str, Any]:
    one = job(api_version, kind)
    return {**one, "metadata": {**one["metadata"], "name": name}}


@pytest.mark.parametrize(("value", "names_of"), [
    ({"volumes": [{"secret": {"secretName": "a"}}, {"projected": {"sources": [{"secret": {"name": "b"}}]}}]}, ["a", "b"]),
    ({"env": [{"valueFrom": {"secretKeyRef": {"name": "c", "key": "k"}}}], "envFrom": [{"secretRef": {"name": "d"}}]}, ["c", "d"]),
    ({"imagePullSecrets": [{"name": "e"}]}, ["e"]),
    ({"secret": None, "name": "f"}, []),
])  # fmt: skip
def test_secrets_of_a_manifest(value: dict[str, Any], names_of: list[str]) -> None:
    assert list(secrets(value)) == names_of


def test_chart_that_left_the_spec_is_uninstalled(running: Cluster, bound: Steps) -> None:
    """Regression: `down` uninstalled the charts of the spec alone."""
    row = {**running.values()["releases"][0], "name": "lws", "namespace": "lws-system"}
    running.change(releases=[*running.values()["releases"], row])
    assert "lws" in empty(running, bound).charts
    assert running.values()["releases"] == []
