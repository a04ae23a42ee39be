"""The desk's commands over Systems Manager, as for a stack on AWS: the spec's file selects the head, not the sandbox."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import ROOT, Cluster, gpucluster
from validation import commands, validated

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(3000)]
NAME, POOL, LOGIN = "desk", "h200", "desk-login-1"
SPEC = f"""
schema: 1
name: {NAME}
aws: {{region: us-east-1, network: {{cidr: 10.42.0.0/16, zones: [us-east-1a, us-east-1b]}}}}
slurm: {{version: "24.11", accounting: {{database: local}}}}
head: {{machine: m7i.2xlarge}}
login: {{machine: m7i.xlarge, count: 1}}
users: [{{name: researcher, uid: 2000}}]
accounts: [{{name: lab, users: [researcher]}}]
pools:
  - name: {POOL}
    nodes: {{min: 0, max: 4}}
    idle: 5m
    capacity: [{{from: on-demand, machines: [p5en.48xlarge]}}]
partitions: [{{name: gpu, pools: [{POOL}], default: true, max_time: 1d}}]
access: {{ssm: true}}
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stack") / f"{NAME}.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture(scope="module")
def cluster(spec: Path) -> Iterator[Cluster]:
    gpucluster("sandbox", "up", str(spec), timeout=1500)
    try:
        yield Cluster(NAME)
    finally:
        gpucluster("sandbox", "down", NAME)


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> int:
    """A job that runs while the tests of this file do."""
    job = cluster.sbatch("--nodes=1", "--gres=gpu:8", script="sleep 3000")
    cluster.wait("the job runs", lambda: cluster.state(job) == "RUNNING")
    return job


