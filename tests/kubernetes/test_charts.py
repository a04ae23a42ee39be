"""The charts of a spec, rendered by the real helm with our values. A real API server takes what they make."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
import yaml
from real_helm import CHARTS, Helm, find_or_build
from real_kubernetes import Kubernetes
from support.kube import MONITORED, TRAINED
from support.kube_steps import kube_steps

from gpucluster.k8s.manifest import documents
from gpucluster.k8s.releases import Release, values_of
from gpucluster.k8s_apply.steps import Steps

GROUPS = (
    ("team: serving", "team: research"),
    ("{nvidia.com/mig-1g.10gb: 1}", "{nvidia.com/gpu: 8}\n    nodes: 2"),
    ("{min: 2, max: 8}", "{min: 1, max: 2}"),
)
KUBERNETES = "v1.36.2"


@cache
def steps() -> Steps:
    """A spec that needs every chart."""
    return kube_steps(MONITORED, TRAINED, running=GROUPS)


def release_of(name: str) -> Release:
    return next(one for one in steps().releases if one.name == name)


@cache
def values(name: str) -> dict[str, Any]:
    texts = {one.path.removeprefix("k8s/"): one.content.decode() for one in steps().tree}
    return values_of(release_of(name), texts)


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(find_or_build(print), tmp_path_factory.mktemp("helm"))


def rendered(helm: Helm, name: str) -> list[dict[str, Any]]:
    text = helm.rendered(name, release_of(name).namespace, values(name), KUBERNETES)
    return [one for one in yaml.safe_load_all(text) if one]


def unknown(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the keys that a chart does not have. An empty mapping of the chart takes any."""
    for key, value in ours.items():
        if key not in theirs:
            yield f"{path}{key}"
        elif isinstance(value, dict) and isinstance(theirs[key], dict) and theirs[key]:
            yield from unknown(value, theirs[key], f"{path}{key}.")


def test_the_spec_needs_every_chart_that_is_tried() -> None:
    assert {one.name for one in steps().releases} == {*CHARTS, "gpu-operator"}


@pytest.mark.parametrize("name", CHARTS)
def test_our_values_are_values_of_the_chart(helm: Helm, name: str) -> None:
    """Helm takes a value that no chart knows without a word."""
    theirs = yaml.safe_load((helm.chart(name) / "values.yaml").read_text())
    assert list(unknown(values(name), theirs)) == []


@pytest.mark.parametrize("name", CHARTS)
def test_api_server_takes_what_the_chart_makes(helm: Helm, kubernetes: Kubernetes, name: str) -> None:
    made = rendered(helm, name)
    assert {"Deployment", "ServiceAccount"} <= {one["kind"] for one in made}
    namespace = release_of(name).namespace
    kubernetes.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    words = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    text = yaml.safe_dump_all(made)
    kubernetes.kubectl(*words, "--filename", "-", stdin=text)


def test_kueue_gets_our_configuration(helm: Helm) -> None:
    """The same that the manager of these tests reads."""
    (config,) = (one for one in rendered(helm, "kueue") if one["metadata"]["name"] == "kueue-manager-config")
    (found,) = documents(config["data"]["controller_manager_config.yaml"])
    (wanted,) = documents(values("kueue")["managerConfig"]["controllerManagerConfigYaml"])
    assert found.pop("internalCertManagement")["enable"]  # the chart adds it
    assert found == wanted
    assert "trainer.kubeflow.org/trainjob" in found["integrations"]["frameworks"]


def test_trainer_brings_no_second_jobset(helm: Helm) -> None:
    made = rendered(helm, "kubeflow-trainer")
    assert not [one for one in made if "jobset" in one["metadata"]["name"]]
    assert not [one for one in made if one["kind"].endswith("TrainingRuntime")]


def test_karpenter_knows_its_cluster_and_its_queue(helm: Helm) -> None:
    (made,) = (one for one in rendered(helm, "karpenter") if one["kind"] == "Deployment")
    (container,) = made["spec"]["template"]["spec"]["containers"]
    said = {one["name"]: one.get("value") for one in container["env"]}
    assert (said["CLUSTER_NAME"], said["INTERRUPTION_QUEUE"]) == ("kube", "kube-interruptions")
    assert "NodeOverlay=true" in said["FEATURE_GATES"]


@pytest.mark.parametrize("name", ["kueue", "karpenter"])
def test_service_monitors_come_with_monitoring(helm: Helm, name: str) -> None:
    assert "ServiceMonitor" in {one["kind"] for one in rendered(helm, name)}
