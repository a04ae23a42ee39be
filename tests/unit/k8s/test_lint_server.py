"""What the API server of Kubernetes 1.36 refuses in pods, jobs, services and autoscalers: a change to a manifest that it takes."""

import pytest
from support.lint_errors import assert_refused, errors_of

from gpucluster.k8s.lint import Facts, Severity, check
from gpucluster.k8s.lint.read import read

POD = """apiVersion: v1
kind: Pod
metadata: {name: a, labels: {a: b}}
spec:
  os: {name: linux}
  hostNetwork: true
  resources: {requests: {cpu: 3, memory: 2Gi}, limits: {cpu: 4}}
  resourceClaims: [{name: g, resourceClaimName: gpu}]
  securityContext: {fsGroup: 0, fsGroupChangePolicy: OnRootMismatch, seccompProfile: {type: RuntimeDefault}}
  topologySpreadConstraints:
    - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor, labelSelector: {matchLabels: {a: b}}, matchLabelKeys: [c]}
    - {maxSkew: 1, topologyKey: host, whenUnsatisfiable: DoNotSchedule}
  initContainers: [{name: i, image: "a:1", imagePullPolicy: Always}]
  containers:
    - name: c
      image: a:1
      terminationMessagePolicy: FallbackToLogsOnError
      securityContext: {privileged: true}
      resources: {requests: {cpu: 2}, limits: {cpu: 4}, claims: [{name: g}]}
      ports: [{name: h, containerPort: 80}]
      livenessProbe: {httpGet: {port: 80, scheme: HTTPS}, terminationGracePeriodSeconds: 5}
      readinessProbe: {exec: {command: [ls]}}
      lifecycle: {preStop: {exec: {command: [sh, -c, ls]}}}
      env:
        - {name: A, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app.kubernetes.io/name']"}}}
        - {name: B, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        - {name: C, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
      envFrom: [{configMapRef: {name: a}}]
      volumeMounts:
        - {name: v, mountPath: /v, mountPropagation: Bidirectional}
        - {name: s, mountPath: /s, subPath: a}
  volumes:
    - {name: v, hostPath: {path: /v, type: Directory}}
    - {name: d, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.labels}}, {path: b, resourceFieldRef: {containerName: c, resource: limits.cpu}}]}}
    - {name: s, emptyDir: {medium: Memory, sizeLimit: 1Gi}}
"""
WINDOWS = """apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  os: {name: windows}
  hostNetwork: true
  securityContext: {runAsNonRoot: true, windowsOptions: {hostProcess: true}}
  containers: [{name: c, image: "a:1", securityContext: {runAsNonRoot: true}}, {name: d, image: "a:1"}]
"""
CRON = """apiVersion: batch/v1
kind: CronJob
metadata: {name: a}
spec:
  schedule: "0 3 * * *"
  timeZone: Europe/Berlin
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "a:1"}]}}}}
"""
JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: a}
spec:
  completionMode: Indexed
  completions: 4
  podReplacementPolicy: Failed
  podFailurePolicy:
    rules:
      - {action: Ignore, onPodConditions: [{type: DisruptionTarget, status: "True"}]}
      - {action: FailJob, onExitCodes: {operator: In, values: [1, 3]}}
  successPolicy: {rules: [{succeededIndexes: "0,2-3"}]}
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: "a:1"}]}}
"""
SCALER = """apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: a}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}
  maxReplicas: 4
  behavior: {scaleDown: {selectPolicy: Max, policies: [{type: Pods, value: 1, periodSeconds: 60}]}}
  metrics:
    - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}
    - {type: External, external: {metric: {name: a}, target: {type: Value, value: 5}}}
"""
SERVICE = """apiVersion: v1
kind: Service
metadata: {name: a}
spec:
  type: LoadBalancer
  internalTrafficPolicy: Local
  externalTrafficPolicy: Local
  sessionAffinity: ClientIP
  loadBalancerClass: service.k8s.aws/nlb
  loadBalancerSourceRanges: [10.0.0.0/8]
  selector: {a: b}
  ports: [{port: 80, targetPort: http}]
"""
HOOK = """apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: a}
webhooks:
  - name: a.example.org
    clientConfig: {service: {name: a, namespace: b}}
    rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods], scope: Namespaced}]
    sideEffects: NoneOnDryRun
    timeoutSeconds: 30
    admissionReviewVersions: [v1]
