"""A runtime of Kubeflow Trainer is in no queue itself: the queues of the TrainJobs that name it have the topology."""

import pytest
from support.builders import kubernetes_of

from gpucluster import catalog, k8s
from gpucluster.k8s.lint import check
from gpucluster.k8s.lint.of_plan import facts
from gpucluster.k8s.lint.read import read
from gpucluster.plan.resolve import resolve
from gpucluster.plan.resolve.workloads import workloads
from gpucluster.spec import inspect_text, inspect_workloads_text

SPEC = """\
schema: 1
name: site
aws: {region: us-east-1, network: {cidr: 10.0.0.0/16, zones: [us-east-1a, us-east-1b]}}
kubernetes:
  version: "1.36"
  control_plane: eks
  trainer: {image: registry.example.org/trainer:1}
  teams: [{name: vision, quota: {nvidia.com/gpu: 15}}]
pools:
  - {name: fixed, nodes: 1, capacity: [{from: on-demand, machines: [p4d.24xlarge]}]}
  - {name: more, nodes: {min: 0, max: 1}, capacity: [{from: on-demand, machines: [p4d.24xlarge]}]}
"""
RUNNING = """\
schema: 1
cluster: site
train:
  - {name: tune, team: vision, kind: TrainJob, image: registry.example.org/tune:1, nodes: 1, gpus_per_node: 8, topology: {required: zone}}
"""
ZONE = "podset-required-topology: topology.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("asks", "rules"),
    [
        (ZONE, []),  # red before: "their levels: none", found by a random spec
        ("podset-required-topology: example.org/row", ["topology-level"]),
    ],
)
def test_level_of_a_runtime_is_one_of_its_trainjobs_queue(asks: str, rules: list[str]) -> None:
    spec = inspect_text(SPEC, "site.yaml", catalog.load()).result()
    plan = resolve(spec, catalog.load())
    running = inspect_workloads_text(RUNNING, "workloads.yaml", spec, catalog.load()).result()
    files = k8s.render(plan, workloads(running, kubernetes_of(plan)))
    texts = {one.path: one.content.decode() for one in files if one.path.endswith(".yaml")}
    assert any(ZONE in text for text in texts.values())
    documents = [
        document
        for path, text in texts.items()
        if "/helm/" not in path
        for document in read(text.replace(ZONE, asks), path).documents
    ]
    found = [one.rule for one in check(documents, facts(plan)) if one.rule.startswith("topology")]
    assert found == rules


def test_long_names_of_runtimes_fit_into_a_label() -> None:
    """Found by a random spec: 66 characters."""
    long = SPEC.replace("name: site", f"name: {'s' * 24}").replace("name: fixed", f"name: {'f' * 24}")
    plan = resolve(inspect_text(long, "site.yaml", catalog.load()).result(), catalog.load())
    names = [line.strip().partition(": ")[2] for one in k8s.render(plan) if "runtime" in one.path
             for line in one.content.decode().splitlines() if line.startswith("  name: ") and "-torch-" in line]  # fmt: skip
    assert max(map(len, names)) == 63
    assert len({*names}) == len(names)
