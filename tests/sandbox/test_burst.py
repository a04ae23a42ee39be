"""A cluster that bursts, seen by an ordinary user: gangs, devices, refusals, and nothing left over."""

import pytest

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(300)]

P5EN, P5E = "p5en.48xlarge", "p5e.48xlarge"


def zones(names):
    """The zones of slots: `h200-1a-3` -> 1a."""
    return {name.split("-")[1] for name in names}


def machines(burst):
    return sorted((i["machine"], i["market"]) for i in burst.instances())


def test_two_nodes_sixteen_gpus_run_talk_and_go_away_when_idle(burst):
    assert burst.instances() == []
    job = burst.sbatch("--hold", "-N2", "--gres=gpu:8", "--output=/tmp/%j.out", script=TALK)
    assert burst.instances() == []  # nothing is launched for a job that may not run
    burst.exec("head", "scontrol", "release", str(job))
    burst.wait("the job runs", lambda: burst.state(job) == "RUNNING")
    first = burst.job(job)["batch_host"]
    burst.wait(
        "both have heard each other",
        lambda: burst.exec(first, "cat", f"/tmp/{job}.out", check=False).count("heard:") == 2,
    )
    heard = burst.exec(first, "cat", f"/tmp/{job}.out")
    assert heard.count("with GPUs 0,1,2,3,4,5,6,7") == 2
    assert machines(burst) == [(P5EN, "spot")] * 2
    burst.wait("the job is done", lambda: burst.state(job) == "COMPLETED")
    burst.wait("the nodes are gone", burst.all_gone)


TALK = r"""
srun --ntasks-per-node=1 python3 -c '
import os, socket, subprocess, time
names = subprocess.run(["scontrol", "show", "hostnames"], capture_output=True, text=True, check=True).stdout.split()
mine = names[int(os.environ["SLURM_PROCID"])] + " with GPUs " + os.environ["CUDA_VISIBLE_DEVICES"]
if mine.startswith(names[0] + " "):
    with socket.create_server((names[0], 29500)) as server:
        server.settimeout(30)
        link, _ = server.accept()
        print("heard:", link.recv(1024).decode(), flush=True)
        link.sendall(mine.encode())
else:
    for attempt in range(100):
        try:
            link = socket.create_connection((names[0], 29500), timeout=30)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    link.sendall(mine.encode())
    print("heard:", link.recv(1024).decode(), flush=True)
'
sleep 3
"""


def test_two_jobs_on_one_node_get_disjoint_devices_and_cannot_open_each_others(burst):
    # open(2) of a GPU's device file: ENXIO means allowed (nothing is behind it), EPERM means the cgroup refuses
    script = r"""
for n in 0 1 2 3 4 5 6 7; do
  python3 -c "
import errno, os, sys
try: os.open('/dev/nvidia' + sys.argv[1], os.O_RDWR)
except OSError as error: print(sys.argv[1], errno.errorcode[error.errno])" $n
done
sleep 12"""
    jobs = [
        burst.sbatch("-N1", "--gres=gpu:4", "-w", "h200-1a-1", "--output=/tmp/%j.out", script=script)
        for _ in range(2)
    ]
    burst.wait("both run at once", lambda: all(burst.state(j) == "RUNNING" for j in jobs))
    assert {burst.job(j)["batch_host"] for j in jobs} == {"h200-1a-1"}
    seen = []
    for job in jobs:
        burst.wait(
            "eight were tried",
            lambda job=job: (
                len(burst.exec("h200-1a-1", "cat", f"/tmp/{job}.out", check=False).split("\n")) == 9
            ),
        )
        lines = burst.exec("h200-1a-1", "cat", f"/tmp/{job}.out").split("\n")[:8]
        seen.append({line.split()[0] for line in lines if line.endswith("ENXIO")})
        assert {line.split()[1] for line in lines} == {"ENXIO", "EPERM"}
    assert seen[0].isdisjoint(seen[1])
    assert [len(s) for s in seen] == [4, 4]


def test_a_refused_machine_means_the_next_one_for_the_same_gang(burst):
    burst.capacity(0, machine=P5EN, market="spot")
    job = burst.sbatch("-N2", "--gres=gpu:8", script="sleep 2")
    burst.wait("the job is done", lambda: burst.state(job) == "COMPLETED")
    assert machines(burst) == [(P5E, "spot")] * 2
    assert burst.job(job)["restart_cnt"] == 0  # inside the same allocation


def test_a_refused_zone_means_the_other_one(burst):
    burst.capacity(0, zone="us-east-1a")
    job = burst.sbatch("-N2", "--gres=gpu:8", script="sleep 2")
    burst.wait("the job is done", lambda: burst.state(job) == "COMPLETED", within=120)
    assert {i["zone"] for i in burst.instances()} == {"us-east-1b"}


def test_with_everything_refused_the_job_waits_and_says_why_and_runs_when_capacity_returns(burst):
    burst.capacity(0)
    job = burst.sbatch("-N2", "--gres=gpu:8", script="sleep 2")
    burst.wait("every slot is blocked", lambda: all("DRAIN" in n["state"] for n in burst.nodes().values()))
    assert burst.state(job) == "PENDING"
    assert all(
        n["reason"].startswith("gpucluster: ") and "InsufficientInstanceCapacity" in n["reason"]
        for n in burst.nodes().values()
    )
    assert burst.job(job)["admin_comment"].startswith("gpucluster: ")
    assert burst.instances() == []
    burst.wait(
        "squeue says so too",
        lambda: "DRAINED" in burst.exec("head", "squeue", "-h", "-o", "%r|%R", "-j", str(job)),
    )
    burst.wait("one gang was tried again", lambda: burst.told(job).count("placed") > 2)
    tried = "".join(f" {what}" for what in burst.told(job) if what in {"placed", "requested"})
    assert (
        "placed placed" not in tried
    )  # each time that Slurm was let to call the hook, something was asked for
    burst.capacity(None)
    burst.wait("the job is done", lambda: burst.state(job) == "COMPLETED", within=150)


def test_a_gang_with_two_nodes_up_in_a_zone_that_then_refuses_starts_whole_in_the_other(burst):
    warm = burst.sbatch("-N2", "--gres=gpu:8", "-w", "h200-1a-[1-2]", script="sleep 1")
    burst.wait("two nodes are up in 1a", lambda: burst.state(warm) == "COMPLETED")
    burst.capacity(0, zone="us-east-1a")
    job = burst.sbatch("-N4", "--gres=gpu:8", script="sleep 4")
    burst.wait("the gang runs", lambda: burst.state(job) == "RUNNING", within=150)
    assert zones(expand(burst, burst.job(job)["nodes"])) == {"1b"}
    burst.wait("the gang is done", lambda: burst.state(job) == "COMPLETED")


def expand(burst, hostlist):
    return burst.exec("head", "scontrol", "show", "hostnames", hostlist).split()
