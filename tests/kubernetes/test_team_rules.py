"""What the rules of teams refuse, and that `validate`'s own pods start beside a full quota: real admission, real Kueue."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from real_kubernetes import Kubernetes, Manifest
from support.builders import a_kube_plan
from support.kube import BOUND, files, objects, renamed, renamed_workloads
from waves import by_wave

from gpucluster import shell
from gpucluster.k8s_apply.objects import is_true
from gpucluster.sandbox.kubernetes import nodes
from gpucluster.validate import pod_manifests
from gpucluster.validate.pod_manifests import PodRun, PodSet

pytestmark = [pytest.mark.in_order]
NAME, TEAM = "rules", "rules-serving"
CHANGES = (*renamed(NAME), (", may_borrow: true", ""))
RUNNING = (*renamed_workloads(NAME), ("{min: 2, max: 8}", "{min: 2, max: 4}"))
LEFT_OUT = ("Deployment", "EC2NodeClass", "HorizontalPodAutoscaler", "JobSet", "NodePool")
RUN = PodRun(cluster=NAME, word="0a1b2c3d", image="registry.example.org/agnhost:1", pools=1)


class Ruled:
    """The team's namespace, with a Job that holds all CPUs of the quota, and one node."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self.kubernetes, self.client = kubernetes, kubernetes.client
        texts = files(*CHANGES, running=RUNNING, bindings=BOUND)
        self.made = [one for wave in by_wave(texts) for one in wave if one["kind"] not in LEFT_OUT]
        (flavor,) = objects(texts)[f"ClusterQueue/{NAME}-{TEAM}"]["spec"]["resourceGroups"][0]["flavors"]
        self.cpus = next(one["nominalQuota"] for one in flavor["resources"] if one["name"] == "cpu")
        plan = a_kube_plan(*CHANGES).kubernetes
        assert plan is not None
        self.pool = plan.pool("serve")
        (self.node,) = nodes.of_pool(NAME, self.pool, 1)

    def as_member(self, *words: str, stdin: Manifest | None = None) -> shell.Result:
        who = ("--as", "ann", "--as-group", f"gpucluster:{TEAM}", "--as-group", "system:authenticated")
        text = None if stdin is None else json.dumps(stdin)
        return self.kubernetes.kubectl(*who, "--namespace", TEAM, *words, stdin=text, check=False)

    def create(self, one: Manifest) -> str:
        """Why a member may not create it; empty if they may."""
        done = self.as_member("create", "--filename", "-", stdin=one)
        return done.stderr if done.code else ""

    def pod(self, name: str) -> Manifest:
        found = self.client.get("v1", "Pod", name, TEAM)
        assert found is not None
        return found


def a_pod(name: str, *, owner: Manifest | None = None, **spec: Any) -> Manifest:
    resources = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}}
    container = {"name": "main", "image": "registry.example.org/x:1", "resources": resources}
    one = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": TEAM}}
    pod = {**one, "spec": {"containers": [container], **spec}}
    return pod if owner is None else pod_manifests.kept(pod, owner)


def a_service(name: str, **spec: list[str]) -> Manifest:
    ports = [{"port": 80, "targetPort": 80, "protocol": "TCP"}]
    metadata = {"name": name, "namespace": TEAM}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports, **spec}}


@pytest.fixture(scope="module")
def ruled(kubernetes: Kubernetes) -> Iterator[Ruled]:
    made = Ruled(kubernetes)
    for one in made.made:
        kubernetes.client.apply(one)
    nodes.start(kubernetes.client, made.node)
    yield made
    kubernetes.client.delete("v1", "Node", made.node["metadata"]["name"])


def test_job_takes_the_whole_quota(ruled: Ruled) -> None:
    spec = a_pod("x")["spec"]
    spec["containers"][0]["resources"]["requests"]["cpu"] = ruled.cpus
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    template = {"spec": {**spec, "restartPolicy": "Never", "tolerations": tolerations}}
    labels = {"kueue.x-k8s.io/queue-name": "default"}
    metadata = {"name": "all", "namespace": TEAM, "labels": labels}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    ruled.client.apply(job)
    ruled.kubernetes.wait(
        lambda: [one for one in ruled.client.list("kueue.x-k8s.io/v1beta2", "Workload", TEAM) if is_true(one, "Admitted")],
        "Kueue admits the Job",
    )  # fmt: skip


def test_pod_of_a_member_waits_for_quota(ruled: Ruled) -> None:
    assert ruled.create(a_pod("waits")) == ""
    assert [one["name"] for one in ruled.pod("waits")["spec"]["schedulingGates"]] == ["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"]  # fmt: skip


def test_validations_own_pod_runs_beside_a_full_quota(ruled: Ruled) -> None:
    """Regression: it took quota, could evict a gang, and waited while the quota was full."""
    keeper = ruled.client.apply(pod_manifests.keeper(RUN, TEAM))
    of = PodSet(pool="serve", taints=ruled.pool.taints, namespace=TEAM, claims=())
    (_, pod), *_ = pod_manifests.pods(RUN, of, [ruled.node["metadata"]["name"]])
    made = ruled.client.apply(pod_manifests.kept(pod, keeper))
    assert "schedulingGates" not in made["spec"]
    name = pod["metadata"]["name"]
    ruled.kubernetes.wait(lambda: ruled.pod(name)["status"]["phase"] == "Running", "validation's pod runs")
    queued = ruled.client.list("kueue.x-k8s.io/v1beta2", "Workload", TEAM)
    owners = {owner["name"] for one in queued for owner in one["metadata"]["ownerReferences"]}
    assert owners == {"all", "waits"}


