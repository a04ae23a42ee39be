"""A job that waits for refused capacity starts soon after the capacity is back, also with constraints, on real Slurm.

Each test has one job: another job's launch would show that there is capacity again, and so help the first.
"""

import pytest
from cluster import Cluster

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(3000)]


def refuse_all(burst: Cluster, *options: str, zones: str = "ab") -> int:
    """Submit a job while the cloud refuses everything; return its id when all powered-down slots of the zones are blocked."""
    burst.capacity(0)
    job = burst.sbatch("--gres=gpu:8", *options, script="sleep 2")
    burst.wait("all its slots are blocked", lambda: blocked(burst, zones))
    assert burst.state(job) == "PENDING"
    return job


def blocked(burst: Cluster, zones: str) -> bool:
    nodes = [n for name, n in burst.nodes().items() if name.startswith(tuple(f"h200-1{z}-" for z in zones))]
    off = [node for node in nodes if "POWERED_DOWN" in node["state"]]
    return len(off) > 8 and all(
        "DRAIN" in node["state"] and node["reason"].startswith("gpucluster: ") for node in off
    )


def starts_soon(burst: Cluster, job: int) -> None:
    burst.capacity(None)
    burst.wait("the job is done", lambda: burst.state(job) == "COMPLETED")


def expand(burst: Cluster, hostlist: str) -> list[str]:
    return burst.exec("head", "scontrol", "show", "hostnames", hostlist).split()


def test_job_with_excluded_nodes(burst: Cluster) -> None:
    """The slots that a launch test would undrain first are those that the job excludes."""
    job = refuse_all(burst, "-N1", "--exclude=h200-1a-[1-4],h200-1b-[1-4]")
    starts_soon(burst, job)
    assert int(burst.job(job)["nodes"].rpartition("-")[2]) > 4


def test_job_with_a_required_node(burst: Cluster) -> None:
    job = refuse_all(burst, "-N2", "--nodelist=h200-1b-7", zones="b")
    starts_soon(burst, job)
    nodes = expand(burst, burst.job(job)["nodes"])
    assert "h200-1b-7" in nodes
    assert len(nodes) == 2


def test_gang_beside_a_drained_idle_node(burst: Cluster) -> None:
    """A node that a person drained is up and idle. It is no node for the gang."""
    warm = burst.sbatch("-N1", "--gres=gpu:8", "-w", "h200-1a-1", script="sleep 1")
    burst.wait("a node is up", lambda: burst.state(warm) == "COMPLETED")
    burst.exec("head", "scontrol", "update", "nodename=h200-1a-1", "state=drain", "reason=look at its fan")
    try:
        job = refuse_all(burst, "-N2")
        starts_soon(burst, job)
        assert "h200-1a-1" not in expand(burst, burst.job(job)["nodes"])
    finally:
        burst.exec("head", "scontrol", "update", "nodename=h200-1a-1", "state=resume")


def test_job_of_two_to_four_nodes_takes_two_when_the_cloud_has_two(burst: Cluster) -> None:
    """Slurm places it on four nodes first. After the refusal of four, slots for two are undrained."""
    burst.capacity(2)
    job = burst.sbatch("-N2-4", "--gres=gpu:8", script="sleep 2")
    burst.wait("the job is done", lambda: burst.state(job) == "COMPLETED")
    assert len(expand(burst, burst.job(job)["nodes"])) == 2
