"""A cluster of stand-ins, and the steps of the usual spec. Processes call the stand-ins in tests/unit/cli/test_k8s.py."""

from pathlib import Path

import pytest
from support.cluster import Cluster, installed
from support.kube_steps import kube_steps

from gpucluster.k8s_apply.steps import Steps


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return installed(tmp_path, monkeypatch, processes=False)


@pytest.fixture(scope="session")
def bound() -> Steps:
    """The steps of the usual spec, with the ids of its volumes."""
    return kube_steps()
