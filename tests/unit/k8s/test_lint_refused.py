"""What an API server or a webhook refuses and the judged manifests do not hold: one change to a manifest that it takes."""

import pytest
from support.lint_errors import assert_refused, errors_of

from gpucluster.k8s.lint import Facts, Severity, check
from gpucluster.k8s.lint.read import read

POD = """apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  securityContext: {seccompProfile: {type: RuntimeDefault}, fsGroup: 0}
  initContainers: [{name: i, image: "a:1", restartPolicy: Always, livenessProbe: {tcpSocket: {port: 80}}}]
  containers:
    - name: c
      image: a:1
      ports: [{name: h, containerPort: 80, hostPort: 80}, {name: g, containerPort: 81}]
      readinessProbe: {tcpSocket: {port: 80}}
      securityContext: {allowPrivilegeEscalation: false}
      volumeMounts: [{name: v, mountPath: /v, subPath: a}]
  volumes: [{name: v, secret: {secretName: a, defaultMode: 0400}}]
  affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Gt, values: ["1"]}]}}]}}
  topologySpreadConstraints: [{maxSkew: 1, minDomains: 2, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule}]
"""
GROUP = """apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: a}
spec:
  rolloutStrategy: {type: RollingUpdate, rollingUpdateConfiguration: {maxUnavailable: 1}}
  leaderWorkerTemplate: {size: 2, workerTemplate: {spec: {containers: [{name: c, image: "a:1"}]}}}
"""
SET = """apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: a}
spec:
  coordinator: {replicatedJob: w, jobIndex: 1, podIndex: 3}
  replicatedJobs: [{name: w, replicas: 2, template: {spec: {parallelism: 4, completions: 4, template: {spec: {containers: [{name: c, image: "a:1"}]}}}}}]
"""
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: NodePort, ports: [{port: 80, nodePort: 30080}]}\n"
NAMED = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: ExternalName, externalName: a.example.org}\n"
SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ntype: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: '{}'}\n"
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b}\nbinaryData: {c: YQ==}\n"
CLAIM = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
VOLUME = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {accessModes: [ReadWriteMany], capacity: {storage: 1Gi}, nfs: {server: a, path: /}}\n"
BINDING = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: a}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: a}\nsubjects: [{kind: ServiceAccount, name: a}]\n"
LIMITS = "apiVersion: v1\nkind: LimitRange\nmetadata: {name: a}\nspec: {limits: [{type: Container, min: {cpu: 1}, max: {cpu: 2}}]}\n"
INGRESS = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\nspec: {defaultBackend: {service: {name: a, port: {number: 80}}}}\n"
SETS = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a}\nspec: {updateStrategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: 'a:1'}]}}}\n"
DEPLOYMENT = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {minReadySeconds: 60, progressDeadlineSeconds: 61, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: 'a:1'}]}}}\n"
JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {completionMode: Indexed, completions: 4, backoffLimitPerIndex: 1, maxFailedIndexes: 2, template: {spec: {restartPolicy: Never, containers: [{name: c, image: 'a:1'}]}}}\n"
POLICY = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 80, endPort: 90}]}]}\n"
CLASS = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: a}\nprovisioner: example.org/a\nvolumeBindingMode: WaitForFirstConsumer\n"

RANGED = """apiVersion: v1
kind: LimitRange
metadata: {name: r}
spec:
  limits:
    - {type: Container, default: {memory: 4Gi}, max: {cpu: 4}, min: {cpu: 100m}}
    - {type: PersistentVolumeClaim, min: {storage: 1Gi}, max: {storage: 10Gi}}
    - {type: Container, maxLimitRequestRatio: {cpu: 4}}
    - {type: Pod, max: {memory: 6Gi, nvidia.com/gpu: 8}, min: {memory: 5Gi}, maxLimitRequestRatio: {cpu: 4}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: a}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: 'a:1', resources: {requests: {memory: 4Gi, cpu: 1}, limits: {cpu: 4, nvidia.com/gpu: 8}}}, {name: d, image: 'a:1', resources: {limits: {memory: 2Gi, cpu: 1}}}]}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: a}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}
"""

