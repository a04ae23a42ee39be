"""Validation's own pods: where they run, what they say when they do not, and that none is left."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.builders import a_kube_plan, kubernetes_of
from support.cluster import KUBE_SYSTEM, Cluster, installed
from support.kube_steps import kube_steps

from gpucluster.checks.check import CheckResult, CheckStatus, QueryOutput
from gpucluster.checks.kubernetes.pods import PodNetwork, PodVolumes
from gpucluster.errors import StateError
from gpucluster.k8s_apply.faults import HungError, RefusedError, TransientError
from gpucluster.k8s_apply.kubectl import Kubectl
from gpucluster.k8s_apply.up import up
from gpucluster.plan import names
from gpucluster.validate.expectation import expect
from gpucluster.validate.kubernetes_expectations import kubernetes_expectations
from gpucluster.validate.pod_manifests import PodSet, chosen_sets, pod_sets
from gpucluster.validate.validation_pods import ValidationPods

Object = dict[str, Any]
STEPS, PART = kube_steps(), kubernetes_of(a_kube_plan())
SETS = tuple(pod_sets(PART, STEPS))
TUNE = next(one for one in SETS if one.pool == "tune")
WANT = PodNetwork(pool="tune", namespace="research")
READY = [{"type": "Ready", "status": "True"}]


def node(name: str, pool: str = "tune", **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {names.LABEL_POOL: pool}},
        "spec": spec,
        "status": {"conditions": READY},
    }


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = installed(tmp_path, monkeypatch, processes=False)
    up(made.access(), STEPS, holder="ann@desk")
    made.put(node("n-1"), node("n-2"))
    return made


def started(cluster: Cluster, *sets: PodSet) -> ValidationPods:
    return ValidationPods(cluster.access(), "kube", "registry.example.org/agnhost:2.63.0", sets or (TUNE,))


def judged(of: ValidationPods, check: str, want: PodNetwork | PodVolumes = WANT) -> CheckResult:
    row = expect(check, want.pool, want).of
    outputs = tuple(QueryOutput(code=0, stdout=json.dumps(of.answer(one.argv))) for one in row.query(want))
    return row.evaluate(row.parse(outputs), want)


def ours(cluster: Cluster) -> set[str]:
    return {name for name in cluster.objects() if "gpucluster-validate" in name}


def test_pods_run_on_two_nodes_and_mount_what_the_team_has(cluster: Cluster) -> None:
    mine = started(cluster)
    assert judged(mine, "kube.reach").verdict is CheckStatus.PASS
    places = {one["metadata"]["name"].rpartition("-")[2]: one for one in cluster.objects("Pod").values()}
    assert {role: one["spec"]["nodeName"] for role, one in places.items()} == {
        "team": "n-1", "peer": "n-2", "outsider": "n-2", "mounts": "n-1",
    }  # fmt: skip
    claims = [one["persistentVolumeClaim"]["claimName"] for one in places["mounts"]["spec"]["volumes"]]
    assert tuple(claims) == TUNE.claims != ()
    assert {one["metadata"]["namespace"] for role, one in places.items() if role != "outsider"} == {
        "research"
    }
    assert places["outsider"]["metadata"]["namespace"].startswith("gpucluster-validate-")
    mine.close()


def test_one_pod_of_a_pool_with_gpus_names_them_all(cluster: Cluster) -> None:
    """As CUDA images do. It is in no team's namespace, where a policy refuses the variable, and it requests none."""
    mine = started(cluster)
    assert judged(mine, "kube.gpus").verdict is CheckStatus.PASS
    for pod in cluster.objects("Pod").values():
        (container,) = pod["spec"]["containers"]
        outsider = pod["metadata"]["name"].endswith("-outsider")
        assert container.get("env") == (
            [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}] if outsider else None
        )
        assert container["resources"]["limits"].keys() == {"memory"}
    mine.close()


