"""The record of `up` knows its cluster: a copy of a cluster and another account are refused."""

from collections.abc import Callable
from typing import Any

import pytest
from support.cluster import KUBE_SYSTEM, Cluster
from support.kube_steps import kube_steps

from gpucluster.cli.k8s_text import lines
from gpucluster.errors import StateError
from gpucluster.k8s_apply.down import down
from gpucluster.k8s_apply.status import status
from gpucluster.k8s_apply.steps import Steps
from gpucluster.k8s_apply.up import up

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def small() -> Steps:
    return kube_steps(running=None)


def copied(cluster: Cluster) -> None:
    """The objects are those of a backup, and kube-system is another one."""
    cluster.put({**KUBE_SYSTEM, "metadata": {"name": "kube-system", "uid": "uid-of-the-copy"}})


@pytest.mark.parametrize("run", [up, down])
def test_copy_of_a_cluster_is_refused(cluster: Cluster, small: Steps, run: Run) -> None:
    up(cluster.access(), small, holder="ann")
    copied(cluster)
    before = cluster.versions()
    with pytest.raises(StateError) as found:
        run(cluster.access(), small, holder="ann")
    assert found.value.message == (
        "the ConfigMap gpucluster-kube in kube-system is of the cluster whose kube-system has the UID uid-kube-system,"
        " and this is uid-of-the-copy: nothing was changed"
    )
    assert str(found.value.next_step).endswith(
        "kubectl delete configmap gpucluster-kube --namespace kube-system"
    )
    assert cluster.versions() == before


@pytest.mark.parametrize("run", [up, down])
def test_other_account_than_that_of_the_record_is_refused(cluster: Cluster, small: Steps, run: Run) -> None:
    up(cluster.access(account="123456789012"), small, holder="ann")
    up(cluster.access(), small, holder="ann")  # it does not forget the account
    before = cluster.versions()
    with pytest.raises(StateError, match="is of the AWS account 123456789012, and this is 210987654321"):
        run(cluster.access(account="210987654321"), small, holder="ann")
    assert cluster.versions() == before


def test_status_tells_of_a_copy_and_of_another_account(cluster: Cluster, small: Steps) -> None:
    """Another cluster under the same name of a context was reported as this one."""
    up(cluster.access(account="123456789012"), small, holder="ann")
    assert status(cluster.access(), small).another == ""
    other = status(cluster.access(account="210987654321"), small).another
    assert other.endswith("is of the AWS account 123456789012, and this is 210987654321")
    copied(cluster)
    found = status(cluster.access(), small)
    words = (
        "the ConfigMap gpucluster-kube in kube-system is of the cluster whose kube-system has the UID uid-kube-system,"
        " and this is uid-of-the-copy"
    )
    assert found.another == found.unsettled[0] == words
    assert list(lines(found))[1] == f"another cluster: {words}"


def test_record_of_an_earlier_version_is_completed(cluster: Cluster, small: Steps) -> None:
    up(cluster.access(), small, holder="ann")
    old = cluster.objects("ConfigMap")["gpucluster-kube"]
    data = {key: value for key, value in old["data"].items() if key not in ("uid", "account")}
    cluster.put({**old, "data": data})
    up(cluster.access(), small, holder="ann")
    assert cluster.objects("ConfigMap")["gpucluster-kube"]["data"]["uid"] == "uid-kube-system"


def test_record_that_changed_meanwhile_is_read_and_written_again(cluster: Cluster, small: Steps) -> None:
    """A label that somebody set between our read and our write ended the run."""
    words = 'Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled on configmaps "gpucluster-kube": the object has been modified; please apply your changes to the latest version and try again'
    cluster.plant("replace", words)  # the lease is created, so the first one is of the record
    up(cluster.access(), small, holder="ann")
    assert cluster.objects("ConfigMap")["gpucluster-kube"]["data"]["complete"] == "true"
