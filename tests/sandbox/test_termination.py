"""Instances that end while jobs run on real Slurm: the batch script gets a signal, saves a checkpoint and resumes from it.

The job saves its checkpoint in its own comment, a stand-in for a shared file system: the user can write it, and a
requeue keeps it.
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

pytestmark = [pytest.mark.sandbox, pytest.mark.in_order, pytest.mark.timeout(3000)]

TERMINATION = "    termination: {lead: 5s, grace: 20s, script: /usr/local/bin/bye}\n    job_heartbeat: {after: 60s, requeue: true}\n"
NOTICE_S = 60.0  # AWS gives 120 s
STEPS, MORE = 3000, 20  # of 0.1 s: so many that only a requeue ends the first run, and those of the second
JOB = f"""
say() {{ scontrol update "jobid=$SLURM_JOB_ID" "comment=$1"; }}
read -r step saved _ <<< "$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%k)"
if [[ $step =~ ^[0-9]+$ ]]; then
  say "$step $saved $(date +%s.%N) $SLURM_RESTART_COUNT"
  last=$((step + {MORE}))
else
  step=0 last={STEPS}
fi
save() {{ say "$step $(date +%s.%N)"; }}
trap save USR1
srun --ntasks-per-node=1 sleep 600 &
while ((step < last)); do ((step++)); sleep 0.1 & wait $!; done
exit 0
"""
HANGS = f"""
[[ $SLURM_RESTART_COUNT -gt 0 ]] && exit 0
touch {names.JOB_HEARTBEAT_DIR}/$SLURM_JOB_ID
sleep 600
"""
SLURM = 'slurm: {version: "24.11"'
BYE = '#!/bin/sh\necho "$(id -u) $@" > /run/bye\n'


@dataclass(frozen=True)
class Resumed:
    """The record of the second run: its first step, the times of the checkpoint and of the restart, and the restarts."""

    step: int
    saved: float
    at: float
    restarts: int


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with short termination times and a job heartbeat."""
    text = (ROOT / "stacks/burst.yaml").read_text().replace("name: burst\n", "name: termination\n", 1)
    spec = tmp_path_factory.mktemp("stack") / "termination.yaml"
    text = text.replace("    capacity:", TERMINATION + "    capacity:", 1)
    text = text.replace(SLURM, f"{SLURM}, extra: {{MinJobAge: 3600}}", 1)  # the last test reads the first job
    assert "MinJobAge" in text
    spec.write_text(text)
    gpucluster("sandbox", "up", str(spec), timeout=1500)
    try:
        yield Cluster("termination")
    finally:
        gpucluster("sandbox", "down", "termination")
        assert not Path("/var/lib/gpucluster-sandbox/termination").exists()


@pytest.fixture(scope="module")
def hanging(cluster: Cluster) -> int:
    """A job that sends one heartbeat and then hangs. It is submitted early, because the watchdog waits a minute."""
    return cluster.sbatch("--gres=gpu:8", script=HANGS)


def started(cluster: Cluster, nodes: int) -> int:
    job = cluster.sbatch(f"--nodes={nodes}", "--gres=gpu:8", script=JOB)
    steps = ("squeue", "-h", "-s", "-j", str(job), "-o", "%i")
    cluster.wait(  # its trap is set before: a signal to a job whose script has not begun is lost
        "the script has started its step", lambda: f"{job}.0" in cluster.exec("head", *steps).split()
    )
    return job


def machines(cluster: Cluster, job: int) -> dict[str, str]:
    """The instances of the job's nodes, by node."""
    here = cluster.exec("head", "scontrol", "show", "hostnames", cluster.job(job)["nodes"]).split()
    addresses = {node["address"]: name for name, node in cluster.nodes().items()}
    found = {addresses.get(i["address"], ""): i["id"] for i in cluster.instances()}
    return {node: found[node] for node in here}