# a sentence, the rule, the manifest that is taken, what is changed, and to what
ROWS = [
    ("memory above the default limit of its namespace", "resources", RANGED, "{memory: 4Gi, cpu: 1}", "{memory: 5Gi, cpu: 1}"),
    ("cpu above the most of its namespace", "resources", RANGED, "requests: {memory: 4Gi, cpu: 1}, limits: {cpu: 4, n", "requests: {memory: 4Gi, cpu: 2}, limits: {cpu: 5, n"),
    ("cpu above the most, which is the limit of its namespace", "resources", RANGED, "cpu: 1}, limits: {cpu: 4, n", "cpu: 5}, limits: {n"),
    ("cpu below the least of its namespace", "resources", RANGED, "cpu: 1}, limits: {cpu: 4, n", "cpu: 50m}, limits: {cpu: 50m, n"),
    ("memory of two containers above the most of a pod", "resources", RANGED, "limits: {memory: 2Gi, cpu: 1}", "limits: {memory: 3Gi, cpu: 1}"),
    ("memory below the least of a pod", "resources", RANGED, "{memory: 4Gi, cpu: 1}", "{memory: 2Gi, cpu: 1}"),
    ("GPUs above the most of a pod", "resources", RANGED, "limits: {memory: 2Gi, cpu: 1}", "limits: {memory: 2Gi, cpu: 1, nvidia.com/gpu: 1}"),
    ("a limit that is too many times its request", "resources", RANGED, "requests: {memory: 4Gi, cpu: 1}", "requests: {memory: 4Gi, cpu: 900m}"),
    ("limits that are too many times the requests of a pod", "resources", RANGED, "min: {memory: 5Gi}, maxLimitRequestRatio: {cpu: 4}", "min: {memory: 5Gi}, maxLimitRequestRatio: {cpu: 2}"),
    ("a pod that asks for more than the most", "resources", RANGED, "{restartPolicy: Never, containers", "{restartPolicy: Never, resources: {limits: {memory: 7Gi}}, containers"),
    ("a claim above the most of its namespace", "resources", RANGED, "storage: 2Gi", "storage: 20Gi"),
    ("a port of the host that is another", "port", POD, "hostPort: 80", "hostPort: 82"),
    ("two ports of one name", "port", POD, "name: g", "name: h"),
    ("a probe of an init container", "one-of", POD, "restartPolicy: Always, ", ""),
    ("a grace period of a readiness probe", "one-of", POD, "readinessProbe: {", "readinessProbe: {terminationGracePeriodSeconds: 3, "),
    ("a profile of the node without its name", "one-of", POD, "RuntimeDefault", "Localhost"),
    ("privileged and without escalation", "one-of", POD, "{allowPriv", "{privileged: true, allowPriv"),
    ("a group below 0", "range", POD, "fsGroup: 0", "fsGroup: -1"),
    ("a path above the volume", "volume", POD, "subPath: a", "subPath: ../a"),
    ("a mode in decimal that is too large", "range", POD, "0400", "7777"),
    ("a weight of 0", "range", POD, "weight: 1", "weight: 0"),
    ("two values of one comparison", "selector", POD, '["1"]', '["1", "2"]'),
    ("least domains of a wish", "one-of", POD, "DoNotSchedule", "ScheduleAnyway"),
    ("a group of nobody", "range", GROUP, "size: 2", "size: 0"),
    ("groups that cannot move", "range", GROUP, "maxUnavailable: 1", "maxUnavailable: 0"),
    ("a job that is not there", "depends-on", SET, "jobIndex: 1", "jobIndex: 2"),
    ("a pod that is not there", "depends-on", SET, "podIndex: 3", "podIndex: 4"),
    ("a balancer without an address", "one-of", SERVICE, "type: NodePort", "type: LoadBalancer, clusterIP: None"),
    ("a port of the node of a plain service", "port", SERVICE, "type: NodePort", "type: ClusterIP"),
    ("a name without a name", "one-of", NAMED, ", externalName: a.example.org", ""),
    ("a registry's secret under another key", "one-of", SECRET, ".dockerconfigjson: ", "config.json: "),
    ("a map beyond one MiB", "range", MAP, "a: b", f"a: {'b' * 2**20}"),
    ("a Secret beyond one MiB", "range", SECRET, "'{}'", f"'{{\"a\": \"{'b' * 2**20}\"}}'"),
    ("a key that is given twice", "one-of", MAP, "{c: YQ==}", "{a: YQ==}"),
    ("two modes beside that of one pod", "one-of", CLAIM, "[ReadWriteOnce]", "[ReadWriteOnce, ReadWriteOncePod]"),
    ("a claim without a mode", "schema", CLAIM, "accessModes: [ReadWriteOnce], ", ""),
    ("a volume without a size", "schema", VOLUME, "capacity: {storage: 1Gi}, ", ""),
    ("a role of another group", "word", BINDING, "apiGroup: rbac.authorization.k8s.io", "apiGroup: v1"),
    ("an account of no namespace in a cluster", "schema", BINDING.replace("RoleBinding", "ClusterRoleBinding").replace("kind: Role,", "kind: ClusterRole,").replace("name: a}]", "name: a, namespace: b}]"), ", namespace: b", ""),
    ("a least above the most", "range", LIMITS, "min: {cpu: 1}", "min: {cpu: 3}"),
    ("an Ingress to nothing", "one-of", INGRESS, "{defaultBackend: {service: {name: a, port: {number: 80}}}}", "{ingressClassName: a}"),
    ("daemons that cannot move", "range", SETS, "maxUnavailable: 1", "maxUnavailable: 0"),
    ("a deadline before a pod is ready", "range", DEPLOYMENT, "61", "60"),
    ("failed indexes without their limit", "one-of", JOB, "backoffLimitPerIndex: 1, ", ""),
    ("a block beside a selector", "one-of", POLICY, "10.0.0.0/8}", "10.0.0.0/8}, podSelector: {}"),
    ("a binding mode in the plural", "word", CLASS, "WaitForFirstConsumer", "WaitForFirstConsumers"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "taken", "old", "new"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])  # fmt: skip
