"""TrainJobs with the real Kubeflow Trainer, Kueue and JobSet: those of a spec, and those that a team makes itself."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from real_kubernetes import Kubernetes
from support.builders import a_kube_plan
from support.kube import AS_TRAINJOB, BOUND, TRAINED, files, objects, renamed, renamed_workloads
from waves import apply

from gpucluster.k8s_apply.kubectl import Kubectl
from gpucluster.k8s_apply.why.cause import CauseKind
from gpucluster.k8s_apply.why.explain import explain
from gpucluster.k8s_apply.why.read import read, subject_of
from gpucluster.plan.model import KubernetesOnAws
from gpucluster.sandbox.kubernetes import nodes
from gpucluster.sandbox.kubernetes.client import RefusedError

TEAM = "trainer-research"
CHANGES, RUNNING = (*renamed("trainer"), TRAINED), (*renamed_workloads("trainer"), AS_TRAINJOB)
TRAINER = "trainer.kubeflow.org/v1alpha1"
JOBSET = ("jobset.x-k8s.io/v1alpha2", "JobSet")
WORKLOAD = ("kueue.x-k8s.io/v1beta2", "Workload")
QUEUE = ("kueue.x-k8s.io/v1beta2", "ClusterQueue")

pytestmark = pytest.mark.in_order


class Trained:
    """The tree with a TrainJob, and the nodes of its pool."""

    def __init__(self, kubernetes: Kubernetes, plan: KubernetesOnAws) -> None:
        self.kubernetes, self.client = kubernetes, kubernetes.client
        self.texts = files(*CHANGES, running=RUNNING, bindings=BOUND)
        assert plan.kubernetes is not None
        self.queue = plan.kubernetes.team(TEAM).queue
        pool = next(pool for pool in plan.kubernetes.pools if pool.name == "tune")
        self.machines = list(nodes.of_pool(plan.name, pool, 4))

    def pods(self, job: str) -> list[dict[str, Any]]:
        found = self.client.list("v1", "Pod", TEAM)
        mine = [
            one for one in found if one["metadata"]["labels"].get("jobset.sigs.k8s.io/jobset-name") == job
        ]
        return [one for one in mine if "deletionTimestamp" not in one["metadata"]]

    def running(self, job: str) -> list[dict[str, Any]]:
        return [one for one in self.pods(job) if one.get("status", {}).get("phase") == "Running"]

    def waits_for(self) -> list[str]:
        """What Kueue says of workloads that it does not admit."""
        rows = (
            row
            for one in self.client.list(*WORKLOAD, TEAM)
            for row in one.get("status", {}).get("conditions") or []
        )
        return [row["message"] for row in rows if row["type"] == "QuotaReserved" and row["status"] == "False"]

    def container(self, job: str) -> dict[str, Any]:
        (container,) = self.pods(job)[0]["spec"]["containers"]
        return container

    def priority(self) -> str:
        """The priority class that Kueue has for the workload of the gang."""
        (one,) = self.client.list(*WORKLOAD, TEAM)
        return one["spec"]["priorityClassRef"]["name"]

    def as_member(self, *words: str, stdin: str | None = None) -> dict[str, Any]:
        """Run kubectl as a member of the team, and return what it prints."""
        who = ("--as", "ann", "--as-group", f"gpucluster:{TEAM}", "--as-group", "system:authenticated")
        return json.loads(self.kubernetes.kubectl(*words, *who, "--output=json", stdin=stdin).stdout)

    def used(self) -> str:
        """The GPUs that Kueue counts in the team's queue."""
        queue = self.client.get(*QUEUE, self.queue)
        assert queue is not None
        usage = queue["status"]["flavorsUsage"]
        return next(r["total"] for f in usage for r in f["resources"] if r["name"] == "nvidia.com/gpu")


@pytest.fixture(scope="module")
def trained(kubernetes: Kubernetes) -> Iterator[Trained]:
    made = Trained(kubernetes, a_kube_plan(*CHANGES))
    yield made
    for one in kubernetes.client.list(
        TRAINER, "TrainJob", TEAM
    ):  # `why` of other tests asks in all namespaces
        kubernetes.client.delete(TRAINER, "TrainJob", one["metadata"]["name"], TEAM)
    kubernetes.wait(lambda: not kubernetes.client.list(TRAINER, "TrainJob", TEAM), "the TrainJobs are gone")
    for machine in made.machines:
        kubernetes.client.delete("v1", "Node", machine["metadata"]["name"])