def test_pool_without_gpus_is_not_asked_for_any(cluster: Cluster) -> None:
    without = replace(PART, pools=tuple(replace(one, gpu_count=0) for one in PART.pools))
    assert [one.gpus for one in (*SETS, *pod_sets(without, STEPS))] == [True, True, False, False]
    plan = a_kube_plan()
    for part, targets in ((PART, {"serve", "tune"}), (without, set[str]())):
        every = kubernetes_expectations(replace(plan, kubernetes=part), STEPS, charts=True, containers=True)
        assert {one.target for one in every if one.check == "kube.gpus"} == targets
    mine = started(cluster, replace(TUNE, gpus=False))
    judged(mine, "kube.reach")
    assert not [one for one in cluster.objects("Pod").values() if "env" in one["spec"]["containers"][0]]
    mine.close()


@pytest.mark.parametrize(
    ("code", "words", "verdict"),
    [
        (0, 'mode of file "/dev/nvidiactl": Dcrw-rw-rw-', CheckStatus.FAIL),
        (126, "exec: no such file or directory", CheckStatus.UNKNOWN),
        (1, 'error from Stat("/dev/nvidiactl"): permission denied', CheckStatus.UNKNOWN),
    ],
)
def test_device_that_is_there_is_a_fault_and_a_program_that_cannot_look_is_no_proof(
    cluster: Cluster, code: int, words: str, verdict: CheckStatus
) -> None:
    cluster.change(exec=[["tune-outsider", "/dev/nvidiactl", code, words]])
    mine = started(cluster)
    assert judged(mine, "kube.gpus").verdict is verdict
    mine.close()


@pytest.mark.parametrize("tainted", [True, False])
def test_pods_tolerate_the_taints_of_the_pool_and_no_other(cluster: Cluster, tainted: bool) -> None:
    taints = TUNE.taints if tainted else ()
    mine = started(cluster, PodSet(pool="tune", taints=taints, namespace="research", claims=()))
    judged(mine, "kube.reach")
    (pod, *_) = cluster.objects("Pod").values()
    assert [one["key"] for one in pod["spec"]["tolerations"]] == [one.key for one in taints]
    mine.close()


def test_close_leaves_nothing(cluster: Cluster) -> None:
    mine = started(cluster)
    judged(mine, "kube.reach")
    assert len(ours(cluster)) == 6
    mine.close()
    assert ours(cluster) == set()


def test_pods_of_a_team_have_a_controller_that_makes_none(cluster: Cluster) -> None:
    """Kueue leaves them alone: they take no quota, and start while it is full. The outsider's namespace is not Kueue's."""
    mine = started(cluster)
    judged(mine, "kube.reach")
    (keeper,) = (one for name, one in cluster.objects("Deployment").items() if "gpucluster-validate" in name)
    assert keeper["spec"]["replicas"] == 0
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": keeper["metadata"]["name"],
        "uid": keeper["metadata"]["uid"],
        "controller": True,
    }
    for pod in cluster.objects("Pod").values():
        ours_ = pod["metadata"]["namespace"] == "research"
        assert pod["metadata"].get("ownerReferences") == ([owner] if ours_ else None)
        assert keeper["spec"]["selector"]["matchLabels"].items() > pod["metadata"]["labels"].items()
    mine.close()


def test_nothing_is_started_without_a_question(cluster: Cluster) -> None:
    cluster.forget_calls()
    started(cluster).close()
    assert cluster.calls() == []


def test_pods_that_cannot_be_deleted_are_told(cluster: Cluster) -> None:
    mine = started(cluster)
    judged(mine, "kube.reach")
    cluster.plant("kubectl", "Error from server (Forbidden): you may not", times=1)
    mine.close()
    assert any(line.startswith("delete them: kubectl delete pods,deployments,namespaces --all-namespaces --selector gpucluster/validation-run=") for line in cluster.said)  # fmt: skip


def test_pods_of_a_killed_run_are_deleted_and_those_of_a_run_that_goes_on_are_not(cluster: Cluster) -> None:
    killed = started(cluster)
    judged(killed, "kube.reach")
    before = ours(cluster)
    second = started(cluster)
    judged(second, "kube.reach")
    assert before < ours(cluster)
    second.close()
    cluster.elapsed += 1201 + 120
    third = started(cluster)
    judged(third, "kube.reach")
    assert not before & ours(cluster)
    third.close()
    assert ours(cluster) == set()


