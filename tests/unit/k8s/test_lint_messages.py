"""Messages that name the mistake: one finding for each, with what to do."""

from pathlib import Path

import pytest

from gpucluster.cli.lint_input import read_all
from gpucluster.k8s.lint import Facts, Severity, check
from gpucluster.k8s.lint.read import read

QUEUE = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: a}\nspec: {namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu, memory], flavors: [{name: f, resources: [{name: memory, nominalQuota: 1Gi}, {name: cpu, nominalQuota: 1}]}]}]}\n"
ROWS = [
    ("a dot in the name of a service", "apiVersion: v1\nkind: Service\nmetadata: {name: a.b}\nspec: {selector: {a: b}, ports: [{port: 80}]}\n", "'a.b' has a dot: the name of a Service is one part"),
    ("a label that is true", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {a: yes}}\n", "'true' is no text: quote it"),
    ("a label that is a number", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {a: 1}}\n", "'1' is no text: quote it"),
    ("a label that is a mapping", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {a: {b: c}}}\n", "expected text or nothing, found a mapping"),
    ("quotas in another order", QUEUE, "flavor 'f' has memory, cpu, covered are cpu, memory: the order must agree, too"),
    ("quotas of other resources", QUEUE.replace("[cpu, memory]", "[cpu, pods]"), "flavor 'f' has memory, cpu, covered are cpu, pods"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "words"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_mistake_is_named_once(written: str, words: str) -> None:
    found = check(read(written, "a.yaml").documents, Facts(kubernetes="1.36", whole=False))
    assert [one.message for one in found if one.level is Severity.ERROR] == [words]


def test_label_of_nothing_is_empty() -> None:
    written = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {a: }}\n"
    assert check(read(written, "a.yaml").documents, Facts(kubernetes="1.36", whole=False)) == ()


def test_template_that_is_given_as_a_file_has_one_finding(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: {{ .Values.name }}}\n")
    got = read_all([tmp_path / "a.yaml"])
    (found,) = got.findings
    assert (found.rule, found.message) == ("yaml", "holds {{ }}: render it first, as `helm template` does")
    assert got.documents == ()


def test_braces_in_a_text_are_no_template(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, name: a}\ndata: {a: '{{ b }}'}\n"
    )
    assert len(read_all([tmp_path / "a.yaml"]).documents) == 1


POD = "{metadata: {labels: {role: leader}}, spec: {containers: [{name: c, image: busybox:1.37}]}}"
SELECTORS = [
    ("{leaderworkerset.sigs.k8s.io/name: v, role: leader}", True),
    ("{ray.io/cluster: r}", True),
    ("{job-name: a}", True),
    ("{statefulset.kubernetes.io/pod-name: a-0}", True),
    ("{role: leader}", True),
    ("{role: worker}", False),
]


@pytest.mark.parametrize(("selector", "fine"), SELECTORS)
def test_service_can_select_labels_of_a_controller(selector: str, fine: bool) -> None:
    written = f"apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec: {{selector: {selector}, ports: [{{port: 80}}]}}\n---\napiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {{name: v}}\nspec: {{leaderWorkerTemplate: {{workerTemplate: {POD}}}}}\n"
    found = check(read(written, "a.yaml").documents, Facts(kubernetes="1.36", whole=True))
    assert ("selector" not in {one.rule for one in found}) is fine


@pytest.mark.parametrize(("processes", "fine"), [(2, True), (3, False)])
def test_mpirun_of_one_process_a_worker_starts_its_own(processes: int, fine: bool) -> None:
    worker = "{containers: [{name: w, image: 'a:1', resources: {limits: {nvidia.com/gpu: 8}}}]}"
    launcher = f"{{containers: [{{name: l, image: 'a:1', command: [mpirun, -np, '{processes}', run.sh]}}]}}"
    written = f"apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {{name: a}}\nspec: {{slotsPerWorker: 1, mpiReplicaSpecs: {{Launcher: {{replicas: 1, template: {{spec: {launcher}}}}}, Worker: {{replicas: 2, template: {{spec: {worker}}}}}}}}}\n"
    found = check(read(written, "a.yaml").documents, Facts(kubernetes="1.36", whole=False))
    assert ("rendezvous" not in {one.rule for one in found}) is fine
