"""Objects as public examples write them, which the API server accepts: no error in a part of a cluster."""

from pathlib import Path

import pytest

from gpucluster.cli.lint_input import read_all
from gpucluster.k8s.lint import Facts, Severity, check
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
    ("a list of one kind", "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleList\nitems: [{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a}, rules: []}]\n"),
    ("values that Flux fills", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: '${APP}', namespace: $NAMESPACE}\nspec: {accessModes: ['${MODE:=ReadWriteOnce}'], resources: {requests: {storage: '${SIZE:=5Gi}'}}}\n"),
    ("a key that is given twice", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b, a: c}\n"),
    ("a merge key", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {<<: {a: b}, c: d}\n"),
    ("an anchor that is given again", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: &x b, c: &x d, e: *x}\n"),
    ("a tag that kubectl drops", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: !env b}\n"),
    ("a memory volume above the memory", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 2Gi}}], containers: [{name: c, image: busybox:1.37, resources: {limits: {memory: 1Gi}}, volumeMounts: [{name: s, mountPath: /dev/shm}]}]}\n"),
    ("a scaler from zero", "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: a}\nspec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}, minReplicas: 0, maxReplicas: 3, metrics: [{type: External, external: {metric: {name: q}, target: {type: AverageValue, averageValue: '1'}}}]}\n"),
    ("a definition with a pattern of Go, and its kind", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: rules.example.org}\nspec: {group: example.org, scope: Namespaced, names: {kind: Rule, plural: rules, singular: rule, listKind: RuleList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {a: {type: string, pattern: '^(?i)(abort|warn)?$'}}}}}}}]}\n---\napiVersion: example.org/v1\nkind: Rule\nmetadata: {name: a}\nspec: {a: Warn}\n"),
    ("metadata of a kind without a schema", "apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: a, description: b}\n"),
]  # fmt: skip


@pytest.mark.parametrize("written", [row[1] for row in ROWS], ids=[row[0] for row in ROWS])
def test_object_that_the_server_accepts_has_no_error(written: str) -> None:
    got = read(written, "a.yaml")
    found = (*got.findings, *check(got.documents, Facts(kubernetes="1.36", whole=False)))
    assert [str(one) for one in found if one.level is Severity.ERROR] == []


def errors_of(folder: Path, files: dict[str, str], *paths: str) -> list[str]:
    for name, written in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(written)
    got = read_all([folder / path for path in paths] or [folder])
    found = (*got.findings, *check(got.documents, Facts(kubernetes="1.36", whole=False)))
    return [one.rule for one in found if one.level is Severity.ERROR]


DEPLOYMENT = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{name: c, image: busybox:1.37}]}}}\n"
SPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: _}\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: driver}\nspec: {containers: [{name: c}]}\n"


def volume(name: str) -> str:
    return f"apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {name}}}\nspec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteMany], csi: {{driver: s3.csi.aws.com, volumeHandle: a}}}}\n"


FOLDERS: list[tuple[str, dict[str, str]]] = [
    ("a deployment that Kustomize completes", {"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": DEPLOYMENT}),
    ("a namespace that Kustomize names", {"kustomization.yaml": "namespace: b\nresources: [./a.yaml]\n", "a.yaml": SPACE}),
    ("a patch that is written as a text", {"kustomization.yaml": "patches: [b/a.yaml]\n", "b/a.yaml": DEPLOYMENT}),
    ("two clusters", {"staging/a.yaml": SPACE.replace("_", "a"), "production/a.yaml": SPACE.replace("_", "a")}),
    ("volumes of two clusters", {"a.yaml": volume("a"), "b.yaml": volume("b")}),
    ("a pod that Spark completes", {"driver-pod-template.yaml": POD}),
    ("values of a chart with a kind", {"values.yaml": "kind: Deployment\nreplicas: 2\n"}),
    ("a template of Go", {"a.yaml": "{{ if .x }}\napiVersion: v1\n{{ end }}\nkind: Secret\n"}),
    ("a template of Terraform", {"values.yaml": "%{ if x }\na: b\n%{ endif }\n"}),
]  # fmt: skip


@pytest.mark.parametrize("files", [row[1] for row in FOLDERS], ids=[row[0] for row in FOLDERS])
def test_folder_that_its_tool_takes_has_no_error(tmp_path: Path, files: dict[str, str]) -> None:
    assert errors_of(tmp_path, files) == []


def test_same_files_outside_of_their_tool_are_errors(tmp_path: Path) -> None:
    files = {
        "a.yaml": DEPLOYMENT,
        "b.yaml": SPACE,
        "c.yaml": POD,
        "d.yaml": f"{volume('a')}---\n{volume('b')}",
    }
    assert sorted(errors_of(tmp_path, files)) == ["container", "name", "schema", "volume-handle"]


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
    assert (found.rule, found.message, found.level) == ("unknown-kind", message, Severity.ERROR)
