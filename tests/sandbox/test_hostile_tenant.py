"""A hostile tenant: an ordinary user's job on a node with another user's job tries what `support/hostile_tenant.py` lists.

Each attempt has a row with the refusal that it must meet. An attempt that could not be tried answers something else, so it does
not count as refused. `CONTROL` repeats some attempts as root: they succeed, so the attempts themselves work.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cluster import ROOT, Cluster, gpucluster

from gpucluster.plan import names

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(3000)]

PROGRAM = ROOT / "tests/support/hostile_tenant.py"
ALICE, MALLORY = 5001, 5002
DENIED = "(Access/permission denied|Invalid user id|Access denied)"
REFUSED = {
    "read the other job's /tmp, /var/tmp and /dev/shm": "ENOENT",
    "reach the other job's folders through /proc and below BasePath": "EACCES",
    "put a file where the other job looks for it": "EACCES",
    "read other users' homes": "EACCES",
    "read the munge key": "EACCES",
    "read password hashes and host keys": "EACCES",
    "read the other job's script and credential in slurmd's spool": "EACCES( ENOENT)?",
    "change Slurm's and the agent's files": "EACCES EACCES",
    "forge, remove or replace the other job's heartbeat": "EACCES EEXIST",
    "read the token of the other job's credentials": "EACCES",
    "set a link in the way of root's writes": "EACCES",
    "let slurmd write a job's output through a link": r"refused \(exit 1: .*Permission denied; exit 1: .*\)",
    "read the other job's environment, memory, files and maps": "EACCES",
    "trace the other job": "EPERM",
    "signal, slow or limit the other job": "EPERM",
    "signal, trace or read the agent, slurmd and its steps": "EACCES EPERM",
    "leave the job's control group": "EACCES",
    "stay after the job, outside of it": (
        r"systemctl: exit \d \| systemctl: exit \d \| systemd-run: exit \d \| systemd-run: exit \d \| loginctl: exit \d \| "
        r"crontab: no suc \| at: no suc"  # neither is in the sandbox's image; the agent writes cron.allow
    ),
    "fork without an end": "limit 65536",
    "use the other job's GPU": "own ENXIO, other's EPERM",  # ENXIO: may open it, and there is no device behind it
    "become root": r"EPERM \| EPERM \| sudo: no such program \| exit 1: .*Authentication failure",
    "find set-user-ID programs": (
        "chage chfn chsh dbus-daemon-launch-helper expiry gpasswd mount mount.nfs.distrib newgrp passwd ssh-agent ssh-keysign "
        "su umount unix_chkpwd"  # of Debian's own packages; ssh-agent and the like have a group of their own
    ),
    "mount, load a module, change the kernel's settings": "EPERM",
    "change the kernel's settings in /proc/sys": "(EACCES|ENOENT|EROFS| )+",
    "open raw sockets": "EPERM",
    "be root of a user namespace: metadata, the other job, mounts of the node": "EHOSTUNREACH EACCES EINVAL EACCES",
    "read the metadata service": "EHOSTUNREACH",
    "open the daemon's port a hundred times, also at the same time": "100 x EHOSTUNREACH",
    "use a source port of root": "EACCES",
    "reach ports of file servers with a client of one's own": "EHOSTUNREACH",
    "send to the Prolog's socket of the agent": "EACCES",
    "get the other job's credentials with a token of one's own making": "HTTP 403",
    "hold many slow connections to the credentials and to munge": r"held \d+",  # no harm by it: a test of its own
    "get the bundle without a credential": "HTTP 403",
    "end, change or enter the other job": (
        rf"scancel \d+: exit \d+: .*{DENIED} \| scancel --signal=KILL: exit \d+: .*{DENIED} \| "
        rf"scontrol update: exit 1: {DENIED}.* \| scontrol requeue: exit 1: {DENIED}.* \| scontrol hold: exit 1: .*{DENIED} \| "
        rf"scontrol suspend: exit 1: {DENIED}.* \| scontrol write: got: 'job script retrieval failed: {DENIED}' \| "
        rf"srun --jobid=\d+: exit 1: .*{DENIED} \| sattach \S+: exit 1: .* \| sbcast \S+: exit \d+: .*{DENIED}"
    ),
    "rule Slurm": (
        rf"(scontrol \w+: exit 1: .*({DENIED}|Permission denied|Unspecified error)( \| )?)+"
        r"srun --uid=0: exit \d+: .* \| sbatch --uid=5001: exit \d+: .*only permitted by root user"
    ),
    "submit jobs with hostile names": "submitted 8",  # allowed; the test below reads what the daemon prints
    "ssh to a node without a job there": "exit 255: .*Access denied by pam_slurm_adopt: you have no active jobs on this node.*",
    "ssh as another user and as root": r"(exit 255: .*Permission denied \(publickey\)\.( \| )?){2}",
    "ssh to the head": "exit 255: .*Connection refused",
    "ssh to the own node (allowed: the session joins the job)": "exit 0: .*mine 2.*",  # freezer and devices
    "list every folder that a job may write to": "/dev/mqueue /dev/shm /run/lock /tmp /var/tmp",
    "fill every folder that a job may write to": r"filled, [1-5] full",
}
CONTROL = {  # as root: the words that the answer has
    "read other users' homes": "got",
    "read the munge key": "got",
    "read password hashes and host keys": "got",
    "read the other job's script and credential in slurmd's spool": "got",
    "reach the other job's folders through /proc and below BasePath": "got",
    "read the other job's environment, memory, files and maps": "got",
    "read the metadata service": "got",
    "open the daemon's port a hundred times, also at the same time": "got",
    "use a source port of root": "got",
    "reach ports of file servers with a client of one's own": "ECONNREFUSED",
    "open raw sockets": "got",
}
VICTIM = """
umask 077
for folder in /tmp /var/tmp /dev/shm; do echo of-alice > $folder/secret; done
export SECRET=of-alice
sleep 900 & echo $! > ~/pid
echo $SLURM_JOB_GPUS > ~/gpu
until [ -e ~/stop ]; do touch /run/gpucluster-heartbeats/$SLURM_JOB_ID || exit 1; sleep 0.5; done
[ "$(cat /tmp/secret /var/tmp/secret /dev/shm/secret | sort -u)" = of-alice ] && [ ! -e /tmp/planted ] && echo well > ~/end
"""
# as a step of the other job: its credentials, and munge by srun itself
STEP = (
    'curl -s -m 20 -o /dev/null -w %{http_code} -H "Authorization: $(cat $AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE)" '
    "$AWS_CONTAINER_CREDENTIALS_FULL_URI"
)


@dataclass
class Attack:
    """What happened: the answers, and what the other job and the agent did meanwhile."""

    cluster: Cluster
    node: str
    victim: int
    answers: dict[str, str] = field(default_factory=dict)
    control: dict[str, str] = field(default_factory=dict)
    contacts: list[float] = field(default_factory=list)  # times of the agent's last answer from the daemon
    credentials: list[str] = field(default_factory=list)  # HTTP status of the other job's own question
    end: str = ""


def key(folder: Path, name: str) -> Path:
    subprocess.run(
        ["/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name], check=True
    )
    return folder / name


@pytest.fixture(scope="module")
def attack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    folder = tmp_path_factory.mktemp("stack")
    keys = {user: key(folder, user) for user in ("alice", "mallory")}
    users = "".join(
        f'  - {{name: {user}, uid: {uid}, keys: ["{keys[user].with_suffix(".pub").read_text().strip()}"]}}\n'
        for user, uid in (("alice", ALICE), ("mallory", MALLORY))
    )
    spec = folder / "tenant.yaml"
    spec.write_text(
        (ROOT / "stacks/burst.yaml")
        .read_text()
        .replace("name: burst\n", f"name: hostile-tenant\nusers:\n{users}", 1)
        .replace("us-east-1b]}}", 'us-east-1b]}, jobs: {read: ["s3://example-data/sets"]}}', 1)
    )
    gpucluster("sandbox", "up", str(spec), timeout=1500)
    try:
        yield carried_out(Cluster("hostile-tenant"), keys["mallory"])
    finally:
        gpucluster("sandbox", "down", "hostile-tenant")


def carried_out(cluster: Cluster, mallorys_key: Path) -> Attack:
    """Run the other user's jobs, the attack beside one of them, then let the other job end."""
    small = ("-N1", "-n1", "--gres=gpu:1", "--mem=1G")
    victim = submit(cluster, "alice", VICTIM, *small)
    elsewhere = submit(cluster, "alice", "sleep 900", "-N1", "--gres=gpu:8", "--exclude", "h200-1a-1")
    cluster.wait(
        "alice's jobs run",
        lambda: all(cluster.state(j) == "RUNNING" for j in (victim, elsewhere)),
    )
    node, other = cluster.job(victim)["batch_host"], cluster.job(elsewhere)["batch_host"]
    assert node != other
    cluster.wait("alice's files are there", lambda: read(cluster, node, "/home/alice/gpu") != "")
    target = {
        "job": victim, "pid": int(read(cluster, node, "/home/alice/pid")), "gpu": read(cluster, node, "/home/alice/gpu"),
        "node": node, "other_node": other, "victim": "alice", "victim_uid": ALICE, "base_path": names.PRIVATE_TMP,
        "head": "10.42.0.10", "api": "http://169.254.169.252:5000", "mark": "/home/mallory/mark", "hold_s": 12, "full_s": 4,
        "bucket": json.loads(cluster.exec("head", "cat", names.USER_DATA_FILE))["bucket"],
    }  # fmt: skip
    for name, text in (
        ("attack.py", PROGRAM.read_text()),
        ("target.json", json.dumps(target)),
        ("id", mallorys_key.read_text()),
    ):
        cluster.exec(
            node, "sh", "-c", f"umask 077; mkdir -p ~/.ssh; cat > ~/{name}", user="mallory", stdin=text
        )
    cluster.exec(node, "mv", "/home/mallory/id", "/home/mallory/.ssh/id_ed25519")

    found = Attack(cluster, node, victim)
    argv = ("/usr/bin/python3", "/home/mallory/attack.py", json.dumps(target), *CONTROL)
    found.control = answers_of(cluster.exec(node, *argv))
    script = 'cd; python3 attack.py "$(cat target.json)" > answers'
    job = submit(
        cluster, "mallory", script, "-w", node, "-D", "/home/mallory", "-o", "/home/mallory/errors", *small
    )

    def attacked() -> bool:
        state = json.loads(read(cluster, node, f"{names.AGENT_RUN}/state.json"))
        found.contacts.append(float(state["last_contact_at"]))
        if not found.credentials and read(cluster, node, target["mark"], exists=True):
            found.credentials.append(step(cluster, victim))
        return cluster.ended(job)

    # On a busy machine the attack alone takes more than 400 s.
    cluster.wait("the attack ends", attacked, within=1500, poll=0.5)
    found.credentials.append(step(cluster, victim))
    found.answers = answers_of(read(cluster, node, "/home/mallory/answers"))
    cluster.exec(node, "touch", "/home/alice/stop", user="alice")
    cluster.wait("alice's job ends", lambda: cluster.ended(victim))
    found.end = f"{cluster.state(victim)} {read(cluster, node, '/home/alice/end')}"
    return found


