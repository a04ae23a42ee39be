"""Services whose replicas have several nodes: their chart, their state, and their end."""

from support.cluster import Cluster
from support.kube_steps import GROUPS, kube_steps

from gpucluster.k8s_apply.down import down
from gpucluster.k8s_apply.status import status
from gpucluster.k8s_apply.up import up

NAME = "research/chat-group"
KARPENTER = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "spec": {"replicas": 1},
    "metadata": {
        "name": "karpenter",
        "namespace": "karpenter",
        "labels": {"app.kubernetes.io/name": "karpenter"},
    },
}


def test_up_status_and_down_of_a_service_with_groups(cluster: Cluster) -> None:
    steps = kube_steps(running=GROUPS)
    done = up(cluster.access(), steps, holder="ann@desk")
    assert "lws" in done.charts
    (found,) = (one for one in status(cluster.access(), steps).workloads if one.name == NAME)
    assert found.state == "available"
    cluster.put(KARPENTER)
    down(cluster.access(), steps, holder="ann@desk", delete_data=True)
    assert set(cluster.objects()) == {"Deployment/karpenter"}, "the stand-in of helm makes no Deployment"
    assert cluster.values()["releases"] == []


def test_group_whose_pods_mount_a_volume_without_an_id_is_not_awaited(cluster: Cluster) -> None:
    steps = kube_steps(running=GROUPS, bindings=None)
    assert NAME in {f"{ref.namespace}/{ref.name}" for ref in steps.unbound}
