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


VARIABLES = """
    secrets: {WANDB_KEY: {name: wandb, key: key}}
    env: {RUN: a, OUT: "/runs/$(RUN)", LOGIN: "$(WANDB_KEY)", FIRST: "$(MASTER_ADDR):$(PET_NODE_RANK)", NCCL_SOCKET_IFNAME: "$(RUN)", PRICE: "$$(RUN)"}
"""


def _variables(*running: tuple[str, str]) -> list[str]:
    """The names of the gang's variables, in their order."""
    job = objects(files(running=running))["JobSet/research/tune"]["spec"]["replicatedJobs"][0]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    return [one["name"] for one in container["env"]]


def test_variables_stand_after_those_that_they_name() -> None:
    """Regression: they were sorted, with the secrets last, and Kubernetes replaces `$(NAME)` only by a variable before it."""
    order = _variables(("gpus_per_node: 8", f"gpus_per_node: 8{VARIABLES.rstrip()}"))
    assert order[-6:] == ["RUN", "OUT", "LOGIN", "FIRST", "NCCL_SOCKET_IFNAME", "PRICE"]
    assert len(order) == len(set(order))
    assert {"WANDB_KEY", "MASTER_ADDR", "PET_NODE_RANK"} <= set(order[:-6])


def test_service_keeps_the_order_of_its_variables() -> None:
    running = (
        ("    replicas:", "    secrets: {Z: {name: a, key: b}}\n    env: {Y: $(Z), X: $(Y)}\n    replicas:"),
    )
    (container,) = objects(files(running=running))["Deployment/serving/chat"]["spec"]["template"]["spec"][
        "containers"
    ]
    assert [one["name"] for one in container["env"]] == ["Z", "Y", "X"]


def test_variables_that_name_earlier_ones_are_accepted() -> None:
    text = changed(WORKLOADS, ("gpus_per_node: 8", f"gpus_per_node: 8{VARIABLES.rstrip()}"))
    assert inspect_workloads_text(text, "w.yaml", a_kube_spec(), catalog.load()).problems == ()


def test_variable_of_the_fabric_from_a_secret_is_set_once() -> None:
    """Regression: the API server refuses a name that is twice in a server-side apply."""
    order = _variables(
        ("gpus_per_node: 8", "gpus_per_node: 8\n    secrets: {NCCL_SOCKET_IFNAME: {name: a, key: b}}")
    )
    assert order.count("NCCL_SOCKET_IFNAME") == 1


@pytest.mark.parametrize(
    "env", ["EOS_TOKEN: </s>", "MAX_TOKENS: '2048'", "TOKENIZERS_PARALLELISM: 'false'", "HF_TOKEN: /run/secrets/hf"]
)  # fmt: skip
def test_variable_that_only_looks_alike_is_no_secret(env: str) -> None:
    text = changed(WORKLOADS, ("gpus_per_node: 8", f"gpus_per_node: 8\n    env: {{{env}}}"))
    assert inspect_workloads_text(text, "w.yaml", a_kube_spec(), catalog.load()).problems == ()
