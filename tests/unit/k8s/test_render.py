"""Plan to manifests: the whole tree of the stack, and each decision in it."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.builders import a_kube_plan, a_plan
from support.golden_tree import Golden
from support.kube import BOUND, USUAL_WAVES, Change, files, golden_files, objects

from gpucluster import k8s
from gpucluster.k8s.lint.read import read
from gpucluster.k8s.render import COMPONENTS
from gpucluster.k8s.waves import WAVES
from gpucluster.plan import codec, names, plan_json
from gpucluster.plan import kubernetes as kube
from gpucluster.plan.model.values import MEMORY, quantity
from gpucluster.spec.fields import MAX_NAME

KUBE = Path(__file__).parents[3] / "stacks/kube.yaml"
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
HOST = "kubernetes.io/hostname"
TEAM_POLICIES = {"default-deny", "dns", "within-team", "services", "https-out"}
ANYWHERE = "kueue.x-k8s.io/podset-unconstrained-topology"
CPUS = ("machines: [p4de.24xlarge]}]\n  - name: serve", "machines: [m7i.2xlarge]}]\n  - name: serve")


@cache
def _objects(*changes: Change, running: tuple[Change, ...] = ()) -> dict[str, Any]:
    return objects(files(*changes, running=running))


def _gang(*changes: Change, running: tuple[Change, ...] = ()) -> Any:
    jobset = _objects(*changes, running=running)["JobSet/research/tune"]
    return jobset["spec"]["replicatedJobs"][0]["template"]["spec"]


def _chat(*changes: Change, running: tuple[Change, ...] = ()) -> Any:
    return _objects(*changes, running=running)["Deployment/serving/chat"]["spec"]["template"]["spec"]


def _env(pod: Any) -> dict[str, Any]:
    return {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}


def test_kube_stack_is_the_golden_tree(golden: Golden) -> None:
    golden("kube", golden_files(KUBE))


def test_same_plan_renders_the_same_bytes() -> None:
    assert k8s.render(a_kube_plan()) == k8s.render(plan_json.load(codec.dumps(a_kube_plan())))


def test_plan_without_kubernetes_has_no_manifests() -> None:
    with pytest.raises(ValueError, match="found no kubernetes in the plan"):
        k8s.render(a_plan())


def test_names_that_only_a_hyphen_divides_have_files_and_volumes_of_their_own() -> None:
    """Regression: `b-c` of team `a` and `c` of team `a-b` were one file, so a service, a gang and a volume were lost."""
    hyphens = (
        ("name: serving", "name: a"),
        ("name: research, quota: {nvidia.com/gpu: 32}", "name: a-b, quota: {nvidia.com/gpu: 32, nvidia.com/mig-1g.10gb: 14}"),
        ("  - {mount: /data, fsx_lustre: {zone: us-west-2a, size: 2400GiB}}\n",
         "".join(f'  - {{mount: /{path}, nfs: {{server: 192.0.2.4, export: /x}}}}\n' for path in ("b-c", "c"))),
    )  # fmt: skip
    twins = (
        ("name: chat\n    team: serving", "name: b-c\n    team: a"),
        ("train:\n  - name: tune\n    team: research",
         "  - {name: c, team: a-b, image: x, resources: {nvidia.com/mig-1g.10gb: 1}, replicas: {min: 1, max: 1}}\n"
         "train:\n  - name: tune\n    team: a-b"),
    )  # fmt: skip
    found = _objects(*hyphens, running=twins)
    assert {key for key in found if key.startswith("Deployment/")} == {"Deployment/a/b-c", "Deployment/a-b/c"}
    volumes = [one for one in found.values() if one["kind"] == "PersistentVolume"]
    assert len({one["metadata"]["name"] for one in volumes}) == 4


# --- waves and Kustomize ------------------------------------------------------------------------


def _yaml(text: str) -> Any:
    got = read(text, "file")
    assert not got.findings
    return got.documents[0].value


def test_kustomize_names_exactly_the_files() -> None:
    texts = files()
    top = _yaml(texts["kustomization.yaml"])["resources"]
    named = {
        f"{wave}/{file}" for wave in top for file in _yaml(texts[f"{wave}/kustomization.yaml"])["resources"]
    }
    beside = {
        path
        for path in texts
        if path.endswith((".md", "kustomization.yaml")) or path.startswith(("argocd/", "flux/", "helm/"))
    }
    assert named == texts.keys() - beside
    assert top == sorted(top) == [w.folder for w in USUAL_WAVES]


def test_wave_without_files_is_not_in_the_list() -> None:
    texts = files(("nodes: {min: 1, max: 6}", "nodes: 6"))
    assert "20-nodes" not in texts["kustomization.yaml"]
    assert not [path for path in texts if path.startswith("20-nodes")]


def test_objects_refer_only_to_earlier_waves() -> None:
    order = {wave.folder: number for number, wave in enumerate(WAVES)}
    texts = files(bindings=BOUND)
    place = {
        key: order[path.split("/")[0]]
        for path, text in texts.items()
        if path.split("/")[0] in order and "kustomization" not in path
        for key in objects({path: text})
    }
    assert (
        place["Namespace/research"]
        < place["Role/research/team-member"]
        < place["LocalQueue/research/default"]
    )
    assert place["PersistentVolume/kube-research.data"] <= place["PersistentVolumeClaim/research/data"]
    assert place["ClusterQueue/kube-research"] <= place["LocalQueue/research/default"]
    assert max(place[k] for k in place if "Queue/" in k) < place["Deployment/serving/chat"]
    assert place["PersistentVolumeClaim/research/data"] < place["JobSet/research/tune"]


def test_every_component_is_used_by_some_spec() -> None:
    nfs = ("fsx_lustre: {zone: us-west-2a, size: 2400GiB}", "nfs: {server: 192.0.2.5, export: /srv}")
    made = {*files(bindings=BOUND), *files(nfs)}
    stems = {path.split("/")[-1] for path in made}
    assert len({(c.wave, c.template) for c in COMPONENTS}) == len(COMPONENTS)
    assert {"overlay", "volume", "autoscaler"} & {stem.split("-")[0] for stem in stems} >= {
        "volume",
        "autoscaler",
    }


def test_lustre_of_the_site_gets_the_default_size() -> None:
    """The spec does not have its size, and Kubernetes refuses a volume of 0Gi."""
    made = files(
        (
            "fsx_lustre: {zone: us-west-2a, size: 2400GiB}",
            "fsx_lustre: {zone: us-west-2a, id: fs-0123456789abcdef0}",
        ),
        bindings=BOUND,
    )
    sizes = re.findall(r'storage: "?(\w+)', "".join(made.values()))
    assert quantity(MEMORY, int(kube.VOLUME_GIB.value) * 1024) in sizes
    assert "0" not in sizes


# --- namespaces, rights, borders ----------------------------------------------------------------


def test_namespace_allows_privileges_of_its_pods_and_a_policy_limits_them() -> None:
    found = _objects()
    labels = {name: found[f"Namespace/{name}"]["metadata"]["labels"] for name in ("serving", "research")}
    enforce = "pod-security.kubernetes.io/enforce"
    assert (labels["serving"][enforce], labels["research"][enforce]) == ("baseline", "privileged")
    assert labels["research"][f"{enforce}-version"] == "v1.36"
    selector = found["ValidatingAdmissionPolicyBinding/kube-pod-guard"]["spec"]["matchResources"][
        "namespaceSelector"
    ]
    assert selector["matchLabels"].items() <= labels["research"].items()
    assert not selector["matchLabels"].items() <= labels["serving"].items()


def test_no_privileged_namespace_no_policy() -> None:
    plan = a_kube_plan(CPUS, ("{nvidia.com/gpu: 32}", "{cpu: 8}"))
    assert not [a.path for a in k8s.render(plan) if "guard" in a.path]


def test_team_has_rights_in_its_namespace_only() -> None:
    found = _objects()
    assert not [key for key in found if key.startswith(("ClusterRole/", "ClusterRoleBinding/"))]
    binding = found["RoleBinding/serving/team-member"]
    assert binding["subjects"] == [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "gpucluster:serving"}
    ]
    rules = found["Role/serving/team-member"]["rules"]
    assert not any("*" in rule["verbs"] + rule["resources"] + rule["apiGroups"] for rule in rules)
    may = {resource: set(rule["verbs"]) for rule in rules for resource in rule["resources"]}
    for theirs in (
        "resourcequotas",
        "limitranges",
        "networkpolicies",
        "localqueues",
        "persistentvolumeclaims",
    ):
        assert may[theirs] <= {"get", "list", "watch"}
    assert not may.keys() & {"roles", "rolebindings", "clusterqueues", "namespaces", "nodes"}


def test_gpus_are_counted_once_by_the_queue() -> None:
    hard = _objects()["ResourceQuota/research/team"]["spec"]["hard"]
    assert not [key for key in hard if "gpu" in key or "cpu" in key or "memory" in key]


def test_every_container_has_resource_requests() -> None:
    (limit,) = _objects()["LimitRange/research/team"]["spec"]["limits"]
    assert limit["defaultRequest"].keys() == {"cpu", "memory"}


def test_network_policy_allows_only_named_traffic() -> None:
    found = {k: v["spec"] for k, v in _objects().items() if k.startswith("NetworkPolicy/research/")}
    deny = found["NetworkPolicy/research/default-deny"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    inside = found["NetworkPolicy/research/within-team"]
    assert inside["ingress"] == [{"from": [{"podSelector": {}}]}]  # every port: NCCL's are random
    (out,) = found["NetworkPolicy/research/https-out"]["egress"]
    assert out["to"][0]["ipBlock"]["except"] == ["169.254.0.0/16", "10.60.0.0/16"]


def test_pods_of_a_team_reach_the_services_of_another() -> None:
    """Regression: every pod of the cluster may ask a service, but no policy let the pods of another team out to it."""
    found = _objects()
    (out,) = found["NetworkPolicy/research/services"]["spec"]["egress"]
    (to,) = out["to"]
    assert "ports" not in out  # the policy of the service has its port
    assert (
        to["namespaceSelector"]["matchLabels"].items()
        <= found["Namespace/serving"]["metadata"]["labels"].items()
    )
    (key,) = (one["key"] for one in to["podSelector"]["matchExpressions"])
    assert key in found["Deployment/serving/chat"]["spec"]["template"]["metadata"]["labels"]
    assert found["NetworkPolicy/serving/service-chat"]["spec"]["ingress"][0]["from"] == [
        {"namespaceSelector": {}}
    ]


@pytest.mark.parametrize(
    "name", ["dns", "within-team", "default-deny", "https-out", "pod-identity", "services"]
)
def test_service_replaces_no_policy_of_its_team(name: str) -> None:
    """Regression: the policy of a service had the service's name, so a service `dns` took the team's way to the DNS."""
    found = _objects(running=(("name: chat", f"name: {name}"),))
    mine = found[f"NetworkPolicy/serving/service-{name}"]
    assert mine["spec"]["podSelector"] == {"matchLabels": {"gpucluster/workload": name}}
    teams = {key for key in found if key.startswith("NetworkPolicy/serving/")} - {
        f"NetworkPolicy/serving/service-{name}"
    }
    assert teams == {f"NetworkPolicy/serving/{one}" for one in TEAM_POLICIES}


def test_longest_service_has_a_name_for_its_policy() -> None:
    assert len(names.service_policy("a" * MAX_NAME)) <= 63


# --- queues -------------------------------------------------------------------------------------


def _quotas(queue: Any) -> dict[tuple[str, str], tuple[str, str]]:
    return {
        (flavor["name"], row["name"]): (row["nominalQuota"], row.get("borrowingLimit", ""))
        for group in queue["spec"].get("resourceGroups", [])
        for flavor in group["flavors"]
        for row in flavor["resources"]
    }


def test_team_without_borrowing_has_only_its_quota() -> None:
    rows = _quotas(_objects()["ClusterQueue/kube-research"])
    assert rows["kube-tune.zone-spine-block-leaf-host", "nvidia.com/gpu"] == ("32", "0")
    assert rows["kube-tune.zone-spine-block-leaf-host", "vpc.amazonaws.com/efa"] == ("16", "0")
    assert {limit for _, limit in rows.values()} == {"0"}


def test_borrowing_limit_is_the_rest_of_the_pools() -> None:
    found = _objects()
    slices = ("kube-serve", "nvidia.com/mig-1g.10gb")
    assert _quotas(found["ClusterQueue/kube-serving"])[slices] == ("28", "308")
    assert _quotas(found["Cohort/kube"])[slices] == ("308", "")
    assert found["ClusterQueue/kube-serving"]["spec"]["preemption"]["reclaimWithinCohort"] == "Any"


def test_cohort_without_unassigned_capacity_lends_nothing() -> None:
    found = _objects(("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/mig-1g.10gb: 336}"))
    assert "resourceGroups" not in found["Cohort/kube"].get("spec", {})


def test_queue_covers_all_requested_resources() -> None:
    found = _objects()
    pairs = [
        ("ClusterQueue/kube-research", _gang()["template"]["spec"]),
        ("ClusterQueue/kube-serving", _chat()),
    ]
    for queue, pod in pairs:
        covered = set(found[queue]["spec"]["resourceGroups"][0]["coveredResources"])
        assert pod["containers"][0]["resources"]["requests"].keys() <= covered


def test_flavor_has_toleration_and_topology_only_for_always_on_nodes() -> None:
    found = _objects()
    flavors = ("tune.zone-spine-block-leaf-host", "serve")
    tune, serve = (found[f"ResourceFlavor/kube-{name}"]["spec"] for name in flavors)
    assert tune["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert tune["nodeLabels"] == {"gpucluster/cluster": "kube", "gpucluster/pool": "tune"}
    assert tune["topologyName"] == "kube-topology-zone-spine-block-leaf-host"
    assert "topologyName" not in serve
    levels = [
        level["nodeLabel"]
        for level in found["Topology/kube-topology-zone-spine-block-leaf-host"]["spec"]["levels"]
    ]
    assert levels[-1] == HOST
    assert len(levels) == 5


def test_pool_with_another_topology_has_another_flavor() -> None:
    """Regression: a ResourceFlavor never changes its topology, so `k8s up` was refused after an edit of `nodes`."""
    spare = ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 24}")
    fixed, elastic = (
        objects({one.path.removeprefix("k8s/"): one.content.decode() for one in k8s.render(plan)})
        for plan in (
            a_kube_plan(spare),
            a_kube_plan(spare, ("    nodes: 4\n", "    nodes: {min: 1, max: 4}\n")),
        )
    )
    for found, pool in ((fixed, "kube-tune.zone-spine-block-leaf-host"), (elastic, "kube-tune.2a")):
        queue = found["ClusterQueue/kube-research"]["spec"]["resourceGroups"][0]["flavors"]
        (cohort,) = found["Cohort/kube"]["spec"]["resourceGroups"]
        assert f"ResourceFlavor/{pool}" in found
        assert pool in [one["name"] for one in queue]
        assert pool in [one["name"] for one in cohort["flavors"]]
    both = {key for key in fixed.keys() & elastic.keys() if key.startswith("ResourceFlavor/")}
    assert both == {"ResourceFlavor/kube-serve"}


def test_job_without_a_queue_uses_the_queue_of_the_team() -> None:
    queue = _objects()["LocalQueue/serving/default"]
    assert queue["spec"] == {"clusterQueue": "kube-serving"}
    config = _yaml(_yaml(files()["helm/kueue.yaml"])["managerConfig"]["controllerManagerConfigYaml"])
    assert config["manageJobsWithoutQueueName"] is True
    namespace = _objects()["Namespace/serving"]["metadata"]["labels"]
    assert config["managedJobsNamespaceSelector"]["matchLabels"].items() <= namespace.items()
    assert {"pod", "deployment", "jobset.x-k8s.io/jobset"} <= set(config["integrations"]["frameworks"])


# --- nodes --------------------------------------------------------------------------------------


def test_karpenter_has_only_elastic_pools() -> None:
    found = _objects()
    assert [key for key in found if key.startswith("NodePool/")] == ["NodePool/kube-serve-0"]
    spec = found["NodePool/kube-serve-0"]["spec"]
    assert spec["limits"] == {"cpu": str(5 * 96), "nodes": "5", "nvidia.com/mig-1g.10gb": str(5 * 56)}
    assert spec["disruption"]["consolidationPolicy"] == "WhenEmpty"
    assert spec["disruption"]["consolidateAfter"] == "1800s"
    assert {"nodes": "0", "reasons": ["Drifted"]} in spec["disruption"]["budgets"]
    template = spec["template"]
    assert template["spec"]["expireAfter"] == "Never"
    assert template["metadata"]["labels"]["nvidia.com/mig.config"].startswith("kube-serve-")
    assert template["spec"]["taints"] == [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    ]


def test_sources_are_tried_in_order_by_weight() -> None:
    more = "capacity: [{from: spot, machines: [p4de.24xlarge], max: 2}, {from: on-demand, machines: [p4de.24xlarge]}]"
    found = _objects(("capacity: [{from: spot, machines: [p4de.24xlarge]}]", more))
    first, second = (found[f"NodePool/kube-serve-{n}"]["spec"] for n in (0, 1))
    assert first["weight"] > second["weight"]
    slices = [spec["limits"]["nvidia.com/mig-1g.10gb"] for spec in (first, second)]
    assert slices == [str((2 - 1) * 56), str(4 * 56)]  # one node of the first source is always on
    market = {r["key"]: r["values"] for r in first["template"]["spec"]["requirements"]}
    assert market["karpenter.sh/capacity-type"] == ["spot"]


def test_spot_needs_the_queue_of_notices() -> None:
    assert _yaml(files()["helm/karpenter.yaml"])["settings"]["interruptionQueue"] == "kube-interruptions"
    on_demand = files(("from: spot", "from: on-demand"))
    assert "interruptionQueue" in on_demand["helm/karpenter.yaml"], "EC2 also announces maintenance"
    owner = files(
        ("from: spot", "from: on-demand"),
        ("control_plane: eks", "existing: {context: prod, eks_name: prod}"),
        running=(("required: block", "required: zone"),),
    )
    assert "interruptionQueue" not in owner["helm/karpenter.yaml"]


def test_karpenter_knows_its_cluster() -> None:
    """Regression: the values for a cluster of the site had no name, and Karpenter does not start without."""
    owner = files(
        ("control_plane: eks", "existing: {context: prod, eks_name: research}"),
        running=(("required: block", "required: zone"),),
    )
    assert _yaml(owner["helm/karpenter.yaml"])["settings"]["clusterName"] == "research"
    assert _yaml(files()["helm/karpenter.yaml"])["settings"]["clusterName"] == "kube"


def test_node_class_selects_by_tags_without_ids() -> None:
    spec = _objects()["EC2NodeClass/kube-serve"]["spec"]
    ours = {"gpucluster:cluster": "kube", "gpucluster:role": "kubernetes-node"}
    assert spec["subnetSelectorTerms"] == [{"tags": ours}], "public subnets have the first tag, too"
    assert spec["securityGroupSelectorTerms"] == [{"tags": ours}]
    assert (spec["instanceProfile"], "role" in spec) == ("kube-kubernetes-node", False)
    assert spec["instanceStorePolicy"] == "RAID0"
    assert spec["metadataOptions"]["httpPutResponseHopLimit"] == 1
    assert "networkInterfaces" not in spec  # sliced GPUs have no fabric


def test_elastic_pool_with_a_fabric_has_an_efa_on_each_card() -> None:
    spec = _objects(
        ("    nodes: 4\n", "    nodes: {min: 2, max: 4}\n"),
        running=(("    topology: {required: block}\n", ""),),
    )
    cards = spec["EC2NodeClass/kube-tune.2a"]["spec"]["networkInterfaces"]
    assert cards[0] == {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
    assert [(c["networkCardIndex"], c["deviceIndex"]) for c in cards[1:]] == [(0, 1), (1, 0), (2, 0), (3, 0)]
    assert {c["interfaceType"] for c in cards[1:]} == {"efa-only"}


def test_karpenter_has_one_pod_where_one_node_takes_it() -> None:
    """Its chart keeps its two pods on two nodes. One waited for ever, and `validate` reported it."""

    def replicas(*changes: tuple[str, str]) -> object:
        return _yaml(files(*changes)["helm/karpenter.yaml"]).get("replicas")

    one = ("control_plane: eks", "control_plane: eks\n  system: {nodes: 1}")
    more = "pools:\n  - {name: c, nodes: 1, capacity: [{from: on-demand, machines: [m7i.2xlarge]}]}\n"
    assert replicas(one) == 1
    assert replicas(one, ("pools:\n", more)) is None
    assert replicas() is None


def test_karpenter_gets_mig_capacity() -> None:
    overlay = _objects()["NodeOverlay/kube-serve"]["spec"]
    assert overlay["capacity"] == {"nvidia.com/mig-1g.10gb": "56"}
    assert overlay["requirements"][0]["values"] == ["kube-serve-0"]
    assert _yaml(files()["helm/karpenter.yaml"])["settings"]["featureGates"]["nodeOverlay"] is True


def test_karpenter_gets_huge_pages_which_it_does_not_know_of_a_machine() -> None:
    """Gangs with EFA request them: without the overlay no node would start for an elastic pool."""
    elastic = ("    nodes: 4\n", "    nodes: {min: 0, max: 4}\n")
    texts = files(elastic, running=(("    topology: {required: block}\n", ""),))
    made = objects(texts)
    assert made["NodeOverlay/kube-tune.2a"]["spec"]["capacity"] == {"hugepages-2Mi": "5Gi"}
    assert _yaml(texts["helm/karpenter.yaml"])["settings"]["featureGates"]["nodeOverlay"] is True


def test_static_nodes_need_no_overlay() -> None:
    static = ("nodes: {min: 1, max: 6}", "nodes: 6")
    assert not [key for key in objects(files(static)) if key.startswith("NodeOverlay/")]


# --- GPU operator -------------------------------------------------------------------------------


def test_on_eks_the_image_owns_the_driver_and_the_operator_the_slices() -> None:
    values = _yaml(files()["helm/gpu-operator.yaml"])
    assert (values["driver"], values["toolkit"]) == ({"enabled": False}, {"enabled": False})
    assert values["mig"] == {"strategy": "mixed"}
    config = values["migManager"]["config"]
    assert (config["create"], config["name"]) == (True, "kube-mig")
    parted = _yaml(config["data"]["config.yaml"])["mig-configs"]
    labels = _objects()["NodePool/kube-serve-0"]["spec"]["template"]["metadata"]["labels"]
    sliced = parted[labels["nvidia.com/mig.config"]]
    assert sliced == [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}]
    assert config["default"] in parted


def test_other_slices_have_another_label() -> None:
    """Regression: the label was the name of the pool, and the MIG manager slices again only when the label changes."""

    def label(*changes: tuple[str, str]) -> str:
        template = _objects(*changes)["NodePool/kube-serve-0"]["spec"]["template"]
        return str(template["metadata"]["labels"]["nvidia.com/mig.config"])

    other = (("mig: {1g.10gb: 7}", "mig: {3g.40gb: 2}"), ("mig-1g.10gb: 28", "mig-3g.40gb: 8"))
    running = (("mig-1g.10gb: 1", "mig-3g.40gb: 1"),)
    template = objects(files(*other, running=running))["NodePool/kube-serve-0"]["spec"]["template"]
    assert template["metadata"]["labels"]["nvidia.com/mig.config"] != label()
    assert label(("max: 6", "max: 5")) == label()


def test_driver_of_an_existing_cluster_is_not_set() -> None:
    existing = ("control_plane: eks", "existing: {context: prod, eks_name: prod}")
    values = _yaml(
        files(existing, running=(("    topology: {required: block}\n", ""),))["helm/gpu-operator.yaml"]
    )
    assert values["driver"] == {}
    assert values["toolkit"] == {
        "env": [{"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "value": "false"}]
    }


@pytest.mark.parametrize("plane", ["control_plane: eks", "existing: {context: prod, eks_name: prod}"])
def test_gpus_come_by_request_alone(plane: str) -> None:
    """The device plugin gives them by CDI: the operator then sets no default runtime that reads a container's variables."""
    made = files(("control_plane: eks", plane), running=(("    topology: {required: block}\n", ""),))
    values = _yaml(made["helm/gpu-operator.yaml"])
    assert values["cdi"] == {"enabled": True}
    assert values["devicePlugin"] == {"enabled": True}, (
        "its list of devices is the operator's to set with CDI"
    )