def test_member_may_not_take_this_way(ruled: Ruled) -> None:
    keeper = ruled.client.read(pod_manifests.keeper(RUN, TEAM))
    assert keeper is not None
    assert "only a controller makes pods that it controls" in ruled.create(a_pod("free", owner=keeper))


def test_member_may_not_remove_the_gates_of_the_queue(ruled: Ruled) -> None:
    patch = json.dumps([{"op": "remove", "path": "/spec/schedulingGates"}])
    done = ruled.as_member("patch", "pod", "waits", "--type=json", f"--patch={patch}")
    assert "only the queue removes its scheduling gates" in done.stderr
    assert ruled.as_member("label", "pod", "waits", "a=b").code == 0


def test_pods_of_a_member_have_a_class_of_the_list(ruled: Ruled) -> None:
    """Regression: such a pod evicts every other from its node."""
    for name in ("system-node-critical", "system-cluster-critical"):
        said = ruled.create(a_pod("urgent", priorityClassName=name))
        assert "a pod of a team has the PriorityClass of gangs or of services, or none" in said
    said = ruled.create(a_pod("urgent", priorityClassName=f"{NAME}-service"))
    assert "only the spec gives pods the PriorityClass of services" in said
    assert ruled.create(a_pod("usual", priorityClassName=f"{NAME}-gang")) == ""


def workloads(name: str, spec: Manifest) -> Iterator[Manifest]:
    """What a member makes pods of, with the same pod in each."""
    selected = {"matchLabels": {"app": name}}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    once = {"template": {"spec": {**spec, "restartPolicy": "Never"}}}
    jobs = {"replicatedJobs": [{"name": "a", "template": {"spec": once}}]}
    running = {"replicas": 0, "selector": selected, "template": template}
    group = {
        "replicas": 0, "rolloutStrategy": {"type": "RollingUpdate"},
        "leaderWorkerTemplate": {"workerTemplate": template, "leaderTemplate": template},
    }  # fmt: skip
    runtime = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [{**jobs["replicatedJobs"][0], "name": "node"}]}}}  # fmt: skip
    for api_version, kind, made in (
        ("apps/v1", "Deployment", running),
        ("apps/v1", "ReplicaSet", running),
        ("apps/v1", "StatefulSet", {**running, "serviceName": name}),
        ("batch/v1", "CronJob", {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": once}}),
        ("batch/v1", "Job", {**once, "suspend": True}),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", {**jobs, "suspend": True}),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", group),
        ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", runtime),
    ):
        yield {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": TEAM}, "spec": made}  # fmt: skip


def test_workloads_of_a_member_have_no_class_of_services(ruled: Ruled) -> None:
    """A controller makes their pods, which the rule of pods admits."""
    refusal = "only the spec gives pods the PriorityClass of services"
    for one in workloads("urgent", a_pod("x", priorityClassName=f"{NAME}-service")["spec"]):
        assert refusal in ruled.create(one), one["kind"]
    for one in workloads("usual-one", a_pod("x", priorityClassName=f"{NAME}-gang")["spec"]):
        assert refusal not in ruled.create(one), one["kind"]


VOLUMES: tuple[Manifest, ...] = (
    {"nfs": {"server": "192.0.2.1", "path": "/"}},
    {"iscsi": {"targetPortal": "192.0.2.1", "iqn": "iqn.2026-01.org.example:a", "lun": 0}},
    {"csi": {"driver": "nfs.csi.k8s.io", "volumeAttributes": {"server": "192.0.2.1", "share": "/"}}},
    {"hostPath": {"path": "/"}},
)


def test_pods_of_a_team_mount_volumes_of_the_list(ruled: Ruled) -> None:
    """Regression: the host mounted `nfs` and `iscsi` of any address, outside the network policy."""
    for volume in VOLUMES:
        said = ruled.create(a_pod("mounts", volumes=[{"name": "a", **volume}]))
        words = (
            "hostPath" if "hostPath" in volume else "a pod of a team mounts claims"
        )  # Pod Security is asked first
        assert words in said
    usual: tuple[Manifest, ...] = (
        {"emptyDir": {}},
        {"configMap": {"name": "kube-root-ca.crt"}},
        {"downwardAPI": {"items": []}},
    )
    assert ruled.create(a_pod("mounts", volumes=[{"name": f"v{number}", **one} for number, one in enumerate(usual)])) == ""  # fmt: skip


def test_containers_of_a_team_name_no_gpu(ruled: Ruled) -> None:
    """Regression: NVIDIA's runtime gave such a container every GPU of its host. A debugging container comes later."""
    refusal = "a container of a team gets the GPUs that it requests, and names none by NVIDIA's variables"
    for value, refused in (("all", True), ("void", False)):
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]
        pod = a_pod(f"sees-{value}")
        pod["spec"]["containers"][0]["env"] = env
        assert (refusal in ruled.create(pod)) is refused
        first = {**a_pod(f"first-{value}")["spec"]["containers"][0], "name": "first", "env": env}
        assert (refusal in ruled.create(a_pod(f"first-{value}", initContainers=[first]))) is refused
        debug = ("--image=registry.example.org/x:1", f"--container=debug-{value}", "--profile=baseline")
        done = ruled.as_member("debug", "waits", *debug, f"--env=NVIDIA_VISIBLE_DEVICES={value}")
        assert (refusal in done.stderr) is refused
        assert (done.code == 0) is not refused
    assert ruled.as_member("label", "pod", "waits", "c=d").code == 0


def test_service_of_a_member_has_no_external_address(ruled: Ruled) -> None:
    """Regression: a Service with `externalIPs` takes the traffic of these addresses on every node."""
    said = ruled.create(a_service("outside", externalIPs=["192.0.2.10"]))
    assert "a Service of a team has no external addresses" in said
    assert ruled.create(a_service("inside")) == ""
