"""Services whose replicas have several nodes: a LeaderWorkerSet, its address and its budget."""

from typing import Any

import pytest
from support.builders import a_kube_plan
from support.kube import Change, files, objects

from gpucluster.k8s.lint import check
from gpucluster.k8s.lint.of_plan import facts
from gpucluster.k8s.lint.read import read

GROUPS: tuple[Change, ...] = (
    ("team: serving", "team: research"),
    (
        "{nvidia.com/mig-1g.10gb: 1}",
        "{nvidia.com/gpu: 8}\n    nodes: 2\n    worker_command: [serve, --worker]",
    ),
    ("{min: 2, max: 8}", "{min: 1, max: 2}"),
)
LEADER, WORKER = "leaderTemplate", "workerTemplate"


def _found(*running: Change) -> dict[str, Any]:
    return objects(files(running=(*GROUPS, *running)))


def _set(found: dict[str, Any]) -> Any:
    return found["LeaderWorkerSet/research/chat-group"]["spec"]


def _container(found: dict[str, Any], role: str) -> Any:
    (container,) = _set(found)["leaderWorkerTemplate"][role]["spec"]["containers"]
    return container


def test_replica_is_a_group_that_restarts_whole() -> None:
    found = _found()
    template = _set(found)["leaderWorkerTemplate"]
    assert (template["size"], template["restartPolicy"]) == (2, "RecreateGroupOnPodRestart")
    assert "Deployment/research/chat" not in found
    labels = found["LeaderWorkerSet/research/chat-group"]["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "default"


def test_requests_go_to_the_first_pod_alone() -> None:
    """The controller's headless Service has the name of the set, so the address has another."""
    found = _found()
    service = found["Service/research/chat"]["spec"]
    assert service["selector"] == {"gpucluster/workload": "chat", "gpucluster/answers": "true"}
    leader, worker = _container(found, LEADER), _container(found, WORKER)
    assert leader["ports"][0]["name"] == service["ports"][0]["targetPort"] == "http"
    assert {"startupProbe", "readinessProbe"} <= leader.keys()
    assert not {"startupProbe", "readinessProbe", "ports"} & worker.keys()


def test_workers_have_their_own_command_or_that_of_the_leader() -> None:
    assert _container(_found(), WORKER)["command"] == ["serve", "--worker"]
    same = _found(("\n    worker_command: [serve, --worker]", "\n    command: [serve]\n    args: [-v]"))
    assert [
        (_container(same, role)["command"], _container(same, role)["args"]) for role in (LEADER, WORKER)
    ] == [(["serve"], ["-v"])] * 2


def test_each_pod_has_its_part_of_the_node_with_the_fabric() -> None:
    for role in (LEADER, WORKER):
        container = _container(_found(), role)
        asked = container["resources"]["requests"]
        assert (asked["nvidia.com/gpu"], asked["vpc.amazonaws.com/efa"], asked["hugepages-2Mi"]) == (
            "8",
            "4",
            "5Gi",
        )
        assert container["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"]}
        assert "NCCL_SOCKET_IFNAME" in {one["name"] for one in container["env"]}


def test_all_groups_are_in_one_pool() -> None:
    """Kueue gives the leader and the workers a flavor each; two flavors could be two zones."""
    more = (
        ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 64}"),
        ("  - name: serve\n", "  - {name: more, nodes: 4, capacity: [{from: on-demand, machines: [p4de.24xlarge]}]}\n  - name: serve\n"),
    )  # fmt: skip
    found = objects(files(*more, running=GROUPS))
    for role in (LEADER, WORKER):
        affinity = _set(found)["leaderWorkerTemplate"][role]["spec"]["affinity"]["nodeAffinity"]
        (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert term["matchExpressions"][0]["values"] == ["tune"]


@pytest.mark.parametrize(("most", "surge"), [(1, (1, 0)), (2, (0, 1))])
def test_surge_needs_room_for_a_whole_group(most: int, surge: tuple[int, int]) -> None:
    changed = ("{min: 1, max: 2}\n    scale_on: {queue_depth: 10}", f"{{min: {most}, max: {most}}}")
    update = _set(_found(changed))["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert (update["maxSurge"], update["maxUnavailable"]) == surge
    assert _set(_found(changed))["replicas"] == most


def test_autoscaler_scales_groups() -> None:
    target = _found()["HorizontalPodAutoscaler/research/chat"]["spec"]["scaleTargetRef"]
    assert target == {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "name": "chat-group",
    }
    assert "replicas" not in _set(_found())


def test_lint_finds_nothing_in_a_tree_with_groups() -> None:
    texts = files(running=GROUPS)
    manifests = [path for path in texts if path.endswith(".yaml") and path[0].isdigit()]
    documents = [one for path in sorted(manifests) for one in read(texts[path], path).documents]
    assert "LeaderWorkerSet" in {one.value["kind"] for one in documents}
    assert check(documents, facts(a_kube_plan())) == ()


def test_guide_installs_the_chart_only_for_groups() -> None:
    line = "helm upgrade --install lws oci://registry.k8s.io/lws/charts/lws --version 0.9.0 --namespace lws-system "
    assert line in files(running=GROUPS)["README.md"]
    assert "lws" not in files()["README.md"]
