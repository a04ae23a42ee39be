"""A cluster that bursts, as an ordinary user sees it: gangs, devices, lack of capacity, and no instance left over."""

import pytest
from cluster import UNTIL_LET_GO

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(3000)]

P5EN, P5E = "p5en.48xlarge", "p5e.48xlarge"


def zones(names):
    """Return the zones of slots: `h200-1a-3` -> 1a."""
    return {name.split("-")[1] for name in names}


def machines(burst):
    return sorted((i["machine"], i["market"]) for i in burst.instances())


def test_job_on_two_nodes_communicates_and_idle_nodes_are_terminated(burst):
    assert burst.instances() == []
    job = burst.sbatch(
        "--hold", "-N2", "--gres=gpu:8", "--output=/home/researcher/%j.out", script=EXCHANGE + UNTIL_LET_GO
    )
    assert burst.instances() == []  # nothing is launched for a held job
    burst.exec("head", "scontrol", "release", str(job))
    burst.wait("the job runs", lambda: burst.state(job) == "RUNNING")
    first = burst.job(job)["batch_host"]
    burst.wait(
        "both nodes have received a message",
        lambda: burst.exec(first, "cat", f"/home/researcher/{job}.out", check=False).count("received:") == 2,
    )
    output = burst.exec(first, "cat", f"/home/researcher/{job}.out")
    assert output.count("with GPUs 0,1,2,3,4,5,6,7") == 2
    assert machines(burst) == [(P5EN, "spot")] * 2
    burst.let_go(job)
    burst.wait("the job is done", lambda: burst.state(job) == "COMPLETED")
    burst.wait("the nodes are gone", burst.all_gone)


EXCHANGE = r"""
srun --ntasks-per-node=1 python3 -c '
import os, socket, subprocess, time
names = subprocess.run(["scontrol", "show", "hostnames"], capture_output=True, text=True, check=True).stdout.split()
mine = names[int(os.environ["SLURM_PROCID"])] + " with GPUs " + os.environ["CUDA_VISIBLE_DEVICES"]
if mine.startswith(names[0] + " "):
    with socket.create_server((names[0], 29500)) as server:
        server.settimeout(120)
        link, _ = server.accept()
        print("received:", link.recv(1024).decode(), flush=True)
        link.sendall(mine.encode())
else:
    for attempt in range(600):
        try:
            link = socket.create_connection((names[0], 29500), timeout=120)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    link.sendall(mine.encode())
    print("received:", link.recv(1024).decode(), flush=True)
'
"""


def test_two_jobs_on_one_node_cannot_open_the_gpus_of_each_other(burst):
    # open(2) of a GPU's device file: ENXIO means allowed (no device is present), EPERM means that the cgroup refuses
    script = r"""
for n in 0 1 2 3 4 5 6 7; do
  python3 -c "
import errno, os, sys
try: os.open('/dev/nvidia' + sys.argv[1], os.O_RDWR)
except OSError as error: print(sys.argv[1], errno.errorcode[error.errno])" $n
done
sleep 12"""
    jobs = [
        burst.sbatch(
            "-N1", "--gres=gpu:4", "-w", "h200-1a-1", "--output=/home/researcher/%j.out", script=script
        )
        for _ in range(2)
    ]
    burst.wait("both run at once", lambda: all(burst.state(j) == "RUNNING" for j in jobs))
    assert {burst.job(j)["batch_host"] for j in jobs} == {"h200-1a-1"}
    seen = []
    for job in jobs:
        burst.wait(
            "the job has tried all eight",
            lambda job=job: (
                len(burst.exec("h200-1a-1", "cat", f"/home/researcher/{job}.out", check=False).split("\n"))
                == 9
            ),
        )
        lines = burst.exec("h200-1a-1", "cat", f"/home/researcher/{job}.out").split("\n")[:8]
        seen.append({line.split()[0] for line in lines if line.endswith("ENXIO")})
        assert {line.split()[1] for line in lines} == {"ENXIO", "EPERM"}
    assert seen[0].isdisjoint(seen[1])
    assert [len(s) for s in seen] == [4, 4]


def test_gang_takes_the_next_machine_type_when_the_first_has_no_capacity(burst):
    burst.capacity(0, machine=P5EN, market="spot")
    job = burst.sbatch("-N2", "--gres=gpu:8", script="sleep 600")
    burst.wait("the job runs", lambda: burst.state(job) == "RUNNING")
    assert machines(burst) == [(P5E, "spot")] * 2
    assert burst.job(job)["restart_cnt"] == 0  # inside the same allocation


def test_gang_takes_the_other_zone_when_the_first_has_no_capacity(burst):
    burst.capacity(0, zone="us-east-1a")
    job = burst.sbatch("-N2", "--gres=gpu:8", script="sleep 600")
    burst.wait("the job runs", lambda: burst.state(job) == "RUNNING")
    assert {i["zone"] for i in burst.instances()} == {"us-east-1b"}


def test_job_without_capacity_shows_the_reason_and_runs_when_capacity_returns(burst):
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
        "squeue shows it, too",
        lambda: "DRAINED" in burst.exec("head", "squeue", "-h", "-o", "%r|%R", "-j", str(job)),
    )
    burst.wait("one gang was tried again", lambda: burst.timeline(job).count("placed") > 2)
    tried = "".join(f" {what}" for what in burst.timeline(job) if what in {"placed", "requested"})
    assert "placed placed" not in tried  # a launch request follows each call of the hook
    burst.capacity(None)
    burst.wait("the job is done", lambda: burst.state(job) == "COMPLETED")


def test_gang_starts_whole_in_the_other_zone_when_its_own_zone_has_too_little_capacity(burst):
    warm = burst.sbatch("-N2", "--gres=gpu:8", "-w", "h200-1a-[1-2]", script="sleep 1")
    burst.wait("two nodes are up in 1a", lambda: burst.state(warm) == "COMPLETED")
    burst.capacity(0, zone="us-east-1a")
    job = burst.sbatch("-N4", "--gres=gpu:8", script=UNTIL_LET_GO)
    burst.wait("the gang runs", lambda: burst.state(job) == "RUNNING")
    assert zones(expand(burst, burst.job(job)["nodes"])) == {"1b"}
    burst.let_go(job)
    burst.wait("the gang is done", lambda: burst.state(job) == "COMPLETED")


def expand(burst, hostlist):
    return burst.exec("head", "scontrol", "show", "hostnames", hostlist).split()
