"""Machines that go while jobs run on real Slurm: the batch script is told, writes a checkpoint, and goes on from it.

The job keeps its checkpoint in its own comment, a stand-in for a shared file system: a user may write it, and it
outlives a requeue.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster import ROOT, Cluster, gpucluster

from gpucluster.plan import names

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(300)]

CARE = (
    "    farewell: {lead: 5s, grace: 5s, script: /usr/local/bin/bye}\n    hung: {after: 60s, requeue: true}\n"
)
STEPS = 200  # of 0.1 s
JOB = f"""
say() {{ scontrol update "jobid=$SLURM_JOB_ID" "comment=$1"; }}
read -r step saved _ <<< "$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%k)"
if [[ $step =~ ^[0-9]+$ ]]; then
  say "$step $saved $(date +%s.%N) $SLURM_RESTART_COUNT"
else
  step=0
fi
save() {{ say "$step $(date +%s.%N)"; }}
trap save USR1
srun --ntasks-per-node=1 sleep 600 &
while ((step < {STEPS})); do ((step++)); sleep 0.1 & wait $!; done
exit 0
"""
HANGS = f"""
[[ $SLURM_RESTART_COUNT -gt 0 ]] && exit 0
touch {names.BEATS_DIR}/$SLURM_JOB_ID
sleep 600
"""
BYE = '#!/bin/sh\necho "$(id -u) $@" > /run/bye\n'


@dataclass(frozen=True)
class Resumed:
    """What the second run wrote: from which step it went on, when that was saved, and when it went on."""

    step: int
    saved: float
    at: float
    restarts: int


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Of its own, with short farewells and hung jobs."""
    text = (ROOT / "stacks/burst.yaml").read_text().replace("name: burst\n", "name: farewell\n", 1)
    spec = tmp_path_factory.mktemp("stack") / "farewell.yaml"
    spec.write_text(text.replace("    capacity:", CARE + "    capacity:", 1))
    gpucluster("sandbox", "up", str(spec), timeout=1500)
    try:
        yield Cluster("farewell")
    finally:
        gpucluster("sandbox", "down", "farewell")
        assert not Path("/var/lib/gpucluster-sandbox/farewell").exists()


@pytest.fixture(scope="module")
def hanging(cluster: Cluster) -> int:
    """A job that beats once and then hangs; the others run meanwhile, for it takes a minute to be sure."""
    return cluster.sbatch("--gres=gpu:8", script=HANGS)


def started(cluster: Cluster, nodes: int) -> int:
    job = cluster.sbatch(f"--nodes={nodes}", "--gres=gpu:8", script=JOB)
    cluster.wait("the job runs", lambda: cluster.state(job) == "RUNNING", within=120)
    return job


def machines(cluster: Cluster, job: int) -> dict[str, str]:
    """The instances of the job's nodes, by node."""
    here = cluster.exec("head", "scontrol", "show", "hostnames", cluster.job(job)["nodes"]).split()
    addresses = {node["address"]: name for name, node in cluster.nodes().items()}
    found = {addresses.get(i["address"], ""): i["id"] for i in cluster.instances()}
    return {node: found[node] for node in here}


def resumed(cluster: Cluster, job: int) -> Resumed | None:
    said = re.fullmatch(r"(\d+) ([\d.]+) ([\d.]+) (\d+)", cluster.job(job)["comment"])
    return Resumed(int(said[1]), float(said[2]), float(said[3]), int(said[4])) if said else None


def goes_on(cluster: Cluster, job: int, what: str) -> Resumed:
    """Wait for the second run and the end of the job; print what it cost."""
    cluster.wait("the job goes on from its checkpoint", lambda: resumed(cluster, job) is not None, within=90)
    cluster.wait("the job is done", lambda: cluster.state(job) == "COMPLETED", within=90)
    found = resumed(cluster, job)
    assert found is not None
    print(f"\n{what}: {found.at - found.saved:.1f} s of wall time lost", file=sys.stderr)  # noqa: T201
    return found


def test_a_spot_notice_during_a_job_on_four_nodes(cluster: Cluster, hanging: int) -> None:
    job = started(cluster, 4)
    before = machines(cluster, job)
    victim = sorted(before)[1]
    cluster.exec(victim, "install", "-m", "755", "/dev/stdin", "/usr/local/bin/bye", stdin=BYE)
    noticed = time.time()
    cluster.control().interrupt(before[victim], 20.0)
    cluster.wait("the node is drained", lambda: "DRAIN" in cluster.nodes()[victim]["state"], within=10)
    cluster.wait(
        "node and job say the same", lambda: reason(cluster, victim) == told(cluster, job), within=10
    )
    assert told(cluster, job).startswith("gpucluster: [trouble] the cloud takes this spot machine back at ")
    cluster.wait("the site's program ran", lambda: bye(cluster, victim) != "", within=15)
    assert re.fullmatch(r"0 spot \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", bye(cluster, victim))
    found = goes_on(cluster, job, "a spot notice")
    assert found.restarts == 1
    assert found.step > 0
    assert found.saved - noticed < 8, "the script was signalled late"
    assert before[victim] not in {i["id"] for i in cluster.instances()}


def test_a_gpu_that_dies_in_mid_job(cluster: Cluster, hanging: int) -> None:
    job = started(cluster, 2)
    before = machines(cluster, job)
    victim = sorted(before)[0]
    line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n"
    cluster.exec(victim, "tee", "-a", names.KERNEL_LOG_STAND_IN, stdin=line)
    cluster.wait("the node is drained", lambda: "DRAIN" in cluster.nodes()[victim]["state"], within=15)
    found = goes_on(cluster, job, "a GPU that died")
    assert found.restarts == 1
    assert found.step > 0
    assert "XID 79 on 0000:3b:00" in cluster.job(job)["admin_comment"]
    cluster.wait(
        "the machine is replaced",
        lambda: before[victim] not in {i["id"] for i in cluster.instances()},
        within=60,
    )


def test_a_job_that_hangs_is_sent_back(cluster: Cluster, hanging: int) -> None:
    cluster.wait("the job is sent back and ends", lambda: cluster.state(hanging) == "COMPLETED", within=150)
    job = cluster.job(hanging)
    assert job["restart_cnt"] == 1
    assert "no progress for 60 s" in job["admin_comment"]


def test_in_the_end_nothing_is_left(cluster: Cluster) -> None:
    cluster.wait("every node is gone and no slot is blocked", cluster.all_gone, within=120)


def reason(cluster: Cluster, node: str) -> str:
    return str(cluster.nodes()[node]["reason"])


def told(cluster: Cluster, job: int) -> str:
    return str(cluster.job(job)["admin_comment"])


def bye(cluster: Cluster, node: str) -> str:
    try:
        return cluster.exec(node, "cat", "/run/bye", check=False).strip()
    except (AssertionError, subprocess.SubprocessError):
        return ""