def test_pods_of_many_pools_live_longer(cluster: Cluster) -> None:
    """With some 40 pools, or a few whose file system hangs, the kubelet ended the pods of a run before it had asked all of them."""
    many = [PodSet(pool=f"p{n}", taints=(), namespace="research", claims=()) for n in range(39)]
    first = started(cluster, TUNE, *many)
    judged(first, "kube.reach")
    before = ours(cluster)
    limits = {one["spec"]["activeDeadlineSeconds"] for one in cluster.objects("Pod").values() if "gpucluster-validate" in one["metadata"]["name"]}  # fmt: skip
    assert limits == {1200 + 40 * 120}
    for seconds, there in ((1200 + 39 * 120, True), (121, False)):
        cluster.elapsed += seconds
        second = started(cluster)
        judged(second, "kube.reach")
        assert (before <= ours(cluster)) is there
        second.close()
    assert ours(cluster) == set()


def unplaced(pod: Object) -> None:
    pod["spec"].pop("nodeName", None)
    words = "0/5 nodes are available: 1 Insufficient cpu."
    row = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    pod["status"] = {"phase": "Pending", "conditions": [row]}


def unpulled(pod: Object) -> None:
    pod["spec"]["nodeName"] = "n-1"
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    rows = [{"name": "agnhost", "image": "x", "state": {"waiting": waiting}}]
    pod["status"] = {"phase": "Pending", "containerStatuses": rows}


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        (unplaced, CheckStatus.UNKNOWN, "kube-scheduler: 0/5 nodes are available: 1 Insufficient cpu."),
        (unpulled, CheckStatus.FAIL, "on n-1 does not run: kubelet: container agnhost, image x: Back-off pulling image"),
    ],
)  # fmt: skip
def test_pod_that_does_not_run_says_why(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Object], None],
    verdict: CheckStatus,
    words: str,
) -> None:
    monkeypatch.setattr("support.cluster.controllers.run_pod", change)
    mine = started(cluster)
    found = judged(mine, "kube.reach")
    assert (found.verdict, words in found.found) == (verdict, True), found.found
    assert judged(mine, "kube.dns").verdict is CheckStatus.UNKNOWN
    assert cluster.elapsed >= 180
    volumes = PodVolumes(pool="tune", namespace="research", claims=TUNE.claims)
    assert judged(mine, "kube.volumes", volumes).verdict is CheckStatus.FAIL
    mine.close()
    assert ours(cluster) == set()


def test_pod_that_admission_refuses_is_no_pass(cluster: Cluster) -> None:
    cluster.plant(
        "kubectl --context", 'Error from server (Forbidden): pods "x" is forbidden: a policy', times=1, skip=6
    )
    mine = started(cluster)
    found = judged(mine, "kube.reach")
    assert found.verdict is CheckStatus.UNKNOWN
    assert "forbidden: a policy" in found.found
    mine.close()
    assert ours(cluster) == set()


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"unschedulable": True}},
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        {"metadata": {"name": "n-1", "labels": {names.LABEL_POOL: "other"}}},
        {"metadata": {"name": "n-1", "labels": {names.LABEL_POOL: "tune"}, "deletionTimestamp": "2026-11-25T12:00:00Z"}},
    ],
)  # fmt: skip
def test_pool_without_a_node_that_takes_pods_is_a_warning(cluster: Cluster, change: Object) -> None:
    cluster.put(*({**node(name), **change, "metadata": {**change.get("metadata", node(name)["metadata"]), "name": name}} for name in ("n-1", "n-2")))  # fmt: skip
    mine = started(cluster)
    for check in ("kube.reach", "kube.dns", "kube.metadata", "kube.isolation", "kube.gpus"):
        assert judged(mine, check).verdict is CheckStatus.WARN
    mine.close()
    assert ours(cluster) == set()


def test_policies_that_come_late_are_waited_for(cluster: Cluster) -> None:
    mine = started(cluster)
    judged(mine, "kube.reach")
    cluster.change(exec=[["tune-outsider", "10.244.", 0, ""]])
    cluster.while_asleep = lambda: cluster.change(exec=[])
    assert judged(mine, "kube.isolation").verdict is CheckStatus.PASS
    mine.close()


