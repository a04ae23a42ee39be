"""`monitoring` of a spec: its objects come, go with the field, and go with the cluster. The record of `up` is never one of them."""

import pytest
from support.cluster import Cluster
from support.kube import MONITORED, STATIC
from support.kube_steps import kube_steps

from gpucluster.errors import StateError
from gpucluster.k8s_apply import record
from gpucluster.k8s_apply.down import down
from gpucluster.k8s_apply.status import status
from gpucluster.k8s_apply.steps import Steps
from gpucluster.k8s_apply.up import up

OURS = {"PrometheusRule/kube", "ConfigMap/kube-dashboard", "Namespace/kube-monitoring"}


@pytest.fixture
def monitored(cluster: Cluster) -> Steps:
    cluster.change(crds=dict.fromkeys(["prometheus-operator"], "1"))
    return kube_steps(MONITORED, STATIC)


def test_objects_come_and_go_with_the_cluster(cluster: Cluster, monitored: Steps) -> None:
    up(cluster.access(), monitored, holder="ann")
    assert cluster.objects().keys() >= OURS
    assert status(cluster.access(), monitored).unsettled == ()
    down(cluster.access(), monitored, holder="ann", delete_data=True)
    assert cluster.objects() == {}


def test_objects_go_when_the_field_leaves_the_spec(cluster: Cluster, monitored: Steps) -> None:
    up(cluster.access(), monitored, holder="ann")
    without = kube_steps(STATIC)
    done = up(cluster.access(), without, holder="ann", prune=True)
    assert set(done.pruned) == {
        "kube-monitoring/ConfigMap/kube-dashboard",
        "kube-monitoring/PrometheusRule/kube",
    }
    assert done.leftovers == ("Namespace/kube-monitoring",)
    found = record.read(cluster.access().kubectl, "kube")
    assert found is not None
    assert found.digest == without.digest


def test_cluster_without_the_operator_is_told(cluster: Cluster) -> None:
    with pytest.raises(StateError, match="PrometheusRule"):
        up(cluster.access(), kube_steps(MONITORED, STATIC), holder="ann", limit_s=0.0)
