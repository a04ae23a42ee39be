"""Each rule of the linter: one change to good manifests, and the one rule that reports it."""

from dataclasses import replace
from typing import Any

import pytest
from support.manifests import FABRIC, FACTS, GONE, changed, good, pick, pool

from gpucluster.k8s.lint import ANY, Facts, Present, Severity, Taint, check

CONTAINER = "spec/replicatedJobs/0/template/spec/template/spec/containers/0"
GANG = "spec/replicatedJobs/0/template/spec/template"
GPUS = "spec/resourceGroups/0/flavors/0/resources/2/nominalQuota"
LEVEL = "kueue.x-k8s.io~podset-required-topology"
CHAT = "spec/template/spec"
LONG = "a" * 64

# a sentence, the object, where in it, what stands there now, the rules that say so
ROWS: list[tuple[str, str, str, Any, set[str]]] = [
    # versions
    ("an apiVersion that was taken away", "HorizontalPodAutoscaler/chat", "apiVersion", "autoscaling/v2beta2", {"not-served"}),
    ("a kind that never was", "Deployment/chat", "kind", "Deploiment", {"not-served", "reference", "selector"}),
    ("an older API of Kueue", "WorkloadPriorityClass/normal", "apiVersion", "kueue.x-k8s.io/v1beta1", {"deprecated"}),
    ("an API of Kueue that never was", "WorkloadPriorityClass/normal", "apiVersion", "kueue.x-k8s.io/v1beta9", {"unknown-kind"}),
    ("a resource that nobody knows", "WorkloadPriorityClass/normal", "apiVersion", "example.org/v1", {"reference"}),
    # built-in schemas
    ("a typing mistake in a field", "Deployment/chat", f"{CHAT}/tolerationz", [], {"unknown-field"}),
    ("text where a number belongs", "Deployment/chat", "spec/replicas", "two", {"schema"}),
    ("a required part is missing", "Deployment/chat", "spec/selector", GONE, {"schema"}),
    ("a status in a manifest", "Deployment/chat", "status", {}, {"status"}),
    # schemas of custom resources
    ("a field of v1beta1", "ClusterQueue/research", "spec/cohort", "science", {"unknown-field"}),
    ("a number that is too large", "NodePool/serve", "spec/weight", 500, {"schema"}),
    ("a word that is none of those known", "NodePool/serve", "spec/disruption/consolidationPolicy", "Never", {"schema"}),
    ("a duration of another form", "NodePool/serve", "spec/disruption/consolidateAfter", "10 minutes", {"schema"}),
    ("a required field of a custom resource", "NodePool/serve", "spec/disruption/consolidateAfter", GONE, {"schema"}),
    ("a list that is a set has an entry twice", "NodePool/serve", "spec/disruption/budgets/0/reasons", ["Drifted", "Drifted"], {"schema"}),
    ("a list that is a map has a key twice", "ClusterQueue/research", "spec/resourceGroups/0/flavors/1/name", "tune", {"schema", "quota-above-pools"}),
    ("a number beyond 32 bits", "JobSet/tune", "spec/failurePolicy/maxRestarts", 2**31, {"schema"}),
    ("no time", "ResourceFlavor/tune", "spec/nodeTaints", [{"key": "a", "effect": "NoSchedule", "timeAdded": "noon"}], {"schema"}),
    # CEL
    ("a requirement without values", "NodePool/serve", "spec/template/spec/requirements/0/values", [], {"cel"}),
    ("a label that is Karpenter's", "NodePool/serve", "spec/template/metadata/labels/karpenter.sh~x", "y", {"cel"}),
    ("role and instance profile", "EC2NodeClass/serve", "spec/instanceProfile", "nodes", {"cel"}),
    ("an alias of no family", "EC2NodeClass/serve", "spec/amiSelectorTerms/0/alias", "arch@1", {"cel"}),
    ("two orders of start", "JobSet/tune", "spec/startupPolicy", {"startupPolicyOrder": "InOrder"}, set()),
    ("a flavor with a topology and no labels", "ResourceFlavor/tune", "spec/nodeLabels", {}, {"cel", "quota-below-pools", "topology-label"}),
    ("borrowing without a cohort", "ClusterQueue/research", "spec/cohortName", GONE, {"cel", "workload-above-quota"}),
    ("fewer quotas than covered resources", "ClusterQueue/research", "spec/resourceGroups/0/flavors/1/resources/0", GONE, {"cel", "quota-resources"}),
    ("a rule that cannot be evaluated", "NodePool/serve", "spec/template/spec/requirements/0", {"key": "a", "operator": "In"}, {"cel-engine"}),
    # names
    ("a name in capitals", "PriorityClass/urgent", "metadata/name", "Urgent", {"name", "reference"}),
    ("no name", "NetworkPolicy/deny", "metadata/name", GONE, {"name"}),
    ("a namespace with a dot", "NetworkPolicy/deny", "metadata/namespace", "a.b", {"name", "reference"}),
    ("a name that is too long for its pods", "JobSet/tune", "spec/replicatedJobs/0/name", "workers" * 8, {"name"}),
    ("a cluster-scoped object with a namespace", "PriorityClass/urgent", "metadata/namespace", "research", {"scope"}),
    ("a label's value that is too long", "Namespace/research", "metadata/labels/a", LONG, {"label"}),
    ("a label's name with two slashes", "Namespace/research", "metadata/labels/a~b~c", "x", {"label"}),
    ("a space in a selector", "Deployment/chat", f"{CHAT}/nodeSelector/example.org~pool", "ser ve", {"label", "node-selector"}),
    ("an annotation that is no text", "JobSet/tune", "metadata/annotations", {"a": 1}, {"annotation"}),
    ("an amount in a unit that is none", "Deployment/chat", f"{CHAT}/containers/0/resources/limits/memory", "16GB", {"quantity"}),
    # references
    ("a namespace that nobody makes", "Namespace/research", "metadata/name", "other", {"reference"}),
    ("a queue that is not there", "LocalQueue/research", "spec/clusterQueue", "reserch", {"reference", "topology-level"}),
    ("a label to a queue that is not there", "JobSet/tune", "metadata/labels/kueue.x-k8s.io~queue-name", "q", {"reference", "topology-level"}),
    ("a priority that is not there", "JobSet/tune", "metadata/labels/kueue.x-k8s.io~priority-class", "low", {"reference"}),
    ("a flavor that is not there", "ClusterQueue/research", "spec/resourceGroups/0/flavors/1/name", "surve", {"reference"}),
    ("a topology that is not there", "ResourceFlavor/tune", "spec/topologyName", "fabrik", {"reference", "topology-level"}),
    ("a cohort that is not there", "ClusterQueue/research", "spec/cohortName", "sience", {"reference", "workload-above-quota"}),
    ("cohorts in a circle", "Cohort/everyone", "spec", {"parentName": "science"}, {"cycle"}),
    ("a cohort under itself", "Cohort/everyone", "spec", {"parentName": "everyone"}, {"cycle"}),
    ("an admission check that is not there", "AdmissionCheck/grow", "metadata/name", "shrink", {"reference"}),
    ("parameters that are not there", "AdmissionCheck/grow", "spec/parameters/name", "shrink", {"reference"}),
    ("a node class that is not there", "NodePool/serve", "spec/template/spec/nodeClassRef/name", "none", {"reference"}),
    ("a role that is not there", "RoleBinding/jobs", "roleRef/name", "job", {"reference"}),
    ("a cluster role that is not there", "RoleBinding/jobs", "roleRef", {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "jobs"}, {"reference"}),
    ("a cluster role that each cluster has", "RoleBinding/jobs", "roleRef", {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}, set()),
    ("a service account that is not there", "ServiceAccount/trainer", "metadata/name", "train", {"reference"}),
    ("a subject in another namespace", "RoleBinding/jobs", "subjects/1/namespace", "default", {"reference"}),
    ("a claim that is not there", "PersistentVolumeClaim/scratch", "metadata/name", "scrtch", {"reference", "claim"}),
    ("a volume that is not there", "PersistentVolumeClaim/scratch", "spec/volumeName", "none", {"reference"}),
    ("a class that is not there", "PersistentVolumeClaim/scratch", "spec", {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}, {"reference", "claim-sharing"}),
    ("a config map that is not there", "ConfigMap/nccl", "metadata/name", "ncl", {"reference"}),
    ("a config map that may be missing", "JobSet/tune", f"{CONTAINER}/envFrom/0/configMapRef", {"name": "x", "optional": True}, set()),
    ("a priority class that is not there", "Deployment/chat", f"{CHAT}/priorityClassName", "very-urgent", {"reference"}),
    ("a scaler of nothing", "HorizontalPodAutoscaler/chat", "spec/scaleTargetRef/name", "chatt", {"reference"}),
    ("a scaler of another kind", "HorizontalPodAutoscaler/chat", "spec/scaleTargetRef/kind", "StatefulSet", {"reference"}),
    ("a policy that is not there", "ValidatingAdmissionPolicyBinding/no-host", "spec/policyName", "none", {"reference"}),
    # policies
    ("a policy's rule that does not parse", "ValidatingAdmissionPolicy/no-host", "spec/validations/0/expression", "!variables.host)", {"cel-syntax"}),
    ("a policy's variable that is not there", "ValidatingAdmissionPolicy/no-host", "spec/validations/0/expression", "!variables.hosts", {"cel-variable"}),
    # quotas
    ("more GPUs promised than there are", "ClusterQueue/research", GPUS, "24", {"quota-above-pools"}),
    ("one GPU too many in the cohort", "Cohort/science", GPUS, "17", {"quota-above-pools"}),
    ("GPUs that nobody may use", "ClusterQueue/research", GPUS, "8", {"quota-below-pools", "workload-above-quota"}),
    ("more memory promised than there is", "ClusterQueue/research", "spec/resourceGroups/0/flavors/0/resources/1/nominalQuota", "9000Gi", {"quota-above-pools"}),
    ("a resource that the queue does not cover", "JobSet/tune", f"{CONTAINER}/resources/limits/ephemeral-storage", "10Gi", {"quota-uncovered"}),
    ("a gang larger than the quota", "JobSet/tune", "spec/replicatedJobs/0/template/spec/parallelism", 5, {"workload-above-quota", "gang-width"}),
    ("a resource in another order", "ClusterQueue/research", "spec/resourceGroups/0/coveredResources", ["memory", "cpu", "nvidia.com/gpu"], {"quota-resources"}),
    ("borrowing that is too little", "ClusterQueue/research", "spec/resourceGroups/0/flavors/0/resources/2/borrowingLimit", "8", {"workload-above-quota"}),
    # placement
    ("a level that no pool's nodes are labelled with", "Topology/fabric", "spec/levels/0/nodeLabel", "example.org/rack", {"topology-label", "topology-level"}),
    ("the host in the middle", "Topology/fabric", "spec/levels", [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "topology.k8s.aws/network-node-layer-1"}], {"cel", "topology-order"}),
    ("a flavor of no pool", "ResourceFlavor/serve", "spec/nodeLabels/example.org~pool", "surve", {"flavor-pool", "quota-above-pools"}),
    ("a flavor whose pool has no such level", "ResourceFlavor/serve", "spec/topologyName", "fabric", {"topology-label"}),
    ("a flavor without its pool's toleration", "ResourceFlavor/tune", "spec/tolerations", [], {"flavor-toleration"}),
    ("a flavor that tolerates what no node has", "ResourceFlavor/tune", "spec/tolerations/0/key", "amd.com/gpu", {"flavor-toleration", "toleration"}),
    ("a toleration of another value", "Deployment/chat", f"{CHAT}/tolerations/0", {"key": "nvidia.com/gpu", "operator": "Equal", "value": "true"}, {"toleration", "untolerated"}),
    ("GPU pods that tolerate nothing", "Deployment/chat", f"{CHAT}/tolerations", [], {"untolerated"}),
    ("a selector that no pool has", "Deployment/chat", f"{CHAT}/nodeSelector", {"pool": "serve"}, {"node-label", "node-selector"}),
    ("a pool that is not there", "Deployment/chat", f"{CHAT}/nodeSelector/example.org~pool", "serv", {"node-selector"}),
    ("an affinity to what no node has", "Deployment/chat", f"{CHAT}/affinity", {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}}}, {"node-label", "node-selector"}),
    ("a spread over what no node has", "Deployment/chat", f"{CHAT}/topologySpreadConstraints", [{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "chat"}}}], {"node-label"}),
    ("nodes made without their pool's label", "NodePool/serve", "spec/template/metadata/labels", {"pool": "serve"}, {"node-pool"}),
    ("nodes made without their pool's taint", "NodePool/serve", "spec/template/spec/taints", [], {"node-pool"}),
    ("nodes made with another taint", "NodePool/serve", "spec/template/spec/taints/0/effect", "NoExecute", {"node-pool"}),
    ("a level that is not in the queue's topology", "JobSet/tune", f"{GANG}/metadata/annotations/{LEVEL}", "topology.k8s.aws/network-node-layer-2", {"topology-level"}),
    ("more GPUs than a node has", "JobSet/tune", f"{CONTAINER}/resources", {"limits": {"nvidia.com/gpu": 16}}, {"too-large", "workload-above-quota"}),
    ("more memory than a node has", "Deployment/chat", f"{CHAT}/containers/0/resources", {"limits": {"memory": "2Ti", "nvidia.com/gpu": 1}}, {"too-large"}),
    ("more pods that exclude each other than nodes", "Deployment/chat", "spec", {**pick(good(), "Deployment/chat")["spec"], "replicas": 5, "template": {**pick(good(), "Deployment/chat")["spec"]["template"], "spec": {**pick(good(), "Deployment/chat")["spec"]["template"]["spec"], "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {"matchLabels": {"app": "chat"}}, "topologyKey": "kubernetes.io/hostname"}]}}}}}, {"spread", "replicas"}),
    # resources
    ("a GPU request that is not the limit", "JobSet/tune", f"{CONTAINER}/resources/requests/nvidia.com~gpu", 4, {"resources"}),
    ("a GPU request without a limit", "Deployment/chat", f"{CHAT}/containers/0/resources", {"requests": {"nvidia.com/gpu": 1}}, {"resources"}),
    ("half a GPU", "Deployment/chat", f"{CHAT}/containers/0/resources/limits/nvidia.com~gpu", "500m", {"resources"}),
    ("a request above its limit", "JobSet/tune", f"{CONTAINER}/resources/requests/memory", "901Gi", {"resources"}),
    ("shared memory above the memory limit", "JobSet/tune", f"{GANG}/spec/volumes/0/emptyDir/sizeLimit", "1Ti", {"shm"}),
    ("shared memory without a size", "JobSet/tune", f"{GANG}/spec/volumes/0/emptyDir", {"medium": "Memory"}, {"shm"}),
    # pairs
    ("a selector that misses its own pods", "Deployment/chat", "spec/template/metadata/labels/app", "chatt", {"selector"}),
    ("a service of no pods", "Service/chat", "spec/selector/app", "chatt", {"selector"}),
    ("a job that restarts always", "JobSet/tune", f"{GANG}/spec/restartPolicy", "Always", {"restart-policy"}),
    ("a restart policy that JobSet's webhook fills", "JobSet/tune", f"{GANG}/spec/restartPolicy", GONE, set()),
    ("a mount of no volume", "JobSet/tune", f"{CONTAINER}/volumeMounts/0/name", "shn", {"volume"}),
    ("fewer replicas at most than at least", "HorizontalPodAutoscaler/chat", "spec/maxReplicas", 1, {"replicas"}),
    ("a job that waits for one that is not there", "JobSet/tune", "spec/replicatedJobs/0/dependsOn", [{"name": "data", "status": "Ready"}], {"depends-on"}),
    ("a claim larger than its volume", "PersistentVolumeClaim/scratch", "spec/resources/requests/storage", "2400Gi", {"claim"}),
    ("a claim in a way that its volume has not", "PersistentVolume/research-scratch", "spec/accessModes", ["ReadWriteOnce"], {"claim"}),
    ("a claim that leaves its class to the default", "PersistentVolumeClaim/scratch", "spec/storageClassName", GONE, {"claim"}),
    ("a volume that is kept for another", "PersistentVolume/research-scratch", "spec/claimRef/name", "home", {"claim"}),
]  # fmt: skip


def rules(manifests: list[Any], facts: Facts = FACTS) -> set[str]:
    return {finding.rule for finding in check(manifests, facts)}


@pytest.mark.parametrize(("what", "path", "value", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])  # fmt: skip
def test_each_change_is_reported_by_its_rule(what: str, path: str, value: Any, expected: set[str]) -> None:
    assert rules(changed(what, path, value)) == expected


@pytest.mark.parametrize("release", ["1.34", "1.35", "1.36", "1.37"])
def test_good_manifests_pass_on_every_release(release: str) -> None:
    assert check(good(), replace(FACTS, kubernetes=release)) == ()


def test_duplicate_object_is_reported() -> None:
    twice = [*good(), pick(good(), "Service/chat")]
    (found,) = check(twice, FACTS)
    assert (found.rule, found.document) == ("duplicate", len(twice))


def test_two_start_orders_are_reported() -> None:
    manifests = changed("JobSet/tune", "spec/startupPolicy", {"startupPolicyOrder": "InOrder"})
    jobs = pick(manifests, "JobSet/tune")["spec"]["replicatedJobs"]
    jobs.append({**jobs[0], "name": "late", "dependsOn": [{"name": "workers", "status": "Ready"}]})
    assert "cel" in rules(manifests)


def test_two_volumes_with_one_handle_are_reported() -> None:
    manifests = good()
    volume = pick(manifests, "PersistentVolume/research-scratch")
    other = {**volume, "metadata": {"name": "other"}, "spec": {**volume["spec"], "claimRef": None}}
    del other["spec"]["claimRef"]
    assert rules([*manifests, other]) == {"volume-handle"}


def native(api_version: str) -> Any:
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": 4}}}
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": "g", "namespace": "research"}, "spec": spec}  # fmt: skip


def test_beta_that_is_off_is_an_error_on_eks_and_a_warning_elsewhere() -> None:
    manifests = [*good(), native("scheduling.k8s.io/v1beta1")]
    on_eks = check(manifests, replace(FACTS, kubernetes="1.37"))
    assert [(finding.rule, finding.level) for finding in on_eks] == [("not-served", Severity.ERROR)]
    facts = replace(FACTS, kubernetes="1.37", distribution=Facts(kubernetes="1.37").distribution)
    elsewhere = check(manifests, facts)
    assert [(finding.rule, finding.level) for finding in elsewhere] == [("off-by-default", Severity.WARNING)]


def test_api_of_another_release_names_the_release() -> None:
    (found,) = check([*good(), native("scheduling.k8s.io/v1beta1")], FACTS)
    assert found.message == "Kubernetes 1.36 does not serve scheduling.k8s.io/v1beta1 PodGroup; 1.37 does"


def test_volcanos_pod_group_is_not_taken_for_kubernetes_own() -> None:
    assert rules([*good(), native("scheduling.volcano.sh/v1beta1")]) == set()


def test_objects_of_a_chart_count_as_present() -> None:
    manifests = changed("RoleBinding/jobs", "roleRef/name", "kueue-batch-user-role")
    pick(manifests, "RoleBinding/jobs")["roleRef"]["kind"] = "ClusterRole"
    assert rules(manifests) == {"reference"}
    present = (*FACTS.present, Present(kind="ClusterRole", name="kueue-batch-user-role"))
    assert rules(manifests, replace(FACTS, present=present)) == set()


# a sentence, the object that is not in the input, the rules that say so when the input is whole
ELSEWHERE: list[tuple[str, str, set[str]]] = [
    ("a cluster queue", "ClusterQueue/research", {"reference", "topology-level"}),
    ("a topology", "Topology/fabric", {"reference", "topology-level"}),
    ("a flavor", "ResourceFlavor/tune", {"reference", "topology-level", "workload-above-quota"}),
    ("a service account", "ServiceAccount/trainer", {"reference"}),
    ("a namespace", "Namespace/research", {"reference"}),
    ("a config map", "ConfigMap/nccl", {"reference"}),
    ("the pods of a service", "Deployment/chat", {"reference", "selector"}),
]


@pytest.mark.parametrize(("what", "expected"), [row[1:] for row in ELSEWHERE], ids=[row[0] for row in ELSEWHERE])  # fmt: skip
def test_part_of_a_cluster_may_leave_an_object_out(what: str, expected: set[str]) -> None:
    manifests = good()
    manifests.remove(pick(manifests, what))
    part = replace(FACTS, whole=False, pools=None)
    assert {finding.rule for finding in check(manifests, part) if finding.level is Severity.ERROR} == set()
    assert rules(manifests) <= expected | {"toleration", "quota-below-pools", "quota-above-pools"}
    assert rules(manifests) & expected


def untolerant() -> list[Any]:
    bare = changed("ResourceFlavor/tune", "spec/tolerations", [])
    return changed("ResourceFlavor/serve", "spec/tolerations", [], bare)


@pytest.mark.parametrize("what", ["ResourceFlavor/tune", "ClusterQueue/research", "LocalQueue/research"])
def test_tolerations_of_a_flavor_that_is_elsewhere_are_unknown(what: str) -> None:
    """Kueue gives the tolerations of the flavor to the pods. Red before: "it would stay pending"."""
    manifests = good()
    manifests.remove(pick(manifests, what))
    assert "untolerated" not in rules(manifests)
    assert "untolerated" in rules(untolerant())


def test_each_flavor_gives_only_its_own_tolerations() -> None:
    """Kueue gives the tolerations of the flavor that it takes. Red before: those of another flavor of the queue counted."""
    manifests = changed("ResourceFlavor/tune", "spec/tolerations", [])
    queue = pick(manifests, "ClusterQueue/research")["spec"]["resourceGroups"][0]["flavors"]
    assert [one["name"] for one in queue] == ["tune", "serve"]
    serve = pick(manifests, "ResourceFlavor/serve")["spec"]
    serve["nodeLabels"] = {"example.org/pool": "other"}
    assert "untolerated" in rules(manifests)
    serve["nodeLabels"] = {"example.org/pool": "serve"}
    del serve["tolerations"]
    assert "untolerated" in rules(manifests)


def test_runtime_has_the_flavors_of_its_trainjobs() -> None:
    """The pods of a runtime are in the queue of the TrainJob that names it. Red before."""
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch", "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [pick(good(), "JobSet/tune")["spec"]["replicatedJobs"][0]]}}},
    }  # fmt: skip
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {**pick(good(), "JobSet/tune")["metadata"], "name": "tune-2"},
        "spec": {"runtimeRef": {"name": "torch"}},
    }
    assert "untolerated" not in rules([*good(), runtime, job])
    assert "untolerated" not in rules([*good(), runtime])
    assert "untolerated" in rules([*untolerant(), runtime, job])


