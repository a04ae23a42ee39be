"""A research cluster as its people see it: login, homes that all machines share, a job, and a head that is replaced."""

import base64
import json
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from cluster import ROOT, Cluster, gpucluster

from gpucluster import engine
from gpucluster.aws.program import declare
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import Control
from gpucluster.engine import run
from gpucluster.engine.target import Target
from gpucluster.plan import codec, names
from gpucluster.plan.model import ClusterPlan
from gpucluster.sandbox import ledger

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(600)]
NAME, LOGIN, POOL = "research", "research-login-1", "small"
FIRST_OF_JOURNAL = (
    f"{names.VENV}/bin/python", "-c", "import sys; from pathlib import Path; from gpucluster.elastic.journal import "
    "read_only; print(read_only(Path(sys.argv[1]))[0])", names.JOURNAL,
)  # fmt: skip
ASK_S3 = """
import os, subprocess, sys, boto3
from botocore.exceptions import ClientError
bucket, secret = sys.argv[1:]
def client(service):
    return boto3.client(service, region_name="us-east-1", endpoint_url="http://169.254.169.252:5000")
def ask(what, call, **asked):
    try:
        call(**asked)
        print(what, "yes")
    except ClientError as error:
        print(what, error.response["Error"]["Code"])
s3, sts = client("s3"), client("sts")
print("who", sts.get_caller_identity()["Arn"].rpartition("/")[2])
ask("read", s3.get_object, Bucket="example-data", Key="sets/1")
ask("write", s3.put_object, Bucket="example-data", Key="checkpoints/1", Body=b"weights")
ask("list", s3.list_objects_v2, Bucket="example-data", Prefix="checkpoints/")
ask("change-data", s3.put_object, Bucket="example-data", Key="sets/1", Body=b"x")
ask("beside", s3.get_object, Bucket="example-data", Key="sets-of-others/1")
ask("elsewhere", s3.get_object, Bucket="example-private", Key="1")
ask("bundle", s3.get_object, Bucket=bucket, Key="bundle.tar.gz")
ask("key", client("secretsmanager").get_secret_value, SecretId=secret)
ask("launch", client("ec2").describe_instances)
token = open(os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).read()
print("token-in-environment", any(token in value for value in os.environ.values()))
put = ["curl", "-s", "-m", "3", "-X", "PUT", "-H", "X-aws-ec2-metadata-token-ttl-seconds: 60"]
print("metadata", subprocess.run([*put, "http://169.254.169.254/latest/api/token"]).returncode)
"""
KEPT = ("/home/vision/kept", "/data/kept", "/apps/kept")
OFF = {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "DOWN"}
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


