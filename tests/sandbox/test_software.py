"""What users find on the nodes of a real cluster: the fabric's environment, job scripts that continue, and what boot scripts did."""

import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import ROOT, Cluster, gpucluster

from gpucluster.plan import names

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(3000)]

NAME, USER, HOME = "software", "vision", "/home/vision"
SCRIPT = b'#!/bin/sh\necho "$(id -u) $GPUCLUSTER_NODE $GPUCLUSTER_POOL" > /run/site-boot\n'
FAILS = b"#!/bin/sh\necho error: no licence server >&2\nexit 7\n"
NOTICE_S = 60.0
POOLS = """\
  - name: bad
    nodes: {min: 0, max: 1}
    breaker: {boots: 1}
    on_boot: [{script: "s3://example-site/other.sh", sha256: %s}]
    capacity: [{from: on-demand, machines: [g6e.2xlarge]}]
  - name: broken
    nodes: {min: 0, max: 1}
    breaker: {boots: 1}
    on_boot: [{script: "s3://example-site/fails.sh", sha256: %s}]
    capacity: [{from: on-demand, machines: [g6e.2xlarge]}]
partitions:
  - {name: bad, pools: [bad]}
  - {name: broken, pools: [broken]}
"""
STORAGE = """\
users: [{name: vision, uid: 5001}]
storage: [{mount: /home, efs: {}}, {mount: /apps, nfs: {from: head, size: 20GiB}}]
"""


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = (ROOT / "stacks/burst.yaml").read_text().replace("name: burst\n", f"name: {NAME}\n", 1)
    boot = f'    termination: {{lead: 5s}}\n    on_boot: [{{script: "s3://example-site/boot.sh", sha256: {sha256(SCRIPT)}}}]\n    capacity:'
    text = text.replace("    capacity:", boot, 1)
    text = text.replace(
        'slurm: {version: "24.11"',
        'slurm: {version: "24.11", software: {modules: /apps/modulefiles, conda: /apps/conda}',
        1,
    )
    text = text.replace("partitions:\n", POOLS % (sha256(SCRIPT), sha256(FAILS)), 1)
    file = tmp_path_factory.mktemp("stack") / f"{NAME}.yaml"
    file.write_text(text + STORAGE)
    return file