def resumed(cluster: Cluster, job: int) -> Resumed | None:
    found = re.fullmatch(r"(\d+) ([\d.]+) ([\d.]+) (\d+)", cluster.job(job)["comment"])
    return Resumed(int(found[1]), float(found[2]), float(found[3]), int(found[4])) if found else None


def completed(cluster: Cluster, job: int, what: str) -> Resumed:
    """Wait for the second run and the end of the job; print the lost time."""
    cluster.wait("the job resumes from its checkpoint", lambda: resumed(cluster, job) is not None)
    cluster.wait("the job is done", lambda: cluster.state(job) == "COMPLETED")
    found = resumed(cluster, job)
    assert found is not None
    print(f"\n{what}: {found.at - found.saved:.1f} s of wall time lost", file=sys.stderr)  # noqa: T201
    return found


def test_job_on_four_nodes_resumes_after_a_spot_notice(cluster: Cluster, hanging: int) -> None:
    job = started(cluster, 4)
    before = machines(cluster, job)
    victim = sorted(before)[1]
    cluster.exec(victim, "install", "-m", "755", "/dev/stdin", "/usr/local/bin/bye", stdin=BYE)
    ends = time.time() + NOTICE_S
    cluster.control().interrupt(before[victim], NOTICE_S)
    cluster.wait("the node is drained", lambda: "DRAIN" in cluster.nodes()[victim]["state"])
    cluster.wait(
        "node and job show the same reason",
        lambda: reason(cluster, victim) == comment(cluster, job),
    )
    assert comment(cluster, job).startswith(
        "gpucluster: [evacuation] the cloud reclaims this spot instance at "
    )
    cluster.wait("the site's program ran", lambda: bye(cluster, victim) != "")
    assert re.fullmatch(r"0 spot \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", bye(cluster, victim))
    found = completed(cluster, job, "a spot notice")
    assert found.restarts == 1, cluster.exec("head", "gpucluster", "timeline", str(job))
    assert found.step > 0
    assert found.saved < ends, "the script was signalled after the end of the instance"
    assert before[victim] not in {i["id"] for i in cluster.instances()}


def test_job_resumes_after_the_failure_of_a_gpu(cluster: Cluster, hanging: int) -> None:
    job = started(cluster, 2)
    before = machines(cluster, job)
    victim = sorted(before)[0]
    line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n"
    cluster.exec(victim, "tee", "-a", names.KERNEL_LOG_STAND_IN, stdin=line)
    cluster.wait("the node is drained", lambda: "DRAIN" in cluster.nodes()[victim]["state"])
    found = completed(cluster, job, "a GPU that died")
    assert found.restarts == 1, cluster.exec("head", "gpucluster", "timeline", str(job))
    assert found.step > 0
    assert "XID 79 on 0000:3b:00" in cluster.job(job)["admin_comment"]
    cluster.wait(
        "the machine is replaced",
        lambda: before[victim] not in {i["id"] for i in cluster.instances()},
    )


def test_watchdog_requeues_a_hung_job(cluster: Cluster, hanging: int) -> None:
    cluster.wait("the job is requeued and ends", lambda: cluster.state(hanging) == "COMPLETED")
    job = cluster.job(hanging)
    assert job["restart_cnt"] == 1
    assert "no progress for 60 s" in job["admin_comment"]


def test_every_instance_is_terminated_in_the_end(cluster: Cluster) -> None:
    cluster.wait("every node is gone and no slot is blocked", cluster.all_gone)
    assert cluster.all_gone()


def reason(cluster: Cluster, node: str) -> str:
    return str(cluster.nodes()[node]["reason"])


def comment(cluster: Cluster, job: int) -> str:
    return str(cluster.job(job)["admin_comment"])


def bye(cluster: Cluster, node: str) -> str:
    try:
        return cluster.exec(node, "cat", "/run/bye", check=False).strip()
    except (AssertionError, subprocess.SubprocessError):
        return ""
