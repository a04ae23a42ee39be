"""A real API server with Kueue and JobSet refuses what lint says that it refuses, and takes the twin."""

import pytest
from real_kubernetes import Kubernetes
from support.judged_manifests import GUARDED, JUDGED, NAMESPACES, Judged

from gpucluster.errors import GpuclusterError
from gpucluster.k8s.lint.read import read


@pytest.fixture(scope="module")
def judge(kubernetes: Kubernetes) -> Kubernetes:
    """The server with the namespaces. It refuses pods until a namespace has its service account."""
    for namespace in read(NAMESPACES, "a.yaml").documents:
        kubernetes.client.apply(namespace.value)
    kubernetes.wait(lambda: kubernetes.client.get("v1", "ServiceAccount", "default", GUARDED), "the account is there")  # fmt: skip
    return kubernetes


@pytest.mark.parametrize("row", JUDGED, ids=[row.name for row in JUDGED])
def test_server_judges_as_lint_does(judge: Kubernetes, row: Judged) -> None:
    (bad,) = read(row.refused, "a.yaml").documents
    (sound,) = read(row.sound, "a.yaml").documents
    with pytest.raises(GpuclusterError):
        judge.client.apply(bad.value)
    judge.client.apply(sound.value)