def typed(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command in the shell of the sandbox, whose environment has the endpoint and keys of its AWS."""
    argv = [sys.executable, "-m", "gpucluster.cli", "sandbox", "shell", NAME, "--"]
    done = subprocess.run(
        [*argv, sys.executable, "-m", "gpucluster.cli", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def test_why_and_timeline_of_a_job_and_a_node(cluster: Cluster, spec: Path, job: int) -> None:
    before, node = commands(cluster), cluster.job(job)["nodes"]
    assert typed("why", str(job), "-c", str(spec)).stdout.startswith(f"job {job} runs\n")
    assert typed("why", node, "-c", str(spec)).stdout.startswith(f"node {node}: ")
    events = json.loads(typed("timeline", str(job), "-c", str(spec), "-o", "json").stdout)["moments"]
    assert [one["what"] for one in events] == cluster.timeline(job)
    assert commands(cluster) == before + 3, "each was one command of Systems Manager"


def test_what_a_message_suggests_can_be_typed_on_the_head(cluster: Cluster, job: int) -> None:
    node = cluster.job(job)["nodes"]
    assert cluster.exec("head", "gpucluster", "why", str(job), "-c", NAME).startswith(f"job {job} runs\n")
    assert cluster.exec("head", "gpucluster", "pool", "list") == f"{POOL}: at most 4 nodes; 1 up\n"
    assert json.loads(cluster.exec("head", "gpucluster", "status", NAME, "-o", "json"))["settled"]
    assert "is managed by the daemon again" in cluster.exec("head", "gpucluster", "node", "release", node)


def test_user_of_a_login_machine_sees_what_slurm_has_of_his_job(cluster: Cluster, job: int) -> None:
    shown = cluster.exec("login", "gpucluster", "why", str(job), user="researcher")
    assert shown.startswith(f"job {job} is RUNNING")
    argv = ("sh", "-c", "gpucluster pool list 2>&1; echo $?")
    assert "`gpucluster pool list` needs the head" in (said := cluster.exec("login", *argv))
    assert said.endswith("\n2\n")


def test_orders_reach_the_daemon(cluster: Cluster, spec: Path, job: int) -> None:
    node = cluster.job(job)["nodes"]
    typed("pool", "pause", POOL, "-c", str(spec), "--because", "a new {{driver}}")
    shown = json.loads(typed("status", str(spec), "-o", "json").stdout)
    assert [pool["stopped"] for pool in shown["pools"]] == ["paused by root: a new {{driver}}"]
    typed("pool", "resume", POOL, "-c", str(spec))
    typed("node", "keep", node, "--for", "30m", "-c", str(spec))
    assert "keep" in typed("why", node, "-c", str(spec)).stdout
    typed("node", "release", node, "-c", str(spec))
    assert typed("reconcile", "-c", str(spec)).stdout.startswith("the daemon was woken")
    assert typed("reconcile", "--dry-run", "-c", str(spec)).stdout
    assert "there is no pool 'none'" in typed("pool", "pause", "none", "-c", str(spec), code=1).stderr


def test_accounts_and_bundle(cluster: Cluster, spec: Path) -> None:
    assert typed("accounts", "diff", str(spec)).stdout == "slurmdbd has the accounts of the plan\n"
    cluster.exec("head", "sacctmgr", "-i", "modify", "account", "lab", "set", "fairshare=7")
    assert "lab" in typed("accounts", "diff", str(spec), code=1).stdout
    assert typed("accounts", "apply", str(spec)).stdout.endswith("1 change is made\n")
    assert typed("accounts", "diff", str(spec)).stdout == "slurmdbd has the accounts of the plan\n"
    assert "no bundle is held" in typed("bundle", "show", "-c", str(spec)).stdout


def test_status_is_the_same_over_both_transports(cluster: Cluster, spec: Path, job: int) -> None:
    cluster.wait(
        "Slurm has powered the others down",
        lambda: not any("POWERING_DOWN" in node["state"] for node in cluster.nodes().values()),
    )
    typed("status", str(spec), "--wait")
    by_ssm = json.loads(typed("status", str(spec), "-o", "json").stdout)
    by_sandbox = json.loads(gpucluster("status", NAME, "-o", "json").stdout)
    assert by_ssm["settled"]
    assert by_ssm["running"] == 1
    changing = ("now", "spending")
    assert {k: v for k, v in by_ssm.items() if k not in changing} == {
        k: v for k, v in by_sandbox.items() if k not in changing
    }


def test_commands_and_logs_of_every_kind_of_machine(cluster: Cluster, spec: Path, job: int) -> None:
    node = cluster.job(job)["nodes"]
    for machine, host in (("head", f"{NAME}-head"), (node, node), ("login", LOGIN), (LOGIN, LOGIN)):
        assert typed("exec", str(spec), machine, "--", "hostname").stdout == f"{host}\n"
    (found,) = (one["id"] for one in cluster.everything() if one["role"] == "login")
    assert typed("exec", str(spec), found, "--user", "researcher", "--", "id", "-un").stdout == "researcher\n"
    assert typed("exec", str(spec), "head", "--", "sh", "-c", "exit 7", code=7).stdout == ""
    assert "slurmd" in typed("logs", str(spec), node, "--unit", "slurmd").stdout
    long = typed("exec", str(spec), "head", "--", "seq", "20000").stdout
    assert long.splitlines() == [str(n) for n in range(1, 20001)], "it came through the bucket"
    refused = typed("exec", str(spec), node, "--", "seq", "20000", code=2).stderr
    assert "only a head may write them to the bucket" in refused
    assert (
        "no running machine of desk is called 'other'"
        in typed("exec", str(spec), "other", "--", "true", code=2).stderr
    )
    assert typed("pool", "list", "-c", str(spec)).stdout == f"{POOL}: at most 4 nodes; 1 up\n"


def test_validate_runs_the_same_suite_and_finds_the_same(cluster: Cluster, spec: Path, job: int) -> None:
    """Over Systems Manager with its jobs (tier 1), as on AWS."""
    by_ssm = json.loads(typed("validate", str(spec), "--user", "researcher", "-o", "json").stdout)
    by_sandbox = json.loads(gpucluster("validate", NAME, "--tier", "0", "-o", "json").stdout)
    ids = [[one["id"] for one in run["results"] if one["tier"] == 0] for run in (by_ssm, by_sandbox)]
    assert ids[0] == ids[1]
    jobs = {one["check"]: one["verdict"] for one in by_ssm["results"] if one["tier"] == 1}
    assert {"job.multi", "job.gres", "job.home", "burst.rt"} <= jobs.keys()
    assert set(jobs.values()) == {"pass"}
    node = cluster.job(job)["nodes"]
    cluster.exec(node, "systemctl", "stop", "gpucluster-agent")
    try:
        only = f"svc.active[{node}],svc.active[head]"
        found = json.loads(typed("validate", str(spec), "--only", only, "-o", "json", code=1).stdout)
    finally:
        cluster.exec(node, "systemctl", "start", "gpucluster-agent")
    assert [(one["target"], one["verdict"]) for one in found["results"]] == [("head", "pass"), (node, "fail")]


AS_USER = ("--tier", "0", "--user", "researcher", "--only", "login.user")
AT_LOGIN = {  # what is done on the login machine, how it is undone, and what the check says
    "echo 'exit 0' >/etc/profile.d/99.sh": (
        "rm /etc/profile.d/99.sh",
        "the login shell ends before it runs a command",
    ),
    "printf '#!/bin/sh\\n' >/usr/local/bin/sbatch; chmod 755 /usr/local/bin/sbatch": (
        "rm /usr/local/bin/sbatch",
        "sbatch is /usr/local/bin/sbatch, which is no program of Slurm",
    ),
    "cp -p /etc/environment /root; echo SLURM_CONF=/nowhere >>/etc/environment": (
        "mv /root/environment /etc/environment",
        "SLURM_CONF is /nowhere",
    ),
}


def test_what_a_user_meets_at_the_login_is_found(cluster: Cluster) -> None:
    (passed,) = validated(cluster, *AS_USER, code=0).values()
    assert passed["verdict"] == "pass"
    for do, (undo, words) in AT_LOGIN.items():
        cluster.exec("login", "sh", "-c", do)
        try:
            (found,) = validated(cluster, *AS_USER, code=1).values()
        finally:
            cluster.exec("login", "sh", "-c", undo)
        assert found["found"].startswith(words), found
    validated(cluster, *AS_USER, code=0)


def test_terminated_login_machine_is_told(cluster: Cluster, spec: Path) -> None:
    (login,) = (one["id"] for one in cluster.everything() if one["role"] == "login")
    cluster.ec2().terminate_instances(InstanceIds=[login])
    cluster.wait(
        "the login machine has ended",
        lambda: any(one["id"] == login and one["state"] == "terminated" for one in cluster.everything()),
    )
    refused = typed("exec", str(spec), login, "--", "true", code=2).stderr
    assert f"no running machine of {NAME} is called '{login}'" in refused


def test_head_without_its_agents_rights_and_stopped_head_are_told(cluster: Cluster, spec: Path) -> None:
    """Systems Manager refuses both alike; each message has the query that shows which one it is."""
    iam, ec2 = cluster.client("iam"), cluster.ec2()
    head = next(one["id"] for one in cluster.everything() if one["role"] == "head")
    (role,) = (one["RoleName"] for one in iam.list_roles()["Roles"] if "-head" in one["RoleName"])
    (policy,) = iam.list_role_policies(RoleName=role)["PolicyNames"]
    whole = iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"]
    less = {**whole, "Statement": [s for s in whole["Statement"] if s.get("Sid") != "SessionManager"]}
    assert less != whole
    iam.put_role_policy(RoleName=role, PolicyName=policy, PolicyDocument=json.dumps(less))
    try:
        refused = typed("why", "1", "-c", str(spec), code=2).stderr
    finally:
        iam.put_role_policy(RoleName=role, PolicyName=policy, PolicyDocument=json.dumps(whole))
    assert "Systems Manager has no running agent of it" in refused
    assert f"Key=InstanceIds,Values={head}" in refused
    typed("status", str(spec))
    ec2.stop_instances(InstanceIds=[head])
    cluster.wait(
        "the head is stopped",
        lambda: any(one["id"] == head and one["state"] == "stopped" for one in cluster.everything()),
    )
    assert f"no head of {NAME} runs" in typed("why", "1", "-c", str(spec), code=2).stderr