# --- gangs --------------------------------------------------------------------------------------


def test_gang_is_admitted_whole_in_one_block() -> None:
    jobset = _objects()["JobSet/research/tune"]
    assert jobset["metadata"]["labels"][QUEUE] == "default"
    assert jobset["metadata"]["labels"][PRIORITY] == "kube-gang"
    gang = _gang()
    assert (gang["parallelism"], gang["completions"], gang["completionMode"]) == (4, 4, "Indexed")
    notes = gang["template"]["metadata"]["annotations"]
    assert notes["kueue.x-k8s.io/podset-required-topology"] == "topology.k8s.aws/network-node-layer-2"


def test_gang_with_preferred_topology_and_without() -> None:
    preferred = _gang(running=(("required: block", "preferred: leaf"),))["template"]["metadata"][
        "annotations"
    ]
    assert preferred["kueue.x-k8s.io/podset-preferred-topology"] == "topology.k8s.aws/network-node-layer-3"
    none = _gang(running=(("    topology: {required: block}\n", ""),))["template"]["metadata"]["annotations"]
    assert none == {ANYWHERE: "true"}


BESIDE = (  # an elastic pool of the same GPUs beside the four nodes that stand
    ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 48}"),
    ("  - name: serve\n", "  - {name: more, nodes: {min: 0, max: 4}, capacity: [{from: spot, machines: [p4de.24xlarge]}]}\n  - name: serve\n"),
)  # fmt: skip


