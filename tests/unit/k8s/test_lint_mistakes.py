"""Mistakes that cost GPUs, rights or names: one change to a sound manifest, and the rule that reports it."""

import pytest

from gpucluster.k8s.lint import Facts, Severity, check
from gpucluster.k8s.lint.read import read

POD = """apiVersion: v1
kind: Pod
metadata: {name: a, annotations: {note: b}}
spec:
  nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge, kubernetes.io/arch: amd64, topology.kubernetes.io/zone: a, nvidia.com/gpu.product: H100}
  affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]}}]}}
  containers:
    - name: c
      image: registry.example.org/a:1
      command: [torchrun, --nproc-per-node=8, a.py]
      env: [{name: NCCL_SOCKET_IFNAME, value: eth0}, {name: NVIDIA_VISIBLE_DEVICES, value: void}]
      resources: {limits: {nvidia.com/gpu: 8, memory: 16Gi}}
      livenessProbe: {tcpSocket: {port: 80}, initialDelaySeconds: 600}
      volumeMounts: [{name: s, mountPath: /dev/shm}]
  volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]
"""
JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: a, labels: {kueue.x-k8s.io/queue-name: b}}
spec:
  suspend: true
  completionMode: Indexed
  completions: 2
  parallelism: 2
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}
      containers:
        - name: c
          image: registry.example.org/a:1
          env: [{name: NCCL_SOCKET_IFNAME, value: eth0}]
          resources: {limits: {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 32}}
          volumeMounts: [{name: s, mountPath: /dev/shm}]
      volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]
"""
SIZED = JOB.replace("{limits: {nvidia", "{requests: {cpu: 190}, limits: {memory: 1800Gi, nvidia")
EITHER = SIZED.replace("nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}", "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: node.kubernetes.io/instance-type, operator: In, values: [p4d.24xlarge, p5.48xlarge]}]}]}}}").replace("efa: 32", "efa: 4")  # fmt: skip
QUEUE = """apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: a}
spec:
  namespaceSelector: {}
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: a, resources: [{name: cpu, nominalQuota: 1}]}]}]
"""
ROLE = """apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: a}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
"""
QUOTA = (
    "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: a}\nspec: {hard: {requests.nvidia.com/gpu: 8}}\n"
)
LEADER = """apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: a}
rules:
  - {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [leader], verbs: [get, update]}
  - {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
"""
SCALED = """apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: a}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}, maxReplicas: 3}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: b}
spec: {scaleTargetRef: {name: b}, minReplicaCount: 1, maxReplicaCount: 3, triggers: [{type: cpu, metadata: {value: "60"}}]}
"""
NODES = """apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: a}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}
      expireAfter: Never
      requirements:
        - {key: kubernetes.io/arch, operator: In, values: [amd64]}
        - {key: karpenter.k8s.aws/instance-gpu-count, operator: Gt, values: ["3"]}
        - {key: karpenter.k8s.aws/instance-category, operator: In, values: [g, p]}
        - {key: node.kubernetes.io/instance-type, operator: In, values: [g6.xlarge, g6.12xlarge]}
"""
FABRIC = JOB.replace(
    "{name: NCCL_SOCKET_IFNAME, value: eth0}",
    "{name: NCCL_SOCKET_IFNAME, value: eth0}, {name: NCCL_DEBUG, value: Info}, {name: FI_PROVIDER, value: efa}",
)
SPREAD = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}], containers: [{name: c, image: 'a:1', resources: {limits: {nvidia.com/mig-1g.5gb: 1}}}]}}}\n"
SERVED = """apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  replicas: 2
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      containers: [{name: c, image: "registry.example.org/a:1"}]
      volumes: [{name: v, persistentVolumeClaim: {claimName: v}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: v}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: a}