def submit(cluster: Cluster, user: str, script: str, *options: str) -> int:
    argv = ("sbatch", "--parsable", *options)
    return int(cluster.exec("head", *argv, user=user, stdin=f"#!/bin/bash\n{script}\n").split(";")[0])


def step(cluster: Cluster, job: int) -> str:
    return cluster.exec(
        "head",
        "timeout",
        "60",
        "srun",
        f"--jobid={job}",
        "--overlap",
        "sh",
        "-c",
        STEP,
        user="alice",
        check=False,
    )


def read(cluster: Cluster, node: str, path: str, *, exists: bool = False) -> str:
    return cluster.exec(node, "ls" if exists else "cat", path, check=False).strip()


def answers_of(text: str) -> dict[str, str]:
    rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    return {row["attempt"]: row["answer"] for row in rows}


def test_every_attempt_was_made(attack):
    errors = read(attack.cluster, attack.node, "/home/mallory/errors")
    assert attack.answers.keys() == REFUSED.keys(), errors


@pytest.mark.parametrize("attempt", REFUSED)
def test_attempt_meets_its_refusal(attack, attempt):
    assert re.fullmatch(REFUSED[attempt], attack.answers.get(attempt, "not made"), re.DOTALL)


@pytest.mark.parametrize("attempt", CONTROL)
def test_root_succeeds_with_the_same_attempt(attack, attempt):
    assert CONTROL[attempt] in attack.control[attempt]


