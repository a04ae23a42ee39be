"""`k8s why` with the real kubectl, Kueue, JobSet, scheduler and controllers: each cause is made, told, and mended as it is told.

kwok plays kubelets, so what a kubelet says (images, mounts, probes) is not here: tests/unit/k8s_apply/why has it.
"""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from real_kubernetes import Kubernetes, Manifest
from support.builders import a_kube_plan
from support.kube import BOUND, files, objects, renamed, renamed_workloads
from waves import by_wave

from gpucluster.k8s_apply.kubectl import Kubectl
from gpucluster.k8s_apply.why.cause import Answer, Cause, CauseKind
from gpucluster.k8s_apply.why.explain import explain
from gpucluster.k8s_apply.why.read import read, subject_of
from gpucluster.plan import names
from gpucluster.sandbox.kubernetes import nodes

T = TypeVar("T")
pytestmark = [pytest.mark.in_order]
TEAM, QUEUE = "why-research", "why-why-research"
FLAVOR = "why-tune.zone-spine-block-leaf-host"
CHANGES, RUNNING = renamed("why"), renamed_workloads("why")
JOBSET = ("jobset.x-k8s.io/v1alpha2", "JobSet")
WORKLOAD = ("kueue.x-k8s.io/v1beta2", "Workload")
PLAIN = "why-plain"  # a namespace without queues
POD: Manifest = {"containers": [{"name": "main", "image": "registry.example.org/x:1"}]}


