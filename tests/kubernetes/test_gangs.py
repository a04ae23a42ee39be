"""Gangs with the real Kueue, JobSet and scheduler: the pods of all nodes start, or none does. kwok plays the lives of nodes and pods."""

from collections.abc import Iterator
from typing import Any

import pytest
from real_kubernetes import Kubernetes
from support.builders import a_kube_plan
from support.kube import BOUND, files, objects, renamed, renamed_workloads
from waves import by_wave

from gpucluster.plan.model import KubernetesOnAws
from gpucluster.sandbox.kubernetes import nodes

TEAM = "gangs-research"
CHANGES, RUNNING = renamed("gangs"), renamed_workloads("gangs")
WORKLOAD = ("kueue.x-k8s.io/v1beta2", "Workload")


class Gang:
    """The gang of four nodes that a tree brings, and the nodes of its pool."""

    def __init__(self, kubernetes: Kubernetes, plan: KubernetesOnAws) -> None:
        self.kubernetes, self.client = kubernetes, kubernetes.client
        texts = files(*CHANGES, running=RUNNING, bindings=BOUND)  # with the volumes that pods mount
        (self.jobset,) = (one for one in objects(texts).values() if one["kind"] == "JobSet")
        self.others = [one for wave in by_wave(texts) for one in wave if one != self.jobset]
        assert plan.kubernetes is not None
        pool = next(pool for pool in plan.kubernetes.pools if pool.name == "tune")
        self.machines = list(nodes.of_pool(plan.name, pool, 4))

    def pods(self) -> list[dict[str, Any]]:
        found = self.client.list("v1", "Pod", TEAM)
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def conditions(self) -> dict[str, dict[str, Any]]:
        """The conditions of the workload that Kueue made of the gang, by type; {} if there is none yet."""
        found = self.client.list(*WORKLOAD, TEAM)
        assert len(found) <= 1
        return {row["type"]: row for one in found for row in one.get("status", {}).get("conditions") or []}

    def waits_for(self) -> str:
        """What Kueue says of a gang that it does not admit."""
        row = self.conditions().get("QuotaReserved", {})
        return str(row.get("message")) if row.get("status") == "False" else ""

    def places(self) -> set[str]:
        """The nodes of pods that run."""
        return {
            one["spec"]["nodeName"] for one in self.pods() if one.get("status", {}).get("phase") == "Running"
        }


@pytest.fixture(scope="module")
def gang(kubernetes: Kubernetes) -> Iterator[Gang]:
    made = Gang(kubernetes, a_kube_plan(*CHANGES))
    for one in made.others:
        kubernetes.client.apply(one)
    yield made
    for machine in made.machines:
        kubernetes.client.delete("v1", "Node", machine["metadata"]["name"])


def test_gang_waits_whole_while_a_node_is_missing(gang: Gang) -> None:
    for machine in gang.machines[:3]:
        nodes.start(gang.client, machine)
    gang.client.apply(gang.jobset)
    words = "allows to fit only 3 out of 4 pod(s)"
    gang.kubernetes.wait(lambda: words in gang.waits_for(), "the gang waits for its fourth node alone")
    assert gang.pods() == []


def test_gang_runs_whole_when_the_last_node_is_there(gang: Gang) -> None:
    nodes.start(gang.client, gang.machines[3])
    names = {one["metadata"]["name"] for one in gang.machines}
    gang.kubernetes.wait(lambda: gang.places() == names, "each node runs a part of the gang")
    assert gang.conditions()["Admitted"]["status"] == "True"
    assert len(gang.pods()) == len(names)


def test_another_priority_leaves_the_running_gang_alone(gang: Gang) -> None:
    """As `diff` says: Kueue takes another name, and another value of a name, for the workload; the pods stay."""
    before = {one["metadata"]["uid"] for one in gang.pods()}
    named = (
        "  control_plane: eks\n",
        "  control_plane: eks\n  priorities: [{name: urgent, priority: 10000}]\n",
    )
    urgent = ("topology: {required: block}\n", "topology: {required: block}\n    priority: urgent\n")
    changed = objects(files(*CHANGES, named, running=(*RUNNING, urgent), bindings=BOUND))
    for one in changed.values():
        if one["kind"] in ("WorkloadPriorityClass", "JobSet"):
            gang.client.apply(one)

    def priority() -> int:
        (one,) = gang.client.list(*WORKLOAD, TEAM)
        return one["spec"]["priority"]

    gang.kubernetes.wait(lambda: priority() == 10_000, "Kueue has taken the priority")
    for one in changed.values():
        if one["kind"] == "WorkloadPriorityClass" and one["value"] == 10_000:
            gang.client.apply({**one, "value": 20_000})
    gang.kubernetes.wait(lambda: priority() == 20_000, "Kueue has taken the other value")
    assert {one["metadata"]["uid"] for one in gang.pods()} == before
    assert gang.conditions()["Admitted"]["status"] == "True"
