"""Forms of values that the API server of Kubernetes 1.36 refuses, or with which a pod waits forever: one change to a manifest that it takes."""

import pytest
from support.lint_errors import assert_refused, errors_of

POD = """apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  shareProcessNamespace: true
  hostPID: false
  hostUsers: false
  dnsPolicy: None
  dnsConfig: {nameservers: [10.0.0.10, "fd00::a"], searches: [a.svc.cluster.local, _b.example.org., "."], options: [{name: ndots, value: "2"}]}
  hostAliases: [{ip: 10.0.0.1, hostnames: [a.example.org, b]}]
  securityContext: {sysctls: [{name: net.core.somaxconn, value: "1024"}, {name: net/ipv4/ip_forward, value: "1"}]}
  tolerations: [{key: example.org/team, operator: Equal, value: a}]
  schedulingGates: [{name: example.org/one}, {name: example.org/two}]
  containers:
    - name: c
      image: a:1
      securityContext: {allowPrivilegeEscalation: false, procMount: Unmasked, capabilities: {add: [SYS_PTRACE]}}
  affinity:
    podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {a: b}}}]}
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
          - matchExpressions: [{key: cores, operator: Gt, values: ["8"]}]
            matchFields: [{key: metadata.name, operator: In, values: [node-1]}]
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}]
  volumes:
    - {name: h, hostPath: {path: /data/a}}
    - {name: s, secret: {secretName: a, items: [{key: b, path: c/d}]}}
    - {name: d, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
    - {name: p, projected: {sources: [{serviceAccountToken: {path: token}}, {configMap: {name: a, items: [{key: b, path: e}]}}]}}
    - {name: e, emptyDir: {medium: Memory, sizeLimit: 1Gi}}
    - {name: g, emptyDir: {medium: HugePages-2Mi}}
    - name: f
      ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 4Gi}}}}}
"""
ON_HOST = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {hostPID: true, hostIPC: true, hostNetwork: true, hostUsers: true, shareProcessNamespace: false, securityContext: {sysctls: [{name: vm.max_map_count, value: '1'}]}, containers: [{name: c, image: 'a:1', volumeDevices: [{name: b, devicePath: /dev/b}]}], volumes: [{name: b, persistentVolumeClaim: {claimName: b}}]}\n"
STATEFUL = """apiVersion: apps/v1
kind: StatefulSet
metadata: {name: a}
spec:
  serviceName: peers
  updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: 'a:1', volumeMounts: [{name: v, mountPath: /v}]}]}}
  volumeClaimTemplates: [{metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
"""
PRIORITY = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: a-system}\nvalue: 1000\n"
SYSTEM = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: system-node-critical}\nvalue: 2000001000\n"
LOCAL = """apiVersion: v1
kind: PersistentVolume
metadata: {name: a}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: local
  local: {path: /mnt/a}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [a]}]}]}}
"""
JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {managedBy: example.org/controller, template: {spec: {restartPolicy: Never, containers: [{name: c, image: 'a:1'}]}}}\n"
CRON = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec: {schedule: '0 3 * * *', jobTemplate: {spec: {managedBy: example.org/controller, template: {spec: {restartPolicy: Never, containers: [{name: c, image: 'a:1'}]}}}}}\n"
SET = """apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: a}
spec:
  managedBy: example.org/controller
  volumeClaimPolicies: [{templates: [{metadata: {name: v}, spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}}]}]
  replicatedJobs:
    - name: w
      template:
        spec:
          parallelism: 4
          completions: 4
          backoffLimitPerIndex: 1
          podFailurePolicy: {rules: [{action: FailIndex, onExitCodes: {containerName: c, operator: In, values: [1, 3]}}]}
          successPolicy: {rules: [{succeededIndexes: "0"}]}
          template: {spec: {restartPolicy: Never, containers: [{name: c, image: "a:1"}]}}
"""