class Place:
    """The tree of a spec with a gang of four nodes, and what `why` says as one of its users."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self.kubernetes, self.client = kubernetes, kubernetes.client
        texts = files(*CHANGES, running=RUNNING, bindings=BOUND)
        (self.jobset,) = (one for one in objects(texts).values() if one["kind"] == "JobSet")
        self.others = [one for wave in by_wave(texts) for one in wave if one != self.jobset]
        plan = a_kube_plan(*CHANGES).kubernetes
        assert plan is not None
        self.machines = list(
            nodes.of_pool("why", next(pool for pool in plan.pools if pool.name == "tune"), 4)
        )

    def gang(self, name: str) -> Manifest:
        one: Manifest = json.loads(json.dumps(self.jobset))
        one["metadata"]["name"] = one["spec"]["network"]["subdomain"] = name
        return one

    def why(self, subject: str) -> Answer:
        return explain(read(Kubectl("sandbox"), subject_of(subject)))

    def cause(self, subject: str, kind: CauseKind, words: str) -> Cause:
        """The cause of this kind with these words, as soon as its controller says it."""

        def found() -> Cause | None:
            return next(
                (one for one in self.why(subject).causes if one.kind is kind and words in one.words), None
            )

        return self.present(found, f"{subject} waits for its {kind}: {words}")

    def state(self, subject: str, state: str) -> Answer:
        def found() -> Answer | None:
            answer = self.why(subject)
            return answer if answer.state == state else None

        return self.present(found, f"{subject} is {state}")

    def present(self, what: Callable[[], T | None], words: str) -> T:
        """The first value that is there."""
        found = self.kubernetes.wait(what, words)
        assert found is not None
        return found

    def type(self, command: str) -> None:
        """Type a next step."""
        words = shlex.split(command)
        assert words[0] == "kubectl"
        self.kubernetes.kubectl(*words[1:])


@pytest.fixture(scope="module")
def standing(kubernetes: Kubernetes) -> Iterator[Place]:
    made = Place(kubernetes)
    for one in made.others:
        kubernetes.client.apply(one)
    kubernetes.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLAIN}})
    yield made
    for one in kubernetes.client.list(*JOBSET, TEAM):
        kubernetes.client.delete(*JOBSET, one["metadata"]["name"], TEAM)
    kubernetes.client.delete("v1", "Namespace", PLAIN)
    for machine in made.machines:
        kubernetes.client.delete("v1", "Node", machine["metadata"]["name"])


@pytest.fixture
def place(standing: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    standing.kubernetes.use(monkeypatch)
    return standing


# --- gangs, in this order -------------------------------------------------------------------------------
def test_gang_that_lacks_a_node(place: Place) -> None:
    for machine in place.machines[:3]:
        nodes.start(place.client, machine)
    place.client.apply(place.gang("first"))
    found = place.cause(f"{TEAM}/first", CauseKind.TOPOLOGY, "allows to fit only 3 out of 4 pod(s)")
    assert (found.by, found.subject) == ("Kueue", f"{TEAM}/JobSet/first")
    nodes.start(place.client, place.machines[3])
    answer = place.state("first", "ready")
    assert (answer.pods, answer.causes) == ({"Ready": 4}, ())


def test_gang_that_lacks_quota_is_told_who_holds_it(place: Place) -> None:
    place.client.apply(place.gang("second"))
    found = place.cause("second", CauseKind.QUOTA, "insufficient unused quota for nvidia.com/gpu")
    assert f"{TEAM}/JobSet/first holds 32 nvidia.com/gpu of {FLAVOR}" in found.details


def test_member_of_the_team_is_told_the_same(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """She may not read nodes and queues of the cluster."""
    config = json.loads(place.kubernetes.plane.kubeconfig.read_text())
    config["users"][0]["user"] |= {"as": "ann", "as-groups": [names.team_group(TEAM), "system:authenticated"]}
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    found = place.cause(f"{TEAM}/second", CauseKind.QUOTA, "insufficient unused quota")
    assert f"{TEAM}/JobSet/first holds 32 nvidia.com/gpu of {FLAVOR}" in found.details
    assert {"ClusterQueue", "Node", "NodePool"} <= set(place.why(f"{TEAM}/second").unread)


def test_gang_that_never_fits(place: Place) -> None:
    large = place.gang("large")
    large["spec"]["replicatedJobs"][0]["template"]["spec"] |= {"parallelism": 5, "completions": 5}
    place.client.apply(large)
    found = place.cause("large", CauseKind.QUOTA, "> maximum capacity (32)")
    assert found.next_step.startswith("it does not fit into an empty queue")
    place.client.delete(*JOBSET, "large", TEAM)


def test_stopped_queue(place: Place) -> None:
    def stop(policy: str) -> None:
        place.kubernetes.kubectl(
            "patch",
            "clusterqueue",
            QUEUE,
            "--type=merge",
            f"--patch={json.dumps({'spec': {'stopPolicy': policy}})}",
        )

    stop("Hold")
    place.client.apply(place.gang("third"))
    found = place.cause("third", CauseKind.QUEUE, QUEUE)
    assert any("is stopped" in line for line in found.details)
    place.type(found.next_step)
    stop("None")

    def again() -> bool:
        """Kueue keeps its old words until it judges the workload again."""
        return any(
            "both queues are active now" in line for one in place.why("third").causes for line in one.details
        )

    place.kubernetes.wait(again, "the queue is active again")
    place.client.delete(*JOBSET, "third", TEAM)


def test_deactivated_gang_is_activated_as_told(place: Place) -> None:
    def active() -> list[Any]:
        return [
            one["spec"].get("active")
            for one in place.client.list(*WORKLOAD, TEAM)
            if "first" in one["metadata"]["name"]
        ]

    (name,) = (
        one["metadata"]["name"]
        for one in place.client.list(*WORKLOAD, TEAM)
        if "first" in one["metadata"]["name"]
    )
    place.kubernetes.kubectl(
        "patch",
        "workloads.kueue.x-k8s.io",
        name,
        f"--namespace={TEAM}",
        "--type=merge",
        '--patch={"spec":{"active":false}}',
    )
    found = place.cause("first", CauseKind.STOPPED, "deactivated")
    place.state("second", "ready")
    place.type(found.next_step)
    assert active() == [True]
    place.cause("first", CauseKind.QUOTA, "insufficient unused quota")


def test_service_that_lacks_quota_is_told_who_holds_it(place: Place) -> None:
    """Kueue queues each pod of a Deployment; the pods exist, and a gate holds them."""
    service = deployment("service", **gpus(8), **TOLERANT)
    service["metadata"] |= {"namespace": TEAM, "labels": {"kueue.x-k8s.io/queue-name": "default"}}
    place.client.apply(service)
    found = place.cause(f"{TEAM}/service", CauseKind.QUOTA, "insufficient unused quota for nvidia.com/gpu")
    assert any(f"holds 32 nvidia.com/gpu of {FLAVOR}" in line for line in found.details)
    assert place.cause(f"{TEAM}/service", CauseKind.GATE, "kueue.x-k8s.io/admission").by == "Kueue"
    place.client.delete("apps/v1", "Deployment", "service", TEAM)


# --- plain pods ------------------------------------------------------------------------------------------
def deployment(name: str, **pod: Any) -> Manifest:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {**POD, **pod}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": PLAIN},
        "spec": spec,
    }


def gpus(count: int) -> Manifest:
    return {"containers": [{**POD["containers"][0], "resources": {"limits": {"nvidia.com/gpu": count}}}]}


CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
TOLERANT = {"tolerations": [{"operator": "Exists"}]}
UNFIT: dict[str, tuple[dict[str, Any], CauseKind, str]] = {
    "taint": ({}, CauseKind.TAINT, "untolerated taint"),
    "label": ({"nodeSelector": {"no": "such"}, **TOLERANT}, CauseKind.SELECTOR, "didn't match Pod's node affinity/selector"),
    "gpus": ({**gpus(99), **TOLERANT}, CauseKind.RESOURCES, "Insufficient nvidia.com/gpu"),
    "claim": ({**CLAIM, **TOLERANT}, CauseKind.VOLUME, 'persistentvolumeclaim "data" not found'),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_pods_that_no_node_fits(place: Place, name: str) -> None:
    pod, kind, words = UNFIT[name]
    place.client.apply(deployment(name, **pod))
    found = place.cause(f"{PLAIN}/{name}", kind, words)
    assert (found.by, found.count) == ("kube-scheduler", 2)
    assert place.why(f"{PLAIN}/{name}").state == "not ready"


def test_claim_of_a_class_that_does_not_exist(place: Place) -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fast",
    }
    place.client.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": PLAIN},
            "spec": spec,
        }
    )

    def told() -> bool:
        return any(
            'storageclass.storage.k8s.io "fast" not found' in line
            for one in place.why(f"{PLAIN}/claim").causes
            for line in one.details
        )

    place.kubernetes.wait(told, "the claim says that its class does not exist")


def refused(
    place: Place, name: str, told: tuple[CauseKind, str], mend: Callable[[Cause], object], **pod: Any
) -> None:
    """Pods are refused, which is told; after the mending they exist."""
    place.client.apply(deployment(name, **pod))
    found = place.cause(f"{PLAIN}/{name}", *told)
    assert found.subject.startswith(f"{PLAIN}/ReplicaSet/{name}-")
    mend(found)

    def made() -> bool:
        return sum(place.why(f"{PLAIN}/{name}").pods.values()) == 2

    place.kubernetes.wait(made, f"the pods of {name}")
    assert [one for one in place.why(f"{PLAIN}/{name}").causes if one.kind is told[0]] == []


def test_missing_service_account_is_made_as_told(place: Place) -> None:
    told = (CauseKind.REFERENCE, 'serviceaccount "tuner" not found')
    refused(
        place, "account", told, lambda one: place.type(one.next_step), serviceAccountName="tuner", **TOLERANT
    )


def test_quota_of_the_namespace(place: Place) -> None:
    spec = {"hard": {"requests.nvidia.com/gpu": "1"}}
    place.client.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "small", "namespace": PLAIN},
            "spec": spec,
        }
    )

    def mend(cause: Cause) -> None:
        place.type(cause.next_step)
        place.client.delete("v1", "ResourceQuota", "small", PLAIN)

    refused(place, "quota", (CauseKind.LIMIT, "exceeded quota: small"), mend, **gpus(8), **TOLERANT)


def test_pod_security(place: Place) -> None:
    def level(word: str) -> None:
        place.kubernetes.kubectl(
            "label", "namespace", PLAIN, f"pod-security.kubernetes.io/enforce={word}", "--overwrite"
        )

    level("baseline")
    told = (CauseKind.POLICY, 'violates PodSecurity "baseline:latest"')
    refused(place, "host", told, lambda _: level("privileged"), hostNetwork=True, **TOLERANT)
