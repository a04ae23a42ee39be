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

from gpucluster import catalog
from gpucluster.k8s.manifest import documents
from gpucluster.k8s.releases import Release, values_of
from gpucluster.k8s_apply.steps import Steps
from gpucluster.plan.names import TAINT_GPU
from gpucluster.plan.security_rules import WEBHOOK_PORTS

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


def called_services(made: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    """Yield name and port of each Service that the API server itself calls."""
    for one in made:
        if one["kind"].endswith("WebhookConfiguration"):
            clients = [row["clientConfig"] for row in one["webhooks"]]
        elif one["kind"] == "APIService":
            clients = [one["spec"]]
        elif one["kind"] == "CustomResourceDefinition":
            conversion = one["spec"].get("conversion", {})
            clients = [conversion["webhook"]["clientConfig"]] if "webhook" in conversion else []
        else:
            continue
        yield from ((row["service"]["name"], row["service"].get("port", 443)) for row in clients)


def called_ports(made: list[dict[str, Any]]) -> Iterator[int]:
    """Yield the ports of the pods behind these Services."""
    services = {one["metadata"]["name"]: one["spec"] for one in made if one["kind"] == "Service"}
    pods = [one["spec"]["template"]["spec"] for one in made if one["kind"] in ("DaemonSet", "Deployment")]
    named = {
        port["name"]: port["containerPort"]
        for pod in pods
        for container in pod["containers"]
        for port in container.get("ports", ())
        if "name" in port
    }
    for name, port in called_services(made):
        (row,) = (one for one in services[name]["ports"] if one["port"] == port)
        target = row.get("targetPort", port)
        yield named[target] if isinstance(target, str) else target


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
    usual = {"DaemonSet"} if name == "aws-efa-k8s-device-plugin" else {"Deployment", "ServiceAccount"}
    assert usual <= {one["kind"] for one in made}
    namespace = release_of(name).namespace
    kubernetes.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    words = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    text = yaml.safe_dump_all(made)
    kubernetes.kubectl(*words, "--filename", "-", stdin=text)


def test_efa_plugin_runs_on_nodes_with_gpus(helm: Helm) -> None:
    (made,) = rendered(helm, "aws-efa-k8s-device-plugin")
    spec = made["spec"]["template"]["spec"]
    assert {"key": TAINT_GPU, "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = terms["nodeSelectorTerms"]
    with_efa = {name for name, one in catalog.load().machines.items() if one.efa}
    assert with_efa <= {*term["matchExpressions"][0]["values"]}


@pytest.mark.parametrize("name", CHARTS)
def test_control_plane_reaches_the_webhooks_and_api_servers_of_the_chart(helm: Helm, name: str) -> None:
    """The security group of nodes has the port of each pod that the API server calls."""
    made = rendered(helm, name)
    assert set(called_ports(made)) <= {*WEBHOOK_PORTS}


def test_kueue_has_an_api_server_of_its_own(helm: Helm) -> None:
    assert 8082 in set(called_ports(rendered(helm, "kueue")))


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