def test_a_job_has_the_role_for_jobs_and_nothing_else_and_nobody_else_has_it(research):
    """By the SDK's own way, without any key in the user's home; its token serves no other user, and not after the job."""
    s3 = research.client("s3")
    had = {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}
    for bucket in {"example-data", "example-private"} - had:
        s3.create_bucket(Bucket=bucket)
    for bucket, key in (
        ("example-data", "sets/1"),
        ("example-data", "sets-of-others/1"),
        ("example-private", "1"),
    ):
        s3.put_object(Bucket=bucket, Key=key, Body=b"data")
    bindings = json.loads(research.exec("head", "cat", f"{names.BUNDLE_DIR}/{names.BINDINGS_FILE}"))
    ask = f"echo {base64.b64encode(ASK_S3.encode()).decode()} | base64 -d"
    python = f"{names.VENV}/bin/python - {bindings['bucket']} {bindings['secret']}"
    job = research.submit(
        "--gres=gpu:1", "--output=/home/vision/s3",
        script=f"{ask} | {python}; echo done; until test -e /home/vision/go; do sleep 1; done",
    )  # fmt: skip
    research.wait(
        "it has asked", lambda: "done" in research.ssh("vision", "cat", "/home/vision/s3").stdout, within=200
    )
    told = dict(
        line.split() for line in research.ssh("vision", "cat", "/home/vision/s3").stdout.splitlines()[:-1]
    )
    assert told == {
        "who": f"{job}-vision", "read": "yes", "write": "yes", "list": "yes", "change-data": "AccessDenied",
        "beside": "AccessDenied", "elsewhere": "AccessDenied", "bundle": "AccessDenied",
        "key": "AccessDeniedException", "launch": "UnauthorizedOperation", "token-in-environment": "False",
        "metadata": "7",
    }  # fmt: skip
    assert s3.get_object(Bucket="example-data", Key="checkpoints/1")["Body"].read() == b"weights"

    node = research.job(job)["batch_host"]
    file = f"{names.JOBS_DIR}/{job}"
    token = research.exec(node, "cat", file)

    def status(user: str) -> str:
        argv = ("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "@-")
        here = f"http://127.0.0.1:{names.JOBS_PORT}/"
        return research.exec(node, *argv, here, user=user, stdin=f"Authorization: {token}\n")

    assert status("vision") == "200", "the control: the token is good"
    assert status("speech") == "403", "a token that another user has got is of no use to him"
    assert research.exec(node, "cat", file, user="speech", check=False) == ""
    assert token not in research.exec(node, "journalctl", "--no-pager", "-o", "export")
    research.ssh("vision", "touch", "/home/vision/go")
    research.wait("the job is done", lambda: research.state(job) == "COMPLETED", within=60)
    research.wait("its token is of no use any more", lambda: status("vision") == "403", within=20)


def test_validate_calls_a_cluster_with_shared_homes_and_a_login_machine_healthy(research):
    steady = {f"h100-1a-{n}" for n in (1, 2)}
    research.wait(
        "its always-on nodes are up",
        lambda: all(set(research.nodes()[name]["state"]) == {"IDLE", "CLOUD"} for name in steady),
        within=150,
    )
    done = gpucluster("validate", NAME, "--output", "json", check=False, timeout=900)
    results = json.loads(done.stdout)["results"]
    assert [(one["id"], one["found"]) for one in results if one["verdict"] != "pass"] == []
    assert {one["machine"] for one in results if one["check"] == "fs.mount"} >= {"head", *steady}
    assert done.returncode == 0


def test_a_head_that_is_replaced_finds_queue_journal_and_exports_again(research):
    job = research.submit("--hold", script="cp /apps/tool /home/vision/tool")
    research.exec("head", "bash", "-c", "echo a tool > /apps/tool")
    saved(research, job)
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


def test_down_keeps_the_data_and_the_next_up_finds_it(research):
    """The head dies first, so that its journal and slurmctld's state end with nodes that live and a job that runs."""
    research.ssh("vision", "sh", "-c", "'echo home > /home/vision/kept'")
    research.exec("head", "bash", "-c", "umask 022; echo data > /data/kept; echo apps > /apps/kept")
    running = research.submit("--gres=gpu:1", script="sleep 900")
    research.wait("a job runs", lambda: research.state(running) == "RUNNING", within=150)
    waiting = research.submit("--hold", "--output=/home/vision/found", script=f"cat {' '.join(KEPT)}")
    saved(research, waiting)
    first, fence = research.exec("head", *FIRST_OF_JOURNAL), control_of(research).epoch
    research.ec2().terminate_instances(InstanceIds=[instance_of_head(research)])
    done = json.loads(gpucluster("down", NAME, "--output", "json").stdout)
    assert sorted(one["what"].split()[0] for one in done["kept"]) == ["EFS", "FSx", "disk", "disk"]
    assert {one["state"] for one in research.everything()} == {"terminated"}

    target, program = stack_of(research)
    run.up(target, program)
    gpucluster("sandbox", "status", NAME, "--wait")
    assert research.exec("head", *FIRST_OF_JOURNAL) == first
    research.wait("the daemon acts", lambda: control_of(research).epoch > fence)
    research.wait("the job of before runs again", lambda: research.job(running)["restart_cnt"] > 0)
    research.exec("head", "scontrol", "release", str(waiting))
    research.wait("a job runs", lambda: research.state(waiting) == "COMPLETED", within=150)
    assert research.ssh("vision", "cat", "/home/vision/found").stdout == "home\ndata\napps\n"
    research.exec("head", "scancel", "--user", "vision")
    research.wait("no node of before is taken for alive", lambda: up_in_slurm(research) == named(research))


def up_in_slurm(cluster: Cluster) -> set[str]:
    return {name for name, node in cluster.nodes().items() if not OFF & set(node["state"])}


def named(cluster: Cluster) -> set[str]:
    """The nodes that a living instance is."""
    status = json.loads(gpucluster("sandbox", "status", cluster.name, "--output", "json").stdout)
    return {one["node"] for one in status["instances"] if one["role"] == "node" and one["state"] == "running"}


def control_of(cluster: Cluster) -> Control:
    """Of the bucket that there is now; the site's own is beside it."""
    names_of_buckets = [one["Name"] for one in cluster.client("s3").list_buckets()["Buckets"]]
    (bucket,) = [one for one in names_of_buckets if one.startswith(f"{cluster.name}-")]
    return S3Control("us-east-1", bucket, lambda: cluster.client("s3")).read()


def saved(cluster: Cluster, job: int) -> None:
    """slurmctld writes a moment later: pulled before, the job is lost."""
    submitted = cluster.job(job)["submit_time"]["number"]
    when = ("stat", "--format=%Y", "/var/spool/slurmctld/job_state")
    cluster.wait("slurmctld has saved it", lambda: int(cluster.exec("head", *when)) >= submitted)


def replace_head(cluster: Cluster) -> str:
    """Terminate it, and `pulumi up` again, as an operator would."""
    head = instance_of_head(cluster)
    cluster.ec2().terminate_instances(InstanceIds=[head])
    target, program = stack_of(cluster)
    run.refresh(target, program)
    done = run.up(target, program).counts  # its address is still held, and maybe its disks are (T42)
    assert done.get("create", 0) + done.get("replace", 0) == 3, "it, and where its two volumes are attached"
    return head


def stack_of(cluster: Cluster) -> tuple[Target, Callable[[], None]]:
    """What `pulumi up` needs, typed in the shell."""
    home = ledger.living(cluster.name)
    plan = codec.loads(ClusterPlan, home.plan.read_bytes())
    return home.target(engine.find_or_build(lambda _: None)), partial(declare, plan)


def instance_of_head(cluster: Cluster) -> str:
    return next(
        i["id"] for i in cluster.everything() if i["role"] == names.ROLE_HEAD and i["state"] == "running"
    )
