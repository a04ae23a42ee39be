"""The rendered kube stack passes every checker on every release, and checkers find seeded mistakes in it."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from support.manifests import changed, pick
from support.rendered import rendered

from gpucluster import catalog
from gpucluster.k8s.lint import CHECKERS, Document, Facts, check
from gpucluster.k8s.lint.kueue import QUEUE_LABEL
from gpucluster.k8s.lint.manifest_set import build


def caught_by(documents: list[Document], known: Facts) -> set[str]:
    manifest_set, broken = build(documents, known)
    assert not broken
    return {name for name, checker in CHECKERS.items() if any(True for _ in checker(manifest_set))}


@pytest.mark.parametrize("release", catalog.kubernetes_facts().versions)
def test_rendered_stack_passes_every_checker(release: str) -> None:
    documents, known = rendered()
    assert check(documents, replace(known, kubernetes=release)) == ()


def test_stack_has_the_required_kinds() -> None:
    kinds = {document.value["kind"] for document in rendered()[0]}
    assert kinds >= {
        "Namespace", "ResourceQuota", "LimitRange", "Role", "RoleBinding", "NetworkPolicy", "Topology", "ResourceFlavor",
        "Cohort", "ClusterQueue", "LocalQueue", "WorkloadPriorityClass", "PriorityClass", "NodePool", "EC2NodeClass",
        "JobSet", "Deployment", "Service", "HorizontalPodAutoscaler", "PersistentVolume", "PersistentVolumeClaim",
        "Kustomization",
    }  # fmt: skip


POD = "spec/replicatedJobs/0/template/spec/template"
WORKER = f"{POD}/spec/containers/0"
QUOTA = "spec/resourceGroups/0/flavors/0/resources"


def put(what: str, path: str, value: Any) -> Callable[[list[Any]], None]:
    def seed(values: list[Any]) -> None:
        changed(what, path, value, values)

    return seed


def uncover(values: list[Any]) -> None:
    """EFA is missing in queue and flavor: the manifests are valid, but the gang would wait forever."""
    group = pick(values, "ClusterQueue/kube-research")["spec"]["resourceGroups"][0]
    group["coveredResources"].remove("vpc.amazonaws.com/efa")
    group["flavors"][0]["resources"] = [r for r in group["flavors"][0]["resources"] if "efa" not in r["name"]]


def swap_volumes(values: list[Any]) -> None:
    mine, other = (
        one for one in values if one["kind"] == "PersistentVolumeClaim" and one["metadata"]["name"] == "data"
    )
    mine["spec"]["volumeName"], other["spec"]["volumeName"] = (
        other["spec"]["volumeName"],
        mine["spec"]["volumeName"],
    )


def one_node(values: list[Any]) -> None:
    for claim in values:
        if claim["kind"] == "PersistentVolumeClaim":
            claim["spec"]["accessModes"] = ["ReadWriteOnce"]


def no_mode(values: list[Any]) -> None:
    for claim in values:
        if claim["kind"] == "PersistentVolumeClaim":
            claim["spec"]["accessModes"] = []


def twice(values: list[Any]) -> None:
    tune, serve = (
        pick(values, "ResourceFlavor/kube-tune.zone-spine-block-leaf-host"),
        pick(values, "ResourceFlavor/kube-serve"),
    )
    serve["metadata"]["name"] = tune["metadata"]["name"]


def forget(values: list[Any]) -> None:
    listing = next(one for one in values if one["kind"] == "Kustomization" and "cohort.yaml" in one["resources"])  # fmt: skip
    listing["resources"].remove("cohort.yaml")


def reverse_levels(values: list[Any]) -> None:
    pick(values, "Topology/kube-topology-zone-spine-block-leaf-host")["spec"]["levels"].reverse()


def lack_a_key(values: list[Any]) -> None:
    other = next(one for one in values if one["kind"] == "LimitRange" and one["metadata"]["namespace"] == "research")  # fmt: skip
    other.clear()
    other.update({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "research"}, "data": {"b": "c"}})  # fmt: skip
    ref = {"configMapKeyRef": {"name": "a", "key": "d"}}
    changed("JobSet/tune", f"{WORKER}/env", [{"name": "D", "valueFrom": ref}], values)


def define_a_kind(values: list[Any]) -> None:
    other = next(one for one in values if one["kind"] == "LimitRange" and one["metadata"]["namespace"] == "research")  # fmt: skip
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    spec = {
        "group": "example.org",
        "names": {"plural": "foos", "kind": "Foo"},
        "scope": "Cluster",
        "versions": [version],
    }
    other.clear()
    other.update({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "foo.example.org"}, "spec": spec})  # fmt: skip


def queue_at_the_pods(values: list[Any]) -> None:
    labels = pick(values, "JobSet/tune")["metadata"]["labels"]
    pods = pick(values, "JobSet/tune")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pods["metadata"].setdefault("labels", {})[QUEUE_LABEL] = labels.pop(QUEUE_LABEL)


def break_policy(values: list[Any]) -> None:
    policy = next(one for one in values if one["kind"] == "ValidatingAdmissionPolicy")
    policy["spec"]["validations"][0]["expression"] += " &&"


def instead(other: dict[str, Any]) -> Callable[[list[Any]], None]:
    """Put another object in the place of the limits of a team."""

    def seed(values: list[Any]) -> None:
        one = next(one for one in values if one["kind"] == "LimitRange" and one["metadata"]["namespace"] == "research")  # fmt: skip
        one.clear()
        one.update({"metadata": {"name": "a", "namespace": "research"}, **other})

    return seed


# a mistake as people make it, and the checker that must say so
SEEDS: list[tuple[str, Callable[[list[Any]], None], str]] = [
    ("a typing mistake in a Deployment", put("Deployment/chat", "spec/replica", 3), "builtin"),
    ("a typing mistake in a JobSet", put("JobSet/tune", "spec/failurePolicy/maxRestart", 3), "schemas"),
    ("a field of Kueue's older API", put("ClusterQueue/kube-research", "spec/cohort", "kube"), "schemas"),
    ("a Karpenter requirement without values", put("NodePool/kube-serve-0", "spec/template/spec/requirements/0/values", []), "schemas"),
    ("the levels of the topology turned round", reverse_levels, "schemas"),
    ("an API that Kubernetes took away", put("HorizontalPodAutoscaler/chat", "apiVersion", "autoscaling/v2beta2"), "versions"),
    ("one GPU too many in a quota", put("ClusterQueue/kube-research", f"{QUOTA}/3/nominalQuota", "33"), "quotas"),
    ("GPUs in no quota", put("ClusterQueue/kube-research", f"{QUOTA}/3/nominalQuota", "31"), "quotas"),
    ("EFA that the queue does not cover", uncover, "quotas"),
    ("a gang of one node too many", put("JobSet/tune", "spec/replicatedJobs/0/template/spec/parallelism", 5), "quotas"),
    ("a topology of another name", put("ResourceFlavor/kube-tune.zone-spine-block-leaf-host", "spec/topologyName", "fabric"), "references"),
    ("a queue of another name", put("JobSet/tune", "metadata/labels/kueue.x-k8s.io~queue-name", "defaults"), "references"),
    ("a scaler of another name", put("HorizontalPodAutoscaler/chat", "spec/scaleTargetRef/name", "chatt"), "references"),
    ("a namespace of another name", put("Namespace/serving", "metadata/name", "service"), "references"),
    ("a cohort above itself", put("Cohort/kube", "spec/parentName", "kube"), "references"),
    ("a node class of another name", put("NodePool/kube-serve-0", "spec/template/spec/nodeClassRef/name", "kube"), "references"),
    ("a label that no node has", put("Topology/kube-topology-zone-spine-block-leaf-host", "spec/levels/1/nodeLabel", "topology.k8s.aws/network-node-layer-9"), "placement"),
    ("a gang's level that is none", put("JobSet/tune", f"{POD}/metadata/annotations/kueue.x-k8s.io~podset-required-topology", "block"), "placement"),
    ("a flavor without its toleration", put("ResourceFlavor/kube-tune.zone-spine-block-leaf-host", "spec/tolerations", []), "placement"),
    ("a pool of another name", put("ResourceFlavor/kube-tune.zone-spine-block-leaf-host", "spec/nodeLabels/gpucluster~pool", "tuna"), "placement"),
    ("Karpenter's nodes without the taint", put("NodePool/kube-serve-0", "spec/template/spec/taints", []), "placement"),
    ("a pod larger than its node", put("Deployment/chat", "spec/template/spec/containers/0/resources/requests/cpu", "200"), "placement"),
    ("a GPU request that is not its limit", put("JobSet/tune", f"{WORKER}/resources/requests/nvidia.com~gpu", "4"), "resources"),
    ("shared memory larger than the memory", put("JobSet/tune", f"{POD}/spec/volumes/0/emptyDir/sizeLimit", "2Ti"), "resources"),
    ("a gang that restarts its pods", put("JobSet/tune", f"{POD}/spec/restartPolicy", "Always"), "pairs"),
    ("volumes of two teams swapped", swap_volumes, "pairs"),
    ("a service that selects nothing", put("Service/chat", "spec/selector/gpucluster~workload", "chatt"), "pairs"),
    ("two flavors of one name", twice, "names"),
    ("a space in a label", put("Deployment/chat", "metadata/labels/gpucluster~team", "ser ving"), "names"),
    ("memory in a unit that is none", put("JobSet/tune", f"{WORKER}/resources/limits/memory", "900GB"), "names"),
    ("a policy that does not parse", break_policy, "policies"),
    ("fewer pods at once than in all", put("JobSet/tune", f"{POD.removesuffix('/template')}/parallelism", 3), "values"),
    ("no image", put("JobSet/tune", f"{WORKER}/image", ""), "containers"),
    ("a privileged container", put("Deployment/chat", "spec/template/spec/containers/0/securityContext/privileged", True), "security"),
    ("a file that the kustomization forgets", forget, "kustomize"),
    ("a host's network under the guard", put("JobSet/tune", f"{POD}/spec/hostNetwork", True), "admission"),
    ("an image that changes", put("Deployment/chat", "spec/template/spec/containers/0/image", "registry.example.org/chat:latest"), "access"),
    ("nodes that end while a gang runs", put("NodePool/kube-serve-0", "spec/template/spec/expireAfter", "720h"), "disruption"),
    ("a gang without shared memory", put("JobSet/tune", f"{WORKER}/volumeMounts/0/mountPath", "/shm"), "gangs"),
    ("a limit below one node", put("NodePool/kube-serve-0", "spec/limits", {"cpu": "8"}), "scaling"),
    ("a volume of one node for a service", one_node, "storage"),
    ("root that must not be root", put("JobSet/tune", f"{POD}/spec/securityContext", {"runAsNonRoot": True, "runAsUser": 0}), "isolation"),
    ("a key that the config map lacks", lack_a_key, "keys"),
    ("another number of nodes", put("JobSet/tune", f"{WORKER}/env", [{"name": "PET_NNODES", "value": "3"}]), "launchers"),
    ("memory above the default limit", put("JobSet/tune", f"{WORKER}/resources", {"limits": {"nvidia.com/gpu": 8}, "requests": {"memory": "100Gi"}}), "limit_ranges"),
    ("a password as text", put("JobSet/tune", f"{WORKER}/env", [{"name": "DB_PASSWORD", "value": "correct-horse"}]), "literal_secrets"),
    ("pods that spread by others", put("Deployment/chat", "spec/template/spec/topologySpreadConstraints", [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "other"}}}]), "network"),
    ("a queue at the pods", queue_at_the_pods, "queue_labels"),
    ("a port of a name in capitals", put("Service/chat", "spec/ports/0/name", "HTTP"), "network_values"),
    ("a claim without a mode", no_mode, "core_values"),
    ("a policy of a job that is not there", put("JobSet/tune", "spec/successPolicy", {"operator": "All", "targetReplicatedJobs": ["other"]}), "job_values"),
    ("GPUs without their vendor", put("JobSet/tune", f"{WORKER}/resources/limits/gpu", 8), "pod_values"),
    ("a name instead of an address", put("JobSet/tune", f"{POD}/spec/hostAliases", [{"ip": "host", "hostnames": ["a"]}]), "pod_forms"),
    ("GPUs in the plural", put("JobSet/tune", f"{WORKER}/resources/limits/nvidia.com~gpus", 1), "device_names"),
    ("a zone in the plural", put("JobSet/tune", f"{POD}/spec/nodeSelector", {"topology.kubernetes.io/zones": "a"}), "well_known"),
    ("a probe that ends a slow start", put("JobSet/tune", f"{WORKER}/livenessProbe", {"tcpSocket": {"port": 80}}), "probes"),
    ("a field of the pod that is misspelt", put("JobSet/tune", f"{WORKER}/env", [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIp"}}}]), "value_sources"),
    ("options of Windows in a pod of Linux", put("JobSet/tune", f"{POD}/spec/os", {"name": "windows"}), "windows"),
    ("a definition of another name", define_a_kind, "extensions"),
    ("a runtime that is a JobSet", instead({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": {"runtimeRef": {"name": "tune", "kind": "JobSet"}}}), "trainjobs"),
    ("a first pod of another job", instead({"apiVersion": "batch/v1", "kind": "Job", "spec": {"completionMode": "Indexed", "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "a:1", "env": [{"name": "MASTER_ADDR", "value": "b-0.b"}]}]}}}}), "pod_addresses"),
    ("more pods of Volcano than there are", instead({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"minAvailable": 2, "tasks": [{"replicas": 1}]}}), "operator_jobs"),
    ("a number in a parameter of Ray", instead({"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": {"headGroupSpec": {"rayStartParams": {"num-gpus": 8}}}}), "ray_jobs"),
    ("a taint of the only flavor", put("ResourceFlavor/kube-tune.zone-spine-block-leaf-host", "spec/nodeTaints", [{"key": "example.org/held", "effect": "NoSchedule"}]), "flavors"),
    ("a gang on the loopback", put("JobSet/tune", f"{WORKER}/env", [{"name": "NCCL_SOCKET_IFNAME", "value": "lo"}]), "fabric_names"),
]  # fmt: skip


@pytest.mark.parametrize(("seed", "checker"), [row[1:] for row in SEEDS], ids=[row[0] for row in SEEDS])
def test_seeded_mistake_is_found_by_its_checker(seed: Callable[[list[Any]], None], checker: str) -> None:
    documents, known = rendered()
    seeded = [replace(document, value=deepcopy(document.value)) for document in documents]
    seed([document.value for document in seeded])
    assert checker in caught_by(seeded, known)


def test_every_checker_has_a_seed() -> None:
    """With a plan its pools count, so that `hosts` has nothing to say; `planted/more-gpus-than-the-machine` is its seed."""
    assert {checker for _, _, checker in SEEDS} == CHECKERS.keys() - {"hosts"}


def test_default_limit_of_a_team_is_a_fact_of_the_plan() -> None:
    """A Job by hand, without the manifests of the cluster. Red before: no finding, and the API server refused its pods."""
    _, known = rendered()
    job: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a", "namespace": "research"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "a:1", "resources": {"requests": {"memory": "5Gi"}}}]}}},
    }  # fmt: skip
    assert [str(one.path) for one in check([job], known) if one.rule == "resources"] == [
        "spec.template.spec.containers[0].resources.requests.memory"
    ]
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = "4Gi"
    assert [one for one in check([job], known) if one.rule == "resources"] == []


def _job(namespace: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "registry.example.org/a:1", "resources": {"limits": {"memory": "1Gi"}}}
    template: dict[str, Any] = {
        "metadata": {},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }
    metadata = {"name": "a", "namespace": namespace}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


@pytest.mark.parametrize(("spec", "refused"), [
    ({"volumes": [{"name": "a", "nfs": {"server": "10.0.0.1", "path": "/"}}]}, True),
    ({"volumes": [{"name": "a", "iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2026-01.org.example:a", "lun": 0}}]}, True),
    ({"priorityClassName": "of-others"}, True),
    ({"containers": [{"name": "c", "image": "registry.example.org/a:1", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]}, True),
    ({"volumes": [{"name": "a", "emptyDir": {}}], "priorityClassName": "kube-gang"}, False),
])  # fmt: skip
def test_policies_of_the_plan_judge_a_job_by_hand(spec: dict[str, Any], refused: bool) -> None:
    """Only the rendered tree has them as manifests. Red before: no finding, and the API server refused the pods."""
    _, known = rendered()
    found = [one.path for one in check([_job("research", **spec)], known) if one.rule == "admission-policy"]
    assert found == (["spec.template.spec"] if refused else [])
    other = check([_job("of-others", **spec)], known)
    assert not [one for one in other if one.rule == "admission-policy"], "a namespace of nobody here"


def test_policy_of_the_manifests_counts_before_that_of_the_plan() -> None:
    documents, known = rendered()
    manifests = [
        *(deepcopy(document.value) for document in documents),
        _job("research", volumes=[{"name": "a", "nfs": {}}]),
    ]
    assert len([one for one in check(manifests, known) if one.rule == "admission-policy"]) == 1
    policy = pick(manifests, "ValidatingAdmissionPolicy/kube-team-pods")
    policy["spec"]["validations"] = [{"expression": "true"}]
    assert not [one for one in check(manifests, known) if one.rule == "admission-policy"]


def test_gang_without_topology_request_is_reported() -> None:
    """Kueue would give it only the flavor without a topology, which has no GPU."""
    documents, known = rendered()
    manifests = [deepcopy(document.value) for document in documents]
    del pick(manifests, "ResourceFlavor/kube-serve")["spec"]["tolerations"]
    queue = pick(manifests, "ClusterQueue/kube-research")["spec"]["resourceGroups"][0]
    (own,) = queue["flavors"]
    none = [{"name": one["name"], "nominalQuota": "0"} for one in own["resources"]]
    queue["flavors"].append({"name": "kube-serve", "resources": none})
    pods = pick(manifests, "JobSet/tune")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert "workload-above-quota" not in {finding.rule for finding in check(manifests, known)}
    del pods["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"]
    assert "workload-above-quota" in {finding.rule for finding in check(manifests, known)}
    pods["metadata"]["annotations"]["kueue.x-k8s.io/podset-unconstrained-topology"] = "true"
    assert "workload-above-quota" not in {finding.rule for finding in check(manifests, known)}