def test_quotas_of_a_part_of_a_cluster_are_warnings() -> None:
    """Kueue's configuration can transform resources, and a cohort can have more members than the manifests."""
    manifests = changed("JobSet/tune", "spec/replicatedJobs/0/template/spec/parallelism", 4)
    limits = pick(manifests, "JobSet/tune")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"][
        "spec"
    ]
    limits["containers"][0]["resources"]["limits"]["ephemeral-storage"] = "10Gi"
    queue = pick(manifests, "ClusterQueue/research")["spec"]["resourceGroups"][0]["flavors"][0]["resources"][
        2
    ]
    queue["borrowingLimit"] = "8"
    found = check(manifests, replace(FACTS, whole=False, pools=None))
    assert {(one.rule, one.level) for one in found} == {
        ("quota-uncovered", Severity.WARNING),
        ("workload-above-quota", Severity.WARNING),
    }


def test_pool_that_lost_its_taint_leaves_tolerations_without_meaning() -> None:
    bare = tuple(replace(one, taints=()) for one in FACTS.pools or ())
    assert rules(good(), replace(FACTS, pools=bare)) == {"toleration"}


def test_daemons_take_their_share_of_a_node() -> None:
    hungry = tuple(replace(one, daemons={"cpu": "20"}) for one in FACTS.pools or ())
    assert rules(good(), replace(FACTS, pools=hungry)) == {"too-large"}


def test_pool_that_shrank_makes_quotas_too_large() -> None:
    small = (replace(pool("tune", **FABRIC), max_nodes=3), pool("serve"))
    assert rules(good(), replace(FACTS, pools=small)) == {"quota-above-pools"}


def test_another_taint_on_a_pool_keeps_its_pods_away() -> None:
    extra = Taint(key="example.org/reserved", effect="NoExecute")
    pools = tuple(replace(one, taints=(*one.taints, extra)) for one in FACTS.pools or ())
    assert rules(good(), replace(FACTS, pools=pools)) == {"flavor-toleration", "node-pool", "untolerated"}


def test_pool_label_with_any_value_matches_a_selector() -> None:
    pools = tuple(replace(one, labels={**one.labels, "example.org/pool": ANY}) for one in FACTS.pools or ())
    assert "node-selector" not in rules(good(), replace(FACTS, pools=pools))