"""
KIND = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: foos.example.org}\nspec: {group: example.org, names: {plural: foos, kind: Foo}, scope: Namespaced, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}\n"
DEVICES = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: a}\nspec: {spec: {devices: {requests: [{name: g, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 2}}]}}}\n"
DEPLOYMENT = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {strategy: {rollingUpdate: {maxSurge: 200%, maxUnavailable: 50%}}, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: 'a:1'}]}}}\n"
BUDGET = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a}\nspec: {maxUnavailable: 50%, selector: {matchLabels: {a: b}}}\n"
LIMITS = "apiVersion: v1\nkind: LimitRange\nmetadata: {name: a}\nspec: {limits: [{type: Container, max: {memory: 16Gi}, default: {memory: 8Gi}}]}\n"
RUNTIME = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: a}\nhandler: a\noverhead: {podFixed: {memory: 120Mi}}\n"
# a sentence, the rule, the manifest that is taken, what is changed, and to what
ROWS = [
    ("a field of the pod that is misspelt", "variable", POD, "status.podIP", "status.podIp"),
    ("a field of the pod that only files have", "variable", POD, "status.podIP", "metadata.labels"),
    ("a field of a file that only variables have", "variable", POD, "fieldPath: metadata.labels}", "fieldPath: status.podIP}"),
    ("a label without quotes", "variable", POD, "metadata.labels['app.kubernetes.io/name']", "metadata.labels[app]"),
    ("a name of a label with a space", "variable", POD, "metadata.labels['app.kubernetes.io/name']", "metadata.labels['a b']"),
    ("an amount of a device", "variable", POD, "limits.memory, divisor: 1Mi", "limits.nvidia.com/gpu"),
    ("a divisor of memory that is not 1", "variable", POD, "divisor: 1Mi", "divisor: 10Mi"),
    ("a file of no container", "variable", POD, "containerName: c, ", ""),
    ("two sources of a variable", "one-of", POD, "{fieldRef: {fieldPath: status.podIP}}", "{fieldRef: {fieldPath: status.podIP}, secretKeyRef: {name: a, key: b}}"),
    ("no source of a variable", "one-of", POD, "{fieldRef: {fieldPath: status.podIP}}", "{}"),
    ("two sources of variables", "one-of", POD, "{configMapRef: {name: a}}", "{configMapRef: {name: a}, secretRef: {name: b}}"),
    ("a policy of messages", "word", POD, "FallbackToLogsOnError", "Fallback"),
    ("a policy of images of an init container", "word", POD, "Always", "always"),
    ("a policy of groups of files", "word", POD, "OnRootMismatch", "onRootMismatch"),
    ("a profile in its old form", "word", POD, "RuntimeDefault", "runtime/default"),
    ("a type of a host's path", "word", POD, "type: Directory", "type: Dir"),
    ("a scheme in lower case", "word", POD, "scheme: HTTPS", "scheme: https"),
    ("how a mount spreads", "word", POD, "Bidirectional", "Shared"),
    ("a policy of taints", "word", POD, "Honor", "honor"),
    ("a system in upper case", "word", POD, "name: linux", "name: Linux"),
    ("options of Windows in a pod of Linux", "one-of", POD, "{privileged: true}", "{privileged: true, windowsOptions: {runAsUserName: a}}"),
    ("a user of Linux in a pod of Windows", "one-of", WINDOWS, "{runAsNonRoot: true, windows", "{runAsUser: 1000, windows"),
    ("capabilities in a pod of Windows", "one-of", WINDOWS, "securityContext: {runAsNonRoot: true}", "securityContext: {capabilities: {drop: [ALL]}}"),
    ("processes of the host without its network", "one-of", WINDOWS, "  hostNetwork: true\n", ""),
    ("a container beside processes of the host", "one-of", WINDOWS, "securityContext: {runAsNonRoot: true}", "securityContext: {windowsOptions: {hostProcess: false}}"),
    ("a time zone that is misspelt", "schedule", CRON, "Europe/Berlin", "Europe/Berln"),
    ("the local time zone", "schedule", CRON, "Europe/Berlin", "Local"),
    ("an offset as a time zone", "schedule", CRON, "Europe/Berlin", "UTC+1"),
    ("no time zone", "schedule", CRON, "Europe/Berlin", "''"),
    ("a failure's action that is misspelt", "word", JOB, "action: Ignore", "action: Ignored"),
    ("a state that is misspelt", "word", JOB, 'status: "True"', 'status: "yes"'),
    ("when pods are replaced", "word", JOB, "podReplacementPolicy: Failed", "podReplacementPolicy: Always"),
    ("a kind of steps that is misspelt", "word", SCALER, "type: Pods", "type: Pod"),
    ("a choice of steps in lower case", "word", SCALER, "selectPolicy: Max", "selectPolicy: max"),
    ("a type of target in lower case", "word", SCALER, "type: Utilization", "type: utilization"),
    ("a step of nothing", "range", SCALER, "value: 1", "value: 0"),
    ("steps of an hour", "range", SCALER, "periodSeconds: 60", "periodSeconds: 3600"),
    ("a use of nothing", "range", SCALER, "averageUtilization: 70", "averageUtilization: 0"),
    ("traffic of the node", "word", SERVICE, "internalTrafficPolicy: Local", "internalTrafficPolicy: local"),
    ("a session in lower case", "word", SERVICE, "ClientIP", "clientIP"),
    ("side effects that a new hook may not have", "word", HOOK, "NoneOnDryRun", "Some"),
    ("an operation in lower case", "word", HOOK, "CREATE", "create"),
    ("a hook that takes a minute", "range", HOOK, "timeoutSeconds: 30", "timeoutSeconds: 60"),
    ("a name of a port in upper case", "port", SERVICE, "targetPort: http", "targetPort: HTTP"),
    ("a name of a port that is too long", "port", SERVICE, "targetPort: http", "targetPort: prometheus-metrics"),
    ("an address instead of a network", "cidr", SERVICE, "10.0.0.0/8", "10.0.0.1"),
    ("a value of a label with a space", "label", SERVICE, "{a: b}", "{a: b c}"),
    ("an address that is none", "word", SERVICE, "selector: {a: b}", "selector: {a: b}\n  clusterIP: none"),
    ("the class of a balancer without one", "one-of", SERVICE, "type: LoadBalancer", "type: NodePort"),
    ("a definition of another name", "name", KIND, "foos.example.org", "foo.example.org"),
    ("a definition without a stored version", "one-of", KIND, "storage: true", "storage: false"),
    ("a definition without a schema", "schema", KIND, ", schema: {openAPIV3Schema: {type: object}}", ""),
    ("a hook with a short name", "name", HOOK, "a.example.org", "a"),
    ("a hook of two addresses", "one-of", HOOK, "{service:", "{url: 'https://a.example.org', service:"),
    ("a request for nothing", "one-of", DEVICES, ", exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 2}", ""),
    ("a way to count that is misspelt", "word", DEVICES, "ExactCount", "Exact"),
    ("a count of all devices", "one-of", DEVICES, "ExactCount", "All"),
    ("containers of a debugger", "container", POD, "  initContainers:", "  ephemeralContainers: [{name: d, image: 'a:1'}]\n  initContainers:"),
    ("a probe of no command", "one-of", POD, "exec: {command: [ls]}", "exec: {}"),
    ("a share of an update without a percent sign", "range", DEPLOYMENT, "50%", "'50'"),
    ("a share of an update above all pods", "range", DEPLOYMENT, "50%", "150%"),
    ("exit codes out of order", "range", JOB, "[1, 3]", "[3, 1]"),
    ("a failure with two causes", "one-of", JOB, "operator: In, values: [1, 3]}", "operator: In, values: [1, 3]}, onPodConditions: [{type: A, status: 'True'}]"),
    ("a failure without a cause", "one-of", JOB, ", onExitCodes: {operator: In, values: [1, 3]}", ""),
    ("replacements before a failed pod has ended", "one-of", JOB, "podReplacementPolicy: Failed", "podReplacementPolicy: TerminatingOrFailed"),
    ("an index beyond the last", "range", JOB, "0,2-3", "0,2-4"),
    ("indexes out of order", "range", JOB, "0,2-3", "2-3,0"),
    ("too many pods at once", "range", JOB, "completions: 4", "completions: 200000\n  parallelism: 200000"),
    ("two targets of one metric", "one-of", SCALER, "averageUtilization: 70", "averageUtilization: 70, averageValue: 5"),
    ("a value with a wrong unit", "quantity", SCALER, "value: 5}", "value: 5GB}"),
    ("a target of nothing", "quantity", SCALER, "value: 5}", "value: 0}"),
    ("no steps at all", "one-of", SCALER, "policies: [{type: Pods, value: 1, periodSeconds: 60}]", "policies: []"),
    ("a share without a percent sign", "range", BUDGET, "50%", "'50'"),
    ("a part of a percent", "range", BUDGET, "50%", "50.5%"),
    ("fewer pods than none", "range", BUDGET, "50%", "-1"),
    ("a limit in a wrong unit", "quantity", LIMITS, "16Gi", "16GB"),
    ("a default in a wrong unit", "quantity", LIMITS, "8Gi", "8gi"),
    ("overhead in a wrong unit", "quantity", RUNTIME, "120Mi", "120MB"),
    ("a whole that is below its parts", "resources", POD, "requests: {cpu: 3,", "requests: {cpu: 1,"),
    ("a part that is above the whole", "resources", POD, "limits: {cpu: 4}, claims", "limits: {cpu: 5}, claims"),
    ("a whole whose request is above its limit", "resources", POD, "requests: {cpu: 3,", "requests: {cpu: 5,"),
    ("a claim of two sources", "one-of", POD, "resourceClaimName: gpu", "resourceClaimName: gpu, resourceClaimTemplateName: a"),
    ("a claim of no source", "one-of", POD, ", resourceClaimName: gpu", ""),
    ("a constraint that is given twice", "one-of", POD, "topologyKey: host", "topologyKey: zone"),
    ("a key of labels that the selector has", "one-of", POD, "matchLabelKeys: [c]", "matchLabelKeys: [a]"),
    ("keys of labels without a selector", "one-of", POD, "labelSelector: {matchLabels: {a: b}}, ", ""),
    ("a mount that spreads without rights", "volume", POD, "privileged: true", "privileged: false"),
    ("two paths below a volume", "one-of", POD, "subPath: a", "subPath: a, subPathExpr: b"),
    ("a grace period of 0", "range", POD, "terminationGracePeriodSeconds: 5", "terminationGracePeriodSeconds: 0"),
    ("a hook of two actions", "one-of", POD, "{exec: {command: [sh, -c, ls]}}", "{exec: {command: [ls]}, sleep: {seconds: 1}}"),
    ("a hook of nothing", "one-of", POD, "{exec: {command: [sh, -c, ls]}}", "{}"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "taken", "old", "new"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])  # fmt: skip
def test_change_is_refused_by_its_rule(rule: str, taken: str, old: str, new: str) -> None:
    assert_refused(rule, taken, old, new)


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "US/Pacific", "America/Argentina/Buenos_Aires", "GMT+0"])
def test_time_zone_that_the_server_has(zone: str) -> None:
    assert errors_of(CRON.replace("Europe/Berlin", zone)) == set()


@pytest.mark.parametrize("path", ["metadata.annotations['Example.org/Note']", "spec.nodeName", "status.hostIPs", "metadata.labels['a']"])  # fmt: skip
def test_field_that_a_variable_can_have(path: str) -> None:
    assert errors_of(POD.replace("status.podIP", f'"{path}"')) == set()


def test_pod_that_its_controller_completes_may_lack_a_source() -> None:
    written = "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: a}\nspec: {headGroupSpec: {template: {spec: {containers: [{name: c, env: [{name: A, valueFrom: {}}]}]}}}}\n"
    assert errors_of(written) == set()


def missing_of(written: str) -> list[str]:
    found = check(read(written, "a.yaml").documents, Facts(kubernetes="1.36"))
    return [one.message for one in found if one.rule == "reference" and one.level is Severity.ERROR]


WHOLE = [
    ("no Service 'b' in namespace 'default'", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\nspec: {defaultBackend: {service: {name: b, port: {number: 80}}}}\n"),
    ("no Service 'a' in namespace 'kube-system': the hook fails", HOOK.replace("namespace: b", "namespace: kube-system")),
    ("no ConfigMap 'b' in namespace 'default'", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: 'a:1'}], volumes: [{name: v, projected: {sources: [{configMap: {name: b}}]}}]}\n"),
    ("no ResourceClaimTemplate 'b' in namespace 'default'", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {resourceClaims: [{name: g, resourceClaimTemplateName: b}], containers: [{name: c, image: 'a:1', resources: {claims: [{name: g}]}}]}\n"),
    ("no StorageClass 'b'", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: 'a:1'}], volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: b, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]}\n"),
    ("no ServiceAccount 'b' in namespace 'default'", "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: a}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\nsubjects: [{kind: ServiceAccount, name: b}]\n"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "written"), WHOLE, ids=[row[0] for row in WHOLE])
def test_object_that_is_named_and_not_there(words: str, written: str) -> None:
    assert missing_of(written) == [f"there is {words}"]


def test_template_of_a_compute_domain_is_made_by_its_controller() -> None:
    domain = "apiVersion: resource.nvidia.com/v1beta1\nkind: ComputeDomain\nmetadata: {name: d}\nspec: {numNodes: 2, channel: {resourceClaimTemplate: {name: b}}}\n"
    assert missing_of(f"{domain}---\n{WHOLE[3][1]}") == []


def test_hook_that_may_fail_without_its_service_is_a_warning() -> None:
    written = HOOK.replace("namespace: b", "namespace: default").replace(
        "sideEffects", "failurePolicy: Ignore\n    sideEffects"
    )
    assert missing_of(written) == []
