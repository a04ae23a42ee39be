"""Which pods wait for a node, and which nodes a pod fits."""

from collections.abc import Mapping
from typing import Any

import pytest

from gpucluster.sandbox.kubernetes import pod_fit

GPU = "nvidia.com/gpu"
TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}
TOLERATES = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
LABELS = {"gpucluster/pool": "tune", "topology.kubernetes.io/zone": "us-west-2a"}
NODE = {"cpu": "90", "memory": "1000Gi", GPU: "8", "pods": "250"}


def pod(**spec: Any) -> dict[str, Any]:
    """A pod with one GPU that tolerates the taint of GPU nodes."""
    container = {"name": "main", "resources": {"requests": {"cpu": "1", GPU: "1"}, "limits": {GPU: "1"}}}
    whole = {"containers": [container], "tolerations": [TOLERATES], **spec}
    return {"metadata": {"name": "p"}, "spec": whole, "status": {"phase": "Pending"}}


def with_requests(**amounts: str) -> dict[str, Any]:
    return pod(containers=[{"name": "main", "resources": {"requests": amounts}}])


def requires(operator: str, key: str, *values: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return pod(affinity={"nodeAffinity": required})


FITS: Mapping[str, tuple[dict[str, Any], bool]] = {
    "it fits": (pod(), True),
    "all GPUs": (with_requests(**{GPU: "8"}), True),
    "one GPU too many": (with_requests(**{GPU: "9"}), False),
    "half a CPU too many": (with_requests(cpu="90500m"), False),
    "just the memory": (with_requests(memory="1000Gi"), True),
    "too much memory": (with_requests(memory="1001Gi"), False),
    "a resource that the node lacks": (with_requests(**{"vpc.amazonaws.com/efa": "1"}), False),
    "two containers together": (pod(containers=[{"name": n, "resources": {"limits": {GPU: "5"}}} for n in "ab"]), False),
    "a greedy init container": (pod(initContainers=[{"name": "i", "resources": {"limits": {GPU: "9"}}}]), False),
    "no toleration": (pod(tolerations=[]), False),
    "another effect": (pod(tolerations=[{**TOLERATES, "effect": "NoExecute"}]), False),
    "another value": (pod(tolerations=[{"key": GPU, "operator": "Equal", "value": "absent", "effect": "NoSchedule"}]), False),
    "the value": (pod(tolerations=[{"key": GPU, "value": "present"}]), True),
    "every taint": (pod(tolerations=[{"operator": "Exists"}]), True),
    "the pool": (pod(nodeSelector={"gpucluster/pool": "tune"}), True),
    "another pool": (pod(nodeSelector={"gpucluster/pool": "serve"}), False),
    "the zone": (requires("In", "topology.kubernetes.io/zone", "us-west-2a", "us-west-2b"), True),
    "another zone": (requires("In", "topology.kubernetes.io/zone", "us-west-2b"), False),
    "not this zone": (requires("NotIn", "topology.kubernetes.io/zone", "us-west-2a"), False),
    "a label that is there": (requires("Exists", "gpucluster/pool"), True),
    "a label that is not there": (requires("DoesNotExist", "gpucluster/pool"), False),
    "an operator that nobody here knows": (requires("Gt", "gpucluster/pool", "1"), False),
}  # fmt: skip


@pytest.mark.parametrize("case", FITS)
def test_pod_fits_a_node(case: str) -> None:
    asked, fits = FITS[case]
    assert pod_fit.fits(asked, LABELS, [TAINT], pod_fit.amounts(NODE)) is fits


def test_full_node_takes_no_more() -> None:
    left = pod_fit.amounts(NODE)
    for _ in range(8):
        assert pod_fit.fits(pod(), LABELS, [TAINT], left)
        left = pod_fit.minus(left, pod_fit.requests(pod()))
    assert not pod_fit.fits(pod(), LABELS, [TAINT], left)


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        ({}, True),
        ({"spec": {"nodeName": "n"}}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        ({"metadata": {"ownerReferences": [{"kind": "DaemonSet"}]}}, False),
        ({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}}, False),
    ],
)  # fmt: skip
def test_only_a_pod_that_the_scheduler_could_not_place_waits(
    changes: dict[str, dict[str, Any]], waits: bool
) -> None:
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    whole = {**pod(), "status": {"conditions": [unplaced]}}
    changed = {key: {**whole[key], **changes.get(key, {})} for key in whole}
    assert pod_fit.waits(changed) is waits


@pytest.mark.parametrize(
    ("owner", "phase", "holds"),
    [("ReplicaSet", "Running", True), ("DaemonSet", "Running", False), ("Job", "Succeeded", False)],
)
def test_node_is_empty_beside_daemons_and_what_has_ended(owner: str, phase: str, holds: bool) -> None:
    one = {**pod(), "metadata": {"ownerReferences": [{"kind": owner}]}, "status": {"phase": phase}}
    assert pod_fit.holds_a_node(one) is holds


@pytest.mark.parametrize(("limits", "holds"), [({"nodes": "2"}, True), ({"nodes": "1"}, False), ({"nodes": "2", GPU: "15"}, False)])  # fmt: skip
def test_each_machine_is_one_of_the_nodes_of_a_limit(limits: dict[str, str], holds: bool) -> None:
    """The stand-in of Karpenter knew no limit of nodes, so a pool without GPUs had none in a rehearsal."""
    node = pod_fit.amounts(NODE)
    assert pod_fit.within(pod_fit.amounts(limits), [node, node]) is holds