def test_pools_wait_together_for_policies_that_never_come(cluster: Cluster) -> None:
    others = [one for one in SETS if one.pool != TUNE.pool]
    cluster.put(*(node(f"{one.pool}-1", one.pool) for one in others))
    mine = started(cluster, *SETS)
    judged(mine, "kube.reach")
    cluster.change(exec=[["", "10.244.", 0, ""], ["", "169.254.", 0, ""]])
    begun = cluster.elapsed
    for one in SETS:
        want = PodNetwork(pool=one.pool, namespace=one.namespace)
        for check in ("kube.metadata", "kube.isolation"):
            assert judged(mine, check, want).verdict is CheckStatus.FAIL
    assert 30 <= cluster.elapsed - begun < 30 + 2 * 4 * len(SETS)
    mine.close()


def test_stranger_that_reaches_nothing_proves_nothing(cluster: Cluster) -> None:
    cluster.change(exec=[["tune-outsider", "kubernetes.default.svc", 1, "TIMEOUT"]])
    mine = started(cluster)
    found = judged(mine, "kube.isolation")
    assert found.verdict is CheckStatus.UNKNOWN
    assert "so nothing is proven" in found.found
    mine.close()


def test_program_that_cannot_run_is_no_proof_of_a_block(cluster: Cluster) -> None:
    cluster.change(exec=[["tune-team", "169.254", 126, "exec: no such file"]])
    mine = started(cluster)
    assert judged(mine, "kube.metadata").verdict is CheckStatus.UNKNOWN
    mine.close()


@pytest.mark.parametrize(
    ("error", "verdict", "words"),
    [
        (HungError("kubectl: not done after 45 s"), CheckStatus.FAIL, ": no answer after 45 s"),
        (TransientError("dial tcp 10.0.0.1:10250: i/o timeout"), CheckStatus.UNKNOWN, "10250: i/o timeout"),
    ],
)
def test_volume_that_hangs_is_a_fault_and_an_attempt_that_could_not_be_made_is_none(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    verdict: CheckStatus,
    words: str,
) -> None:
    mine = started(cluster)
    judged(mine, "kube.reach")

    def execute(*_: object) -> tuple[int, str]:
        raise error

    monkeypatch.setattr(Kubectl, "execute", execute)
    volumes = PodVolumes(pool="tune", namespace="research", claims=TUNE.claims)
    found = judged(mine, "kube.volumes", volumes)
    assert (found.verdict, words in found.found) == (verdict, True), found.found
    for check in ("kube.reach", "kube.dns", "kube.metadata", "kube.isolation"):
        assert judged(mine, check).verdict is CheckStatus.UNKNOWN
    mine.close()


def test_only_pools_of_chosen_checks_get_pods() -> None:
    chosen = (expect("kube.dns", "tune", WANT),)
    assert [one.pool for one in chosen_sets(SETS, chosen)] == ["tune"]
    assert len(SETS) > 1
    assert chosen_sets(SETS, ()) == ()


@pytest.mark.parametrize("skip", range(4))
def test_start_goes_on_when_the_api_server_is_away_for_a_moment(cluster: Cluster, skip: int) -> None:
    words = "Unable to connect to the server: net/http: TLS handshake timeout"
    cluster.plant("kubectl --context", words, times=2, skip=skip)
    mine = started(cluster)
    assert judged(mine, "kube.reach").verdict is CheckStatus.PASS
    mine.close()
    assert ours(cluster) == set()


def test_start_that_failed_is_the_answer_to_every_question(cluster: Cluster) -> None:
    cluster.plant("kubectl --context", "Error from server (Forbidden): nodes is forbidden", times=1, skip=3)
    mine = started(cluster)
    for _ in range(2):
        with pytest.raises(RefusedError, match="nodes is forbidden"):
            mine.answer((TUNE.pool, "team", "peer", "connected"))
    mine.close()
    assert ours(cluster) == set()


def test_cluster_that_is_not_the_recorded_one_gets_no_pod(cluster: Cluster) -> None:
    """Pods were started, and those of an earlier run deleted, in a copy of the cluster, which `up` and `down` refuse."""
    mine = started(cluster)
    cluster.put({**KUBE_SYSTEM, "metadata": {"name": "kube-system", "uid": "uid-of-the-copy"}})
    before = cluster.versions()
    with pytest.raises(StateError, match="and this is uid-of-the-copy: nothing was changed"):
        judged(mine, "kube.reach")
    mine.close()
    assert cluster.versions() == before
