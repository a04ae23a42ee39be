"""The folder for Flux, applied by Flux's own kustomize-controller to a real API server with the real managers of Kueue and JobSet.

The test plays source-controller, helm-controller and Karpenter, which are not here.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import real_flux
from real_kubernetes import Kubernetes
from support.kube import BOUND, files, renamed, renamed_workloads
from waves import remove, standing

from gpucluster.k8s.flux import NAMESPACE
from gpucluster.k8s.manifest import documents
from gpucluster.sandbox.kubernetes import crds

Manifest = dict[str, Any]
NAME = "fluxed"
TEXTS = files(*renamed(NAME), running=renamed_workloads(NAME), bindings=BOUND)
KIND = ("kustomize.toolkit.fluxcd.io/v1", "Kustomization")
RELEASE = ("helm.toolkit.fluxcd.io/v2", "HelmRelease")
SOURCE = "source.toolkit.fluxcd.io/v1"
OF_CHARTS = (RELEASE, (SOURCE, "HelmRepository"), (SOURCE, "OCIRepository"))
OF_KARPENTER = (("karpenter.k8s.aws/v1", "EC2NodeClass"), ("karpenter.sh/v1", "NodePool"))


@pytest.fixture
def flux(kubernetes: Kubernetes) -> Iterator[Kubernetes]:
    """The control plane with kustomize-controller."""
    kinds = [kind for _, kind in OF_CHARTS]
    for one in crds.from_catalog():
        if one["spec"]["names"]["kind"] in kinds:
            kubernetes.client.apply(real_flux.with_unseen(one))
    real_flux.start(kubernetes.plane, real_flux.find_or_build(print))
    yield kubernetes
    kubernetes.plane.processes.end(real_flux.NAME)  # it ends no Kustomization whose objects it awaits
    for one in kubernetes.client.list(*KIND, NAMESPACE):
        where = ("kustomization", one["metadata"]["name"], "--namespace", NAMESPACE)
        kubernetes.kubectl(
            "patch", *where, "--type", "merge", "--patch", '{"metadata": {"finalizers": null}}'
        )
        kubernetes.kubectl("delete", *where)
    for version, kind in OF_CHARTS:
        for one in kubernetes.client.list(version, kind, NAMESPACE):
            kubernetes.client.delete(version, kind, one["metadata"]["name"], NAMESPACE)
    remove(kubernetes, TEXTS)


def is_ready(kubernetes: Kubernetes, wave: str) -> bool:
    return any(row["status"] == "True" for row in conditions(kubernetes, wave, "Ready"))


def checks_health(kubernetes: Kubernetes, wave: str) -> bool:
    """Whether the objects of a wave are applied and awaited."""
    return any("health checks" in row["message"] for row in conditions(kubernetes, wave, "Reconciling"))


def awaits(kubernetes: Kubernetes, wave: str, other: str) -> bool:
    words = f"{NAME}-{other}' is not ready"
    return any(words in row["message"] for row in conditions(kubernetes, wave, "Ready"))


def conditions(kubernetes: Kubernetes, wave: str, name: str) -> list[Manifest]:
    one = kubernetes.client.get(*KIND, f"{NAME}-{wave}", NAMESPACE) or {}
    found: list[Manifest] = one.get("status", {}).get("conditions", [])
    return [row for row in found if row["type"] == name]


def finish(kubernetes: Kubernetes, *kinds: tuple[str, str]) -> None:
    """Let the objects of these kinds be ready, as their controllers do."""
    for version, kind in kinds:
        for one in kubernetes.client.list(version, kind):
            names = {key: one["metadata"][key] for key in ("name", "namespace") if key in one["metadata"]}
            status = {"observedGeneration": one["metadata"]["generation"], "conditions": [real_flux.ready()]}
            there = {"apiVersion": version, "kind": kind, "metadata": names}
            kubernetes.client.patch_status({**there, "status": status})


def test_waves_come_in_their_order(flux: Kubernetes) -> None:
    """No wave comes before the charts, no queue before Karpenter's pools. Gangs come beside a service that waits for nodes."""
    waves = documents(TEXTS["flux/kustomizations.yaml"])
    with real_flux.repository(flux.plane, {f"{NAME}/k8s/{path}": text for path, text in TEXTS.items()}):
        for one in waves:
            flux.client.apply(one)
        flux.wait(lambda: checks_health(flux, "charts"), "the charts")
        assert flux.client.get("v1", "Namespace", f"{NAME}-research") is None
        finish(flux, *OF_CHARTS)
        flux.wait(lambda: flux.client.list(*OF_KARPENTER[0]), "Karpenter's classes")
        flux.wait(lambda: awaits(flux, "30-queues", "20-nodes"), "the queues wait for Karpenter")
        assert flux.client.get("kueue.x-k8s.io/v1beta2", "ClusterQueue", f"{NAME}-{NAME}-research") is None
        flux.wait(lambda: finish(flux, *OF_KARPENTER) or is_ready(flux, "20-nodes"), "Karpenter's pools")
        flux.wait(lambda: is_ready(flux, "60-training"), "the gangs")
        done = {one["metadata"]["name"].removeprefix(f"{NAME}-") for one in waves} - {"50-services"}
        assert {wave for wave in done if not is_ready(flux, wave)} == set()
        assert not is_ready(flux, "50-services")
        standing(flux, TEXTS)