@pytest.fixture(scope="module")
def cluster(spec: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with shared homes, the site's scripts in S3, and the job scripts in the home of a user."""
    gpucluster("sandbox", "up", str(spec), timeout=1500)
    try:
        made = Cluster(NAME)
        s3 = made.client("s3")
        for key, body in {"boot.sh": SCRIPT, "other.sh": FAILS, "fails.sh": FAILS}.items():
            s3.put_object(Bucket="example-site", Key=key, Body=body)
        scripts = tmp_path_factory.mktemp("jobs")
        gpucluster("jobs", str(spec), "--to", str(scripts))
        for file in (*scripts.iterdir(), ROOT / "tests/support/programs/train.py"):
            put(made, f"{HOME}/{file.name}", file.read_text())
        yield made
    finally:
        gpucluster("sandbox", "down", NAME)
        assert not Path("/var/lib/gpucluster-sandbox", NAME).exists()


def put(cluster: Cluster, path: str, text: str) -> None:
    cluster.exec("head", "install", "-o", USER, "-m", "755", "/dev/stdin", path, stdin=text)


def submit(cluster: Cluster, *argv: str, home: str = HOME) -> int:
    words = ("env", "--chdir", home, f"HOME={home}", f"USER={USER}", "sbatch", "--parsable", *argv)
    return int(cluster.exec("head", *words, user=USER).strip().split(";")[0])


def test_node_has_the_environment_and_the_boot_script_has_run(cluster: Cluster) -> None:
    job = submit(
        cluster,
        "--gpus=1",
        "--output=%j.out",
        "--wrap",
        f"ls -l {names.JOB_ENV}; . {names.JOB_ENV}; env; sleep 600",
    )
    cluster.wait("the job runs", lambda: cluster.state(job) == "RUNNING")
    node = cluster.job(job)["nodes"]
    out = f"{HOME}/{job}.out"
    cluster.wait("it has printed", lambda: "NCCL" in cluster.exec("head", "cat", out, check=False))
    told = cluster.exec("head", "cat", out)
    assert "NCCL_SOCKET_IFNAME=^docker,lo,veth\n" in told
    assert "-rw-r--r-- 1 root root" in told
    files = cluster.exec(node, "ls", names.JOB_ENV_DIR, user=USER).split()
    assert files == ["bad.sh", "broken.sh", "h200.sh"]
    assert cluster.exec(node, "cat", "/run/site-boot") == f"0 {node} h200\n"
    cluster.exec("head", "scancel", str(job))


@pytest.mark.parametrize(
    ("partition", "said"),
    [
        ("bad", f"on-boot: s3://example-site/other.sh is not run: its SHA-256 is {sha256(FAILS)}, the spec has {sha256(SCRIPT)}"),
        ("broken", "on-boot: s3://example-site/fails.sh ended with exit code 7: error: no licence server"),
    ],
)  # fmt: skip
def test_boot_script_that_fails_or_differs_is_a_failed_boot(
    cluster: Cluster, partition: str, said: str
) -> None:
    job = submit(cluster, f"--partition={partition}", "--gpus=1", "--wrap", "true")

    def why() -> str:
        return gpucluster("why", str(job), "--cluster", NAME, check=False).stdout

    cluster.wait(f"why names the reason, not\n{why()}", lambda: said[:60] in why(), poll=2)
    assert cluster.state(job) == "PENDING"
    print(why(), file=sys.stderr)  # noqa: T201
    cluster.exec("head", "scancel", str(job))


def test_modules_and_conda_of_shared_storage_are_there_in_a_login_shell(cluster: Cluster) -> None:
    """Lmod itself, on a node; the installation of Conda is a stand-in with the file that its real one has."""
    for folder, name, text in (
        ("/apps/modulefiles/cuda", "12.4.lua", 'setenv("CUDA_HOME", "/apps/cuda/12.4")\n'),
        ("/apps/conda/etc/profile.d", "conda.sh", "conda() { echo conda of /apps; }\n"),
    ):
        cluster.exec("head", "mkdir", "-p", folder)
        cluster.exec("head", "install", "-m", "644", "/dev/stdin", f"{folder}/{name}", stdin=text)
    body = "#!/bin/bash -l\nmodule --terse avail 2>&1\nmodule load cuda\necho $CUDA_HOME\nconda\n"
    put(cluster, f"{HOME}/modules.sbatch", body)
    job = submit(cluster, "--gpus=1", "--output=%j.out", "modules.sbatch")
    cluster.wait("the job is done", lambda: cluster.state(job) == "COMPLETED")
    told = cluster.exec("head", "cat", f"{HOME}/{job}.out")
    assert "/apps/modulefiles:\n" in told
    assert "cuda/12.4\n" in told
    assert told.endswith("/apps/cuda/12.4\nconda of /apps\n"), told


def test_mpi_plugin_starts_ranks(cluster: Cluster) -> None:
    """Debian's Slurm has the PMIx plugin: every rank has an address of its server."""
    show = "srun --mpi=pmix --ntasks=2 sh -c 'echo $PMIX_RANK $PMIX_NAMESPACE'"
    job = submit(cluster, "--gpus=1", "--ntasks=2", "--output=%j.out", "--wrap", show)
    cluster.wait("the job is done", lambda: cluster.state(job) == "COMPLETED")
    ranks = cluster.exec("head", "cat", f"{HOME}/{job}.out").split()
    assert sorted(ranks[::2]) == ["0", "1"]
    assert len(set(ranks[1::2])) == 1


def test_job_template_continues_from_its_checkpoint_after_a_spot_notice(cluster: Cluster) -> None:
    job = submit(cluster, "checkpoint.sbatch", "--steps=300")
    out = f"{HOME}/checkpoint-{job}.out"

    def told() -> str:
        return cluster.exec("head", "cat", out, check=False)

    cluster.wait("it has met", lambda: "starts at step 0" in told())
    assert "rendezvous of 16 ranks" in told()
    here = cluster.exec("head", "scontrol", "show", "hostnames", cluster.job(job)["nodes"]).split()
    address = cluster.nodes()[here[1]]["address"]
    victim = next(one["id"] for one in cluster.instances() if one["address"] == address)
    cluster.control().interrupt(victim, NOTICE_S)
    cluster.wait("it has saved", lambda: "checkpoint saved, the job is requeued" in told())
    cluster.wait("it is done", lambda: cluster.state(job) == "COMPLETED")
    first, second = (int(step) for step in re.findall(r"^starts at step (\d+)$", told(), re.M))
    stopped = int(re.findall(r"^stopped at step (\d+)$", told(), re.M)[0])
    assert (first, second) == (0, stopped), told()
    assert 0 < stopped < 300
    assert "done at step 300\n" in told()
    assert victim not in {one["id"] for one in cluster.instances()}
