"""Objects as public examples write them, which the API server accepts: no error in a part of a cluster."""

from pathlib import Path

import pytest

from gpucluster.catalog import crd_schemas
from gpucluster.cli.lint_input import read_all
from gpucluster.k8s.lint import Facts, Severity, check, unchecked
from gpucluster.k8s.lint.cel import compiled
from gpucluster.k8s.lint.projects import KINDS
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
    ("values that envsubst fills in flow style", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: ${APP}, namespace: x-${NAMESPACE}}\nspec: {accessModes: [${MODE:=ReadWriteOnce}], resources: {requests: {storage: ${SIZE}}}}\n"),
    ("values that Jinja fills", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: '{{ app }}', namespace: '{{ .Space }}'}\nspec: {accessModes: ['{{ mode }}'], resources: {requests: {storage: '{{ size }}Gi'}}}\n"),
    ("a key that is given twice", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b, a: c}\n"),
    ("a merge key", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {<<: {a: b}, c: d}\n"),
    ("an anchor that is given again", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: &x b, c: &x d, e: *x}\n"),
    ("a tag that kubectl drops", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: !env b}\n"),
    ("a memory volume above the memory", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 2Gi}}], containers: [{name: c, image: busybox:1.37, resources: {limits: {memory: 1Gi}}, volumeMounts: [{name: s, mountPath: /dev/shm}]}]}\n"),
    ("a scaler from zero", "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: a}\nspec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}, minReplicas: 0, maxReplicas: 3, metrics: [{type: External, external: {metric: {name: q}, target: {type: AverageValue, averageValue: '1'}}}]}\n"),
    ("a definition with a pattern of Go, and its kind", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: rules.example.org}\nspec: {group: example.org, scope: Namespaced, names: {kind: Rule, plural: rules, singular: rule, listKind: RuleList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {a: {type: string, pattern: '^(?i)(abort|warn)?$'}}}}}}}]}\n---\napiVersion: example.org/v1\nkind: Rule\nmetadata: {name: a}\nspec: {a: Warn}\n"),
    ("a configuration of nodeadm beside its definition", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: nodeconfigs.node.eks.aws}\nspec: {group: node.eks.aws, names: {plural: nodeconfigs, kind: NodeConfig}, scope: Namespaced, versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}}]}\n---\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {}\n"),
    ("a kind beside a definition of a similar one", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: kafkaconnectors.kafka.example.org}\nspec: {group: kafka.example.org, names: {plural: kafkaconnectors, kind: KafkaConnector}, scope: Namespaced, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}}]}\n---\napiVersion: kafka.example.org/v1\nkind: KafkaConnect\nmetadata: {name: a}\n"),
    ("a kind of a known project whose name is near another", "apiVersion: monitoring.coreos.com/v1\nkind: Prometheus\nmetadata: {name: a}\n---\napiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: a}\n"),
    ("a kind of a later release", "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepositorySet\nmetadata: {name: a}\n"),
    ("an optional field of CEL", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: a}\nspec: {matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}, validations: [{expression: \"object.spec.?nodeName.orValue('') == '' && object.metadata.labels[?'a'].hasValue() && {?'a': object.?b} != {}\"}]}\n"),
    ("a Secret that SOPS encrypts", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: 'ENC[AES256_GCM,data:a,type:str]'}\nsops: {mac: 'ENC[AES256_GCM,data:a,type:str]'}\n"),
    ("another kind that SOPS encrypts", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 'ENC[AES256_GCM,data:a,type:int]'}]}\nsops: {mac: 'ENC[AES256_GCM,data:a,type:str]'}\n"),
    ("a test of Kyverno", "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\npolicies: []\n"),
    ("a plugin of Argo CD", "apiVersion: argoproj.io/v1alpha1\nkind: ConfigManagementPlugin\nmetadata: {name: a_b}\n"),
    ("a pattern of Kyverno", "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: a}\nspec: {rules: [{name: b, match: {any: [{resources: {kinds: [Pod]}}]}, validate: {pattern: {spec: {containers: [{name: '*', image: '!*:latest', resources: {limits: {memory: '?*'}}}]}}}}]}\n"),
    ("an image that a trigger of OpenShift fills", "apiVersion: apps.openshift.io/v1\nkind: DeploymentConfig\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{name: a, image: ' '}]}}}\n"),
    ("a release note of Istio", "apiVersion: release-notes/v2\nkind: bug-fix\narea: security\n"),
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
    ("an autoscaler that Kustomize completes", {"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: a}\nspec: {scaleTargetRef: {kind: Deployment, name: a}}\n"}),
    ("an image that Kustomize names", {"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": DEPLOYMENT.replace(", image: busybox:1.37", "")}),
    ("a configuration of OpenShift's installer", {"a.yaml": "apiVersion: v1\nbaseDomain: example.org\nplatform: {aws: {region: us-east-1}}\n"}),
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
        ("kueue.x-k8s.io/v1beta2", "ClusterQueu", "there is no kueue.x-k8s.io/v1beta2 ClusterQueu in kueue v0.19.2; ClusterQueue is in kueue.x-k8s.io/v1beta1 and kueue.x-k8s.io/v1beta2"),
        ("karpenter.sh/v1beta1", "NodePool", "there is no karpenter.sh/v1beta1 NodePool in karpenter-provider-aws v1.14.1; NodePool is in karpenter.sh/v1"),
    ],
)  # fmt: skip
def test_misspelt_kind_and_unknown_version_are_errors(api_version: str, kind: str, message: str) -> None:
    manifest = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}}
    (found,) = check([manifest], Facts(kubernetes="1.36", whole=False))
    assert (found.rule, found.message, found.level) == ("unknown-kind", message, Severity.ERROR)


