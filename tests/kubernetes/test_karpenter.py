"""Rendered NodePools with Karpenter's own core: nodes come for pods and not beyond `max`, and go when they are empty.

Its cloud of kwok makes nodes without machines, and takes the node class away from what is tried.
"""

import copy
from collections.abc import Iterator
from typing import Any

import karpenter_core
import pytest
from real_kubernetes import Kubernetes, Manifest
from support.builders import a_kube_plan
from support.kube import BOUND, files, renamed, renamed_workloads
from waves import by_wave

from gpucluster.k8s_apply.kubectl import Kubectl
from gpucluster.k8s_apply.objects import is_true
from gpucluster.k8s_apply.why.cause import CauseKind
from gpucluster.k8s_apply.why.explain import explain
from gpucluster.k8s_apply.why.read import read, subject_of

pytestmark = [pytest.mark.in_order]
NAME, TEAM = "grow", "grow-research"
CHANGES = (
    *renamed(NAME),
    (
        """\
    nodes: 4
    capacity: [{from: on-demand, machines: [p4de.24xlarge]}]
""",
        """\
    nodes: {min: 0, max: 4}
    idle: 20s
    capacity:
      - {from: spot, machines: [p4de.24xlarge], max: 2}
      - {from: on-demand, machines: [p4de.24xlarge]}
""",
    ),
    ("    nodes: {min: 1, max: 6}\n", "    nodes: {min: 0, max: 6}\n    idle: 20s\n"),
)
RUNNING = (*renamed_workloads(NAME), ("    topology: {required: block}\n", ""))
LOAD = "grow-load"  # a namespace without queues


class Grown:
    """The node pools of the spec under Karpenter."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self.kubernetes, self.client = kubernetes, kubernetes.client
        texts = files(*CHANGES, running=RUNNING, bindings=BOUND)
        whole = [one for wave in by_wave(texts) for one in wave if one["kind"] != "EC2NodeClass"]
        (self.jobset,) = (one for one in whole if one["kind"] == "JobSet")
        self.pools = [karpenter_core.on_kwok(one) for one in whole if one["kind"] == "NodePool"]
        self.others = [
            one
            for one in whole
            if one["kind"] not in ("Deployment", "HorizontalPodAutoscaler", "JobSet", "NodePool")
        ]

    def nodes(self) -> list[Manifest]:
        found = self.client.list("v1", "Node")
        return [one for one in found if one["metadata"]["labels"].get("gpucluster/cluster") == NAME]

    def claims(self) -> list[Manifest]:
        names = {one["metadata"]["name"] for one in self.pools}
        found = self.client.list("karpenter.sh/v1", "NodeClaim")
        return [one for one in found if one["metadata"]["labels"]["karpenter.sh/nodepool"] in names]

    def running(self, namespace: str) -> int:
        found = self.client.list("v1", "Pod", namespace)
        alive = (one for one in found if "deletionTimestamp" not in one["metadata"])
        return sum(1 for one in alive if one.get("status", {}).get("phase") == "Running")

    def run(self, count: int, pool: str = "tune.2a", **resources: int) -> None:
        """So many pods; each needs all GPUs of a node of `tune`, if it asks for nothing else."""
        container: dict[str, Any] = {"name": "main", "image": "registry.example.org/x:1"}
        container["resources"] = {"limits": resources or {"nvidia.com/gpu": 8}}
        toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
        spec = {
            "containers": [container],
            "tolerations": [toleration],
            "nodeSelector": {"gpucluster/pool": pool},
        }
        labels = {"app": "load"}
        template = {"metadata": {"labels": labels}, "spec": spec}
        whole = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
        metadata = {"name": "load", "namespace": LOAD}
        self.client.apply(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": whole}
        )

    def markets(self) -> list[str]:
        """How each node is bought."""
        return sorted(one["metadata"]["labels"]["karpenter.sh/capacity-type"] for one in self.nodes())

    def start_gang(self) -> None:
        self.client.apply(self.jobset)
        self.settle("the gang runs", gang=4, nodes=4)

    def end_gang(self) -> None:
        self.client.delete("jobset.x-k8s.io/v1alpha2", "JobSet", self.jobset["metadata"]["name"], TEAM)
        self.settle("its nodes go", nodes=0, claims=0)

    def pods(self) -> set[str]:
        """The unique ids of the gang's pods that run."""
        found = self.client.list("v1", "Pod", TEAM)
        return {one["metadata"]["uid"] for one in found if one.get("status", {}).get("phase") == "Running"}

    def blocked(self) -> bool:
        """Whether Karpenter says that it would replace the nodes, and may not."""
        words = "No allowed disruptions for disruption reason Drifted due to blocking budget"
        return any(one.get("message") == words for one in self.client.list("v1", "Event"))

    def settle(self, what: str, **wanted: object) -> None:
        def there() -> bool:
            found = {
                "running": self.running(LOAD),
                "gang": self.running(TEAM),
                "nodes": len(self.nodes()),
                "claims": len(self.claims()),
            }
            return all(found[name] == value for name, value in wanted.items())

        self.kubernetes.wait(there, f"{what}: {wanted}")


