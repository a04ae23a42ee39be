"""Mistakes that no schema finds but the API server refuses: seeded in the rendered stack, each reported by its rule."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from support.manifests import GONE, changed, pick
from support.rendered import rendered

from gpucluster.k8s.lint import Facts, Severity, check
from gpucluster.k8s.lint.read import read

JOB = "spec/replicatedJobs/0/template/spec"
POD = f"{JOB}/template"
WORKER = f"{POD}/spec/containers/0"
CHAT = "spec/template/spec/containers/0"
NETWORK = "spec/egress/0/to/0/ipBlock"
WISH = "kueue.x-k8s.io~podset-{}-topology"

# a sentence, the object, where in it, what stands there now, the rule that says so
ROWS: list[tuple[str, str, str, Any, str]] = [
    ("a gang of fewer pods at once than in all", "JobSet/tune", f"{JOB}/parallelism", 3, "gang-width"),
    ("a gang of more pods in all than at once", "JobSet/tune", f"{JOB}/completions", 9, "gang-width"),
    ("a gang that restarts in place beside a podFailurePolicy", "JobSet/tune", f"{POD}/spec/restartPolicy", "OnFailure", "restart-policy"),
    ("no image", "JobSet/tune", f"{WORKER}/image", GONE, "container"),
    ("an empty image", "JobSet/tune", f"{WORKER}/image", "", "container"),
    ("an image with a space", "Deployment/chat", f"{CHAT}/image", "chat:1 ", "container"),
    ("no container", "JobSet/tune", f"{POD}/spec/containers", [], "container"),
    ("two containers of one name", "JobSet/tune", f"{POD}/spec/containers", [{"name": "a", "image": "x"}, {"name": "a", "image": "y"}], "container"),
    ("a volume's name in capitals", "JobSet/tune", f"{POD}/spec/volumes/0/name", "Shm", "container"),
    ("a volume of two sources", "JobSet/tune", f"{POD}/spec/volumes/0/hostPath", {"path": "/dev/shm"}, "one-of"),
    ("a variable with an equals sign", "JobSet/tune", f"{WORKER}/env", [{"name": "A=B", "value": "1"}], "variable"),
    ("a variable of two sources", "JobSet/tune", f"{WORKER}/env/0/value", "1", "one-of"),
    ("a key of a Secret that begins with two dots", "JobSet/tune", f"{WORKER}/env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "..data"}}}], "variable"),
    ("port 0", "JobSet/tune", f"{WORKER}/ports/0/containerPort", 0, "port"),
    ("a port's name that is too long", "JobSet/tune", f"{WORKER}/ports/0/name", "a" * 16, "port"),
    ("a protocol that is none", "Deployment/chat", f"{CHAT}/ports/0/protocol", "HTTP", "word"),
    ("a toleration's operator that is none", "JobSet/tune", f"{POD}/spec/tolerations/0/operator", "Exist", "word"),
    ("a restart policy that is none", "Deployment/chat", "spec/template/spec/restartPolicy", "always", "word"),
    ("a service whose pods end for good", "Deployment/chat", "spec/template/spec/restartPolicy", "Never", "restart-policy"),
    ("a probe in two ways", "Deployment/chat", f"{CHAT}/readinessProbe/tcpSocket", {"port": 80}, "one-of"),
    ("a probe in no way", "Deployment/chat", f"{CHAT}/readinessProbe", {"periodSeconds": 5}, "one-of"),
    ("a probe of a port that is not there", "Deployment/chat", f"{CHAT}/readinessProbe/httpGet/port", "grpc", "port"),
    ("two wishes for a place", "JobSet/tune", f"{POD}/metadata/annotations/{WISH.format('preferred')}", "kubernetes.io/hostname", "topology-request"),
    ("a wish for a place where Kueue does not read it", "JobSet/tune", "metadata/annotations", {WISH.format("required").replace("~", "/"): "x"}, "topology-request"),
    ("a selector of nothing", "Deployment/chat", "spec/selector", {"matchLabels": {}}, "selector"),
    ("an update that cannot move", "Deployment/chat", "spec/strategy/rollingUpdate", {"maxSurge": 0, "maxUnavailable": 0}, "range"),
    ("a rolling update that is none", "Deployment/chat", "spec/strategy/type", "Recreate", "one-of"),
    ("fewer than no replicas", "Deployment/chat", "spec/replicas", -1, "range"),
    ("a number that the autoscaler owns", "Deployment/chat", "spec/replicas", 2, "replicas"),
    ("the host's network in a baseline namespace", "Deployment/chat", "spec/template/spec/hostNetwork", True, "pod-security"),
    ("a path of the host in a baseline namespace", "Deployment/chat", "spec/template/spec/volumes/0", {"name": "shm", "hostPath": {"path": "/"}}, "pod-security"),
    ("a port of the host in a baseline namespace", "Deployment/chat", f"{CHAT}/ports/0/hostPort", 80, "pod-security"),
    ("a privileged container in a baseline namespace", "Deployment/chat", f"{CHAT}/securityContext/privileged", True, "pod-security"),
    ("a capability in a baseline namespace", "Deployment/chat", f"{CHAT}/securityContext/capabilities/add", ["IPC_LOCK"], "pod-security"),
    ("locked memory in a namespace that became baseline", "Namespace/research", "metadata/labels/pod-security.kubernetes.io~enforce", "baseline", "pod-security"),
    ("a user that may be root in a restricted namespace", "Namespace/serving", "metadata/labels/pod-security.kubernetes.io~enforce", "restricted", "pod-security"),
    ("a level of security that is none", "Namespace/serving", "metadata/labels/pod-security.kubernetes.io~enforce", "strict", "word"),
    ("a service to a port that is not there", "Service/chat", "spec/ports/0/targetPort", "grpc", "port"),
    ("a port beyond 65535", "Service/chat", "spec/ports/0/port", 70000, "range"),
    ("a type of service that is none", "Service/chat", "spec/type", "Loadbalancer", "word"),
    ("a budget in two ways", "PodDisruptionBudget/chat", "spec/minAvailable", 1, "one-of"),
    ("a budget of nobody", "PodDisruptionBudget/chat", "spec/selector/matchLabels/gpucluster~workload", "x", "selector"),
    ("a metric of another type", "HorizontalPodAutoscaler/chat", "spec/metrics/0/type", "Resource", "one-of"),
    ("a metric of a type that is none", "HorizontalPodAutoscaler/chat", "spec/metrics/0/type", "Podz", "word"),
    ("no network", "NetworkPolicy/https-out", f"{NETWORK}/cidr", "0.0.0.0/99", "cidr"),
    ("a hole outside its network", "NetworkPolicy/https-out", NETWORK, {"cidr": "10.0.0.0/8", "except": ["192.168.0.0/16"]}, "cidr"),
    ("a direction that is none", "NetworkPolicy/https-out", "spec/policyTypes", ["egress"], "word"),
    ("a role of another kind", "RoleBinding/team-member", "roleRef/kind", "Rolle", "word"),
    ("people of another kind", "RoleBinding/team-member", "subjects/0/kind", "Groups", "word"),
    ("a request above the limit for all", "LimitRange/team", "spec/limits/0/defaultRequest/memory", "999Gi", "range"),
    ("a priority that is the system's", "PriorityClass/kube-gang", "value", 2_000_000_000, "range"),
    ("a quota below nothing", "ClusterQueue/kube-research", "spec/resourceGroups/0/flavors/0/resources/0/nominalQuota", "-1", "range"),
    ("a queue that does not take its namespace", "ClusterQueue/kube-research", "spec/namespaceSelector/matchLabels/kubernetes.io~metadata.name", "x", "selector"),
    ("a class of another kind", "NodePool/kube-serve-0", "spec/template/spec/nodeClassRef/kind", "EC2NodeClas", "reference"),
    ("a way to read and write that is none", "PersistentVolumeClaim/data", "spec/accessModes", ["ReadWriteMani"], "word"),
    ("a volume of two kinds", "PersistentVolume/kube-serving.data", "spec/nfs", {"server": "a", "path": "/"}, "one-of"),
    ("a volume of no kind", "PersistentVolume/kube-serving.data", "spec/csi", GONE, "one-of"),
    ("an end of a volume that is none", "PersistentVolume/kube-serving.data", "spec/persistentVolumeReclaimPolicy", "Keep", "word"),
    ("a policy's action that is none", "ValidatingAdmissionPolicyBinding/kube-pod-guard", "spec/validationActions", ["Denny"], "word"),
    ("an API group that is gone", "Deployment/chat", "apiVersion", "extensions/v1beta1", "not-served"),
    ("a typing mistake in a custom resource's metadata", "JobSet/tune", "metadata/label", {}, "unknown-field"),
    ("text where a custom resource's finalizers belong", "JobSet/tune", "metadata/finalizers", "x", "schema"),
]  # fmt: skip


def _seeded(what: str, path: str, value: Any) -> tuple[list[Any], Facts]:
    documents, known = rendered()
    kind, _, name = what.partition("/")
    chosen: list[Any] = []
    for document in documents:  # of what each team has, the first one's
        one = document.value
        again = [c for c in chosen if c["kind"] == kind and c["metadata"].get("name") == name]
        mine = one["kind"] == kind and one["metadata"].get("name") == name
        if not (mine and again):
            chosen.append(deepcopy(one))
    return changed(what, path, value, chosen), known


@pytest.mark.parametrize(("what", "path", "value", "rule"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])  # fmt: skip
def test_mistake_outside_of_schemas_is_reported(what: str, path: str, value: Any, rule: str) -> None:
    manifests, known = _seeded(what, path, value)
    found = [finding for finding in check(manifests, known) if finding.rule == rule]
    assert found
    warned = rule in ("replicas", "gang-width") or (what, rule) == ("PodDisruptionBudget/chat", "selector")
    assert {finding.level for finding in found} == {Severity.WARNING if warned else Severity.ERROR}


def test_job_without_a_queue_is_in_the_default_queue() -> None:
    manifests, known = _seeded("JobSet/tune", f"{JOB}/parallelism", 5)
    pick(manifests, "JobSet/tune")["metadata"]["labels"].pop("kueue.x-k8s.io/queue-name")
    assert "workload-above-quota" in {finding.rule for finding in check(manifests, known)}


def test_manifests_as_people_write_them_raise_no_alarm() -> None:
    """A CRD's schema has fields named `limits` and `labels`; labels of a PrometheusRule are templates."""
    path = Path(__file__).parent / "ordinary.yaml"
    got = read(path.read_text(), path.name)
    assert not got.findings
    found = check(got.documents, Facts(kubernetes="1.37", whole=False))
    assert found == ()