SPACE_A = SPACE.replace("_", "a")
SYSTEM = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: op, namespace: kube-system}\n"
READER = f"{SPACE_A}---\napiVersion: v1\nkind: Pod\nmetadata: {{name: a, namespace: a}}\nspec: {{containers: [{{name: c, image: busybox:1.37}}], volumes: [{{name: v, VOLUME}}]}}\n"
SET = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: s, namespace: a}\nspec: {serviceName: s, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: busybox:1.37}]}}, volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}\n"
MAKER = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: m, namespace: a}\nspec: {template: {spec: {serviceAccountName: m, restartPolicy: Never, containers: [{name: c, image: busybox:1.37, args: [ARG]}]}}}\n"
RIGHTS = """apiVersion: v1
kind: ServiceAccount
metadata: {name: m, namespace: a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: m, namespace: a}
rules: [{apiGroups: [""], resources: [secrets], verbs: [VERB]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: m, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: m}
subjects: [{kind: ServiceAccount, name: m, namespace: a}]
"""
OF_A_SECRET = READER.replace("VOLUME", "secret: {secretName: tls}")
WHOLE = [
    ("a role that each cluster has", f"{SYSTEM}---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: a, namespace: kube-system}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}}\nsubjects: [{{kind: ServiceAccount, name: op, namespace: kube-system}}, {{kind: ServiceAccount, name: horizontal-pod-autoscaler, namespace: kube-system}}]\n", []),
    ("a config map that each cluster has", READER.replace("VOLUME", "configMap: {name: extension-apiserver-authentication}").replace("namespace: a}\nspec", "namespace: kube-system}\nspec"), []),
    ("the service of the API server", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a, namespace: default}\nspec: {rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: kubernetes, port: {number: 443}}}}]}}]}\n", []),
    ("a set without its service", f"{SPACE_A}---\n{SET}", ["warning"]),
    ("a claim of a set", READER.replace("VOLUME", "persistentVolumeClaim: {claimName: d-s-0}") + f"---\n{SET.replace('serviceName: s, ', '')}", []),
    ("a claim of no set", READER.replace("VOLUME", "persistentVolumeClaim: {claimName: e-s-0}") + f"---\n{SET.replace('serviceName: s, ', '')}", ["error"]),
    ("a Secret that nobody makes", f"{OF_A_SECRET}---\n{RIGHTS.replace('VERB', 'get')}---\n{MAKER}", ["error"]),
    ("a Secret that an argument names", f"{OF_A_SECRET}---\n{RIGHTS.replace('VERB', 'get')}---\n{MAKER.replace('ARG', '--secret-name=tls')}", ["warning"]),
    ("a Secret that an account may make", f"{OF_A_SECRET}---\n{RIGHTS.replace('VERB', 'create')}---\n{MAKER}", ["warning"]),
]  # fmt: skip