def test_the_waves_are_taken_and_the_gang_waits_whole(trained: Trained) -> None:
    for machine in trained.machines[:3]:
        nodes.start(trained.client, machine)
    apply(trained.kubernetes, trained.texts)
    words = "allows to fit only 3 out of 4 pod(s)"
    trained.kubernetes.wait(
        lambda: any(words in said for said in trained.waits_for()), "the gang waits whole"
    )
    assert trained.pods("tune") == []


def test_k8s_why_says_what_it_waits_for(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    trained.kubernetes.use(monkeypatch)
    found = explain(read(Kubectl("sandbox"), subject_of(f"{TEAM}/tune")))
    assert (found.subject, found.state) == (f"{TEAM}/TrainJob/tune", "queued")
    assert [cause.kind for cause in found.causes] == [CauseKind.TOPOLOGY]


def test_it_runs_whole_as_the_spec_says(trained: Trained) -> None:
    nodes.start(trained.client, trained.machines[3])
    trained.kubernetes.wait(lambda: len(trained.running("tune")) == 4, "each node runs a part of the gang")
    pods = trained.pods("tune")
    assert {one["spec"]["nodeName"] for one in pods} == {one["metadata"]["name"] for one in trained.machines}
    trained.kubernetes.wait(lambda: trained.used() == "32", "Kueue counts the GPUs of all nodes")
    container = trained.container("tune")
    said = {one["name"]: one.get("value") for one in container["env"]}
    assert len(said) == len(container["env"])
    assert (said["PET_NNODES"], said["PET_NPROC_PER_NODE"]) == ("4", "8")
    assert said["PET_MASTER_ADDR"] == said["MASTER_ADDR"] == "tune-node-0-0.tune"
    assert container["image"] == "registry.example.org/train:2.0"
    assert container["resources"]["limits"]["vpc.amazonaws.com/efa"] == "4"


def test_changed_spec_leaves_the_running_gang_alone(trained: Trained) -> None:
    """Kueue ends a gang whose runtime changes. So the changed one has another name, and the server refuses the changed TrainJob."""
    before = {one["metadata"]["uid"] for one in trained.pods("tune")}
    image = (
        "image: registry.example.org/train:2.0\n    nodes",
        "image: registry.example.org/train:9\n    nodes",
    )
    others = objects(files(*CHANGES, running=(*RUNNING, image), bindings=BOUND))
    (runtime,) = (one for one in others.values() if one["kind"] == "TrainingRuntime")
    trained.client.apply(runtime)
    assert len(trained.client.list(TRAINER, "TrainingRuntime", TEAM)) == 2
    with pytest.raises(RefusedError, match="field is immutable"):
        trained.client.apply(others[f"TrainJob/{TEAM}/tune"])
    label = "kueue.x-k8s.io/priority-class=trainer-service"
    trained.kubernetes.kubectl("label", "trainjob", "tune", "--namespace", TEAM, "--overwrite", label)
    trained.kubernetes.wait(lambda: trained.priority() == "trainer-service", "Kueue has looked at it again")
    assert {one["metadata"]["uid"] for one in trained.running("tune")} == before


def test_member_of_a_team_runs_a_trainjob_on_the_runtime_of_a_pool(trained: Trained) -> None:
    """It names no queue, and what the runtime says it need not say."""
    trained.client.delete(TRAINER, "TrainJob", "tune", TEAM)
    trained.kubernetes.wait(lambda: trained.pods("tune") == [], "the nodes are free")
    (runtime,) = trained.as_member("get", "clustertrainingruntimes", "--selector", "gpucluster/pool=tune")[
        "items"
    ]
    job = {
        "apiVersion": TRAINER,
        "kind": "TrainJob",
        "metadata": {"name": "first", "namespace": TEAM},
        "spec": {
            "runtimeRef": {"name": runtime["metadata"]["name"]},
            "trainer": {
                "image": "registry.example.org/own:1",
                "command": ["torchrun", "x.py"],
                "numNodes": 2,
            },
        },
    }
    trained.as_member("create", "--filename", "-", stdin=json.dumps(job))
    trained.kubernetes.wait(lambda: len(trained.running("first")) == 2, "both nodes run")
    trained.kubernetes.wait(lambda: trained.used() == "16", "Kueue counts the GPUs of both nodes")
    container = trained.container("first")
    said = {one["name"]: one.get("value") for one in container["env"]}
    assert (said["PET_NNODES"], said["PET_MASTER_ADDR"]) == ("2", "first-node-0-0.first")
    assert said["PET_NPROC_PER_NODE"] in ("auto", "8")
    assert "NCCL_SOCKET_IFNAME" in said
    assert container["image"] == "registry.example.org/own:1"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert {"name": "vol-data", "mountPath": "/data"} in container["volumeMounts"]