def _only_in(pod: Any) -> list[str]:
    """Return the pools of the pod's affinity."""
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    (expression,) = terms[0]["matchExpressions"]
    assert (expression["key"], expression["operator"]) == ("gpucluster/pool", "In")
    return expression["values"]


def test_gang_with_an_elastic_pool_accepts_any_topology() -> None:
    """Kueue gives no flavor with a topology to pods without a request for one, if the queue has others. The gang waited forever."""
    gang = _gang(*BESIDE, running=(("    topology: {required: block}\n", ""),))["template"]
    assert gang["metadata"]["annotations"][ANYWHERE] == "true"
    assert _only_in(gang["spec"]) == ["tune"]


def test_gang_with_required_topology_has_only_that_annotation() -> None:
    gang = _gang(*BESIDE)["template"]
    asked = {key for key in gang["metadata"]["annotations"] if "kueue" in key}
    assert (asked, _only_in(gang["spec"])) == ({"kueue.x-k8s.io/podset-required-topology"}, ["tune"])


def test_gang_uses_a_pool_with_enough_quota() -> None:
    smaller = (("    nodes: 4\n", "    nodes: 3\n"), ("{nvidia.com/gpu: 48}", "{nvidia.com/gpu: 56}"))
    gang = _gang(*BESIDE, *smaller, running=(("    topology: {required: block}\n", ""),))["template"]
    assert _only_in(gang["spec"]) == ["more.2a"]
    assert "annotations" not in gang["metadata"]


