"""`gpucluster sandbox up` of stacks/hybrid.yaml: real Slurm beside a real control plane of Kubernetes, in one VPC."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from cluster import Cluster
from rehearsal import Rehearsal, rehearsed
from support.waiting import eventually

pytestmark = [pytest.mark.sandbox, pytest.mark.in_order, pytest.mark.timeout(3000)]
NAME = "mixed"
SLURM_NODES = {f"train-2a-{number}" for number in range(1, 5)}


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsed("hybrid", NAME, tmp_path_factory.mktemp("checkout")) as made:
        yield made


@pytest.fixture(scope="module")
def slurm(hybrid: Rehearsal) -> Cluster:
    return Cluster(hybrid.name)


def test_slurm_job_and_gang_run_on_machines_of_their_own(hybrid: Rehearsal, slurm: Cluster) -> None:
    job = slurm.sbatch("--nodes=4", "--gpus-per-node=8", script="srun --label hostname; sleep 3600")
    slurm.wait("the job runs", lambda: slurm.state(job) == "RUNNING")

    def whole() -> list[dict[str, Any]] | None:
        found = hybrid.running("research")
        return found if len(found) == 4 else None

    pods = eventually("four pods of the gang run", whole)
    known = {
        one["metadata"]["name"]: one["spec"]["providerID"].rpartition("/")[2]
        for one in hybrid.objects("nodes")
    }
    of_gang = {known[one["spec"]["nodeName"]] for one in pods}
    of_slurm = {one["id"] for one in slurm.instances()}
    assert len(of_gang) == len(of_slurm) == 4
    assert of_slurm.isdisjoint(known.values())
    assert {name for name, one in slurm.nodes().items() if "ALLOCATED" in one["state"]} == SLURM_NODES
    slurm.exec("head", "scancel", str(job))
    slurm.wait("the job has ended", lambda: slurm.ended(job))


def test_one_run_of_validate_asks_both_and_is_green(hybrid: Rehearsal) -> None:
    assert eventually("every check passes", lambda: hybrid.wrong() == {})


def test_sabotage_of_each_is_found_and_each_remedy_heals(hybrid: Rehearsal, slurm: Cluster) -> None:
    slurm.exec("train-2a-2", "systemctl", "stop", "munge")
    node = next(
        one["metadata"]["name"]
        for one in hybrid.objects("nodes")
        if one["metadata"]["labels"].get("gpucluster/pool") == "tune"
    )
    hybrid.typed("kubectl", "cordon", node)
    failed = {name: one for name, one in hybrid.wrong().items() if one["verdict"] == "fail"}
    assert "svc.active[train-2a-2]" in failed
    assert {name for name in failed if name.startswith("kube.")} == {"kube.nodes[tune]"}
    assert f"{node}: cordoned" in failed["kube.nodes[tune]"]["found"]
    slurm.exec("train-2a-2", "systemctl", "start", "munge")
    hybrid.typed("kubectl", "uncordon", node)
    assert eventually("every check passes again", lambda: hybrid.wrong() == {})


def test_down_of_kubernetes_leaves_slurm_as_it_is(hybrid: Rehearsal, slurm: Cluster) -> None:
    job = slurm.sbatch("--nodes=2", script="sleep 3600")
    slurm.wait("the job runs", lambda: slurm.state(job) == "RUNNING")
    words = ("k8s", "down", str(hybrid.spec), "--no-charts", "--delete-others")
    hybrid.typed(sys.executable, "-m", "gpucluster.cli", *words)
    assert hybrid.objects("nodeclaims") == []
    assert slurm.state(job) == "RUNNING"
    assert {one["id"] for one in slurm.instances()} <= {one["id"] for one in hybrid.instances()}
