"""Pods that no flavor of their queue takes. Kueue compares labels and taints of flavors before it looks at quotas."""

import pytest

from gpucluster.k8s.lint import Facts, Severity, check
from gpucluster.k8s.lint.read import read

QUEUE = """apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a100}
spec: {nodeLabels: {example.org/pool: a100}, nodeTaints: [{key: example.org/team, value: a, effect: NoSchedule}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: h100}
spec: {nodeLabels: {example.org/pool: h100}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors:
        - {name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}
        - {name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}
    - coveredResources: [cpu]
      flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 8}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: q}
spec: {clusterQueue: q}
---
apiVersion: batch/v1
kind: Job
metadata: {name: a, labels: {kueue.x-k8s.io/queue-name: q}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {example.org/pool: h100, example.org/disk: nvme}
      containers: [{name: c, image: "a:1", resources: {limits: {nvidia.com/gpu: 1, cpu: 1}}}]
"""
SELECTOR = "      nodeSelector: {example.org/pool: h100, example.org/disk: nvme}\n"
AFFINITY = "      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: example.org/pool, operator: In, values: [h100, b200]}]}]}}}\n"


def found(written: str) -> list[tuple[str, Severity]]:
    got = read(written, "a.yaml")
    return [(one.rule, one.level) for one in check(got.documents, Facts(kubernetes="1.36", whole=False))]


def of_affinity(new: str) -> str:
    return QUEUE.replace(SELECTOR, AFFINITY.replace("{key: example.org/pool, operator: In, values: [h100, b200]}", new))  # fmt: skip


ROWS = [
    ("the labels of a flavor", QUEUE, []),
    ("a flavor whose taint is not tolerated, beside another", QUEUE.replace(SELECTOR, ""), []),
    ("labels of no flavor", QUEUE.replace("pool: h100, example", "pool: b200, example"), [("node-selector", Severity.ERROR)]),
    ("labels of a flavor whose taint is not tolerated", QUEUE.replace("pool: h100, example", "pool: a100, example"), [("untolerated", Severity.ERROR)]),
    ("a taint that the flavor tolerates itself", QUEUE.replace("pool: h100, example", "pool: a100, example").replace("nodeTaints", "tolerations: [{key: example.org/team, operator: Exists}], nodeTaints"), []),
    ("a taint that the pods tolerate", QUEUE.replace(SELECTOR, "      nodeSelector: {example.org/pool: a100}\n      tolerations: [{key: example.org/team, value: a}]\n"), []),
    ("a taint that is only a wish", QUEUE.replace("pool: h100, example", "pool: a100, example").replace("effect: NoSchedule", "effect: PreferNoSchedule"), []),
    ("a taint of the device", QUEUE.replace("pool: h100, example", "pool: a100, example").replace("key: example.org/team, value: a", "key: nvidia.com/gpu"), [("untolerated", Severity.WARNING)]),
    ("an affinity to a flavor", QUEUE.replace(SELECTOR, AFFINITY), []),
    ("an affinity to no flavor", of_affinity("{key: example.org/pool, operator: In, values: [b200]}"), [("node-selector", Severity.ERROR)]),
    ("an affinity to other labels", of_affinity("{key: example.org/disk, operator: Exists}"), []),
    ("an affinity against all flavors", of_affinity("{key: example.org/pool, operator: NotIn, values: [a100, h100]}"), [("node-selector", Severity.ERROR)]),
    ("a resource of another group", QUEUE.replace("pool: h100, example", "pool: b200, example").replace("nvidia.com/gpu: 1, cpu", "cpu"), []),
    ("a flavor that is elsewhere", QUEUE.replace("pool: h100, example", "pool: b200, example").replace("metadata: {name: h100}", "metadata: {name: h200}"), []),
]  # fmt: skip


def test_quota_of_a_flavor_that_is_elsewhere_counts() -> None:
    """Red before: "reaches 0: it would wait forever"."""
    elsewhere = QUEUE.replace("metadata: {name: h100}", "metadata: {name: h200}").replace(
        "metadata: {name: a100}", "metadata: {name: a200}"
    )
    assert found(elsewhere) == []
    above = elsewhere.replace("limits: {nvidia.com/gpu: 1", "limits: {nvidia.com/gpu: 16")
    assert ("workload-above-quota", Severity.WARNING) in found(above)


@pytest.mark.parametrize(("written", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_flavors_of_a_queue(written: str, expected: list[tuple[str, Severity]]) -> None:
    assert found(written) == expected
