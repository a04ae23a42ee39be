"""A real API server takes every rendered manifest, and a second time changes nothing."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from real_kubernetes import Kubernetes
from support.builders import kubernetes_of
from support.kube import BOUND, files, golden_files, objects, renamed, renamed_workloads
from support.kube_specs import kube_specs, workloads_for
from waves import apply, assert_idle, kubectl_apply, remove, standing, written

from gpucluster import catalog, k8s
from gpucluster.plan.resolve import resolve
from gpucluster.plan.resolve.workloads import workloads

ROOT = Path(__file__).parents[2]
STACKS = [path for path in sorted((ROOT / "stacks").glob("*.yaml")) if "\nkubernetes:" in path.read_text()]
GENERATED = 40


def test_stacks_with_kubernetes_are_found() -> None:
    assert ROOT / "stacks/kube.yaml" in STACKS


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.stem)
def test_every_wave_of_a_stack_is_taken_twice(kubernetes: Kubernetes, stack: Path, tmp_path: Path) -> None:
    texts = {path.removeprefix("k8s/"): content.decode() for path, content in golden_files(stack).items()
             if path.startswith("k8s/")}  # fmt: skip
    _twice(kubernetes, texts, tmp_path)
    remove(kubernetes, texts)


def test_waves_with_volumes_are_taken_twice(kubernetes: Kubernetes, tmp_path: Path) -> None:
    """Bindings add the volumes that the tree of a stack leaves out."""
    texts = files(*renamed("bound"), running=renamed_workloads("bound"), bindings=BOUND)
    assert any(key.startswith("PersistentVolume/") for key in objects(texts))
    _twice(kubernetes, texts, tmp_path)


def _twice(kubernetes: Kubernetes, texts: dict[str, str], folder: Path) -> None:
    written(texts, folder)
    kubectl_apply(kubernetes, folder)
    first = standing(kubernetes, texts)
    kubectl_apply(kubernetes, folder)
    assert standing(kubernetes, texts) == first
    assert_idle(kubernetes, texts)


def test_generated_specs_are_taken_twice(kubernetes: Kubernetes) -> None:
    """Every spec that `check` accepts, with workloads that it accepts."""
    taken: list[str] = []

    @seed(15)
    @settings(
        max_examples=GENERATED,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        spec = data.draw(kube_specs(f"g{len(taken)}-"))
        plan, running = resolve(spec, catalog.load()), data.draw(workloads_for(spec))
        some = None if running is None else workloads(running, kubernetes_of(plan))
        texts = {a.path.removeprefix("k8s/"): a.content.decode() for a in k8s.render(plan, some, None)}
        apply(kubernetes, texts)
        first = standing(kubernetes, texts)
        apply(kubernetes, texts)
        assert standing(kubernetes, texts) == first
        assert_idle(kubernetes, texts)
        taken.append(spec.name)

    run()
    assert len(taken) == GENERATED
