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
)  # fmt: skip
