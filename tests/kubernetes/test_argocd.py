"""The folder for Argo CD, as the real Kustomize builds it, on a real API server. Argo CD itself is not here."""

import shlex
from pathlib import Path
from typing import Any

import yaml
from real_kubernetes import Kubernetes
from support.kube import BOUND, files, objects, renamed, renamed_workloads
from waves import remove, written

from gpucluster.k8s.argocd import CHARTS_FIRST
from gpucluster.k8s.waves import SERVICES, TRAINING, WAVES

NAME = "argo"
CHANGES, RUNNING = renamed(NAME), renamed_workloads(NAME)
WAVE = "argocd.argoproj.io/sync-wave"


def key_of(one: dict[str, Any]) -> str:
    names = (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"])
    return "/".join(name for name in names if name)


def without_marks(one: dict[str, Any]) -> dict[str, Any]:
    """The object without the annotations of Argo CD."""
    marks = one["metadata"].get("annotations", {})
    left = {key: value for key, value in marks.items() if not key.startswith("argocd.argoproj.io/")}
    metadata = {key: value for key, value in one["metadata"].items() if key != "annotations"}
    return {**one, "metadata": {**metadata, **({"annotations": left} if left else {})}}


def test_folder_is_the_waves_with_their_numbers(kubernetes: Kubernetes, tmp_path: Path) -> None:
    texts = files(*CHANGES, running=RUNNING, bindings=BOUND)
    written(texts, tmp_path)
    text = kubernetes.kubectl("kustomize", str(tmp_path / "argocd")).stdout
    built = {key_of(one): one for one in yaml.safe_load_all(text)}
    ours = objects(texts)
    assert {key: without_marks(one) for key, one in built.items() if one["kind"] != "Application"} == ours
    number = {wave.folder: str(index) for index, wave in enumerate(WAVES)}
    number[TRAINING.folder] = number[SERVICES.folder]  # a service that waits stops no gang
    folder = {key: path.partition("/")[0] for path in texts for key in objects({path: texts[path]})}
    marks = {key: one["metadata"]["annotations"][WAVE] for key, one in built.items()}
    assert {key: marks[key] for key in ours} == {key: number[folder[key]] for key in ours}
    charts = [one for one in built.values() if one["kind"] == "Application"]
    assert {marks[key_of(one)] for one in charts} == {str(CHARTS_FIRST)}

    kubernetes.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd"}})
    for one in sorted(built.values(), key=lambda one: int(one["metadata"]["annotations"][WAVE])):
        kubernetes.client.apply(one)
    assert all(kubernetes.client.read(one) is not None for one in built.values())
    remove(kubernetes, texts)


def test_settings_are_added_to_those_that_are_there(kubernetes: Kubernetes, tmp_path: Path) -> None:
    """By the line of the README."""
    texts = files(*CHANGES, running=RUNNING, bindings=BOUND)
    written(texts, tmp_path)
    (line,) = (line for line in texts["README.md"].splitlines() if "argocd-cm.yaml" in line)
    there: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "data": {"url": "https://argocd.example.org"},
    }
    there["metadata"] = {
        "name": "argocd-cm",
        "namespace": "argocd",
        "labels": {"app.kubernetes.io/part-of": "argocd"},
    }
    kubernetes.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd"}})
    kubernetes.kubectl("create", "--filename=-", stdin=yaml.safe_dump(there))
    words = shlex.split(
        line.replace("argocd/settings/argocd-cm.yaml", str(tmp_path / "argocd/settings/argocd-cm.yaml"))
    )
    assert words[0] == "kubectl"
    for _ in range(2):
        kubernetes.kubectl(*words[1:])
    found = kubernetes.client.get("v1", "ConfigMap", "argocd-cm", "argocd")
    assert found is not None
    wanted = yaml.safe_load(texts["argocd/settings/argocd-cm.yaml"])["data"]
    assert found["data"] == {**there["data"], **wanted}
