"""docs/kubernetes.md: its commands parse, its secrets are those of the workloads, its fields exist.

`tests/kubernetes/test_rehearsal.py` types what can run in the sandbox.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from support.page_commands import commands_of, require_parsable

from gpucluster.cli import main as program

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "kubernetes.md").read_text()
LINES = commands_of(TEXT)
OURS = [words for words in LINES if words[0] == "gpucluster"]


@pytest.mark.parametrize("words", OURS, ids=" ".join)
def test_each_verb_and_option_exists_and_takes_what_is_given(words: list[str]) -> None:
    require_parsable(words)


def test_the_way_goes_there_and_back() -> None:
    typed = [" ".join(words) for words in LINES]
    order = [
        "gpucluster check", "gpucluster doctor", "pulumi up", "aws eks update-kubeconfig",
        "pulumi stack output bindings", "gpucluster k8s up", "kubectl create secret", "gpucluster k8s status", "gpucluster diff", "gpucluster k8s down",
        "gpucluster down",
    ]  # fmt: skip
    first = [next(i for i, line in enumerate(typed) if line.startswith(begin)) for begin in order]
    assert first == sorted(first)
    assert {words[0] for words in LINES} == {"gpucluster", "pulumi", "aws", "kubectl"}


def test_secrets_are_those_that_the_workloads_name() -> None:
    """Namespace, kind, name, and the key that the file names."""
    workloads: Any = YAML(typ="safe").load(ROOT / "workloads/kube.yaml")
    wanted = set[tuple[str, str, str, str]]()
    for one in (*workloads["serve"], *workloads["train"]):
        for secret in one["secrets"].values():
            wanted.add((one["team"], "generic", secret["name"], secret["key"]))
        for name in one["pull_secrets"]:
            wanted.add((one["team"], "docker-registry", name, ".dockerconfigjson"))
    typed = [words for words in LINES if words[:3] == ["kubectl", "create", "secret"]]
    found = {(w[6], w[3], w[4], w[7].removeprefix("--from-file=").partition("=")[0]) for w in typed}
    assert found == wanted


def test_fields_of_the_page_are_those_of_the_spec() -> None:
    schema = (ROOT / "docs/spec.md").read_text()
    fields = re.findall(r"^\| `kubernetes\.([\w.\[\]]+)` \|", TEXT, re.MULTILINE)
    assert len(fields) == 4
    for field in fields:
        section, _, name = f"kubernetes.{field}".rpartition(".")
        assert f"| `{name}` |" in schema.partition(f"### `{section}`")[2].partition("\n### ")[0], field


def test_what_it_says_of_boundaries_is_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["plan", str(ROOT / "stacks/kube.yaml"), "--operator-policy", "boundary"]) == 2
    assert "set your own: aws.boundary of the spec" in capsys.readouterr().err
