"""Manifests of which lint says that the API server or a webhook refuses them, each with a twin that is taken.

`unit/k8s/test_lint_judged.py` holds lint to them, and `tests/kubernetes/test_lint_judged.py` a real server with Kueue and
JobSet. A row has the rule, a sound manifest, and the one change that is refused.
"""

from dataclasses import dataclass

NAMESPACE = "judged"
GUARDED = "judged-baseline"
NAMESPACES = f"""apiVersion: v1
kind: Namespace
metadata: {{name: {NAMESPACE}}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: {GUARDED}, labels: {{pod-security.kubernetes.io/enforce: baseline}}}}
"""
_DEPLOYMENT = f"""apiVersion: apps/v1
kind: Deployment
metadata: {{name: NAME, namespace: {NAMESPACE}, labels: {{app: a}}, annotations: {{note: a}}}}
spec:
  replicas: 1
  selector: {{matchLabels: {{app: a}}}}
  template:
    metadata: {{labels: {{app: a}}}}
    spec:
      terminationGracePeriodSeconds: 60
      tolerations: [{{key: a, operator: Exists}}]
      containers:
        - name: c
          image: registry.example.org/a:1.0
          env: [{{name: A_B, value: c}}]
          ports: [{{containerPort: 80}}]
          lifecycle: {{preStop: {{sleep: {{seconds: 20}}}}}}
          resources: {{requests: {{memory: 1Gi}}, limits: {{nvidia.com/gpu: 1}}}}
          volumeMounts: [{{name: v, mountPath: /v}}]
      volumes: [{{name: v, emptyDir: {{}}}}]
"""
_JOB = f"""apiVersion: batch/v1
kind: Job
metadata: {{name: NAME, namespace: {NAMESPACE}}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: c, image: "registry.example.org/a:1.0"}}]
"""
_CRON = f"""apiVersion: batch/v1
kind: CronJob
metadata: {{name: NAME, namespace: {NAMESPACE}}}
spec:
  suspend: true
  schedule: "30 2 * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{{name: c, image: "registry.example.org/a:1.0"}}]
"""
_SERVICE = f"""apiVersion: v1
kind: Service
metadata: {{name: NAME, namespace: {NAMESPACE}}}
spec:
  selector: {{app: other}}
  ports: [{{port: 80, protocol: TCP}}]
"""
_BUDGET = f"""apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: NAME, namespace: {NAMESPACE}}}
spec:
  maxUnavailable: 1
  selector: {{matchLabels: {{app: other}}}}
"""
_SCALER = f"""apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: NAME, namespace: {NAMESPACE}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: other}}
  minReplicas: 1
  maxReplicas: 3
  metrics: [{{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 70}}}}}}]
"""
_POLICY = f"""apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: NAME, namespace: {NAMESPACE}}}
spec:
  podSelector: {{matchLabels: {{app: other}}}}
  ingress: [{{from: [{{ipBlock: {{cidr: 10.0.0.0/16}}}}]}}]
"""
_POD = f"""apiVersion: v1
kind: Pod
metadata: {{name: NAME, namespace: {GUARDED}}}
spec:
  containers:
    - name: c
      image: registry.example.org/a:1.0
      readinessProbe: {{httpGet: {{port: 80}}}}
      securityContext: {{privileged: false}}
  volumes: [{{name: v, emptyDir: {{}}}}]
"""
_ADMISSION = """apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "object.metadata.name != 'other'"}]
"""
_QUEUE = """apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: NAME}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [cpu, memory]
      flavors:
        - name: judged
          resources: [{name: cpu, nominalQuota: 1}, {name: memory, nominalQuota: 1Gi}]
"""
_TOPOLOGY = """apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: NAME}
spec:
  levels: [{nodeLabel: topology.kubernetes.io/zone}, {nodeLabel: kubernetes.io/hostname}]
"""
_SET = f"""apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: NAME, namespace: {NAMESPACE}}}
spec:
  suspend: true
  replicatedJobs:
    - name: first
      template: {{spec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: "registry.example.org/a:1.0"}}]}}}}}}}}
    - name: second
      dependsOn: [{{name: first, status: Complete}}]
      template: {{spec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: "registry.example.org/a:1.0"}}]}}}}}}}}
"""
_SECRET = f"""apiVersion: v1
kind: Secret
metadata: {{name: NAME, namespace: {NAMESPACE}}}
type: kubernetes.io/tls
data: {{tls.crt: YQ==, tls.key: YQ==}}
"""
_MAP = f"""apiVersion: v1
kind: ConfigMap
metadata: {{name: NAME, namespace: {NAMESPACE}}}
data: {{a.b: c}}
"""
_CLAIM = f"""apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: NAME, namespace: {NAMESPACE}}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}
"""
_BINDING = f"""apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: NAME}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}}
subjects: [{{kind: ServiceAccount, name: other, namespace: {NAMESPACE}}}]
"""
_ROLE = f"""apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: NAME, namespace: {NAMESPACE}}}
rules: [{{apiGroups: [""], resources: [pods], verbs: [get]}}]
"""
_INGRESS = f"""apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: NAME, namespace: {NAMESPACE}}}
spec: {{rules: [{{host: example.org, http: {{paths: [{{path: /a, pathType: Prefix, backend: {{service: {{name: a, port: {{number: 80}}}}}}}}]}}}}]}}
"""
_LIMITS = f"""apiVersion: v1
kind: LimitRange
metadata: {{name: NAME, namespace: {NAMESPACE}}}
spec: {{limits: [{{type: Container, default: {{memory: 8Gi}}, max: {{memory: 16Gi}}}}]}}
"""
_HARD = f"""apiVersion: v1
kind: ResourceQuota
metadata: {{name: NAME, namespace: {NAMESPACE}}}
spec: {{hard: {{requests.nvidia.com/gpu: 80}}}}
"""