spec: {minAvailable: 1, selector: {matchLabels: {app: a}}}
---
apiVersion: v1
kind: Service
metadata: {name: a, labels: {app: a}}
spec: {selector: {app: a}, ports: [{name: http, port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: a}
spec: {rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}]}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: a}
spec: {selector: {matchLabels: {app: a}}, endpoints: [{port: http}]}
"""
TRAIN = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: a}
spec:
  runtimeRef: {name: torch-distributed}
  trainer: {numNodes: 4, image: "a:1", command: [torchrun, --nnodes=4, a.py]}
"""
SERVER = """apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  tolerations: [{key: nvidia.com/gpu, operator: Exists}]
  containers:
    - name: c
      image: registry.example.org/vllm:1
      command: [vllm, serve, a/b, --port, '8000']
      env: [{name: A, value: b}, {name: URL, value: $(A)/v1}]
      ports: [{name: http, containerPort: 8000}, {name: metrics, containerPort: 9000}]
      readinessProbe: {httpGet: {path: /health, port: 8000}}
      resources: {limits: {ephemeral-storage: 10Gi}}
      volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, emptyDir: {sizeLimit: 10Gi}}]
"""
RAY_IMAGES = """apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: a}
spec:
  headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: h, image: "rayproject/ray:2.46.0-py310"}]}}}
  workerGroupSpecs: [{groupName: a, rayStartParams: {}, template: {spec: {containers: [{name: w, image: "rayproject/ray:2.46.0-py310-gpu"}]}}}]
"""
RANKS = """apiVersion: batch/v1
kind: Job
metadata: {name: a}
spec:
  completionMode: Indexed
  completions: 4
  parallelism: 4
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      initContainers: [{name: i, image: "a:1", resources: {limits: {nvidia.com/gpu: 1}}}]
      containers:
        - name: c
          image: registry.example.org/a:1
          command: [sh, -c, "torchrun --nnodes=4 a.py && accelerate launch --num_machines 4 --num_processes 32 b.py"]
          env: [{name: WORLD_SIZE, value: "32"}, {name: NNODES, value: "4"}, {name: GPUS_PER_NODE, value: "8"}, {name: CUDA_VISIBLE_DEVICES, value: "0,1,2,7"}]
          resources: {limits: {nvidia.com/gpu: 8}}
          volumeMounts: [{name: s, mountPath: /dev/shm}]
      volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]
"""
GROUP = """apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: a}
spec:
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        containers:
          - name: c
            image: registry.example.org/a:1
            args: [--tensor-parallel-size=8, --pipeline_parallel_size=2, --ray_cluster_size=2]
            resources: {limits: {nvidia.com/gpu: 8}}
            volumeMounts: [{name: s, mountPath: /dev/shm}]
        volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]
"""
RELEASE = """apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: a}
spec: {interval: 1h, chart: {spec: {chart: a, sourceRef: {kind: HelmRepository, name: a}}}, values: {adminPassword: "", token: a-name, list: [{hub: b}]}}
"""
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b}\n"
TOKEN = "hf_" + "a" * 30
NO_GPU = "limits: {memory: 16Gi}"
GPUS = "limits: {nvidia.com/gpu: 8, memory: 16Gi}"

