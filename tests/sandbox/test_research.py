"""A research cluster as its people see it: login, homes that all machines share, a job, and a head that is replaced."""

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from cluster import ROOT, Cluster, gpucluster

from gpucluster import engine
from gpucluster.aws.program import declare
from gpucluster.engine import run
from gpucluster.plan import codec, names
from gpucluster.plan.model import ClusterPlan
from gpucluster.sandbox import ledger

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(600)]
NAME, LOGIN, POOL = "research", "research-login-1", "small"
FIRST_OF_JOURNAL = (
    f"{names.VENV}/bin/python", "-c", "import sys; from pathlib import Path; from gpucluster.elastic.journal import "
    "read_only; print(read_only(Path(sys.argv[1]))[0])", names.JOURNAL,
)  # fmt: skip
MOUNTS = {"/home", "/data", "/apps", "/archive"}


class Research(Cluster):
    """The cluster, and a key of the user `vision`."""

    key: Path

    def ssh(self, user: str, *argv: str) -> subprocess.CompletedProcess[str]:
        return gpucluster(
            "sandbox", "ssh", self.name, "login", "--user", user, "--identity", str(self.key), "--",
            *argv, check=False,
        )  # fmt: skip

    def mounts(self, machine: str) -> set[str]:
        said = self.exec(machine, "findmnt", "--json", "--list", "--output", "TARGET")
        return {row["target"] for row in json.loads(said)["filesystems"]}

    def submit(self, *options: str, script: str) -> int:
        """From the login machine, as vision, by ssh."""
        done = self.ssh(
            "vision", "sbatch", "--parsable", f"--partition=debug {' '.join(options)}", f"--wrap='{script}'"
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout)


@pytest.fixture(scope="module")
def research(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Research]:
    """stacks/research.yaml with a key of the test's in the place of vision's."""
    folder = tmp_path_factory.mktemp("research")
    key = folder / "key"
    subprocess.run(["/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    lines = (ROOT / "stacks/research.yaml").read_text().splitlines()
    ours = [
        f'  - {{name: vision, uid: 5001, keys: ["{public}"]}}' if "name: vision" in x else x for x in lines
    ]
    (folder / "research.yaml").write_text("\n".join(ours) + "\n")
    gpucluster("sandbox", "up", str(folder / "research.yaml"), timeout=1500)
    try:
        made = Research(NAME)
        made.key = key
        made.wait("login is up", lambda: made.ssh("vision", "true").returncode == 0, within=120)
        yield made
    finally:
        gpucluster("sandbox", "down", NAME)


def test_everybody_is_everywhere_alike_and_only_keys_of_the_spec_open_login(research):
    assert research.ssh("vision", "id").stdout == "uid=5001(vision) gid=5001(vision) groups=5001(vision)\n"
    assert research.ssh("vision", "hostname").stdout.strip() == LOGIN
    for machine in ("head", "login"):
        assert "5003" in research.exec(machine, "id", "recsys")
        assert research.mounts(machine) >= MOUNTS
    for stranger in ("root", "speech", "slurm"):
        assert "Permission denied" in research.ssh(stranger, "true").stderr
    metadata = research.ssh(
        "vision", "curl", "--silent", "--max-time", "2", f"{names.METADATA}/latest/meta-data/"
    )
    assert metadata.returncode == 7  # the guard: nobody but root reaches the machine's role


def test_a_user_runs_a_job_from_login_and_reads_its_output_there(research):
    script = (
        "hostname; id -un; findmnt -rno TARGET; echo from the node > /scratch/x; cp /scratch/x /home/vision/x"
    )
    job = research.submit("--gres=gpu:1", "--output=/home/vision/out", script=script)
    research.wait("the job is done", lambda: research.state(job) == "COMPLETED", within=150)
    out = research.ssh("vision", "cat", "/home/vision/out").stdout.split()
    assert out[0].startswith(POOL)
    assert out[1] == "vision"
    assert set(out) >= MOUNTS
    assert research.exec("head", "cat", "/home/vision/x") == "from the node\n"
    assert research.exec("head", "stat", "--format=%u", "/home/vision/x") == "5001\n"


def test_a_head_that_is_replaced_finds_queue_journal_and_exports_again(research):
    job = research.submit("--hold", script="cp /apps/tool /home/vision/tool")
    research.exec("head", "bash", "-c", "echo a tool > /apps/tool")
    submitted = research.job(job)["submit_time"]["number"]
    saved = (
        "stat",
        "--format=%Y",
        "/var/spool/slurmctld/job_state",
    )  # a moment later: pulled before, it is lost
    research.wait("slurmctld has saved it", lambda: int(research.exec("head", *saved)) >= submitted)
    first = research.exec("head", *FIRST_OF_JOURNAL)
    before = replace_head(research)
    research.wait(
        "login finds the queue again",
        lambda: research.ssh("vision", "squeue", "-h", "-o", "%i").stdout == f"{job}\n",
        within=150,
    )
    assert instance_of_head(research) != before
    assert research.exec("head", "cat", "/apps/tool") == "a tool\n"
    assert research.exec("head", *FIRST_OF_JOURNAL) == first
    research.exec("head", "scontrol", "release", str(job))
    research.wait("the job is done", lambda: research.state(job) == "COMPLETED", within=150)
    assert research.ssh("vision", "cat", "/home/vision/tool").stdout == "a tool\n"


def test_a_file_system_that_lets_nobody_in_is_the_nodes_reason(research):
    ec2 = research.ec2()
    groups = {
        t["Value"]: g
        for g in ec2.describe_security_groups()["SecurityGroups"]
        for t in g.get("Tags", ())
        if t["Key"] == "Name"
    }
    group = groups[f"{NAME}-efs"]
    ec2.revoke_security_group_ingress(GroupId=group["GroupId"], IpPermissions=group["IpPermissions"])
    try:
        job = research.submit(
            "--gres=gpu:1", f"--nodelist={POOL}-1a-8", script="true"
        )  # one that has to boot
        research.wait(
            "the node says what it lacks",
            lambda: (
                "/home cannot be mounted"
                in research.exec("head", "journalctl", "-u", "gpucluster-elastic", "-o", "cat")
            ),
            within=120,
        )
        assert research.state(job) != "COMPLETED"
    finally:
        ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=group["IpPermissions"])
    research.wait("it runs when it is let in", lambda: research.state(job) == "COMPLETED", within=240)


def replace_head(cluster: Cluster) -> str:
    """Terminate it, and `pulumi up` again, as an operator would."""
    head = instance_of_head(cluster)
    cluster.ec2().terminate_instances(InstanceIds=[head])
    until_free(cluster, next(i["address"] for i in cluster.everything() if i["id"] == head))
    home = ledger.living(cluster.name)
    plan = codec.loads(ClusterPlan, home.plan.read_bytes())
    target, program = home.target(engine.find_or_build(lambda _: None)), partial(declare, plan)
    assert run.refresh(target, program).counts["delete"] == 3  # it, and where its two volumes were attached
    assert run.up(target, program).counts["create"] == 3
    return head


def until_free(cluster: Cluster, address: str) -> None:
    """An ended instance's interface lingers, and its address with it (T42)."""
    wanted = [{"Name": "private-ip-address", "Values": [address]}]
    seen = cluster.ec2().describe_network_interfaces
    cluster.wait(f"{address} is free", lambda: not seen(Filters=wanted)["NetworkInterfaces"], within=60)


def instance_of_head(cluster: Cluster) -> str:
    return next(
        i["id"] for i in cluster.everything() if i["role"] == names.ROLE_HEAD and i["state"] == "running"
    )
