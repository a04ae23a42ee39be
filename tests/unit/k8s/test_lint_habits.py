"""Rules about habits that cost: one change to good manifests, the rule that reports it, and a near miss that is fine."""

from dataclasses import replace
from typing import Any

import pytest
from support.manifests import FACTS, GONE, changed, good, pick

from gpucluster.k8s.lint import Facts, PoolFacts, Severity, check
from gpucluster.k8s.lint.read import read

CONTAINER = "spec/replicatedJobs/0/template/spec/template/spec/containers/0"
JOB = "spec/replicatedJobs/0/template/spec"
GANG = f"{JOB}/template"
CHAT = "spec/template/spec"
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
TOKEN = "hf_" + "a" * 30
RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}
EFA = {"cpu": "80", "memory": "900Gi", "nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 4}
GPU_ONLY = {"limits": {"nvidia.com/gpu": 8, "memory": "900Gi"}}
DEFAULT_CLASS = {
    "accessModes": ["ReadWriteMany"],
    "storageClassName": "gp3",
    "resources": {"requests": {"storage": "1Gi"}},
}
ONE = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}

# a sentence, the object, where in it, what stands there now, the rule, a near miss at the same place that has no finding of it
ROWS: list[tuple[str, str, str, Any, str, Any]] = [
    # access
    ("a role over everything", "Role/jobs", "rules", EVERYTHING, "wildcard-role", [RULE]),
    ("a binding to the administrator", "RoleBinding/jobs", "roleRef", {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}, "admin-binding", {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}),
    ("a token as text", "Deployment/chat", f"{CHAT}/containers/0/env", [{"name": "HF_TOKEN", "value": "s3cret-of-mine"}], "literal-secret", [{"name": "HF_TOKEN", "value": "$(TOKEN)"}]),
    ("a token under another name", "Deployment/chat", f"{CHAT}/containers/0/env", [{"name": "HUB", "value": TOKEN}], "literal-secret", [{"name": "HF_TOKEN", "value": "/run/secrets/token"}]),
    ("a token as an argument", "Deployment/chat", f"{CHAT}/containers/0/args", ["--token", TOKEN], "literal-secret", ["--max-token", "512"]),
    ("a token in a config map", "ConfigMap/nccl", "data", {"HUB": TOKEN}, "literal-secret", {"HUB": "https://example.org"}),
    ("a limit that is called token", "Deployment/chat", f"{CHAT}/containers/0/env", [{"name": "WANDB_API_KEY", "value": "0123456789abcdef"}], "literal-secret", [{"name": "MAX_TOKENS", "value": "4096000"}]),
    ("an image of the newest tag", "Deployment/chat", f"{CHAT}/containers/0/image", "registry.example.org:5000/chat:latest", "image-tag", "registry.example.org:5000/chat:1.4"),
    ("an image without a tag", "Deployment/chat", f"{CHAT}/containers/0/image", "registry.example.org:5000/chat", "image-tag", "chat:latest@sha256:" + "0" * 64),
    ("metadata for pods", "EC2NodeClass/serve", "spec/metadataOptions", {"httpPutResponseHopLimit": 2}, "metadata-hops", {"httpPutResponseHopLimit": 1}),
    ("metadata without tokens", "EC2NodeClass/serve", "spec/metadataOptions", {"httpTokens": "optional"}, "metadata-hops", {"httpTokens": "required"}),
    # disruption
    ("a budget of 0", "PodDisruptionBudget/chat", "spec", {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "chat"}}}, "budget", {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "chat"}}}),
    ("a budget of all", "PodDisruptionBudget/chat", "spec/minAvailable", "100%", "budget", "50%"),
    ("a budget that protects nothing", "PodDisruptionBudget/chat", "spec/minAvailable", 0, "budget", 1),
    ("a hook beyond the grace period", "Deployment/chat", f"{CHAT}/containers/0/lifecycle", {"preStop": {"sleep": {"seconds": 31}}}, "pre-stop", {"preStop": {"sleep": {"seconds": 30}}}),
    ("a command beyond the grace period", "Deployment/chat", f"{CHAT}/containers/0/lifecycle", {"preStop": {"exec": {"command": ["sh", "-c", "sleep 45; touch /done"]}}}, "pre-stop", {"preStop": {"exec": {"command": ["sleep", "29"]}}}),
    ("retries of one pod", "JobSet/tune", f"{JOB}/backoffLimit", 6, "gang-retries", 0),
    ("retries of one pod by default", "JobSet/tune", f"{JOB}/backoffLimit", GONE, "gang-retries", 0),
    ("nodes that end", "NodePool/serve", "spec/template/spec/expireAfter", "720h", "node-expiry", "Never"),
    ("nodes that end by default", "NodePool/serve", "spec/template/spec/expireAfter", GONE, "node-expiry", "Never"),
    ("nodes whose jobs are moved", "NodePool/serve", "spec/disruption/consolidationPolicy", "WhenEmptyOrUnderutilized", "node-expiry", "WhenEmpty"),
    # gangs
    ("three GPUs", "Deployment/chat", f"{CHAT}/containers/0/resources/limits/nvidia.com~gpu", 3, "gpu-count", 2),
    ("no shared memory", "JobSet/tune", f"{CONTAINER}/volumeMounts/0/mountPath", "/shm", "no-shm", "/dev/shm/"),
    ("little shared memory", "JobSet/tune", f"{GANG}/spec/volumes/0/emptyDir/sizeLimit", "64Mi", "no-shm", "8Gi"),
    ("shared memory on a disk", "JobSet/tune", f"{GANG}/spec/volumes/0/emptyDir", {"sizeLimit": "64Gi"}, "no-shm", {"sizeLimit": "64Gi", "medium": "Memory"}),
    ("32 GPUs in one host", "JobSet/tune", f"{GANG}/metadata/annotations/kueue.x-k8s.io~podset-required-topology", "kubernetes.io/hostname", "host-domain", "topology.k8s.aws/network-node-layer-1"),
    ("a claim beside the device plugin", "JobSet/tune", f"{GANG}/spec/resourceClaims", [{"name": "gpu", "resourceClaimTemplateName": "gpu"}], "two-gpu-ways", []),
    ("a gang without EFA", "JobSet/tune", f"{CONTAINER}/env", [{"name": "FI_PROVIDER", "value": "efa"}], "no-efa", [{"name": "FI_PROVIDER", "value": "tcp"}]),
    ("a gang without EFA on a machine that has it", "JobSet/tune", f"{GANG}/spec/nodeSelector", {"node.kubernetes.io/instance-type": "p5.48xlarge"}, "no-efa", {"node.kubernetes.io/instance-type": "g6.12xlarge"}),
    ("another number of nodes", "JobSet/tune", f"{CONTAINER}/env", [{"name": "PET_NNODES", "value": "3"}], "rendezvous", [{"name": "PET_NNODES", "value": "4"}]),
    ("another number of processes", "JobSet/tune", f"{CONTAINER}/env", [{"name": "PET_NPROC_PER_NODE", "value": "4"}], "rendezvous", [{"name": "PET_NPROC_PER_NODE", "value": "8"}]),
    ("an option of the launcher, and one of its program", "JobSet/tune", f"{CONTAINER}/command", ["torchrun", "--nnodes=3", "train.py", "--nnodes=4"], "rendezvous", ["torchrun", "--nnodes=4", "train.py", "--nnodes=3"]),
    ("an option of a launcher that starts a module", "JobSet/tune", f"{CONTAINER}/command", ["sh", "-c", "accelerate launch --num_machines 3 -m train --num_machines 4"], "rendezvous", ["sh", "-c", "accelerate launch --num_machines 4 -m train --num_machines 3"]),
    # scaling
    ("a metric that nobody serves", "HorizontalPodAutoscaler/chat", "spec/metrics/0", {"type": "Resource", "resource": {"name": "nvidia.com/gpu", "target": {"type": "Utilization", "averageUtilization": 70}}}, "scaler-metric", {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}),
    ("an external metric without an adapter", "HorizontalPodAutoscaler/chat", "spec/metrics/0", {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "10"}}}, "scaler-metric", {"type": "Pods", "pods": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "10"}}}),
    ("a limit below one node", "NodePool/serve", "spec/limits", {"nvidia.com/gpu": 4}, "node-pool-limit", {"nvidia.com/gpu": 8}),
    ("a limit of CPUs below one node", "NodePool/serve", "spec/limits", {"cpu": 64}, "node-pool-limit", {"cpu": 96}),
    ("machines without a GPU", "NodePool/serve", "spec/template/spec/requirements/0/values", ["m7i.2xlarge"], "node-pool-limit", ["p4de.24xlarge"]),
    ("GPUs in a quota beside Kueue", "ResourceQuota/pods", "spec/hard", {"requests.nvidia.com/gpu": "8"}, "two-quotas", {"pods": "100"}),
    # storage
    ("a volume of one node for many", "PersistentVolumeClaim/scratch", "spec/accessModes", ["ReadWriteOnce"], "claim-sharing", ["ReadWriteMany"]),
    ("a volume of one pod for many", "PersistentVolumeClaim/scratch", "spec/accessModes", ["ReadWriteOncePod"], "claim-sharing", ["ReadWriteMany"]),
    ("a block device for many", "PersistentVolumeClaim/scratch", "spec", DEFAULT_CLASS, "volume-mode", {**DEFAULT_CLASS, "volumeMode": "Block"}),
    ("a volume of EBS for many", "PersistentVolume/research-scratch", "spec/csi", {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}, "volume-mode", {"driver": "efs.csi.aws.com", "volumeHandle": "fs-1"}),
    # admission
    ("what a policy refuses", "JobSet/tune", f"{GANG}/spec/hostNetwork", True, "admission-policy", False),
    # references
    ("a secret that is not there", "JobSet/tune", f"{CONTAINER}/env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "a"}}}], "reference", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "a", "optional": True}}}]),
    ("a secret of an image that is not there", "JobSet/tune", f"{GANG}/spec/imagePullSecrets", [{"name": "registry"}], "reference", []),
]  # fmt: skip


