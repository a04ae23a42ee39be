"""Secrets, registries, commands and HTTP probes of workloads."""

from typing import Any

import pytest
from support.builders import WORKLOADS, a_kube_spec, changed
from support.kube import files, objects

from gpucluster import catalog
from gpucluster.spec import inspect_workloads_text

MORE = "    pull_secrets: [registry]\n    command: [run]\n    secrets: {HF_TOKEN: {name: hf, key: token}}\n"
RUNNING = (
    ("    replicas:", f"{MORE}    health: /health\n    replicas:"),
    ("    nodes: 4\n", f"{MORE}    nodes: 4\n"),
)


def _pods() -> list[Any]:
    found = objects(files(running=RUNNING))
    gang = found["JobSet/research/tune"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return [found["Deployment/serving/chat"]["spec"]["template"]["spec"], gang]


def test_variable_comes_from_the_secret() -> None:
    reference = {"secretKeyRef": {"name": "hf", "key": "token"}}
    for pod in _pods():
        (container,) = pod["containers"]
        assert {"name": "HF_TOKEN", "valueFrom": reference} in container["env"]
        assert (container["command"], pod["imagePullSecrets"]) == (["run"], [{"name": "registry"}])


def test_service_with_a_health_path_is_asked_by_http() -> None:
    (container,) = _pods()[0]["containers"]
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}
        assert "tcpSocket" not in container[probe]


@pytest.mark.parametrize(
    "env", ["EOS_TOKEN: </s>", "MAX_TOKENS: '2048'", "TOKENIZERS_PARALLELISM: 'false'", "HF_TOKEN: /run/secrets/hf"]
)  # fmt: skip
def test_variable_that_only_looks_alike_is_no_secret(env: str) -> None:
    text = changed(WORKLOADS, ("gpus_per_node: 8", f"gpus_per_node: 8\n    env: {{{env}}}"))
    assert inspect_workloads_text(text, "w.yaml", a_kube_spec(), catalog.load()).problems == ()