def test_agent_answers_during_and_after_the_attack(attack):
    """The longest time without a contact is far below what makes the daemon give up a node."""
    times = sorted(set(attack.contacts))
    assert len(times) > 5, "reports during the attack"
    assert max(b - a for a, b in pairwise(times)) < 30
    show = (
        "systemctl",
        "show",
        "gpucluster-agent",
        "slurmd",
        "munge",
        "--property=NRestarts,ActiveState",
        "--value",
    )
    assert set(attack.cluster.exec(attack.node, *show).split()) == {"0", "active"}


def test_other_job_gets_its_credentials_during_and_after_the_attack(attack):
    assert attack.credentials == ["200", "200"]


def test_other_job_ends_well_and_its_folders_are_removed(attack):
    assert attack.end == "COMPLETED well"
    attack.cluster.wait(
        "the folders are removed",
        lambda: (
            str(attack.victim)
            not in read(
                attack.cluster, attack.node, f"{names.PRIVATE_TMP}/{attack.node}", exists=True
            ).split()
        ),
    )
    assert "secret" not in attack.cluster.exec(
        attack.node, "find", "/tmp", "/var/tmp", "/dev/shm", names.PRIVATE_TMP
    )


def test_hostile_names_reach_no_log_and_run_nothing(attack):
    log = attack.cluster.exec("head", "journalctl", "-u", "gpucluster-elastic", "--no-pager", "-o", "cat")
    assert log
    assert not set(log) & set("\x1b\x07\r\u202e")
    for machine in ("head", attack.node):
        assert (
            attack.cluster.exec(machine, "find", "/tmp", "/etc", "/var/lib/gpucluster", "-name", "*owned*")
            == ""
        )
    assert attack.cluster.exec("head", "systemctl", "is-active", "gpucluster-elastic").strip() == "active"