def test_pod_without_gpu_starts_no_gpu_node() -> None:
    """A queue tries its flavors in order. Regression: the CPU request of a web server started a node with eight GPUs."""
    cpus = (
        ("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/mig-1g.10gb: 28, cpu: 4}"),
        ("pools:\n", "pools:\n  - {name: last, nodes: {min: 0, max: 2}, capacity: [{from: spot, machines: [m7i.2xlarge]}]}\n"),
    )  # fmt: skip
    light = (("{nvidia.com/mig-1g.10gb: 1}", "{cpu: 500m}"),)
    pod = _chat(*cpus, running=light)
    assert _only_in(pod) == ["last"]
    assert "tolerations" not in pod
    queue = _objects(*cpus)["ClusterQueue/kube-serving"]["spec"]["resourceGroups"][0]
    assert [flavor["name"] for flavor in queue["flavors"]] == ["kube-last", "kube-serve"]


def test_machine_without_ec2_topology_has_only_zone_and_host() -> None:
    """The g family has no network-node labels. Kueue ignores a node that lacks a level, so no pod could use the pool."""
    plain = (("machines: [p4de.24xlarge]}]\n  - name: serve", "machines: [g6e.48xlarge]}]\n  - name: serve"),)
    found = _objects(*plain, running=(("required: block", "required: zone"),))
    topology = found["Topology/kube-topology-zone-host"]["spec"]["levels"]
    assert [level["nodeLabel"] for level in topology] == ["topology.kubernetes.io/zone", HOST]
    assert found["ResourceFlavor/kube-tune.zone-host"]["spec"]["topologyName"] == "kube-topology-zone-host"


