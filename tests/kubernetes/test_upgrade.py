"""`k8s upgrade` on a real API server: its own count of old APIs, real budgets and nodes."""

from typing import Any

import pytest
from real_kubernetes import Kubernetes
from support.selectors import PODS, ROWS

from gpucluster.k8s_apply.kubectl import Kubectl
from gpucluster.k8s_apply.upgrade import old_apis, read, upgrade
from gpucluster.sandbox.kubernetes import nodes

SPACE = "upgrade"
MARKS = {"app": "web"}


def made(kind: str, api_version: str, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "web", "namespace": SPACE}, **parts}


def a_node(version: str) -> dict[str, Any]:
    """A node of a managed node group."""
    marks = {"eks.amazonaws.com/nodegroup": "web-0", "gpucluster/pool": "web"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "upgrade-web", "labels": marks, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"taints": [{"key": "upgrade", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "20"},
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "20"},
            "nodeInfo": {"kubeletVersion": version},
        },
    }


def test_what_an_upgrade_meets_is_read_from_the_server(
    kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubernetes.use(monkeypatch)
    client = kubernetes.client
    client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    nodes.start(client, a_node("v1.35.4-eks-0123abc"))
    template = {
        "metadata": {"labels": MARKS},
        "spec": {
            "nodeSelector": {"gpucluster/pool": "web"},
            "tolerations": [{"key": "upgrade", "operator": "Exists"}],
            "containers": [{"name": "web", "image": "x"}],
        },
    }
    spec = {"replicas": 2, "selector": {"matchLabels": MARKS}, "template": template}
    client.apply(made("Deployment", "apps/v1", spec=spec))
    client.apply(
        made("PodDisruptionBudget", "policy/v1", spec={"minAvailable": 2, "selector": {"matchLabels": MARKS}})
    )
    kubectl = Kubectl("sandbox")
    slow = f"{SPACE}/PodDisruptionBudget/web allows no eviction of 2 pods: EKS waits 15 minutes for a node, then the update fails"
    kubernetes.wait(lambda: upgrade(read(kubectl), "1.37").slow, "the budget counts its pods")
    found = upgrade(read(kubectl), "1.37")
    assert slow in found.slow
    assert (found.server, found.path, found.nodes["web"]) == ("1.36", ("1.37",), {"1.35": 1})
    assert [one for one in found.blocked if "upgrade-web" in one] == []
    client.delete("v1", "Node", "upgrade-web")


def test_the_server_selects_the_same_pods(kubernetes: Kubernetes) -> None:
    client, space = kubernetes.client, "selectors"
    client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    for name, labels in PODS.items():
        metadata = {"name": name, "namespace": space, "labels": labels}
        container = {"name": "c", "image": "x"}
        client.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
        )
    for _, words, names in ROWS:
        found = client.list("v1", "Pod", space, **({"labelSelector": words} if words else {}))
        assert {one["metadata"]["name"] for one in found} == names, words


def test_the_server_counts_the_use_of_an_old_api(
    kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes has announced no release without Endpoints, so its use is in nobody's way."""
    kubernetes.use(monkeypatch)
    kubernetes.kubectl("get", "endpoints", "--namespace", "default")
    metrics = Kubectl("sandbox").read("get", "--raw", "/metrics")
    assert 'apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints"' in metrics
    assert "endpoints" not in {one.resource for one in old_apis(metrics)}