# a sentence, the rule, the manifest that is taken, what is changed, and to what
ROWS = [
    ("a capability that is an escalation", "one-of", POD, "SYS_PTRACE", "CAP_SYS_ADMIN"),
    ("users of its own and the network of the host", "one-of", POD, "  hostPID: false\n", "  hostNetwork: true\n"),
    ("users of its own and the memory of the host", "one-of", POD, "  hostPID: false\n", "  hostIPC: true\n"),
    ("users of its own and a device", "one-of", ON_HOST.replace("hostPID: true, hostIPC: true, hostNetwork: true, ", ""), "hostUsers: true", "hostUsers: false"),
    ("processes of the host and of its own pod", "one-of", ON_HOST, "shareProcessNamespace: false", "shareProcessNamespace: true"),
    ("the whole of /proc with users of the host", "one-of", POD, "  hostUsers: false\n", ""),
    ("a sysctl in capitals", "name", POD, "net.core.somaxconn", "NET.core.somaxconn"),
    ("a sysctl with a space", "name", POD, "net.core.somaxconn", "'net.core somaxconn'"),
    ("a sysctl that is given twice", "one-of", POD, "net/ipv4/ip_forward", "net.core.somaxconn"),
    ("a sysctl of the host's network", "one-of", ON_HOST, "vm.max_map_count", "net.core.somaxconn"),
    ("a sysctl of the host's memory", "one-of", ON_HOST, "vm.max_map_count", "kernel.shmmax"),
    ("an alias without an address", "cidr", POD, "ip: 10.0.0.1", "ip: a.example.org"),
    ("an address with zeros in front", "cidr", POD, "10.0.0.1,", "10.0.0.01,"),
    ("an alias in capitals", "name", POD, "hostnames: [a.example.org", "hostnames: [A.example.org"),
    ("an alias with a wildcard", "name", POD, "hostnames: [a.example.org", "hostnames: ['*.example.org'"),
    ("a name server that is a name", "cidr", POD, "nameservers: [10.0.0.10", "nameservers: [dns.example.org"),
    ("four name servers", "range", POD, "nameservers: [10.0.0.10", "nameservers: [10.0.0.1, 10.0.0.2, 10.0.0.10"),
    ("a search in capitals", "name", POD, "searches: [a.svc", "searches: [A.svc"),
    ("an option of DNS without a name", "schema", POD, "{name: ndots, value", "{value"),
    ("a toleration of a key with a space", "label", POD, "key: example.org/team", "key: example.org/the team"),
    ("a toleration of a value with a space", "label", POD, "value: a}]", "value: a b}]"),
    ("a gate that is given twice", "one-of", POD, "example.org/two", "example.org/one"),
    ("a gate with a space", "name", POD, "example.org/two", "example.org/t wo"),
    ("a place of an affinity with a space", "selector", POD, "topologyKey: kubernetes.io/hostname", "topologyKey: kubernetes.io/host name"),
    ("a place of a spread with a space", "selector", POD, "topologyKey: topology.kubernetes.io/zone", "topologyKey: the zone"),
    ("a comparison with text", "selector", POD, '["8"]', "[eight]"),
    ("a field that no selector has", "selector", POD, "key: metadata.name, ", "key: spec.providerID, "),
    ("an operator that no field has", "selector", POD, "operator: In, values: [node-1]", "operator: Exists"),
    ("two values of a field", "selector", POD, "[node-1]", "[node-1, node-2]"),
    ("a path above a path of the host", "volume", POD, "/data/a}", "/data/../a}"),
    ("a path of a key above the volume", "volume", POD, "path: c/d", "path: ../d"),
    ("a path of a key with a slash", "volume", POD, "path: c/d", "path: /c/d"),
    ("a path that begins with two dots", "volume", POD, "path: c/d", "path: ..d"),
    ("a path of a field above the volume", "volume", POD, "path: labels", "path: a/../../b"),
    ("a path of a token above the volume", "volume", POD, "path: token", "path: ../token"),
    ("a path of a key of a source above the volume", "volume", POD, "path: e}", "path: ../e}"),
    ("a size below 0", "range", POD, "sizeLimit: 1Gi", "sizeLimit: -1Gi"),
    ("memory in lower case", "word", POD, "medium: Memory", "medium: memory"),
    ("huge pages in lower case", "word", POD, "HugePages-2Mi", "hugepages-2Mi"),
    ("a volume of a pod without a size", "schema", POD, ", resources: {requests: {storage: 4Gi}}", ""),
    ("a volume of a pod without a mode", "schema", POD, "accessModes: [ReadWriteOnce], ", ""),
    ("a volume of a pod without a template", "schema", POD, "{volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 4Gi}}}}}", "{}"),
    ("a service of a set in capitals", "name", STATEFUL, "serviceName: peers", "serviceName: Peers"),
    ("a partition of pods that nobody updates", "one-of", STATEFUL, "type: RollingUpdate", "type: OnDelete"),
    ("a partition below 0", "range", STATEFUL, "partition: 1", "partition: -1"),
    ("a claim of a set without a size", "schema", STATEFUL, ", resources: {requests: {storage: 1Gi}}", ""),
    ("a priority with the prefix of the system", "name", PRIORITY, "a-system", "system-a"),
    ("a priority of the system with another value", "range", SYSTEM, "2000001000", "1000"),
    ("a priority above that of users", "range", PRIORITY, "value: 1000", "value: 1000000001"),
    ("a local volume of no node", "schema", LOCAL, "  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [a]}]}]}}\n", ""),
    ("a local volume of unknown nodes", "schema", LOCAL, "{required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [a]}]}]}}", "{}"),
    ("a path above a local volume", "volume", LOCAL, "/mnt/a", "/mnt/../a"),
    ("a volume of nothing", "range", LOCAL, "storage: 1Gi", "storage: '0'"),
    ("a manager without a domain", "name", JOB, "example.org/controller", "controller"),
    ("a manager without a name", "name", JOB, "example.org/controller", "example.org/"),
    ("a manager of scheduled jobs without a domain", "name", CRON, "example.org/controller", "controller"),
    ("a manager of a set without a domain", "name", SET, "example.org/controller", "controller"),
    ("exit codes of a set out of order", "range", SET, "[1, 3]", "[3, 1]"),
    ("a container that the pods of a set lack", "container", SET, "containerName: c", "containerName: d"),
    ("an index beyond the last of a set", "range", SET, 'succeededIndexes: "0"', 'succeededIndexes: "4"'),
    ("an index that fails without its limit", "one-of", SET, "          backoffLimitPerIndex: 1\n", ""),
    ("jobs of a set without completions", "one-of", SET.replace('          successPolicy: {rules: [{succeededIndexes: "0"}]}\n', ""), "          completions: 4\n", ""),
    ("a claim of a set of jobs without a size", "schema", SET, ", resources: {requests: {storage: 1Gi}}", ""),
]  # fmt: skip
FINE = [
    ("huge pages of the default size", POD.replace("HugePages-2Mi", "HugePages")),
    ("the disk of the node", POD.replace("medium: Memory", "medium: ''")),
    ("a file with two dots in its name", POD.replace("path: c/d", "path: c..d")),
    ("a path of a field with two dots in its name", POD.replace("path: labels", "path: a..b")),
    ("the administrator's capability by its short name", POD.replace("SYS_PTRACE", "SYS_ADMIN")),
    ("pods that nobody updates", STATEFUL.replace("type: RollingUpdate, rollingUpdate: {partition: 1}", "type: OnDelete")),
    ("a priority of the system as it is", SYSTEM),
    ("a JobSet of one pod each", SET.replace("          parallelism: 4\n          completions: 4\n", "")),
    ("a JobSet whose jobs have no indexes", SET.replace("          completions: 4\n          backoffLimitPerIndex: 1\n", "          completionMode: NonIndexed\n").replace("action: FailIndex", "action: FailJob").replace('          successPolicy: {rules: [{succeededIndexes: "0"}]}\n', "")),
    ("a wish to spread over what no node has", POD.replace("topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule", "topologyKey: the zone, whenUnsatisfiable: ScheduleAnyway")),
    ("a comparison with text beside another term", POD.replace("- matchExpressions: [{key: cores, operator: Gt, values: [\"8\"]}]", "- matchExpressions: [{key: a, operator: Exists}]\n          - matchExpressions: [{key: cores, operator: Gt, values: [eight]}]")),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "taken", "old", "new"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])  # fmt: skip
def test_change_is_refused_by_its_rule(rule: str, taken: str, old: str, new: str) -> None:
    assert_refused(rule, taken, old, new)


@pytest.mark.parametrize("written", [row[1] for row in FINE], ids=[row[0] for row in FINE])
def test_near_miss_is_no_error(written: str) -> None:
    assert errors_of(written) == set()


def test_zeros_in_front_of_an_address_are_refused_since_1_36() -> None:
    """StrictIPCIDRValidation is on by default since 1.36."""
    assert errors_of(POD.replace("10.0.0.1,", "10.0.0.01,"), "1.35") == set()