def test_model_that_loads_is_no_failed_rollout() -> None:
    """After ten minutes Flux and Argo CD called the service failed, and `why` stopped, while its model could load for twenty."""
    spec = _objects()["Deployment/serving/chat"]["spec"]
    probe = spec["template"]["spec"]["containers"][0]["startupProbe"]
    assert spec["progressDeadlineSeconds"] > 2 * probe["periodSeconds"] * probe["failureThreshold"]


@pytest.mark.parametrize(("most", "surge"), [("27", (1, 0)), ("28", (0, 1))])
def test_surge_of_a_rollout_follows_the_spare_quota(most: str, surge: tuple[int, int]) -> None:
    """Regression: with the whole quota in use, the additional replica was never admitted, and old replicas never ended."""
    never = (("may_borrow: true", "may_borrow: false"),)
    running = (("max: 8", f"max: {most}"),)
    update = _objects(*never, running=running)["Deployment/serving/chat"]["spec"]["strategy"]["rollingUpdate"]
    assert (update["maxSurge"], update["maxUnavailable"]) == surge


@pytest.mark.parametrize(("most", "surge"), [(19, (1, 0)), (20, (0, 1))])
def test_surge_counts_the_other_services_of_the_team(most: int, surge: tuple[int, int]) -> None:
    """Each of two services had room for one more replica, and both together had none: a rollout waited for ever."""
    never = (("may_borrow: true", "may_borrow: false"),)
    other = f"  - {{name: other, team: serving, image: 'x:1', resources: {{nvidia.com/mig-1g.10gb: 1}}, replicas: {{min: {most}, max: {most}}}}}\n"
    found = _objects(*never, running=(("train:\n", f"{other}train:\n"),))
    for name in ("chat", "other"):
        update = found[f"Deployment/serving/{name}"]["spec"]["strategy"]["rollingUpdate"]
        assert (update["maxSurge"], update["maxUnavailable"]) == surge