def test_change_is_refused_by_its_rule(rule: str, taken: str, old: str, new: str) -> None:
    assert_refused(rule, taken, old, new)


FINE = [
    ("a subject in the namespace of its binding", BINDING),
    ("an indexed job of one pod", JOB.replace("completions: 4, ", "")),
    ("a service without a port for one pod each", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: None, selector: {a: b}}\n"),
    ("one port of two protocols", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {selector: {a: b}, ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]}\n"),
    ("base64 of several lines", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: \"YWJj\\nYWJj\\n\", b: ''}\n"),
    ("a host of a wildcard", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\nspec: {rules: [{host: '*.example.org'}]}\n"),
    ("a path that its controller reads", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\nspec: {rules: [{http: {paths: [{pathType: ImplementationSpecific, backend: {service: {name: a, port: {name: b}}}}]}}]}\n"),
    ("a list of nothing", "apiVersion: v1\nkind: List\n"),
    ("resources of a whole pod", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {resources: {limits: {cpu: 1, memory: 1Gi}}, containers: [{name: c, image: 'a:1'}]}\n"),
    ("memory above the default of another namespace", RANGED.replace("memory: 4Gi, cpu", "memory: 5Gi, cpu").replace("metadata: {name: r}", "metadata: {name: r, namespace: other}")),
    ("memory with a limit of its own", RANGED.replace("memory: 4Gi, cpu", "memory: 5Gi, cpu").replace("limits: {cpu: 4, n", "limits: {cpu: 4, memory: 6Gi, n").replace("max: {memory: 6Gi", "max: {memory: 8Gi")),
    ("an init container that runs before the others", RANGED.replace("{name: d, image: 'a:1', resources: {limits: {memory: 2Gi, cpu: 1}}}]", "{name: d, image: 'a:1', resources: {limits: {memory: 2Gi, cpu: 1}}}], initContainers: [{name: i, image: 'a:1', resources: {limits: {memory: 6Gi, cpu: 4}}}]")),
    ("objects in a quota", "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: a}\nspec: {hard: {pods: 1, count/jobs.batch: 1, gold.storageclass.storage.k8s.io/requests.storage: 1Gi, services.loadbalancers: 0}}\n"),
]  # fmt: skip


@pytest.mark.parametrize("written", [row[1] for row in FINE], ids=[row[0] for row in FINE])
def test_near_miss_is_taken(written: str) -> None:
    assert errors_of(written) == set()


def test_limit_that_another_range_can_give_is_missing() -> None:
    """A maximum of a pod gives no default: without a limit each pod is refused."""
    written = "apiVersion: v1\nkind: LimitRange\nmetadata: {name: r}\nspec: {limits: [{type: Pod, max: {cpu: 8}}]}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: 'a:1'}]}\n"
    for whole, level in ((True, Severity.ERROR), (False, Severity.WARNING)):
        found = check(read(written, "a.yaml").documents, Facts(kubernetes="1.36", whole=whole))
        assert [(one.rule, one.level) for one in found] == [("resources", level)]
        assert "write a limit" in found[0].message
    given = written.replace("[{type: Pod", "[{type: Container, default: {cpu: 1}}, {type: Pod")
    assert check(read(given, "a.yaml").documents, Facts(kubernetes="1.36")) == ()


def test_port_of_a_node_outside_of_the_usual_range_is_a_warning() -> None:
    """A flag of the server sets the range."""
    found = check(read(SERVICE.replace("30080", "8080"), "a.yaml").documents, Facts(kubernetes="1.36"))
    assert [(one.rule, one.level) for one in found if one.rule == "port"] == [("port", Severity.WARNING)]