# a sentence, the rule, the sound manifest, what is changed, and to what
ROUTED = """apiVersion: v1
kind: Service
metadata: {name: a, labels: {app: a}}
spec: {selector: {app: a}, ports: [{name: http, port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: a}
spec: {rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}]}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: a}
spec: {selector: {matchLabels: {app: a}}, endpoints: [{port: http, interval: 30s, scrapeTimeout: 10s}]}
"""
RANKED = """apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {priorityClassName: high, priority: 1000, containers: [{name: c, image: "a:1"}]}
"""
REMADE = """apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: a}
spec:
  leaderWorkerTemplate:
    size: 2
    restartPolicy: RecreateGroupOnPodRestart
    workerTemplate: {spec: {containers: [{name: c, image: "a:1", resources: {limits: {nvidia.com/gpu: 1}}}]}}
"""
CLASSES = """apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: a, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: ebs.csi.aws.com
parameters: {type: gp3}
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: b, annotations: {storageclass.kubernetes.io/is-default-class: "false"}}
provisioner: efs.csi.aws.com
"""
IDENTITY = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a, annotations: {eks.amazonaws.com/role-arn: 'arn:aws:iam::123456789012:role/team/a'}}\n"
DISKS = """apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: a}
spec:
  role: a
  amiSelectorTerms: [{alias: al2023@v20250610}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
  metadataOptions: {httpPutResponseHopLimit: 1}
  blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeSize: 500Gi, volumeType: gp3, iops: 6000}}, {deviceName: /dev/xvdb, ebs: {volumeSize: 500Gi, volumeType: gp3, throughput: 500}}]
"""
ROWS = [
    ("throughput below the least", "range", DISKS, "throughput: 500", "throughput: 50"),
    ("IOPS that no disk has", "range", DISKS, "iops: 6000", "iops: 300000"),
    ("throughput of another type of disk", "one-of", DISKS, "gp3, throughput", "io2, throughput"),
    ("IOPS of a disk that has none", "one-of", DISKS, "gp3, iops", "gp2, iops"),
    ("a name in place of an ARN", "annotation", IDENTITY, "arn:aws:iam::123456789012:role/team/a", "trainer"),
    ("an account of eleven digits", "annotation", IDENTITY, "123456789012", "12345678901"),
    ("an ARN with a colon too few", "annotation", IDENTITY, "iam::", "iam:"),
    ("an ARN of a policy", "annotation", IDENTITY, ":role/team/a", ":policy/a"),
    ("a type that EBS does not have", "word", CLASSES, "type: gp3", "type: gp4"),
    ("two default classes", "duplicate", CLASSES, '"false"', '"true"'),
    ("a time-out above the interval", "range", ROUTED, "scrapeTimeout: 10s", "scrapeTimeout: 1m"),
    ("a pod of a group that is made again alone", "gang-retries", REMADE, "RecreateGroupOnPodRestart", "None"),
    ("a group with its version", "empty-rule", ROLE, 'apiGroups: [""], resources: [pods]', "apiGroups: [apps/v1], resources: [deployments]"),
    ("a version in place of a group", "empty-rule", ROLE, '[""]', "[v1]"),
    ("an autoscaler of a Deployment in a group that is gone", "scaler-target", SCALED, "apiVersion: apps/v1, kind", "apiVersion: extensions/v1beta1, kind"),
    ("an autoscaler of a Deployment in the core group", "scaler-target", SCALED, "apiVersion: apps/v1, kind", "apiVersion: v1, kind"),
    ("a queue that is held", "suspended", QUEUE, "namespaceSelector: {}", "namespaceSelector: {}\n  stopPolicy: HoldAndDrain"),
    ("a priority beside another class", "range", RANKED, "priority: 1000", "priority: 5"),
    ("a port of a monitor in a part of a cluster", "port", ROUTED, "endpoints: [{port: http", "endpoints: [{port: metrics"),
    ("a port of a service in a part of a cluster", "port", ROUTED, "number: 80", "number: 81"),
    ("a word of a path in small letters", "word", ROUTED, "pathType: Prefix", "pathType: prefix"),
    ("GPUs in the plural", "device-name", POD, "nvidia.com/gpu: 8", "nvidia.com/gpus: 8"),
    ("GPUs of old Kubernetes", "device-name", POD, "nvidia.com/gpu: 8", "alpha.kubernetes.io/nvidia-gpu: 8"),
    ("EFA in the plural", "device-name", JOB, "vpc.amazonaws.com/efa: 32", "vpc.amazonaws.com/efas: 32"),
    ("a quota that counts nothing", "device-name", QUOTA, "requests.nvidia.com/gpu", "nvidia.com/gpu"),
    ("a quota of limits", "device-name", QUOTA, "requests.nvidia.com/gpu", "limits.nvidia.com/gpu"),
    ("a quota of GPUs in the plural", "device-name", QUOTA, "nvidia.com/gpu", "nvidia.com/gpus"),
    ("processes without GPUs", "gpu-without-limit", POD, GPUS, NO_GPU),
    ("all GPUs without a limit", "gpu-without-limit", POD.replace(GPUS, NO_GPU).replace("torchrun", "a"), "value: void", "value: all"),
    ("a type of machine under another prefix", "node-label-name", POD, "node.kubernetes.io/instance-type", "kubernetes.io/instance-type"),
    ("a zone in the plural", "node-label-name", POD, "topology.kubernetes.io/zone", "topology.kubernetes.io/zones"),
    ("a label of NVIDIA in the plural", "node-label-name", POD, "gpu.product", "gpu.products"),
    ("an architecture of another system", "node-label-name", POD, "amd64", "x86_64"),
    ("a type of capacity without its hyphen", "node-label-name", POD, "on-demand", "ondemand"),
    ("a machine that AWS does not have", "node-label-name", POD, "p5.48xlarge", "p5.24xlarge"),
    ("a probe that ends a slow start", "slow-start", POD, "initialDelaySeconds: 600", "initialDelaySeconds: 30"),
    ("a variable of NCCL in the plural", "fabric-variable", POD, "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAMES"),
    ("a gang on the loopback", "fabric-variable", JOB, "value: eth0", "value: lo"),
    ("one device of EFA of many", "no-efa", JOB, "vpc.amazonaws.com/efa: 32", "vpc.amazonaws.com/efa: 1"),
    ("all CPUs of the machine", "too-large", SIZED, "cpu: 190", "cpu: 192"),
    ("all memory of the machine", "too-large", SIZED, "memory: 1800Gi", "memory: 2048Gi"),
    ("all CPUs of the largest machine", "too-large", EITHER, "cpu: 190", "cpu: 192"),
    ("a queue as an annotation", "queue-label", JOB.replace("suspend: true", "suspend: false"), "labels: {kueue", "annotations: {kueue"),
    ("a misspelt label of a queue", "queue-label", JOB.replace("suspend: true", "suspend: false"), "queue-name:", "queuename:"),
    ("a suspended job without a queue", "suspended", JOB, ", labels: {kueue.x-k8s.io/queue-name: b}", ""),
    ("a queue of no namespace", "queue-namespaces", QUEUE, "  namespaceSelector: {}\n", ""),
    ("a way around the API server", "escalation-role", ROLE, "[pods]", "[nodes/proxy]"),
    ("tokens of each account", "escalation-role", ROLE.replace("[get]", "[create]"), "[pods]", "[serviceaccounts/token]"),
    ("the secrets of all namespaces", "escalation-role", ROLE, "[pods]", "[secrets]"),
    ("pods of a group that has none", "empty-rule", ROLE, '[""]', "[apps]"),
    ("a budget of the only pod", "budget", SERVED, "  replicas: 2\n", ""),
    ("a budget of all by an expression", "budget", SERVED, "{minAvailable: 1, selector: {matchLabels: {app: a}}}", "{minAvailable: 2, selector: {matchExpressions: [{key: app, operator: In, values: [a]}]}}"),
    ("a claim of one pod in a rolling update", "claim-sharing", SERVED.replace("replicas: 2", "replicas: 1").replace("minAvailable: 1", "maxUnavailable: 1"), "[ReadWriteMany]", "[ReadWriteOncePod]"),
    ("workers of another version of Ray", "rendezvous", RAY_IMAGES, "ray:2.46.0-py310-gpu", "ray:2.9.0-py310-gpu"),
    ("workers of another Python", "rendezvous", RAY_IMAGES, "ray:2.46.0-py310-gpu", "ray:2.46.0-py311-gpu"),
    ("a pod that is ready at another port", "port", SERVER, "port: 8000", "port: 8080"),
    ("a pod that is ready at another name", "port", SERVER, "port: 8000", "port: metrics"),
    ("a server at another port", "port", SERVER, "'8000'", "'8100'"),
    ("a taint of the device plugin in the plural", "device-name", SERVER, "key: nvidia.com/gpu,", "key: nvidia.com/gpus,"),
    ("a variable before its source", "variable", SERVER, "{name: A, value: b}, {name: URL, value: $(A)/v1}", "{name: URL, value: $(A)/v1}, {name: A, value: b}"),
    ("a volume beyond the disk of its container", "shm", SERVER, "sizeLimit: 10Gi", "sizeLimit: 11Gi"),
    ("retries of one index of a gang", "gang-retries", RANKS, "backoffLimit: 0", "backoffLimitPerIndex: 1"),
    ("a level of a topology under another word", "queue-label", JOB.replace("template:\n    spec", "template:\n    metadata: {annotations: {kueue.x-k8s.io/podset-preferred-topology: kubernetes.io/hostname}}\n    spec"), "podset-preferred-topology", "podset-prefered-topology"),
    ("a verb that no request has", "empty-rule", ROLE, "verbs: [get]", "verbs: [read]"),
    ("a part that pods do not have", "empty-rule", ROLE, "[pods]", "[pods/logs]"),
    ("one pod as a resource", "empty-rule", ROLE, "[pods]", "[pod]"),
    ("a kind as a resource", "empty-rule", ROLE, "[pods]", "[ConfigMap]"),
    ("to create what has a name", "empty-rule", LEADER, "update]}\n  - {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}", "update, create]}"),
    ("a ScaledObject beside an autoscaler", "scaler-target", SCALED, "{name: b}, minReplicaCount", "{name: a}, minReplicaCount"),
    ("machines of another architecture", "node-pool-limit", NODES, "amd64", "arm64"),
    ("machines with fewer GPUs", "node-pool-limit", NODES, '["3"]', '["4"]'),
    ("machines of another category", "node-pool-limit", NODES, "[g, p]", "[p]"),
    ("a level of NCCL that is none", "fabric-variable", FABRIC, "value: Info", "value: verbose"),
    ("a provider that is none", "fabric-variable", FABRIC, "value: efa", "value: aws"),
    ("an interface of InfiniBand beside EFA", "fabric-variable", FABRIC, "value: eth0", "value: ib0"),
    ("a spread that counts no pod", "spread", SPREAD, ", labelSelector: {matchLabels: {a: b}}}], cont", "}], cont"),
    ("a slice that no plugin offers", "device-name", SPREAD, "mig-1g.5gb", "mig-1g5gb"),
    ("a start that ends before the model is there", "slow-start", POD.replace("livenessProbe", "startupProbe").replace("initialDelaySeconds: 600", "failureThreshold: 60"), "failureThreshold: 60", "failureThreshold: 6"),
    ("ranks of another number of nodes", "rendezvous", RANKS, 'WORLD_SIZE, value: "32"', 'WORLD_SIZE, value: "16"'),
    ("a variable of another number of nodes", "rendezvous", RANKS, 'NNODES, value: "4"', 'NNODES, value: "2"'),
    ("a variable of another number of GPUs", "rendezvous", RANKS, 'PER_NODE, value: "8"', 'PER_NODE, value: "4"'),
    ("a GPU that is not there", "rendezvous", RANKS, "0,1,2,7", "0,1,2,8"),
    ("machines of accelerate", "rendezvous", RANKS, "--num_machines 4", "--num_machines 2"),
    ("processes of accelerate", "rendezvous", RANKS, "--num_processes 32", "--num_processes 8"),
    ("nodes of a job that runs one pod at once", "rendezvous", RANKS, "  parallelism: 4\n", ""),
    ("more GPUs before the start", "gpu-count", RANKS, "limits: {nvidia.com/gpu: 1}", "limits: {nvidia.com/gpu: 16}"),
    ("nodes of a group", "rendezvous", GROUP.replace("--ray_cluster_size=2", "--nnodes, '2', --tp-size=4"), "--nnodes, '2'", "--nnodes, '4'"),
    ("shards of SGLang", "rendezvous", GROUP.replace("--tensor-parallel-size=8, --pipeline_parallel_size=2", "--tp-size, '16'"), "'16'", "'32'"),
    ("nodes of a TrainJob", "rendezvous", TRAIN, "--nnodes=4", "--nnodes=2"),
    ("shards of a group", "rendezvous", GROUP, "pipeline_parallel_size=2", "pipeline_parallel_size=4"),
    ("the size of a group", "rendezvous", GROUP, "ray_cluster_size=2", "ray_cluster_size=4"),
    ("a password in the values of a chart", "literal-secret", RELEASE, 'adminPassword: ""', "adminPassword: s3cret-of-mine"),
    ("a token in the values of a chart", "literal-secret", RELEASE, "hub: b", f"hub: {TOKEN}"),
    ("a token in an annotation", "literal-secret", POD, "note: b", f"note: {TOKEN}"),
    ("a webhook of Slack", "literal-secret", MAP, "a: b}", "a: 'https://hooks.slack.com/services/T0AAAAAAA/B0BBBBBBB/AbCdEf0123456789AbCdEf01'}"),
    ("a password of netrc", "literal-secret", MAP, "a: b}", "a: machine example.org login user password 0123456789abcdef}"),
]  # fmt: skip
DEVICES = """apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: a}
spec: {selectors: [{cel: {expression: "device.driver == 'a'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: a}
spec: {spec: {devices: {requests: [{name: g, exactly: {deviceClassName: a}}, {name: h, firstAvailable: [{name: i, deviceClassName: gpu.nvidia.com}]}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  resourceClaims: [{name: c, resourceClaimTemplateName: a}]
  containers: [{name: c, image: "registry.example.org/a:1", resources: {claims: [{name: c, request: g}]}}]
"""
RUNTIME = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: mine}
spec: {template: {spec: {replicatedJobs: []}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: a}
spec: {runtimeRef: {kind: TrainingRuntime, name: mine}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: b}
spec: {runtimeRef: {name: torch-distributed}}
"""
WATCHED = (
    SERVED
    + """---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: a}
