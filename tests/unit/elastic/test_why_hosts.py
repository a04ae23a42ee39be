"""`why NODE` on existing hosts: what Slurm says of the node, and that nobody replaces it."""

import pytest
from support.builders import a_lab_plan
from support.cluster_states import NOW, job, node

from gpucluster.elastic.inspect.head import NO_CLOUD
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why import text, why
from gpucluster.elastic.memory import Memory
from gpucluster.elastic.model import CloudView, Observation
from gpucluster.slurm.values import SlurmJob, SlurmNode, SlurmView

PLAN = a_lab_plan()
HOSTS = [name for pool in PLAN.pools for name, _ in pool.hosts()]
FIRST = HOSTS[0]


def shown(first: SlurmNode, *jobs: SlurmJob) -> str:
    nodes = {name: node(name, "IDLE") for name in HOSTS} | {first.name: first}
    seen = Observation(slurm=SlurmView(at=NOW, nodes=nodes, jobs=jobs), cloud=CloudView(at=NOW, instances={}))
    moment = ClusterSnapshot(
        plan=PLAN, bindings=NO_CLOUD, observation=seen, memory=Memory(epoch="e"), now=NOW
    )
    return text(why(moment, first.name), NOW)


def drained(reason: str, by: str) -> SlurmNode:
    return node(FIRST, "IDLE DRAIN", reason=reason, reason_by=by, reason_at=NOW - 4000, version="24.11")


@pytest.mark.parametrize(
    ("host", "headline"),
    [
        (drained("Kill task failed", "root"), "Slurm drained it, and it stays drained"),
        (drained("gpucluster: [health] gpu.ecc: GPU 3", "root"), "a health check failed, and it stays drained"),
        (drained("gpucluster: [bundle] removed", "root"), "a new bundle removes or changes it"),
        (drained("broken fan", "alice"), "drained by a person; only a person can resume it"),
        (node(FIRST, "DOWN", reason="Not responding", reason_by="slurm"), "Slurm set it DOWN, or a person did"),
        (node(FIRST, "IDLE NOT_RESPONDING"), "it does not respond"),
        (node(FIRST, "ALLOCATED"), "a job uses it"),
        (node(FIRST, "IDLE"), "up, and ready for a job"),
    ],
)  # fmt: skip
def test_a_host_has_its_state_and_no_action_of_a_daemon(host: SlurmNode, headline: str) -> None:
    """It said `its instance is gone` and `the daemon sets it DOWN and powers it down` of each host."""
    said = shown(host)
    assert said.startswith(f"node {FIRST}: {headline}")
    assert "instance" not in said
    assert "the daemon sets" not in said


@pytest.mark.parametrize(
    ("reason", "by"), [("Kill task failed", "root"), ("gpucluster: [health] gpu.ecc: GPU 3", "root")]
)
def test_a_drained_host_is_told_and_not_replaced(reason: str, by: str) -> None:
    said = shown(drained(reason, by))
    assert "nobody replaces an existing host)" in said
    assert f"mend what the reason names; then scontrol update nodename={FIRST} state=resume" in said


def test_host_that_an_order_drained_has_no_daemon_to_undrain_it() -> None:
    said = shown(drained("fan (by ann)", "slurm"))
    assert "fan (by ann)\n" in said
    assert f"scontrol update nodename={FIRST} state=resume returns the node" in said


def test_a_host_shows_its_jobs() -> None:
    assert "job 7 runs on it" in shown(node(FIRST, "ALLOCATED"), job(7, FIRST))
