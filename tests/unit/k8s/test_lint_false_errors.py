"""Objects as public examples write them, which the API server accepts: no error in a part of a cluster."""

import pytest

from gpucluster.k8s.lint import Facts, Level, check
from gpucluster.k8s.lint.read import read

JOBSET = """apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {NAME}
spec:
  failurePolicy: {maxRestarts: 3, rules: [{action: FailJobSet}]}
  volumeClaimPolicies: [{templates: [{metadata: {name: ckpt}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}]
  replicatedJobs:
    - name: workers
      template:
        spec:
          parallelism: 2
          completions: 2
          template:
            spec:
              containers: [{name: w, image: busybox:1.37, volumeMounts: [{name: ckpt, mountPath: /ckpt}]}]
"""
JOB = """apiVersion: batch/v1
kind: Job
metadata: {generateName: tas-, labels: {kueue.x-k8s.io/queue-name: tas}}
spec:
  template:
    metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: example.org/rack}}
    spec: {restartPolicy: Never, containers: [{name: c, image: busybox:1.37}]}
"""
ROWS = [
    ("fields that JobSet's webhook fills", JOBSET.replace("NAME", "name: a")),
    ("a name that the server makes", JOBSET.replace("NAME", "generateName: a-")),
    ("two objects whose names the server makes", f"{JOB}---\n{JOB}"),
    ("a level of a topology elsewhere", JOB),
    ("a subject elsewhere", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: a}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: a}\nsubjects: [{kind: ServiceAccount, name: a, namespace: system}]\n"),
    ("a kind of a known project without a schema", "apiVersion: kueue.x-k8s.io/v1beta2\nkind: MultiKueueCluster\nmetadata: {name: a}\nspec: {}\n"),
    ("a namespace that the server drops", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, namespace: b}\n"),
    ("an old type of volume", "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], portworxVolume: {volumeID: a}}\n"),
    ("a null that the server drops", "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: a}\nspec:\n"),
    ("metadata of a kind without a schema", "apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: a, description: b}\n"),
]  # fmt: skip


@pytest.mark.parametrize("written", [row[1] for row in ROWS], ids=[row[0] for row in ROWS])
def test_object_that_the_server_accepts_has_no_error(written: str) -> None:
    got = read(written, "a.yaml")
    found = (*got.findings, *check(got.documents, Facts(kubernetes="1.36", whole=False)))
    assert [str(one) for one in found if one.level is Level.ERROR] == []


@pytest.mark.parametrize(
    ("api_version", "kind", "message"),
    [
        ("kueue.x-k8s.io/v1beta2", "ClusterQueu", "there is no kueue.x-k8s.io/v1beta2 ClusterQueu; ClusterQueue is in kueue.x-k8s.io/v1beta1 and kueue.x-k8s.io/v1beta2"),
        ("karpenter.sh/v1beta1", "NodePool", "there is no karpenter.sh/v1beta1 NodePool; NodePool is in karpenter.sh/v1"),
    ],
)  # fmt: skip
def test_misspelt_kind_and_unknown_version_are_errors(api_version: str, kind: str, message: str) -> None:
    manifest = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}}
    (found,) = check([manifest], Facts(kubernetes="1.36", whole=False))
    assert (found.rule, found.message, found.level) == ("unknown-kind", message, Level.ERROR)