spec: {podSelector: {matchExpressions: [{key: app, operator: In, values: [a]}]}, policyTypes: [Ingress]}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {name: b}
spec: {selector: {matchLabels: {app: a}}, podMetricsEndpoints: [{port: http}]}
"""
)
WHOLE = [
    ("a class of devices that nobody makes", "reference", DEVICES, "exactly: {deviceClassName: a}", "exactly: {deviceClassName: b}"),
    ("a class of a choice that nobody makes", "reference", DEVICES, "deviceClassName: gpu.nvidia.com", "deviceClassName: gpus.nvidia.com"),
    ("a request that the claim lacks", "reference", DEVICES, "request: g", "request: gpu"),
    ("a runtime that is not there", "reference", RUNTIME, "kind: TrainingRuntime, name: mine", "name: mine"),
    ("a runtime that Kubeflow Trainer does not have", "reference", RUNTIME, "name: torch-distributed", "name: torch"),
    ("a policy of no pod", "selector", WATCHED, "values: [a]}]}, policyTypes", "values: [b]}]}, policyTypes"),
    ("a policy of a label that is misspelt", "selector", WATCHED, "key: app,", "key: apps,"),
    ("a monitor of no pod", "selector", WATCHED, "{app: a}}, podMetrics", "{app: b}}, podMetrics"),
    ("a port that a service lacks", "port", SERVED, "port: {number: 80}", "port: {number: 8080}"),
    ("a name of a port that a service lacks", "port", SERVED, "endpoints: [{port: http}]", "endpoints: [{port: metrics}]"),
    ("a monitor of no service", "selector", SERVED, "spec: {selector: {matchLabels: {app: a}}, endpoints", "spec: {selector: {matchLabels: {app: b}}, endpoints"),
]  # fmt: skip


def rules_of(written: str, *, whole: bool) -> set[str]:
    got = read(written, "a.yaml")
    return {one.rule for one in (*got.findings, *check(got.documents, Facts(kubernetes="1.36", whole=whole)))}


@pytest.mark.parametrize(("rule", "sound", "old", "new"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])  # fmt: skip
def test_mistake_is_found_by_its_rule(rule: str, sound: str, old: str, new: str) -> None:
    assert sound.count(old) == 1
    before, after = rules_of(sound, whole=False), rules_of(sound.replace(old, new), whole=False)
    assert before == set()
    assert rule in after


@pytest.mark.parametrize(("rule", "sound", "old", "new"), [row[1:] for row in WHOLE], ids=[row[0] for row in WHOLE])  # fmt: skip
def test_mistake_of_a_whole_cluster_is_found(rule: str, sound: str, old: str, new: str) -> None:
    assert sound.count(old) == 1
    assert rule not in rules_of(sound, whole=True)
    assert rule in rules_of(sound.replace(old, new), whole=True)


WHOLE_FINE = [
    ("a policy for pods that come later", WATCHED.replace("key: app,", "key: example.org/job,")),
    ("a policy beside an operator", WATCHED.replace("values: [a]}]}, policyTypes", "values: [b]}]}, policyTypes") + "---\napiVersion: postgresql.cnpg.io/v1\nkind: Cluster\nmetadata: {name: b}\nspec: {instances: 3}\n"),
    ("a policy of another namespace", WATCHED.replace("kind: NetworkPolicy\nmetadata: {name: a", "kind: NetworkPolicy\nmetadata: {name: a, namespace: kube-system").replace("values: [a]}]}, policyTypes", "values: [b]}]}, policyTypes")),
    ("all requests of a claim", DEVICES.replace(", request: g", "")),
    ("a request with a choice", DEVICES.replace("request: g", "request: h")),
]  # fmt: skip


@pytest.mark.parametrize("written", [row[1] for row in WHOLE_FINE], ids=[row[0] for row in WHOLE_FINE])
def test_near_miss_of_a_whole_cluster_is_fine(written: str) -> None:
    assert rules_of(written, whole=True) & {"selector", "reference"} == set()


@pytest.mark.parametrize(
    ("old", "new", "level"),
    [("cpu: 190", "cpu: 192", Severity.WARNING), ("cpu: 190", "cpu: 193", Severity.ERROR), ("1800Gi", "2048Gi", Severity.ERROR)],
)  # fmt: skip
def test_only_cpus_can_be_there_in_whole(old: str, new: str, level: Severity) -> None:
    """The kernel always takes memory. A kubelet without a reserve offers all CPUs."""
    found = check(read(SIZED.replace(old, new), "a.yaml").documents, Facts(kubernetes="1.36", whole=False))
    assert [(one.rule, one.level) for one in found] == [("too-large", level)]


def test_class_of_devices_that_is_missing_is_a_warning() -> None:
    got = read(DEVICES.replace("exactly: {deviceClassName: a}", "exactly: {deviceClassName: b}"), "a.yaml")
    found = [one for one in check(got.documents, Facts(kubernetes="1.36")) if one.rule == "reference"]
    assert [(one.level, one.message) for one in found] == [(Severity.WARNING, "there is no DeviceClass 'b'")]


# what looks like a mistake, and the manifest
SHARDS = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\nspec: {serviceName: a, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: 'a:1', args: [--tp, '16', --nnodes, '2'], resources: {limits: {nvidia.com/gpu: 8}}, volumeMounts: [{name: s, mountPath: /dev/shm}]}], volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]}}}\n"
FINE = [
    ("IOPS of io2", DISKS.replace("gp3, iops", "io2, iops")),
    ("a role of another partition", IDENTITY.replace("arn:aws:", "arn:aws-us-gov:")),
    ("an ARN that a person fills", IDENTITY.replace("123456789012", "<account>")),
    ("groups of one pod", REMADE.replace("RecreateGroupOnPodRestart", "None").replace("size: 2", "size: 1")),
    ("a queue that says that it is not held", QUEUE.replace("namespaceSelector: {}", "namespaceSelector: {}\n  stopPolicy: None")),
    ("a priority of its class", RANKED),
    ("a monitor of services elsewhere", ROUTED.replace("matchLabels: {app: a}", "matchLabels: {app: b}")),
    ("the taint of EFA that AWS's device plugin tolerates", SERVER.replace("key: nvidia.com/gpu,", "key: aws.amazon.com/efa,")),
    ("workers of an image of their own", RAY_IMAGES.replace("rayproject/ray:2.46.0-py310-gpu", "registry.example.org/ray:2.9.0")),
    ("workers whose tag has no Python", RAY_IMAGES.replace("ray:2.46.0-py310-gpu", "ray:2.46.0-gpu")),
    ("a port that a shell fills", SERVER.replace("'8000'", "$PORT").replace("port: 8000}}", "port: 9000}}")),
    ("a variable that a shell fills", SERVER.replace("{name: A, value: b}, {name: URL, value: $(A)/v1}", "{name: URL, value: $$(A)/v1}, {name: A, value: b}")),
    ("retries of an index that is alone", RANKS.replace("backoffLimit: 0", "backoffLimitPerIndex: 1").replace("torchrun --nnodes=4 a.py && accelerate launch --num_machines 4 --num_processes 32 b.py", "python a.py").replace('{name: NNODES, value: "4"}, ', "")),
    ("a label that Kueue writes", JOB.replace("template:\n    spec", "template:\n    metadata: {labels: {kueue.x-k8s.io/podset: main}}\n    spec")),
    ("a verb of another project", ROLE.replace('[""]', "[example.org]").replace("verbs: [get]", "verbs: [read]")),
    ("an owner that blocks", ROLE.replace("[pods]", "[pods/finalizers]")),
    ("a resource of another project", ROLE.replace('[""]', "[example.org]").replace("[pods]", "[job]")),
    ("a part of what has a name", ROLE.replace("[pods], verbs: [get]", "[pods/exec], resourceNames: [a], verbs: [create]")),
    ("an autoscaler that KEDA takes over", SCALED.replace("{name: b}, minReplicaCount", "{name: a}, minReplicaCount").replace("metadata: {name: b}", 'metadata: {name: b, annotations: {scaledobject.keda.sh/transfer-hpa-ownership: "true"}}')),
    ("a machine that the catalog does not know", NODES.replace("[g6.xlarge, g6.12xlarge]", "[g9.12xlarge]").replace("amd64", "arm64")),
    ("all providers but one", FABRIC.replace("value: efa", "value: ^tcp;ofi_rxm")),
    ("a slice with media extensions", SPREAD.replace("mig-1g.5gb", "mig-1g.10gb.me")),
    ("shards over several pods", SHARDS),
    ("shards over the pods of Ray", SHARDS.replace("--nnodes, '2'", "--distributed-executor-backend, ray")),
    ("GPUs of an init container that the containers have, too", RANKS.replace("nvidia.com/gpu: 1}", "nvidia.com/gpu: 8}")),
    ("ranks that are pods", RANKS.replace('WORLD_SIZE, value: "32"', 'WORLD_SIZE, value: "4"')),
    ("a label of somebody else", POD.replace("topology.kubernetes.io/zone", "topology.kubernetes.io/rack")),
    ("a variable of another program", POD.replace("NCCL_SOCKET_IFNAME", "NCCL_DEBUGGER")),
    ("a variable of a plugin", POD.replace("NCCL_SOCKET_IFNAME", "NCCL_FASTRAK_IFNAME")),
    ("a probe behind a probe of the start", POD.replace("initialDelaySeconds: 600}", "initialDelaySeconds: 0}\n      startupProbe: {tcpSocket: {port: 80}, failureThreshold: 100}")),
    ("a driver that sees all GPUs", "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: 'a:1', env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}]}}}\n"),
    ("a job that another controller starts", JOB.replace(", labels: {kueue.x-k8s.io/queue-name: b}", "").replace("  suspend: true\n", "  suspend: true\n  managedBy: example.org/controller\n")),
    ("resources of the metrics server", ROLE.replace('[""]', "[metrics.k8s.io]")),
    ("a secret that a role names", ROLE.replace("[pods]", "[secrets], resourceNames: [a]")),
    ("a quota of storage", QUOTA.replace("requests.nvidia.com/gpu", "gold.storageclass.storage.k8s.io/requests.storage")),
    ("a quota of objects", QUOTA.replace("requests.nvidia.com/gpu", "count/jobs.batch")),
]  # fmt: skip


@pytest.mark.parametrize("written", [row[1] for row in FINE], ids=[row[0] for row in FINE])
def test_near_miss_is_fine(written: str) -> None:
    assert rules_of(written, whole=False) == set()