def test_pod_of_a_gang_has_a_whole_node_with_its_fabric() -> None:
    pod = _gang()["template"]["spec"]
    asked, limits = (pod["containers"][0]["resources"][key] for key in ("requests", "limits"))
    assert {r: asked[r] for r in ("nvidia.com/gpu", "vpc.amazonaws.com/efa", "hugepages-2Mi")} == {
        "nvidia.com/gpu": "8",
        "vpc.amazonaws.com/efa": "4",
        "hugepages-2Mi": "5Gi",
    }
    assert limits == {r: amount for r, amount in asked.items() if r != "cpu"}
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"]}
    (shm,) = [v for v in pod["volumes"] if v["name"] == "shm"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "64Gi"}


def test_half_a_node_has_half_of_everything() -> None:
    asked = _gang(running=(("gpus_per_node: 8", "gpus_per_node: 4"),))["template"]["spec"]["containers"][0][
        "resources"
    ]
    assert asked["requests"]["vpc.amazonaws.com/efa"] == "2"
    assert asked["requests"]["cpu"] == "46080m"
    assert asked["requests"]["hugepages-2Mi"] == "2560Mi"


def test_pod_with_one_gpu_requests_no_efa_and_no_capability() -> None:
    one = (("gpus_per_node: 8", "gpus_per_node: 1"),)
    container = _gang(running=one)["template"]["spec"]["containers"][0]
    assert not {"vpc.amazonaws.com/efa", "hugepages-2Mi"} & container["resources"]["requests"].keys()
    assert "capabilities" not in container["securityContext"]


