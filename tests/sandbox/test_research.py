"""A research cluster as its users see it: login, shared homes, accounts, limits, preemption, and a replaced head."""

import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cluster import ROOT, Cluster, gpucluster
from validation import asked_by_ssm, of_verdict, only_these_fail, paused, run_remedy, validated

from gpucluster import engine
from gpucluster.aws.program import declare
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import Control
from gpucluster.engine import run
from gpucluster.engine.target import Target
from gpucluster.plan import names, plan_json
from gpucluster.sandbox import state_dir

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(3000)]
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
def ask(what, call, **arguments):
    try:
        call(**arguments)
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
LAUNCHES = ("RunInstances", "CreateFleet")
KEPT = ("/home/vision/kept", "/data/kept", "/apps/kept")
OFF = {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "DOWN"}
MOUNTS = {"/home", "/data", "/apps", "/archive"}


class Research(Cluster):
    """The cluster, and the ssh key of the user `vision`."""

    key: Path

    def ssh(self, user: str, *argv: str) -> subprocess.CompletedProcess[str]:
        return gpucluster(
            "sandbox", "ssh", self.name, "login", "--user", user, "--identity", str(self.key), "--",
            *argv, check=False,
        )  # fmt: skip

    def mounts(self, machine: str) -> set[str]:
        output = self.exec(machine, "findmnt", "--json", "--list", "--output", "TARGET")
        return {row["target"] for row in json.loads(output)["filesystems"]}

    def submit(self, *options: str, script: str) -> int:
        """Submit a job as vision on the login machine, by ssh. Return its id."""
        done = self.ssh(
            "vision", "sbatch", "--parsable", f"--partition=debug {' '.join(options)}", f"--wrap='{script}'"
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def submit_as(self, user: str, *options: str, script: str) -> int:
        """Submit a job on the head as this user. Return its id."""
        argv = ("sbatch", "--parsable", f"--chdir=/home/{user}", *options)
        return int(self.exec("head", *argv, user=user, stdin=f"#!/bin/bash\n{script}\n"))

    def records(self, *options: str) -> list[list[str]]:
        """The rows of sacct about whole jobs: id, user, account, QOS, state. No rows while slurmdbd does not answer."""
        argv = ("sacct", "--allusers", "--allocations", "--noheader", "--parsable2", "--starttime=now-1day")
        told = self.exec("head", *argv, *options, "--format=jobid,user,account,qos,state", check=False)
        rows = told.splitlines()
        return [row.split("|") for row in rows]

    def record(self, job: int) -> list[str]:
        """The job's row of sacct without its id; empty if slurmdbd does not know the job."""
        return next((row[1:] for row in self.records() if row[0] == str(job)), [])

    def launches(self) -> int:
        return sum(one["action"] in LAUNCHES for one in self.control().trail())

    def head_status(self) -> dict[str, Any]:
        """What the head last reported."""
        s3, bucket = self.client("s3"), bucket_of(self)
        return json.loads(s3.get_object(Bucket=bucket, Key=names.STATUS_KEY)["Body"].read())


@pytest.fixture(scope="module")
def research(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Research]:
    """stacks/research.yaml with a key of the test instead of vision's key, and a short time before a job may be preempted.

    No health check of Slurm comes between a sabotage and `validate`: the daemon would replace the node.
    """
    folder = tmp_path_factory.mktemp("research")
    key = folder / "key"
    subprocess.run(["/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    lines = (ROOT / "stacks/research.yaml").read_text().splitlines()
    ours = [
        f'  - {{name: vision, uid: 5001, keys: ["{public}"]}}' if "name: vision" in x else x for x in lines
    ]
    text = "\n".join(ours) + "\n"
    for before, after in (("exempt: 10m", "exempt: 2s"), ("every: 5m", "every: 12h")):
        assert text.count(before) == 1
        text = text.replace(before, after)
    (folder / "research.yaml").write_text(text)
    shutil.copytree(ROOT / "stacks/scripts", folder / "scripts")
    gpucluster("sandbox", "up", str(folder / "research.yaml"), timeout=1500)
    try:
        made = Research(NAME, folder / "research.yaml")
        made.key = key
        made.wait("login is up", lambda: made.ssh("vision", "true").returncode == 0)
        yield made
    finally:
        gpucluster("sandbox", "down", NAME)


def test_users_have_one_uid_on_all_machines_and_log_in_with_the_spec_s_keys(research):
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
    assert metadata.returncode == 7  # the guard: only root reaches the machine's role


def test_user_runs_a_job_from_login_and_reads_its_output(research):
    script = (
        "hostname; id -un; findmnt -rno TARGET; echo from the node > /scratch/x; cp /scratch/x /home/vision/x"
    )
    job = research.submit("--gres=gpu:1", "--output=/home/vision/out", script=script)
    research.wait("the job is done", lambda: research.state(job) == "COMPLETED")
    out = research.ssh("vision", "cat", "/home/vision/out").stdout.split()
    assert out[0].startswith(POOL)
    assert out[1] == "vision"
    assert set(out) >= MOUNTS
    assert research.exec("head", "cat", "/home/vision/x") == "from the node\n"
    assert research.exec("head", "stat", "--format=%u", "/home/vision/x") == "5001\n"


def test_efs_refuses_clients_without_tls_and_a_machine_role(research):
    """The NFS client of a job has neither. Root on a machine is refused, too, without `tls,iam`."""
    bindings = json.loads(research.exec("head", "cat", f"{names.BUNDLE_DIR}/{names.BINDINGS_FILE}"))
    home = bindings["file_systems"]["/home"]
    ways = (("nfs4", "hard", f"{home['dns_name']}:/"), ("efs", "tls", f"{home['id']}:/"))
    for kind, options, source in ways:
        script = f"mkdir -p /mnt/probe; mount -t {kind} -o {options} {source} /mnt/probe 2>&1; echo code $?"
        found = research.exec("head", "sh", "-c", script)
        assert "access denied by server" in found
        assert "code 0" not in found


def test_job_has_only_the_role_for_jobs_and_only_the_job_has_it(research):
    """The SDK finds the credentials without a key in the user's home. The token ends with the job, and fails for other users."""
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
        "the job has tried every call",
        lambda: "done" in research.ssh("vision", "cat", "/home/vision/s3").stdout,
    )
    answers = dict(
        line.split() for line in research.ssh("vision", "cat", "/home/vision/s3").stdout.splitlines()[:-1]
    )
    assert answers == {
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

    assert status("vision") == "200", "the control: the token is valid"
    assert status("speech") == "403", "another user cannot use the token"
    assert research.exec(node, "cat", file, user="speech", check=False) == ""
    assert token not in research.exec(node, "journalctl", "--no-pager", "-o", "export")
    research.ssh("vision", "touch", "/home/vision/go")
    research.wait("the job is done", lambda: research.state(job) == "COMPLETED")
    research.wait("its token is invalid", lambda: status("vision") == "403")


def test_validate_passes_with_shared_homes_and_a_login_machine(research):
    """The nodes of the tests before it are off, because `validate` warns of a node that powers down while it looks."""
    steady = {f"h100-1a-{n}" for n in (1, 2)}

    def rests(name: str, states: set[str]) -> bool:
        return states == {"IDLE", "CLOUD"} if name in steady else "POWERED_DOWN" in states

    research.wait(
        "only its always-on nodes are up",
        lambda: all(rests(name, set(node["state"])) for name, node in research.nodes().items()),
    )
    done = gpucluster("validate", NAME, "--output", "json", check=False, timeout=900)
    results = json.loads(done.stdout)["results"]
    assert [(one["id"], one["found"]) for one in results if one["verdict"] != "pass"] == []
    assert {one["machine"] for one in results if one["check"] == "fs.mount"} >= {"head", *steady}
    assert done.returncode == 0


OF_ACCOUNTING = "svc.active[head],ctl.ping,acct.db,acct.qos,acct.tree,ctl.conf,part.up"
SABOTAGES = (  # commands on the head, and for each check that fails a part of what it says
    (
        "sacctmgr -i modify account where name=research set fairshare=9; sacctmgr -i modify qos where name=debug set MaxTRESPerUser=cpu=99; "
        "scontrol update partition=debug default=yes",
        {
            "acct.tree[head]": "account research: fairshare is 9, not 3",
            "acct.qos[head]": "QOS debug: MaxTRESPerUser is cpu=99, not cpu=32",
            "part.up[head]": "debug is the default",
        },
    ),
    ("systemctl kill --signal=STOP slurmdbd", {"acct.db[head]": "slurmdbd does not answer"}),
    (
        "mariadb --execute 'SET GLOBAL read_only = 1'",
        {"acct.db[head]": "MariaDB is read-only, so it takes no record"},
    ),
    (
        "systemctl kill --signal=STOP mariadb",
        {"acct.db[head]": "MariaDB does not answer, and slurmdbd does not answer"},
    ),
)


@pytest.mark.parametrize(
    ("do", "finds"),
    SABOTAGES,
    ids=["changed by hand", "slurmdbd hangs", "MariaDB is read-only", "MariaDB hangs"],
)
def test_sabotage_of_accounting_is_found_by_one_check_whose_remedy_heals_it(research, do, finds):
    with paused(research, "gpucluster-agent", "head"):
        research.exec("head", "sh", "-ec", do)
        with asked_by_ssm(research, finds) as by_ssm:
            results = validated(research, "--tier", "0", "--only", OF_ACCOUNTING, code=1)
            same = by_ssm()
        only_these_fail(results, finds.keys())
        assert of_verdict(same, "fail") == finds.keys()
        for ident, found in finds.items():
            assert found in results[ident]["found"]
            assert found in same[ident]["found"]
            run_remedy(research, results[ident]["remedy"])
        research.wait(
            "all of these checks pass again",
            lambda: (
                not of_verdict(validated(research, "--tier", "0", "--only", OF_ACCOUNTING), "fail", "unknown")
            ),
        )


NODE = "h100-1a-1"
OF_USERS = "users.acct,users.keys,users.home"
BY_HAND = (  # machine, command, the only check that fails for it there, a part of what it says
    ("login", "sed -i 's/^vision:x:5001:/vision:x:6001:/' /etc/passwd", "users.acct[LOGIN]", "vision has the uid 6001, not 5001"),
    ("login", "echo '# by hand' >>/run/slurm/conf/slurm.conf", "cfg.same[LOGIN]", "/run/slurm/conf/slurm.conf is another"),
    ("login", f"rm {names.KEY_FOLDER}/vision", "users.keys[LOGIN]", "the key of vision is missing"),
    (
        "login",
        r"printf 'PasswordAuthentication yes\nDenyUsers vision\n' >/etc/ssh/sshd_config.d/00-by-hand.conf; systemctl restart ssh; touch /etc/nologin",
        "sshd.conf[LOGIN]",
        "passwordauthentication is yes, not no, denyusers is vision, and must not be set, /etc/nologin keeps all users but root out",
    ),
    ("head", "exportfs -u -a", "fs.mount[head]", "/apps is not exported"),
    ("head", "chown 5002 /home/vision", "users.home[head]", "/home/vision belongs to the uid 5002, not 5001"),
    (
        "head", "sed -i /^recsys:/d /etc/group; chage --lastday 0 robotics", "users.acct[head]",
        "group recsys is missing, robotics must change the password before any command",
    ),
    (NODE, f"chmod 700 {names.KEY_FOLDER}", f"users.keys[{NODE}]", f"{names.KEY_FOLDER} is not root's, or sshd cannot trust or pass it"),
    (NODE, "userdel speech", f"users.acct[{NODE}]", "user speech is missing"),
    (
        NODE,
        r"printf 'Match User vision\n  KbdInteractiveAuthentication yes\n' >>/etc/ssh/sshd_config; "
        r"sed -i '0,/^account/s//account sufficient pam_permit.so\n&/' /etc/pam.d/sshd",
        f"sshd.conf[{NODE}]",
        "kbdinteractiveauthentication is no, yes, not no, /etc/pam.d/sshd may admit users without a job: "
        "account line 1 is account sufficient pam_permit.so",
    ),
)  # fmt: skip


def heal(research, results, checks):
    """Run the remedies of these checks."""
    for ident in sorted(of_verdict(results, "fail")):
        if ident.partition("[")[0] in checks:
            run_remedy(research, results[ident]["remedy"])


def passes(research, only):
    return not of_verdict(validated(research, "--tier", "0", "--only", only), "fail", "unknown")


def test_sabotage_of_users_and_sshd_is_found_by_one_check_whose_remedy_heals_it(research):
    """The agents are paused: they would repair some of it. The remedy for sshd starts them again."""
    finds = {ident.replace("LOGIN", login_of(research)): found for *_, ident, found in BY_HAND}
    with paused(research, "gpucluster-agent", "head", "login", NODE):
        for machine, do, *_ in BY_HAND:
            research.exec(machine, "sh", "-ec", do)
        with asked_by_ssm(research, finds) as by_ssm:
            results = validated(research, "--tier", "0", code=1)
            same = by_ssm()
        only_these_fail(results, finds.keys())
        only_these_fail(same, finds.keys())
        for told in (results, same):
            assert {i: found in told[i]["found"] for i, found in finds.items()} == dict.fromkeys(finds, True)
        heal(research, results, [*OF_USERS.split(","), "cfg.same", "fs.mount"])
        assert passes(research, f"{OF_USERS},cfg.same[{login_of(research)}],fs.mount[head]")
        heal(research, results, ["sshd.conf"])
        research.wait("sshd admits keys only", lambda: passes(research, "sshd.conf"))


def test_unmounted_home_is_found_on_head_and_node_and_mounted_by_its_remedy(research):
    """Regression: the remedy was `mount /home`, and fstab has no line for it. The agents are paused: they would mount it."""
    machines = ("head", NODE)
    with paused(research, "gpucluster-agent", *machines):
        for machine in machines:
            research.exec(machine, "umount", "--lazy", "/home")
        results = validated(research, "--tier", "0", code=1)
        for machine in machines:
            run_remedy(research, results[f"fs.mount[{machine}]"]["remedy"])
    research.wait("it is mounted again", lambda: passes(research, "fs.mount,users.home"))
    only_these_fail(results, {f"fs.mount[{machine}]" for machine in machines}, {f"node.health[{NODE}]"})
    assert {results[f"fs.mount[{machine}]"]["found"] for machine in machines} == {"/home is not mounted"}


def test_home_that_only_jobs_do_not_have_is_found_by_a_job_and_the_remedy_of_the_files_ends_it(research):
    """Each job gets an empty /home of its own. The head's agent is paused: it would write the file again."""
    conf, pool = "/etc/slurm/job_container.conf", NODE.partition("-")[0]
    edit = (
        f"cp -L {conf} /root/c; sed 's/Dirs=/&\\/home,/' /root/c >{conf}; ! cmp -s /root/c {conf}; rm /root/c"
    )
    with paused(research, "gpucluster-agent", "head"):
        research.exec("head", "sh", "-ec", f"{edit}; scontrol reconfigure")
        results = validated(research, "--only", f"cfg.same[head],job.multi[{pool}],job.home[{pool}]", code=1)
        run_remedy(research, results["cfg.same[head]"]["remedy"])
    only_these_fail(results, {"cfg.same[head]", f"job.home[{pool}]"})
    research.wait("the nodes have the file again", lambda: passes(research, "cfg.same"))


def test_stopped_services_and_a_stopped_login_machine_are_found_by_one_check_whose_remedy_heals_it(research):
    """Regression: `validate` called a cluster whose login machine was stopped healthy."""
    login = login_of(research)
    at_login = ("svc.active", "auth.rt", "login.slurm", "fs.mount", "sshd.conf", "users.acct", "users.keys")
    only = ",".join(("cloud.machines", *(f"{check}[{login}]" for check in at_login)))
    research.exec("login", "systemctl", "stop", "gpucluster-agent", "munge")
    with asked_by_ssm(research, {f"svc.active[{login}]"}) as by_ssm:
        results = validated(research, "--tier", "0", "--only", only, code=1)
        assert of_verdict(by_ssm(), "fail") == {f"svc.active[{login}]"}
    only_these_fail(results, {f"svc.active[{login}]"})
    assert set(results[f"svc.active[{login}]"]["culprits"]) >= {"munge", "gpucluster-agent"}
    heal(research, results, ["svc.active"])
    research.wait("the services run again", lambda: passes(research, only))

    instance = next(one["id"] for one in research.everything() if one["role"] == names.ROLE_LOGIN)
    research.ec2().stop_instances(InstanceIds=[instance])
    research.ec2().get_waiter("instance_stopped").wait(
        InstanceIds=[instance], WaiterConfig={"Delay": 1, "MaxAttempts": 120}
    )
    with asked_by_ssm(research, only.split(",")) as by_ssm:
        results = validated(research, "--tier", "0", "--only", only, code=1)
        same = by_ssm()
    for told in (results, same):
        only_these_fail(told, {"cloud.machines[cloud]"})
        assert of_verdict(told, "unknown") == told.keys() - {"cloud.machines[cloud]"}
    run_aws(research, results["cloud.machines[cloud]"]["remedy"])
    research.wait("the login machine is up again", lambda: passes(research, only))


def login_of(cluster: Cluster) -> str:
    return f"{cluster.name}-login-1"


def run_aws(cluster: Cluster, remedy: str) -> None:
    """Type a remedy that is commands of the AWS CLI."""
    keys = state_dir.living(cluster.name).environment()
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {**keys, "AWS_DEFAULT_REGION": keys["AWS_REGION"], "PATH": path}
    subprocess.run(["/bin/sh", "-ec", remedy], env=env, check=True, timeout=600, stdout=subprocess.DEVNULL)


def test_jobs_of_both_accounts_have_records_and_shares(research):
    """The head has applied the accounts of the spec; the records come from slurmdbd."""
    done = gpucluster("accounts", "diff", NAME, check=False)
    assert (done.returncode, done.stdout) == (0, "slurmdbd has the accounts of the plan\n"), done.stderr
    jobs = {user: research.submit_as(user, "--gres=gpu:1", script="true") for user in ("speech", "robotics")}
    for job in jobs.values():
        research.wait("the job is done", lambda job=job: research.state(job) == "COMPLETED")
    ended = {
        jobs["speech"]: ["speech", "research", "normal", "COMPLETED"],
        jobs["robotics"]: ["robotics", "product", "product-normal", "COMPLETED"],
    }
    research.wait("slurmdbd has both", lambda: {job: research.record(job) for job in ended} == ended)
    shares = ("sshare", "--noheader", "--parsable2", "--format=account,rawshares,normshares")
    rows = [row.split("|") for row in research.exec("head", *shares).splitlines()]
    assert {row[0].strip(): row[1:] for row in rows if row[0].strip() in ("research", "product")} == {
        "research": ["3", "0.600000"],
        "product": ["1", "0.200000"],
    }, "of five shares: Slurm's own user root has one"


def test_qos_limit_holds_a_job_with_its_reason_and_nothing_is_launched(research):
    """The QOS of the partition allows a user 32 CPUs; 40 are five nodes of the pool."""
    before = research.launches()
    job = research.submit_as("vision", "--partition=debug", "--ntasks=40", script="true")

    def reason() -> str:
        return research.exec("head", "squeue", "-h", "-j", str(job), "-o", "%r").strip()

    research.wait("squeue has the reason", lambda: reason() == "QOSMaxCpuPerUserLimit")
    words = "the jobs of its user have the CPUs that its QOS allows one user (MaxTRESPU)"
    research.wait(
        "why says so",
        lambda: words in gpucluster("why", str(job), "--cluster", NAME, check=False).stdout,
        poll=2,
    )
    research.exec("head", "scancel", str(job))
    assert research.launches() == before


def test_urgent_job_preempts_and_the_victim_runs_again_on_the_same_machines(research):
    """Both jobs take all of the always-on nodes, which the daemon launched."""
    steady = {one["node"]: one["id"] for one in research.instances() if one["node"].startswith("h100-")}
    assert len(steady) == 2
    before = research.launches()
    whole = ("--partition=train", "--nodes=2", "--gres=gpu:8")
    script = "echo start >> victim; until test -e go; do sleep 1; done; echo end >> victim"
    victim = research.submit_as("recsys", *whole, script=script)
    told = ("cat", "/home/recsys/victim")
    research.wait(
        "the first job's script runs", lambda: research.exec("head", *told, check=False) == "start\n"
    )
    urgent = research.submit_as("vision", *whole, "--qos=urgent", script="sleep 2")
    research.wait("the urgent job is done", lambda: research.state(urgent) == "COMPLETED")
    assert research.job(victim)["restart_cnt"] == 1
    research.exec("head", "touch", "/home/recsys/go", user="recsys")
    research.wait("its victim is done", lambda: research.state(victim) == "COMPLETED")
    assert research.exec("head", *told).split() == ["start", "start", "end"]
    runs = research.records("--duplicates", f"--jobs={victim}")
    assert [row[-1] for row in runs] == ["PREEMPTED", "COMPLETED"]
    runs_of_victim = ["submitted", "running", "preempted", "running", "ended"]
    assert [what for what in research.timeline(victim) if what in runs_of_victim] == runs_of_victim
    assert research.launches() == before
    after = {one["node"]: one["id"] for one in research.instances() if one["node"].startswith("h100-")}
    assert after == steady


def test_jobs_go_on_without_slurmdbd_and_its_records_come_later(research):
    """`mask` keeps the agent from starting slurmdbd again."""
    research.exec("head", "systemctl", "mask", "--runtime", "--now", "slurmdbd")
    try:
        research.wait("the head says so", lambda: "accounting is away" in research.head_status()["detail"])
        stranger = research.ssh("vision", "sbatch", "--account=nobody", "--wrap=true")
        assert "Invalid account" in stranger.stderr, "slurmctld goes on with the limits that it has"
        jobs = [research.submit_as("speech", "--gres=gpu:1", script="true") for _ in range(20)]
        new = research.submit("--gres=gpu:1", script="true")  # the daemon launches a node for it
        for job in (*jobs, new):
            research.wait("the job is done", lambda job=job: research.state(job) == "COMPLETED")
    finally:
        research.exec("head", "systemctl", "unmask", "--runtime", "slurmdbd")

    def ended() -> set[str]:
        return {row[0] for row in research.records() if row[-1] == "COMPLETED"}

    research.wait("slurmdbd has every job", lambda: {str(job) for job in (*jobs, new)} <= ended())
    research.wait("the head is well", lambda: research.head_status()["ready"] is True)


def test_replaced_head_has_the_queue_the_journal_and_the_exports(research):
    job = research.submit("--hold", script="cp /apps/tool /home/vision/tool")
    research.exec("head", "bash", "-c", "echo a tool > /apps/tool")
    research.saved(job)
    first = research.exec("head", *FIRST_OF_JOURNAL)
    before = replace_head(research)
    research.wait(
        "login shows the queue again",
        lambda: research.ssh("vision", "squeue", "-h", "-o", "%i").stdout == f"{job}\n",
    )
    assert instance_of_head(research) != before
    assert research.exec("head", "cat", "/apps/tool") == "a tool\n"
    assert research.exec("head", *FIRST_OF_JOURNAL) == first
    research.exec("head", "scontrol", "release", str(job))
    research.wait("the job is done", lambda: research.state(job) == "COMPLETED")
    assert research.ssh("vision", "cat", "/home/vision/tool").stdout == "a tool\n"


def test_unreachable_file_system_is_the_reason_of_the_node(research):
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
        )  # a node that is powered down
        research.wait(
            "the node reports the mount",
            lambda: (
                "/home cannot be mounted"
                in research.exec("head", "journalctl", "-u", "gpucluster-elastic", "-o", "cat")
            ),
        )
        assert "COMPLETED" not in research.state(job)
    finally:
        ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=group["IpPermissions"])
    research.wait("the job runs when the rule is back", lambda: research.state(job) == "COMPLETED")


def test_down_retains_the_data_and_the_next_up_adopts_it(research):
    """The head ends first, so its journal and slurmctld's state still contain living nodes and a running job."""
    research.ssh("vision", "sh", "-c", "'echo home > /home/vision/kept'")
    research.exec("head", "bash", "-c", "umask 022; echo data > /data/kept; echo apps > /apps/kept")
    running = research.submit("--gres=gpu:1", script="sleep 900")
    research.wait("a job runs", lambda: research.state(running) == "RUNNING")
    waiting = research.submit("--hold", "--output=/home/vision/found", script=f"cat {' '.join(KEPT)}")
    research.saved(waiting)
    first, fence = research.exec("head", *FIRST_OF_JOURNAL), control_of(research).epoch
    ended = {row[0] for row in research.records() if row[-1] == "COMPLETED"}
    assert ended
    research.ec2().terminate_instances(InstanceIds=[instance_of_head(research)])
    done = json.loads(gpucluster("down", NAME, "--sandbox", "--yes", "--output", "json").stdout)
    assert sorted(one["what"].split()[0] for one in done["retained"]) == ["EFS", "FSx", "disk", "disk"]
    assert {one["state"] for one in research.everything()} == {"terminated"}

    target, program = stack_of(research)
    run.up(target, program)
    gpucluster("sandbox", "status", NAME, "--wait")
    assert research.exec("head", *FIRST_OF_JOURNAL) == first
    research.wait(
        "slurmdbd has the old records",
        lambda: ended <= {row[0] for row in research.records() if row[-1] == "COMPLETED"},
    )
    assert gpucluster("accounts", "diff", NAME, check=False).returncode == 0
    research.wait("the daemon acts", lambda: control_of(research).epoch > fence)
    research.wait("the earlier job runs again", lambda: research.job(running)["restart_cnt"] > 0)
    research.exec("head", "scontrol", "release", str(waiting))
    research.wait("a job runs", lambda: research.state(waiting) == "COMPLETED")
    assert research.ssh("vision", "cat", "/home/vision/found").stdout == "home\ndata\napps\n"
    research.exec("head", "scancel", "--user", "vision")
    research.wait(
        "slurmctld shows only nodes with an instance as up", lambda: up_in_slurm(research) == named(research)
    )


def up_in_slurm(cluster: Cluster) -> set[str]:
    return {name for name, node in cluster.nodes().items() if not OFF & set(node["state"])}


def named(cluster: Cluster) -> set[str]:
    """The node names of the running instances."""
    status = json.loads(gpucluster("sandbox", "status", cluster.name, "--output", "json").stdout)
    return {one["node"] for one in status["instances"] if one["role"] == "node" and one["state"] == "running"}


def bucket_of(cluster: Cluster) -> str:
    """Return the name of the cluster's bucket. The site's own buckets exist, too."""
    names_of_buckets = [one["Name"] for one in cluster.client("s3").list_buckets()["Buckets"]]
    return next(one for one in names_of_buckets if one.startswith(f"{cluster.name}-"))


def control_of(cluster: Cluster) -> Control:
    return S3Control("us-east-1", bucket_of(cluster), lambda: cluster.client("s3")).read()


def replace_head(cluster: Cluster) -> str:
    """Terminate the head and run `pulumi up`, as an operator does. Return the id of the old instance."""
    head = instance_of_head(cluster)
    cluster.ec2().terminate_instances(InstanceIds=[head])
    target, program = stack_of(cluster)
    run.refresh(target, program)
    done = run.up(target, program).counts  # the old instance may still use its address and its disks (T42)
    assert done.get("create", 0) + done.get("replace", 0) == 3, "the instance and two volume attachments"
    return head


def stack_of(cluster: Cluster) -> tuple[Target, Callable[[], None]]:
    """Return the target and the program of `pulumi up`."""
    home = state_dir.living(cluster.name)
    plan = plan_json.load(home.plan.read_bytes())
    return home.target(engine.find_or_build(lambda _: None)), partial(declare, plan)


def instance_of_head(cluster: Cluster) -> str:
    return next(
        i["id"] for i in cluster.everything() if i["role"] == names.ROLE_HEAD and i["state"] == "running"
    )