def found_in(what: str, path: str, value: Any, rule: str) -> list[Any]:
    return [one for one in check(changed(what, path, value), FACTS) if one.rule == rule]


@pytest.mark.parametrize(("what", "path", "bad", "rule", "fine"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])  # fmt: skip
def test_habit_is_reported_and_its_near_miss_is_not(
    what: str, path: str, bad: Any, rule: str, fine: Any
) -> None:
    assert found_in(what, path, bad, rule)
    assert found_in(what, path, fine, rule) == []


def test_gang_with_efa_needs_a_variable_of_its_fabric() -> None:
    manifests = changed("JobSet/tune", f"{CONTAINER}/resources", {"limits": EFA})
    container = pick(manifests, "JobSet/tune")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"][
        "spec"
    ]["containers"][0]
    del container["envFrom"]
    assert "no-nccl-variables" in {one.rule for one in check(manifests, FACTS)}
    container["env"] = [{"name": "NCCL_SOCKET_IFNAME", "value": "^docker,lo"}]
    assert "no-nccl-variables" not in {one.rule for one in check(manifests, FACTS)}


TRAINIUM = {"cpu": "80", "memory": "400Gi", "aws.amazon.com/neuron": 16, "vpc.amazonaws.com/efa": 8}
PROCESSORS = {"cpu": "80", "memory": "100Gi", "vpc.amazonaws.com/efa": 1}


