"""`gpucluster validate` finds the Kubernetes of a spec, alone or beside Slurm."""

from pathlib import Path

import pytest
from support.builders import a_lab_text

from gpucluster.checks.kubernetes.table import KUBERNETES
from gpucluster.cli import validate_kubernetes
from gpucluster.cli.validate_kubernetes import (
    KubernetesOptions,
    KubernetesPart,
    find_kubernetes,
    session_for,
)
from gpucluster.errors import StateError
from gpucluster.sandbox.state_dir import SandboxDir
from gpucluster.validate.expectation import Expectation

STACKS = Path(__file__).parents[3] / "stacks"
OPTIONS = KubernetesOptions(context=None, bindings=None, charts=True)


def part_of(stack: str) -> KubernetesPart:
    found = find_kubernetes(str(STACKS / f"{stack}.yaml"), OPTIONS)
    assert found is not None
    return found


@pytest.mark.parametrize(("stack", "alone"), [("kube", True), ("hybrid", False)])
def test_spec_with_kubernetes_has_its_checks(stack: str, alone: bool) -> None:
    part = part_of(stack)
    assert part.is_alone is alone
    checks = {one.check for one in part.expectations}
    assert {"kube.api", "kube.nodes", "kube.queues", "cloud.eks"} <= checks
    of_aws = {"cloud.rules"} if alone else set[str]()  # a hybrid cluster has it among those of Slurm
    assert checks - KUBERNETES.keys() == of_aws


def test_spec_without_slurm_has_the_check_of_its_acceptances(tmp_path: Path) -> None:
    """A hybrid cluster has it on the head."""
    for stack, ends in (("kube", ["cloud.rules[cloud]", "cfg.accept[cluster]"]), ("hybrid", [])):
        file = tmp_path / f"{stack}.yaml"
        accept = "accept: [{id: no-such-warning, because: a test, until: 2026-01-01}]"
        file.write_text((STACKS / f"{stack}.yaml").read_text() + f"\n{accept}\n")
        found = find_kubernetes(str(file), OPTIONS)
        assert found is not None
        assert [one.id for one in found.expectations if one.check not in KUBERNETES] == ends


def test_spec_of_slurm_has_none(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(a_lab_text())
    assert find_kubernetes(str(tmp_path / "lab.yaml"), OPTIONS) is None


def test_checks_of_slurm_alone_need_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    part = part_of("hybrid")
    of_slurm = Expectation(check="ctl.ping", target="head", want=None)
    with session_for(part, (of_slurm,)) as session:
        assert session is None
    with pytest.raises(StateError), session_for(part, (of_slurm, *part.expectations)):
        pass


def test_rehearsal_without_its_spec_is_not_validated_by_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate_kubernetes, "_rehearsal", lambda name: SandboxDir(name=name))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StateError, match="the sandbox mixed has Kubernetes, and its checks need the spec"):
        find_kubernetes("mixed", OPTIONS)
