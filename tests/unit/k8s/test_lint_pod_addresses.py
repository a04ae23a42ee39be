"""The name of the first pod that a launcher is told. A pod has a name only with a headless Service and its subdomain."""

import pytest

from gpucluster.k8s.lint import Facts, Severity, check
from gpucluster.k8s.lint.read import read

JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completionMode: Indexed
  completions: 4
  parallelism: 4
  backoffLimit: 0
  template:
    metadata: {labels: {app: train}}
    spec:
      restartPolicy: Never
      subdomain: mesh
      containers:
        - name: c
          image: registry.example.org/a:1
          command: [torchrun, --nnodes=4, "--rdzv-endpoint=train-0.mesh:29500", a.py]
          env: [{name: MASTER_ADDR, value: train-0.mesh}]
---
apiVersion: v1
kind: Service
metadata: {name: mesh}
spec: {clusterIP: None, selector: {app: train}}
"""
SET = """apiVersion: apps/v1
kind: StatefulSet
metadata: {name: train}
spec:
  serviceName: mesh
  replicas: 2
  selector: {matchLabels: {app: train}}
  template:
    metadata: {labels: {app: train}}
    spec:
      containers: [{name: c, image: registry.example.org/a:1, args: [--dist-init-addr, train-0.mesh.default.svc.cluster.local:20000]}]
---
apiVersion: v1
kind: Service
metadata: {name: mesh}
spec: {clusterIP: None, selector: {app: train}}
"""
ENV = "value: train-0.mesh}"

# a sentence, the rule, the sound manifests, what is changed, and to what
ROWS = [
    ("another job", "rendezvous", JOB, ENV, "value: trainer-0.mesh}"),
    ("another network", "rendezvous", JOB, ENV, "value: train-0.train}"),
    ("no network in the name", "rendezvous", JOB, ENV, "value: train-0}"),
    ("another job in the command", "rendezvous", JOB, "endpoint=train-0.mesh", "endpoint=worker-0.mesh"),
    ("no subdomain", "pod-names", JOB, "      subdomain: mesh\n", ""),
    ("a Service with an address", "pod-names", JOB, "clusterIP: None, selector: {app: train}", "selector: {app: train}, ports: [{port: 80}]"),
    ("a Service of other pods", "pod-names", JOB, "selector: {app: train}", "selector: {app: trainer}"),
    ("no Service", "pod-names", JOB, "metadata: {name: mesh}", "metadata: {name: mash}"),
    ("another set", "rendezvous", SET, "--dist-init-addr, train-0.mesh", "--dist-init-addr, sglang-0.mesh"),
    ("a Service of a set with an address", "pod-names", SET, "clusterIP: None, selector: {app: train}", "selector: {app: train}, ports: [{port: 80}]"),
]  # fmt: skip


def found(written: str) -> list[tuple[str, Severity]]:
    got = read(written, "a.yaml")
    return [(one.rule, one.level) for one in check(got.documents, Facts(kubernetes="1.36", whole=True))]


@pytest.mark.parametrize(("rule", "sound", "old", "new"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])  # fmt: skip
def test_name_that_no_pod_has(rule: str, sound: str, old: str, new: str) -> None:
    assert sound.count(old) == 1
    assert found(sound) == []
    assert (rule, Severity.WARNING) in found(sound.replace(old, new))


FINE = [
    ("an address of Kustomize", JOB.replace(ENV, "value: $(FIRST)}")),
    ("an IP address", JOB.replace(ENV, "value: 10.0.0.1}")),
    ("a Service of one pod", JOB.replace(ENV, "value: mesh}")),
    ("the host's network", JOB.replace("subdomain: mesh", "hostNetwork: true").replace(ENV, "value: node-0}")),
    ("labels that the controller gives", JOB.replace("selector: {app: train}", "selector: {batch.kubernetes.io/job-name: train}")),
    ("a job that is not indexed", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: 'a:1', env: [{name: MASTER_ADDR, value: other-0.mesh}]}]}}}\n"),
    ("pods of another set", JOB.replace(ENV, "value: store-0.store}") + "---\n" + SET.replace("name: train}", "name: store}").replace("train-0.mesh.default", "store-0.mesh.default").replace("name: mesh", "name: mess").replace("mesh", "mess")),
]  # fmt: skip


@pytest.mark.parametrize("written", [row[1] for row in FINE], ids=[row[0] for row in FINE])
def test_near_miss_is_fine(written: str) -> None:
    assert [rule for rule, _ in found(written) if rule in ("rendezvous", "pod-names")] == []