@pytest.mark.parametrize(("limits", "reads"), [(EFA, True), (TRAINIUM, False), (PROCESSORS, False)])
@pytest.mark.parametrize(
    ("env", "rule"),
    [([], "no-nccl-variables"), ([{"name": "NCCL_NET", "value": "Socket"}], "no-efa")],
    ids=["none", "TCP"],
)
def test_advice_about_nccl_is_for_gpus(
    limits: dict[str, Any], reads: bool, env: list[Any], rule: str
) -> None:
    """The collectives of Neuron and of MPI use libfabric without NCCL."""
    manifests = changed("JobSet/tune", f"{CONTAINER}/resources", {"limits": limits})
    changed("JobSet/tune", f"{CONTAINER}/envFrom", [], manifests)
    changed("JobSet/tune", f"{CONTAINER}/env", env, manifests)
    assert (rule in {one.rule for one in check(manifests, FACTS)}) is reads


@pytest.mark.parametrize("limits", [EFA, TRAINIUM, PROCESSORS])
def test_provider_for_tcp_is_reported_of_each_gang_with_efa(limits: dict[str, Any]) -> None:
    manifests = changed("JobSet/tune", f"{CONTAINER}/resources", {"limits": limits})
    changed("JobSet/tune", f"{CONTAINER}/env", [{"name": "FI_PROVIDER", "value": "tcp"}], manifests)
    assert "no-efa" in {one.rule for one in check(manifests, FACTS)}


