"""The control plane of the tests, with Kueue, JobSet, Kubeflow Trainer and the definitions of the other charts.

kubernetes.apply(manifest)
kubernetes.wait(lambda: kubernetes.client.get("v1", "Pod", "x", "ns"), "the pod exists")
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from support.kube import MONITORED, TRAINED, files
from support.waiting import BOUND_S, eventually

from gpucluster import shell
from gpucluster.k8s import manifest
from gpucluster.sandbox.kubernetes import control_plane, crds, managers, trainer
from gpucluster.sandbox.kubernetes.client import Client
from gpucluster.sandbox.kubernetes.control_plane import ControlPlane
from gpucluster.sandbox.kubernetes.programs import Programs

PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
T = TypeVar("T")
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """What a test uses of the control plane."""

    plane: ControlPlane
    metrics_port: int  # of Kueue

    @property
    def client(self) -> Client:
        return self.plane.client

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> shell.Result:
        """Run the real kubectl with all rights."""
        argv = [str(self.plane.programs["kubectl"]), "--kubeconfig", str(self.plane.kubeconfig), *args]
        return shell.run(argv, stdin=stdin, check=check, timeout_s=BOUND_S, env={"HOME": str(self.plane.folder)},
                         without=PROXIES)  # fmt: skip

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let this process call kubectl with all rights, as at a desk. kubectl caches what the server serves in HOME."""
        monkeypatch.setenv("PATH", f"{self.plane.programs['kubectl'].parent}:{os.environ['PATH']}")
        monkeypatch.setenv("KUBECONFIG", str(self.plane.kubeconfig))
        monkeypatch.setenv("HOME", str(self.plane.folder))
        for name in PROXIES:
            monkeypatch.delenv(name, raising=False)

    def wait(self, what: Callable[[], T], words: str) -> T:
        """Return the first value of `what` that is true; AssertionError with `words` if there is none."""
        return eventually(words, what)


@contextmanager
def started(programs: Programs, folder: Path) -> Iterator[Kubernetes]:
    """A control plane with all that the rendered manifests need. Kueue has the configuration that gpucluster renders."""
    with control_plane.running(programs, folder) as plane:
        for one in crds.from_catalog():
            plane.client.apply(one)
        managers.start(plane, managers.jobset())
        managers.start(plane, managers.TRAINER, trainer.find_or_build(print, programs))
        metrics_port = managers.start(plane, managers.kueue(kueue_config()))
        yield Kubernetes(plane, metrics_port)


def kueue_config() -> Mapping[str, Any]:
    """What the values of Kueue's chart give to its manager, for all clusters of the tests instead of one."""
    (values,) = manifest.documents(files(MONITORED, TRAINED)["helm/kueue.yaml"])
    (config,) = manifest.documents(values["managerConfig"]["controllerManagerConfigYaml"])
    anywhere = {"matchExpressions": [{"key": "gpucluster/cluster", "operator": "Exists"}]}
    return {**config, "managedJobsNamespaceSelector": anywhere}