@pytest.fixture(scope="module")
def grown(kubernetes: Kubernetes) -> Iterator[Grown]:
    made = Grown(kubernetes)
    plan = a_kube_plan(*CHANGES).kubernetes
    assert plan is not None
    karpenter_core.start(kubernetes.plane, karpenter_core.find_or_build(print), plan.pools)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LOAD}}
    for one in (karpenter_core.node_class(), *made.others, *made.pools, namespace):
        kubernetes.client.apply(one)
    yield made
    for one in made.pools:
        kubernetes.client.delete("karpenter.sh/v1", "NodePool", one["metadata"]["name"])
    kubernetes.wait(lambda: made.claims() == [], "the end of the nodes")
    kubernetes.plane.processes.end("karpenter")


def test_pools_are_ready(grown: Grown) -> None:
    """Karpenter has validated them."""

    def ready() -> bool:
        there = [grown.client.read(one) for one in grown.pools]
        return all(one is not None and is_true(one, "Ready") for one in there)

    grown.kubernetes.wait(ready, "every node pool is ready")


def test_nodes_come_by_the_order_of_the_sources_and_not_beyond_max(grown: Grown) -> None:
    """Two of spot, whose `max` is 2, then on-demand, up to the 4 of the pool."""
    grown.run(6)
    grown.settle("four nodes", running=4, nodes=4)
    assert grown.markets() == ["on-demand", "on-demand", "spot", "spot"]
    for one in grown.nodes():
        assert one["metadata"]["labels"]["gpucluster/pool"] == "tune.2a"
        assert {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"} in one["spec"]["taints"]


def test_why_has_karpenters_own_words(grown: Grown, monkeypatch: pytest.MonkeyPatch) -> None:
    grown.kubernetes.use(monkeypatch)

    def told() -> bool:
        causes = explain(read(Kubectl("sandbox"), subject_of(f"{LOAD}/load"))).causes
        return any(
            one.kind is CauseKind.MACHINE and "limits" in one.words and "grow-tune" in one.words
            for one in causes
        )

    grown.kubernetes.wait(told, "the pods that wait say that the limits of the pools are reached")


def test_empty_nodes_go_after_the_idle_time(grown: Grown) -> None:
    grown.run(1)
    grown.settle("one node is left", running=1, nodes=1)
    grown.run(0)
    grown.settle("no node is left", nodes=0, claims=0)


def test_gang_gets_all_of_its_nodes(grown: Grown) -> None:
    """Kueue admits it by quota, because the nodes do not exist yet."""
    grown.start_gang()
    grown.end_gang()


def test_pod_with_a_slice_gets_a_node(grown: Grown) -> None:
    """56 slices of a node: the 57th pod needs another."""
    grown.run(57, "serve", **{"nvidia.com/mig-1g.10gb": 1})
    grown.settle("two nodes", running=57, nodes=2)
    grown.run(0, "serve", **{"nvidia.com/mig-1g.10gb": 1})
    grown.settle("no node is left", nodes=0, claims=0)


def test_running_gang_keeps_nodes_whose_pool_has_changed(grown: Grown) -> None:
    """Karpenter removes only empty nodes, and a changed NodePool waits for the end of the gang."""
    grown.start_gang()
    before = grown.pods()
    for one in grown.pools:
        changed = copy.deepcopy(one)
        changed["spec"]["template"]["metadata"]["labels"]["example.org/changed"] = "true"
        grown.client.apply(changed)
    grown.kubernetes.wait(
        lambda: all(is_true(one, "Drifted") for one in grown.claims()), "Karpenter finds every node drifted"
    )
    grown.kubernetes.wait(grown.blocked, "Karpenter says that the budget keeps the nodes")
    assert grown.pods() == before
    assert len(before) == 4


def test_deleted_node_claim_evicts_the_pods_of_a_gang(grown: Grown) -> None:
    """Regression: pods with `karpenter.sh/do-not-disrupt` were never evicted, so a spot notice gave no time for a checkpoint."""
    before, claim = grown.pods(), grown.claims()[0]["metadata"]["name"]
    grown.client.delete("karpenter.sh/v1", "NodeClaim", claim)
    grown.kubernetes.wait(
        lambda: claim not in {one["metadata"]["name"] for one in grown.claims()}, "the node of the claim goes"
    )
    grown.settle("the gang starts again on four nodes", gang=4, nodes=4)
    assert not grown.pods() & before


def test_deleted_node_pools_end_with_a_running_gang(grown: Grown) -> None:
    """Regression: the deletion of a NodePool waited for ever for the pods of a gang."""
    for one in grown.pools:
        grown.client.delete("karpenter.sh/v1", "NodePool", one["metadata"]["name"])
    grown.kubernetes.wait(
        lambda: not any(grown.client.read(one) for one in grown.pools), "the end of the NodePools"
    )
    grown.end_gang()