@dataclass(frozen=True, slots=True)
class Judged:
    """A change of a sound manifest, and the rule that reports it."""

    name: str  # also of the objects
    rule: str
    manifest: str
    old: str
    new: str

    @property
    def sound(self) -> str:
        return self.manifest.replace("NAME", f"sound-{self.name}")

    @property
    def refused(self) -> str:
        assert self.manifest.count(self.old) == 1, self.old
        return self.manifest.replace(self.old, self.new).replace("NAME", f"bad-{self.name}")


JUDGED = (
    Judged("type", "schema", _DEPLOYMENT, "replicas: 1", "replicas: one"),
    Judged("field", "unknown-field", _DEPLOYMENT, "replicas: 1", "replica: 1"),
    Judged("version", "not-served", _SCALER, "autoscaling/v2", "autoscaling/v2beta2"),
    Judged("kind", "unknown-kind", _QUEUE, "kind: ClusterQueue", "kind: ClusterQueu"),
    Judged("name", "name", _SERVICE, "name: NAME", "name: A_NAME"),
    Judged("label", "label", _DEPLOYMENT, "labels: {app: a}, annotations", 'labels: {app: "a b"}, annotations'),
    Judged("annotation", "annotation", _DEPLOYMENT, "{note: a}", "{note: 1}"),
    Judged("quantity", "quantity", _DEPLOYMENT, "memory: 1Gi", "memory: 1GB"),
    Judged("protocol", "word", _SERVICE, "TCP", "tcp"),
    Judged("toleration", "word", _DEPLOYMENT, "{key: a, operator: Exists}", "{value: a}"),
    Judged("toleration-value", "one-of", _DEPLOYMENT, "operator: Exists", "operator: Exists, value: b"),
    Judged("budget", "one-of", _BUDGET, "maxUnavailable: 1", "maxUnavailable: 1\n  minAvailable: 1"),
    Judged("service-port", "range", _SERVICE, "port: 80", "port: 70000"),
    Judged("container-port", "port", _DEPLOYMENT, "containerPort: 80", "containerPort: 70000"),
    Judged("cidr", "cidr", _POLICY, "10.0.0.0/16", "10.0.0.0/33"),
    Judged("variable", "variable", _DEPLOYMENT, "name: A_B", "name: A=B"),
    Judged("container", "container", _JOB, '[{name: c, image: "registry.example.org/a:1.0"}]', "[]"),
    Judged("mount", "volume", _DEPLOYMENT, "{name: v, mountPath: /v}", "{name: w, mountPath: /v}"),
    Judged("mount-twice", "volume", _DEPLOYMENT, "[{name: v, mountPath: /v}]", "[{name: v, mountPath: /v}, {name: v, mountPath: /v, subPath: a}]"),
    Judged("selector", "selector", _DEPLOYMENT, "matchLabels: {app: a}", "matchLabels: {app: b}"),
    Judged("restart", "restart-policy", _JOB, "restartPolicy: Never", "restartPolicy: Always"),
    Judged("device", "resources", _DEPLOYMENT, "requests: {memory: 1Gi}, limits: {nvidia.com/gpu: 1}", "requests: {nvidia.com/gpu: 1}"),
    Judged("pages", "resources", _DEPLOYMENT, "requests: {memory: 1Gi}, limits: {nvidia.com/gpu: 1}", "limits: {hugepages-2Mi: 2Mi}"),
    Judged("replicas", "replicas", _SCALER, "minReplicas: 1", "minReplicas: 4"),
    Judged("from-zero", "range", _SCALER, "minReplicas: 1", "minReplicas: 0"),
    Judged("schedule", "schedule", _CRON, "30 2 * * *", "30 2 * *"),
    Judged("schedule-day", "schedule", _CRON, "30 2 * * *", "30 2 * * 7"),
    Judged("hook", "pre-stop", _DEPLOYMENT, "seconds: 20", "seconds: 90"),
    Judged("privileged", "pod-security", _POD, "privileged: false", "privileged: true"),
    Judged("host-path", "pod-security", _POD, "emptyDir: {}", "hostPath: {path: /}"),
    Judged("probe", "pod-security", _POD, "httpGet: {port: 80}", "httpGet: {port: 80, host: 169.254.169.254}"),
    Judged("selinux", "pod-security", _POD, "privileged: false", "seLinuxOptions: {type: spc_t}"),
    Judged("expression", "cel-syntax", _ADMISSION, "!= 'other'", "!= 'other' &&"),
    Judged("variables", "cel-variable", _ADMISSION, "object.metadata.name != 'other'", "variables.a != 'other'"),
    Judged("borrowing", "cel", _QUEUE, "{name: cpu, nominalQuota: 1}", "{name: cpu, nominalQuota: 1, borrowingLimit: 1}"),
    Judged("resources", "quota-resources", _QUEUE, "coveredResources: [cpu, memory]", "coveredResources: [memory, cpu]"),
    Judged("levels", "topology-order", _TOPOLOGY, "{nodeLabel: topology.kubernetes.io/zone}, {nodeLabel: kubernetes.io/hostname}", "{nodeLabel: kubernetes.io/hostname}, {nodeLabel: topology.kubernetes.io/zone}"),
    Judged("depends", "depends-on", _SET, "{name: first, status: Complete}", "{name: third, status: Complete}"),
    Judged("bare-device", "resources", _DEPLOYMENT, "nvidia.com/gpu: 1", "gpu: 1"),
    Judged("negative", "resources", _DEPLOYMENT, "memory: 1Gi", "memory: 1Gi, cpu: -1"),
    Judged("claim", "resources", _DEPLOYMENT, "requests: {memory", "claims: [{name: a}], requests: {memory"),
    Judged("pod-device", "resources", _DEPLOYMENT, "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 60\n      resources: {limits: {nvidia.com/gpu: 1}}"),
    Judged("deadline", "one-of", _DEPLOYMENT, "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 60\n      activeDeadlineSeconds: 60"),
    Judged("operator", "selector", _DEPLOYMENT, "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 60\n      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}]}]}}}"),
    Judged("operator-values", "selector", _DEPLOYMENT, "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 60\n      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists, values: [b]}]}]}}}"),
    Judged("place", "selector", _DEPLOYMENT, "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 60\n      affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {}, topologyKey: ''}]}}"),
    Judged("skew", "range", _DEPLOYMENT, "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 60\n      topologySpreadConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]"),
    Judged("host-name", "name", _DEPLOYMENT, "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 60\n      hostname: A_B"),
    Judged("name-server", "one-of", _DEPLOYMENT, "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 60\n      dnsPolicy: None"),
    Judged("host-port", "port", _DEPLOYMENT, "{containerPort: 80}", "{containerPort: 80, hostPort: 81}, {containerPort: 82, hostPort: 81}"),
    Judged("probe-success", "range", _DEPLOYMENT, "ports: [", "livenessProbe: {tcpSocket: {port: 80}, successThreshold: 2}\n          ports: ["),
    Judged("probe-period", "range", _DEPLOYMENT, "ports: [", "livenessProbe: {tcpSocket: {port: 80}, periodSeconds: -1}\n          ports: ["),
    Judged("selector-values", "selector", _DEPLOYMENT, "matchLabels: {app: a}", "matchLabels: {app: a}, matchExpressions: [{key: app, operator: In}]"),
    Judged("indexed", "one-of", _JOB, "suspend: true", "suspend: true\n  completionMode: Indexed\n  parallelism: 2"),
    Judged("per-index", "one-of", _JOB, "suspend: true", "suspend: true\n  backoffLimitPerIndex: 1"),
    Judged("success", "one-of", _JOB, "suspend: true", "suspend: true\n  successPolicy: {rules: [{succeededCount: 1}]}"),
    Judged("fail-index", "one-of", _JOB, "suspend: true", "suspend: true\n  podFailurePolicy: {rules: [{action: FailIndex, onExitCodes: {operator: In, values: [3]}}]}"),
    Judged("exit-code", "range", _JOB, "suspend: true", "suspend: true\n  podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [0]}}]}"),
    Judged("exit-container", "container", _JOB, "suspend: true", "suspend: true\n  podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {containerName: other, operator: In, values: [3]}}]}"),
    Judged("ttl", "range", _JOB, "suspend: true", "suspend: true\n  ttlSecondsAfterFinished: -1"),
    Judged("set-success", "depends-on", _SET, "suspend: true", "suspend: true\n  successPolicy: {operator: All, targetReplicatedJobs: [third]}"),
    Judged("set-failure", "depends-on", _SET, "suspend: true", "suspend: true\n  failurePolicy: {maxRestarts: 1, rules: [{name: a, action: FailJobSet, targetReplicatedJobs: [third]}]}"),
    Judged("coordinator", "depends-on", _SET, "suspend: true", "suspend: true\n  coordinator: {replicatedJob: third}"),
    Judged("flavor-twice", "quota-resources", _QUEUE, "coveredResources: [cpu, memory]", "coveredResources: [nvidia.com/gpu]\n      flavors: [{name: judged, resources: [{name: nvidia.com/gpu, nominalQuota: 1}]}]\n    - coveredResources: [cpu, memory]"),
    Judged("lending", "range", _QUEUE, "namespaceSelector: {}\n  resourceGroups:\n    - coveredResources: [cpu, memory]\n      flavors:\n        - name: judged\n          resources: [{name: cpu, nominalQuota: 1}", "namespaceSelector: {}\n  cohortName: judged\n  resourceGroups:\n    - coveredResources: [cpu, memory]\n      flavors:\n        - name: judged\n          resources: [{name: cpu, nominalQuota: 1, lendingLimit: 2}"),
    Judged("port-names", "port", _SERVICE, "[{port: 80, protocol: TCP}]", "[{port: 80}, {port: 81}]"),
    Judged("port-twice", "port", _SERVICE, "[{port: 80, protocol: TCP}]", "[{name: a, port: 80}, {name: b, port: 80}]"),
    Judged("no-port", "port", _SERVICE, "  ports: [{port: 80, protocol: TCP}]\n", ""),
    Judged("node-port", "port", _SERVICE, "protocol: TCP", "nodePort: 30080"),
    Judged("base64", "schema", _SECRET, "tls.crt: YQ==", "tls.crt: a b"),
    Judged("keys", "one-of", _SECRET, ", tls.key: YQ==", ""),
    Judged("key", "name", _MAP, "a.b: c", "a/b: c"),
    Judged("size", "schema", _CLAIM, ", resources: {requests: {storage: 1Gi}}", ""),
    Judged("size-of-0", "range", _CLAIM, "1Gi", "0"),
    Judged("account", "schema", _BINDING, f", namespace: {NAMESPACE}", ""),
    Judged("verbs", "one-of", _ROLE, "verbs: [get]", "verbs: []"),
    Judged("urls", "one-of", _ROLE, 'apiGroups: [""], resources: [pods]', "nonResourceURLs: [/metrics]"),
    Judged("path", "name", _INGRESS, "path: /a", "path: a"),
    Judged("host", "name", _INGRESS, "host: example.org", "host: 'example.org:80'"),
    Judged("path-type", "word", _INGRESS, "pathType: Prefix", "pathType: prefix"),
    Judged("default", "range", _LIMITS, "default: {memory: 8Gi}", "default: {memory: 32Gi}"),
    Judged("hard", "resources", _HARD, "requests.nvidia.com/gpu", "gpu"),
    Judged("end-port", "range", _POLICY, "ingress: [{from", "ingress: [{ports: [{port: 90, endPort: 80}], from"),
    Judged("target", "one-of", _SCALER, ", averageUtilization: 70", ""),
    Judged("share", "range", _BUDGET, "maxUnavailable: 1", "maxUnavailable: 150%"),
    Judged("zone", "schedule", _CRON, 'schedule: "30 2 * * *"', 'schedule: "30 2 * * *"\n  timeZone: Europe/Berln'),
    Judged("pod-field", "variable", _DEPLOYMENT, "{name: A_B, value: c}", "{name: A_B, valueFrom: {fieldRef: {fieldPath: status.podIp}}}"),
    Judged("pod-amount", "variable", _DEPLOYMENT, "{name: A_B, value: c}", "{name: A_B, valueFrom: {resourceFieldRef: {resource: limits.nvidia.com/gpu}}}"),
    Judged("no-source", "one-of", _DEPLOYMENT, "{name: A_B, value: c}", "{name: A_B, valueFrom: {}}"),
    Judged("windows", "one-of", _DEPLOYMENT, "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 60\n      os: {name: windows}\n      securityContext: {runAsUser: 1000}"),
    Judged("host-process", "one-of", _DEPLOYMENT, "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 60\n      securityContext: {windowsOptions: {hostProcess: true}}"),
    Judged("message-policy", "word", _DEPLOYMENT, "image: registry", "terminationMessagePolicy: Fallback\n          image: registry"),
    Judged("constraint-twice", "one-of", _DEPLOYMENT, "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 60\n      topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}, {maxSkew: 2, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]"),
    Judged("pod-claim", "one-of", _DEPLOYMENT, "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 60\n      resourceClaims: [{name: g}]"),
    Judged("hook-actions", "one-of", _DEPLOYMENT, "preStop: {sleep: {seconds: 20}}", "preStop: {}"),
    Judged("exit-order", "range", _JOB, "suspend: true", "suspend: true\n  podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [3, 1]}}]}"),
    Judged("steps", "range", _SCALER, "spec:\n", "spec:\n  behavior: {scaleDown: {policies: [{type: Pods, value: 1, periodSeconds: 3600}]}}\n"),
    Judged("steps-type", "word", _SCALER, "spec:\n", "spec:\n  behavior: {scaleDown: {policies: [{type: Pod, value: 1, periodSeconds: 60}]}}\n"),
    Judged("limit-unit", "quantity", _LIMITS, "default: {memory: 8Gi}", "default: {memory: 8GB}"),
    Judged("no-percent", "range", _BUDGET, "maxUnavailable: 1", "maxUnavailable: '50'"),
)  # fmt: skip