@pytest.mark.parametrize(("written", "levels"), [row[1:] for row in WHOLE], ids=[row[0] for row in WHOLE])
def test_object_that_somebody_makes_in_a_whole_cluster_is_no_error(written: str, levels: list[str]) -> None:
    found = check(read(written, "a.yaml").documents, Facts(kubernetes="1.36", whole=True))
    assert [one.level for one in found if one.rule == "reference"] == levels


COHORT = """apiVersion: kueue.x-k8s.io/VERSION
kind: ClusterQueue
metadata: {name: a}
spec: {FIELD: all, namespaceSelector: {}, resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [{name: f, resources: [{name: nvidia.com/gpu, nominalQuota: 16}]}]}]}
"""
BORROWER = """---
apiVersion: kueue.x-k8s.io/VERSION
kind: ResourceFlavor
metadata: {name: f}
---
apiVersion: kueue.x-k8s.io/VERSION
kind: LocalQueue
metadata: {name: a, namespace: default}
spec: {clusterQueue: a}
---
apiVersion: batch/v1
kind: Job
metadata: {name: j, namespace: default, labels: {kueue.x-k8s.io/queue-name: a}}
spec:
  suspend: true
  parallelism: 3
  completions: 3
  completionMode: Indexed
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: "busybox:1.37", resources: {limits: {nvidia.com/gpu: 8}}}]}}
"""


@pytest.mark.parametrize(("version", "field"), [("v1beta1", "cohort"), ("v1beta2", "cohortName")])
@pytest.mark.parametrize("whole", [False, True])
def test_gang_that_borrows_in_a_cohort_without_an_object_has_no_error(version: str, field: str, *, whole: bool) -> None:  # fmt: skip
    """Two queues are a cohort by its name alone. `v1beta1` has another name of the field."""
    queue = COHORT.replace("VERSION", version).replace("FIELD", field)
    other = queue.replace("name: a}", "name: b}")
    rest = BORROWER.replace("VERSION", version)
    facts = Facts(kubernetes="1.36", whole=whole)
    both = check(read(f"{queue}---\n{other}{rest}", "a.yaml").documents, facts)
    assert not {"workload-above-quota", "reference"} & {one.rule for one in both}
    alone = check(read(f"{queue}{rest}", "a.yaml").documents, facts)
    assert "workload-above-quota" in {one.rule for one in alone}
    lonely = [(one.rule, one.level) for one in alone if one.rule == "reference"]
    assert lonely == ([("reference", Severity.WARNING)] if whole else [])


def test_object_that_sops_encrypts_is_named() -> None:
    written = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nsops: {mac: a}\n"
    facts = Facts(kubernetes="1.36", whole=False)
    assert "Secret a: SOPS encrypts its values" in unchecked(read(written, "a.yaml").documents, facts)


def test_rule_of_cel_that_is_wrong_beside_an_optional_field_is_an_error() -> None:
    assert compiled("a.?b.orValue(1) == 1").variables()
    with pytest.raises(ValueError, match="parse"):
        compiled("a.?b.orValue(1) ==")


def test_kinds_of_each_project_hold_those_of_the_catalog() -> None:
    for api_version, kind in crd_schemas():
        assert kind in KINDS[api_version.rpartition("/")[0]]