def test_gang_on_whole_nodes_of_a_pool_with_efa_asks_for_it() -> None:
    pools = tuple(_with_efa(pool) for pool in FACTS.pools or ())
    assert "no-efa" in {one.rule for one in check(good(), replace(FACTS, pools=pools))}


def _with_efa(pool: PoolFacts) -> PoolFacts:
    return replace(pool, allocatable={**pool.allocatable, "vpc.amazonaws.com/efa": "4"})


@pytest.mark.parametrize(("policy", "found"), [("Default", True), ("None", True), ("ClusterFirst", False)])
def test_pods_that_find_each_other_by_name_need_the_clusters_dns(policy: str, found: bool) -> None:
    manifests = changed("JobSet/tune", f"{GANG}/spec/dnsPolicy", policy)
    container = pick(manifests, "JobSet/tune")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"][
        "spec"
    ]["containers"][0]
    container["env"] = [{"name": "MASTER_ADDR", "value": "tune-workers-0-0.tune"}]
    assert ("pod-names" in {one.rule for one in check(manifests, FACTS)}) is found


def test_autoscaler_of_utilization_needs_a_request() -> None:
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
    }
    manifests = changed("HorizontalPodAutoscaler/chat", "spec/metrics/0", metric)
    assert "scaler-request" not in {one.rule for one in check(manifests, FACTS)}
    del pick(manifests, "Deployment/chat")["spec"]["template"]["spec"]["containers"][0]["resources"][
        "requests"
    ]["cpu"]
    assert "scaler-request" in {one.rule for one in check(manifests, FACTS)}


def test_nodes_with_a_taint_that_no_chosen_pod_tolerates_are_reported() -> None:
    part = Facts(kubernetes="1.36", whole=False)
    manifests = good()
    assert "node-pool-taint" not in {one.rule for one in check(manifests, part)}
    pick(manifests, "NodePool/serve")["spec"]["template"]["spec"]["taints"].append(
        {"key": "spot", "value": "true", "effect": "NoSchedule"}
    )
    assert "node-pool-taint" in {one.rule for one in check(manifests, part)}


def test_secret_that_an_operator_makes_is_there() -> None:
    manifests = changed("JobSet/tune", f"{GANG}/spec/imagePullSecrets", [{"name": "registry"}])
    manifests.append(
        {
            "apiVersion": "external-secrets.io/v1",
            "kind": "ExternalSecret",
            "metadata": {"name": "registry", "namespace": "research"},
        }
    )
    assert "reference" not in {one.rule for one in check(manifests, FACTS)}


POD = "{metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: 'x:latest', env: [{name: API_KEY, value: abcdefgh}]}]}}"
HEAD = "apiVersion: %s\nkind: %s\nmetadata: {name: a}\nspec:\n"
SEARCHED = [
    ("RayCluster", "ray.io/v1", f"  headGroupSpec:\n    template: {POD}\n"),
    ("RayJob", "ray.io/v1", f"  rayClusterSpec:\n    workerGroupSpecs: [{{replicas: 2, template: {POD}}}]\n"),
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", f"  leaderWorkerTemplate:\n    size: 2\n    workerTemplate: {POD}\n"),
    ("InferenceService", "serving.kserve.io/v1beta1", "  predictor:\n    containers: [{name: c, image: 'x:latest', env: [{name: API_KEY, value: abcdefgh}]}]\n"),
    ("ClusterTrainingRuntime", "trainer.kubeflow.org/v1alpha1", f"  template: {{spec: {{replicatedJobs: [{{name: node, template: {{spec: {{template: {POD}}}}}}}]}}}}\n"),
    ("MPIJob", "kubeflow.org/v2beta1", f"  mpiReplicaSpecs: {{Launcher: {{template: {{spec: {{containers: [{{name: l, image: 'a:1'}}]}}}}}}, Worker: {{replicas: 2, template: {POD}}}}}\n"),
    ("Thing", "example.org/v1", f"  deep: [{{er: {{podTemplate: {POD}}}}}]\n"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "api_version", "spec"), SEARCHED, ids=[row[0] for row in SEARCHED])
def test_pods_of_any_kind_are_opened(kind: str, api_version: str, spec: str) -> None:
    got = read(HEAD % (api_version, kind) + spec, "a.yaml")
    found = check(got.documents, Facts(kubernetes="1.36", whole=False))
    assert {one.rule for one in found} == {"image-tag", "literal-secret"}
    assert all(one.line >= 5 and one.level is Severity.WARNING for one in found)