def test_torch_finds_its_peers_by_jobsets_own_names() -> None:
    jobset = _objects()["JobSet/research/tune"]["spec"]
    assert jobset["network"] == {
        "enableDNSHostnames": True,
        "subdomain": "tune",
        "publishNotReadyAddresses": True,
    }
    (job,) = jobset["replicatedJobs"]
    env = _env(_gang()["template"]["spec"])
    assert env["MASTER_ADDR"] == env["PET_MASTER_ADDR"] == f"tune-{job['name']}-0-0.tune"
    assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) == ("4", "8")
    assert env["PET_NODE_RANK"] is None  # from the pod's own index


def test_lost_pod_restarts_the_gang_and_drained_node_costs_no_attempt() -> None:
    policy = _objects()["JobSet/research/tune"]["spec"]["failurePolicy"]
    assert (policy["maxRestarts"], policy["restartStrategy"]) == (3, "BlockingRecreate")
    assert policy["rules"][0]["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    assert _gang()["backoffLimit"] == 0
    restarts = (("gpus_per_node: 8", "gpus_per_node: 8\n    restarts: 0"),)
    assert _objects(running=restarts)["JobSet/research/tune"]["spec"]["failurePolicy"]["maxRestarts"] == 0


# --- services -----------------------------------------------------------------------------------


def test_service_is_scaled_by_its_queue_and_the_autoscaler_owns_its_number() -> None:
    found = _objects()
    scaler = found["HorizontalPodAutoscaler/serving/chat"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 8)
    assert scaler["metrics"][0]["pods"]["target"] == {"type": "AverageValue", "averageValue": "10"}
    assert "replicas" not in found["Deployment/serving/chat"]["spec"]
    assert found["Deployment/serving/chat"]["metadata"]["labels"][QUEUE] == "default"


def test_service_with_fixed_replicas_has_no_autoscaler() -> None:
    fixed = (("{min: 2, max: 8}", "{min: 3, max: 3}"), ("    scale_on: {queue_depth: 10}\n", ""))
    found = _objects(running=fixed)
    assert "HorizontalPodAutoscaler/serving/chat" not in found
    assert found["Deployment/serving/chat"]["spec"]["replicas"] == 3


def test_replica_requests_its_share_of_the_node_by_default() -> None:
    asked = _chat()["containers"][0]["resources"]["requests"]
    assert (asked["cpu"], asked["memory"]) == (f"{92160 // 56}m", f"{1073480 // 56}Mi")
    own = _chat(running=(("mig-1g.10gb: 1", "mig-1g.10gb: 1, memory: 30Gi"),))
    resources = own["containers"][0]["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"] == "30Gi"


def test_selectors_meet_their_pods_and_no_others() -> None:
    found = _objects()
    pod = found["Deployment/serving/chat"]["spec"]["template"]["metadata"]["labels"]
    for kind, path in (
        ("Service/serving/chat", "selector"),
        ("PodDisruptionBudget/serving/chat", "selector"),
        ("NetworkPolicy/serving/service-chat", "podSelector"),
    ):
        selector = found[kind]["spec"][path]
        assert selector.get("matchLabels", selector).items() <= pod.items()
    assert found["PodDisruptionBudget/serving/chat"]["spec"]["maxUnavailable"] == 1


# --- storage ------------------------------------------------------------------------------------


def test_without_bindings_volumes_are_left_out_and_listed() -> None:
    texts = files()
    found = objects(texts)
    assert not [key for key in found if key.startswith("PersistentVolume/")]
    assert found["PersistentVolumeClaim/research/data"]["spec"]["volumeName"] == "kube-research.data"
    assert "- `/data`: `id`, `dns_name` and `mount_name`" in texts["MISSING.md"]
    assert not [text for text in texts.values() if "fs-" in text]


def test_with_bindings_each_team_has_its_own_volume() -> None:
    texts = files(bindings=BOUND)
    found = objects(texts)
    volumes = {key: one["spec"] for key, one in found.items() if key.startswith("PersistentVolume/")}
    assert volumes.keys() == {"PersistentVolume/kube-serving.data", "PersistentVolume/kube-research.data"}
    assert len({one["csi"]["volumeHandle"] for one in volumes.values()}) == 2
    assert {one["csi"]["volumeAttributes"]["mountname"] for one in volumes.values()} == {"abcdefgh"}
    for key, one in volumes.items():
        claim = found[f"PersistentVolumeClaim/{one['claimRef']['namespace']}/{one['claimRef']['name']}"][
            "spec"
        ]
        assert key == f"PersistentVolume/{claim['volumeName']}"
        assert (claim["storageClassName"], one["storageClassName"]) == ("", "")
        assert (claim["resources"]["requests"]["storage"], one["capacity"]["storage"]) == ("1Gi", "2400Gi")
        assert one["persistentVolumeReclaimPolicy"] == "Retain"
    assert "MISSING.md" not in texts


def test_nfs_volume_needs_no_bindings() -> None:
    texts = files(
        ("fsx_lustre: {zone: us-west-2a, size: 2400GiB}", "nfs: {server: 192.0.2.5, export: /srv/Data_1}")
    )
    volume = objects(texts)["PersistentVolume/kube-research.data"]["spec"]
    assert volume["nfs"] == {"server": "192.0.2.5", "path": "/srv/Data_1"}
    assert "MISSING.md" not in texts


def test_pods_mount_file_systems_at_the_path_of_the_spec() -> None:
    for pod in (_chat(), _gang()["template"]["spec"]):
        mounts = {one["mountPath"]: one["name"] for one in pod["containers"][0]["volumeMounts"]}
        volumes = {one["name"]: one for one in pod["volumes"]}
        assert volumes[mounts["/data"]]["persistentVolumeClaim"] == {"claimName": "data"}


def test_without_workloads_there_are_no_pods() -> None:
    plan = a_kube_plan()
    found = objects({a.path.removeprefix("k8s/"): a.content.decode() for a in k8s.render(plan)})
    assert not [key for key in found if key.startswith(("JobSet/", "Deployment/"))]
    assert "ClusterQueue/kube-research" in found


def test_guide_lists_prerequisites() -> None:
    page = files()["README.md"]
    for word in (
        "--version 0.19.2 --namespace kueue-system --create-namespace --values helm/kueue.yaml",
        "`queue_depth`",
        "`gpucluster:research`",
    ):
        assert word in page
    other = a_kube_plan(("control_plane: eks", "existing: {context: prod, eks_name: prod}"))
    made = {a.path: a.content.decode() for a in k8s.render(other)}
    assert "the context `prod`" in made["k8s/README.md"]
    for word in ("`kube-kubernetes-node`", "`gpucluster:role=kubernetes-node`"):
        assert word in made["k8s/README.md"]
    assert "4 nodes in us-west-2a" in made["k8s/README.md"], "a cluster that exists has nodes of its owner"
    assert "4 nodes in us-west-2a" not in page, "`pulumi up` creates them"


def test_pool_without_gpus_is_shared_by_its_cpus() -> None:
    plan = a_kube_plan(CPUS, ("{nvidia.com/gpu: 32}", "{cpu: 8}"))
    (tune, _) = plan.kubernetes.pools
    assert (tune.shared_by, tune.taints, tune.levels) == (("cpu",), (), ())
    found = objects({a.path.removeprefix("k8s/"): a.content.decode() for a in k8s.render(plan)})
    assert found["ClusterQueue/kube-research"]["spec"]["resourceGroups"][0]["coveredResources"] == [
        "cpu",
        "memory",
    ]
    assert "tolerations" not in found["ResourceFlavor/kube-tune"]["spec"]
