"""Clusters and jobs of Ray: what KubeRay refuses, and hosts that count."""

import pytest

from gpucluster.k8s.lint import Facts, Severity, check
from gpucluster.k8s.lint.read import read

JOB = """apiVersion: ray.io/v1
kind: RayJob
metadata: {name: a, labels: {kueue.x-k8s.io/queue-name: a}}
spec:
  entrypoint: python a.py
  shutdownAfterJobFinishes: true
  ttlSecondsAfterFinished: 60
  suspend: true
  rayClusterSpec:
    headGroupSpec: {rayStartParams: {dashboard-host: 0.0.0.0}, template: {spec: {containers: [{name: h, image: "rayproject/ray:2.46.0"}]}}}
    workerGroupSpecs:
      - groupName: a
        replicas: 2
        minReplicas: 2
        maxReplicas: 2
        numOfHosts: 2
        rayStartParams: {num-gpus: "1"}
        template: {spec: {containers: [{name: w, image: "rayproject/ray:2.46.0", resources: {limits: {nvidia.com/gpu: 1}}}]}}
"""
QUEUES = """---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: a}
spec: {clusterQueue: a}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: a}
spec: {namespaceSelector: {}, resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [{name: a, resources: [{name: nvidia.com/gpu, nominalQuota: 4}]}]}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a}
"""
ROWS = [
    ("a number in place of text", "schema", 'num-gpus: "1"', "num-gpus: 1"),
    ("a long name", "name", "name: a, labels", f"name: {'a' * 48}, labels"),
    ("an end of a cluster that stays", "one-of", "shutdownAfterJobFinishes: true", "shutdownAfterJobFinishes: false"),
    ("a job without a cluster", "one-of", "rayClusterSpec:", "rayClusterSpecs:"),
    ("more hosts than the quota", "workload-above-quota", "numOfHosts: 2", "numOfHosts: 3"),
]  # fmt: skip


def errors_of(written: str) -> set[str]:
    found = check(read(written, "a.yaml").documents, Facts(kubernetes="1.36", whole=False))
    return {one.rule for one in found if one.level is Severity.ERROR}


@pytest.mark.parametrize(("rule", "old", "new"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_kuberay_refuses_is_an_error(rule: str, old: str, new: str) -> None:
    written = JOB + QUEUES
    assert old in written
    assert errors_of(written) == set()
    assert errors_of(written.replace(old, new, 1)) == {rule}


def test_cluster_that_stays_needs_no_end() -> None:
    stays = JOB.replace("  ttlSecondsAfterFinished: 60\n  suspend: true\n", "")
    assert errors_of(stays.replace("shutdownAfterJobFinishes: true", "shutdownAfterJobFinishes: false")) == set()  # fmt: skip


TWO_GPUS = JOB.replace("nvidia.com/gpu: 1}", "nvidia.com/gpu: 2}").replace('num-gpus: "1"', 'num-gpus: "2"')
SIDECAR = '{name: s, image: "a:1", resources: {limits: {nvidia.com/gpu: 2}}}'


def rules_of(written: str) -> set[str]:
    return {
        one.rule for one in check(read(written, "a.yaml").documents, Facts(kubernetes="1.36", whole=False))
    }


def test_container_of_ray_has_shared_memory_from_kuberay() -> None:
    assert "no-shm" not in rules_of(TWO_GPUS)
    assert "no-shm" not in rules_of(TWO_GPUS.replace("kind: RayJob", "kind: RayService"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("}]}}\n", f"}}, {SIDECAR}]}}}}\n"),  # KubeRay mounts it in the first container only
        ('num-gpus: "2"', 'num-gpus: "2", plasma-directory: /data'),  # and not beside this parameter
        (
            "2}}}]}}",
            "2}}, volumeMounts: [{name: m, mountPath: /dev/shm}]}], volumes: [{name: m, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]}}",
        ),
    ],
    ids=["another container", "another place of the objects", "a volume of its own that is too small"],
)
def test_shared_memory_that_kuberay_does_not_add_is_reported(old: str, new: str) -> None:
    group = TWO_GPUS.rpartition("workerGroupSpecs")[2]
    assert group.count(old) == 1
    assert "no-shm" in rules_of(TWO_GPUS.replace(group, group.replace(old, new)))
