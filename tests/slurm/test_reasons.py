"""Slurm's reasons as the real slurmctld and slurmdbd give them, and the words and commands of `why` for each.

GPUCLUSTER_RECORD=1 writes the answers to tests/recorded/reasons/VERSION.json, for the unit tests.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan
from support.reasons import SITUATIONS, moment_of

from gpucluster.elastic.inspect.why import text, why

RECORDED = Path(__file__).parents[1] / "recorded/reasons"
LINES = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl0
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
PriorityType=priority/multifactor
PriorityWeightFairshare=10000
PriorityWeightQOS=1000
PreemptType=preempt/qos
PreemptMode=REQUEUE
Licenses=matlab:1
"""
SLURMDBD = """AuthType=auth/munge
DbdHost=ctl0
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurmdbd/slurmdbd.pid
"""
SETUP = (
    "add qos urgent priority=1000 preempt=normal",
    "add qos few grptres=gres/gpu=2",
    "add qos one maxtresperuser=gres/gpu=2",
    "add qos short maxwall=10",
    "add qos small maxtresperjob=gres/gpu=2",
    "add qos single maxjobsperuser=1",
    "add qos spent grptresmins=gres/gpu=1",
    "add account team fairshare=1",
    "add account full grptres=gres/gpu=2",
    "add account narrow maxjobs=1",
    "add user researcher account=team,full,narrow qos=normal,urgent,few,one,short,small,single,spent defaultaccount=team",
)


@pytest.fixture(scope="module", params=VERSIONS)
def site(request: pytest.FixtureRequest) -> Iterator[RealSlurm]:
    """A head with slurmdbd and MariaDB, two nodes with eight GPUs each, one licence, and limits."""
    with RealSlurm(request.param, a_lab_plan(), files={"/etc/slurm/slurmdbd.conf": SLURMDBD}) as slurm:
        conf = slurm.path("/etc/slurm/slurm.conf")
        conf.write_text(without(conf.read_text()) + LINES)
        start_database(slurm)
        slurm.start_controller()
        for line in SETUP:
            slurm.must("sacctmgr", "-i", *line.split())
        slurm.start_nodes("gpu01", "gpu02")
        slurm.wait(
            lambda: slurm.must("sinfo", "-h", "-n", "gpu[01-02]", "-t", "idle", "-o", "%D").strip() == "2",
            "two idle nodes",
        )
        yield slurm


def without(conf: str) -> str:
    keys = tuple(f"{line.partition('=')[0]}=" for line in LINES.split())
    return "".join(f"{line}\n" for line in conf.splitlines() if not line.startswith(keys))


def start_database(slurm: RealSlurm) -> None:
    slurm.folder("/run/mysqld", "mysql")
    slurm.folder("/run/slurmdbd", "slurm")
    slurm.folder("/lab/db", "mysql")
    slurm.must("chown", "slurm:slurm", "/etc/slurm/slurmdbd.conf")
    slurm.must("chmod", "600", "/etc/slurm/slurmdbd.conf")
    slurm.must(
        "mariadb-install-db",
        "--no-defaults",
        "--user=mysql",
        "--datadir=/lab/db",
        "--auth-root-authentication-method=socket",
    )
    options = (
        "--no-defaults",
        "--user=mysql",
        "--datadir=/lab/db",
        "--skip-networking",
        "--socket=/run/mysqld/mysqld.sock",
        "--innodb-lock-wait-timeout=900",
    )
    slurm.spawn("/usr/sbin/mariadbd", *options)
    slurm.wait(lambda: slurm.run("mariadb", "-e", "select 1").code == 0, "MariaDB answers")
    slurm.must(
        "mariadb",
        "-e",
        "create database slurm_acct_db; create user slurm@localhost identified via unix_socket; grant all on slurm_acct_db.* to slurm@localhost",
    )
    if not slurm.path("/run/munge/munge.socket.2").exists():
        slurm.spawn("/usr/sbin/munged", "--foreground", user="munge")
        slurm.wait(lambda: slurm.path("/run/munge/munge.socket.2").exists(), "munge's socket")
    slurm.spawn("/usr/sbin/slurmdbd", "-D", user="slurm")
    slurm.wait(lambda: slurm.run("sacctmgr", "-n", "show", "qos").code == 0, "slurmdbd answers")


def submit(slurm: RealSlurm, *options: str) -> int:
    argv = ("sbatch", "--parsable", "-o", "/dev/null", *options)
    return int(slurm.must(*argv, user=USER, stdin="#!/bin/sh\nsleep 600\n").strip())


@pytest.mark.parametrize("name", SITUATIONS)
def test_why_tells_the_reason_and_its_command_runs(site: RealSlurm, name: str) -> None:
    situation = SITUATIONS[name]
    first = [submit(site, *options) for options in situation.before]
    for job in first[: situation.running]:
        site.wait(
            lambda job=job: site.must("squeue", "-h", "-j", str(job), "-o", "%T").strip() == "RUNNING",
            f"{job} runs",
        )
    for argv in situation.commands:
        site.must(*argv)
    job = submit(site, *situation.options)
    for argv in situation.then:
        site.must(
            *(word.replace("JOB", str(job)).replace("FIRST", str(first[0] if first else 0)) for word in argv)
        )
    try:
        watched = first[0] if situation.of_first else job

        def shown() -> dict[str, object] | None:
            found = json.loads(site.must("scontrol", "show", "job", str(watched), "--json"))["jobs"][0]
            return found if found["state_reason"] == situation.reason else None

        body = site.wait(shown, f"reason {situation.reason}") or {}
        record(site.version, name, body)
        screen = text(why(moment_of(body), str(watched)), time.time())
        assert situation.words in screen
        for command in situation.runs:
            typed = command.replace("JOB", str(watched))
            assert typed in screen, screen
            done = site.run("sh", "-c", typed)
            assert done.code == 0, done
            assert done.out.strip(), typed
    finally:
        site.must("scancel", "--user", USER)
        for argv in situation.after:
            site.run(*argv)
        site.wait(lambda: site.must("squeue", "-h").strip() == "", "no job is left")


def record(version: str, name: str, body: dict[str, object]) -> None:
    if os.environ.get("GPUCLUSTER_RECORD"):
        path = RECORDED / f"{version}.json"
        path.parent.mkdir(exist_ok=True)
        old = json.loads(path.read_text()) if path.exists() else {}
        kept = {key: body[key] for key in sorted(body) if key in KEPT}
        path.write_text(json.dumps({**old, name: kept}, indent=1, sort_keys=True) + "\n")


KEPT = frozenset(
    [
        "job_id",
        "job_state",
        "nodes",
        "partition",
        "requeue",
        "batch_flag",
        "priority",
        "state_reason",
        "state_description",
        "submit_time",
        "eligible_time",
        "start_time",
        "time_limit",
        "restart_cnt",
        "account",
        "qos",
        "job_resources",
        "node_count",
        "tres_req_str",
        "licenses",
        "resv_name",
        "user_id",
        "preempt_time",
        "preemptable_time",
        "array_job_id",
        "array_task_id",
        "array_max_tasks",
        "het_job_id",
        "required_nodes",
        "excluded_nodes",
        "features",
        "exit_code",
        "admin_comment",
    ]
)


def test_every_reason_of_slurm_is_known(site: RealSlurm) -> None:
    """`sacct --helpreason` is the program's own list; the recorded one is its copy."""
    words = site.must("sacct", "--helpreason").split()
    path = RECORDED / f"reasons-{site.version}.txt"
    if os.environ.get("GPUCLUSTER_RECORD"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(words) + "\n")
    assert words == path.read_text().split()
