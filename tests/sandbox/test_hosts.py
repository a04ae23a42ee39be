"""Existing hosts: the playbook makes a cluster of plain Debian machines, and a second run changes nothing.

The machines have Debian, sshd, python3 and sudo, and no cloud. One head and two nodes.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster import ROOT, Cluster, gpucluster
from support.readme import commands, instead
from validation import of_verdict, validated

from gpucluster import artifacts
from gpucluster.errors import StateError
from gpucluster.sandbox import state_dir

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(3000)]

NAME, HEAD, NODES = "hosts", "ctl0", ("gpu01", "gpu02")
MUNGE_KEY = "/etc/munge/munge.key"
NEW_KEY = f"rm {MUNGE_KEY} && runuser -u munge -- mungekey --create --keyfile={MUNGE_KEY}"
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.M)
LESS = (  # of stacks/lab.yaml: the machine that runs this may be small
    ("name: lab\n", f"name: {NAME}\n"),
    (
        'hosts: "gpu[01-04]", addresses: "192.0.2.[11-14]"',
        'hosts: "gpu[01-02]", addresses: "192.0.2.[11-12]"',
    ),
    ('{leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}', '{leaf1: "gpu[01-02]"}'),
    ('slurm: {version: "24.11",', 'slurm: {version: "24.11", accounting: {database: local},'),
)


@dataclass
class Site:
    """The sandbox of hosts, and the changes of the first run of the playbook."""

    cluster: Cluster
    spec: Path
    folder: Path
    first: dict[str, int]

    def play(self, *options: str, inventory: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run ansible-playbook as the README shows it, in the sandbox's network."""
        *_, at, playbook = command = _readme_command("ansible-playbook")
        assert (at, playbook) == (str(self.folder / "inventory.yml"), "playbooks/site.yml")
        return reach(*command[:-2], str(inventory or at), *options, playbook)


def _readme_command(program: str) -> list[str]:
    """Return the README's command of this program in the sandbox's network, with the name of this test."""
    inside = ["gpucluster", "sandbox", "run", NAME, "--", program]
    lines = [instead(line, lab=NAME) for line in commands("Path 2")]
    return next(line[5:] for line in lines if line[:6] == inside)


def reach(*argv: str) -> subprocess.CompletedProcess[str]:
    path = f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_DEPRECATION_WARNINGS": "0"}
    whole = ["gpucluster", "sandbox", "run", NAME, "--", *argv]
    return subprocess.run(whole, env=env, capture_output=True, text=True, timeout=1000, check=False, cwd=ROOT)


def changed(
    done: subprocess.CompletedProcess[str], hosts: tuple[str, ...] = (HEAD, *NODES)
) -> dict[str, int]:
    """Return the number of changes on each host. AssertionError if a host failed, or if the run had other hosts."""
    rows = RECAP.findall(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert {row[0] for row in rows} == {*hosts}
    return {row[0]: int(row[2]) for row in rows}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Plain machines after one run of the playbook."""
    spec = tmp_path_factory.mktemp("stack") / f"{NAME}.yaml"
    text = (ROOT / "stacks/lab.yaml").read_text()
    for old, new in LESS:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    spec.write_text(text)
    gpucluster("sandbox", "up", str(spec), timeout=900)
    try:
        folder = state_dir.living(NAME).site
        made = Site(Cluster(NAME), spec, folder, {})
        plain = made.cluster.exec(
            NODES[0], "sh", "-c", "command -v slurmd munged; ls -d /opt/gpucluster", check=False
        )
        assert plain == ""  # neither gpucluster nor Slurm is installed
        made.first = changed(made.play())
        yield made
    finally:
        gpucluster("sandbox", "down", NAME)
        assert not Path("/var/lib/gpucluster-sandbox", NAME).exists()


def states(site: Site) -> dict[str, list[str]]:
    return {name: node["state"] for name, node in site.cluster.nodes().items()}


def boot_of_running(site: Site, machine: str) -> str:
    """The id of the machine's boot; empty while the machine does not run."""
    try:
        return site.cluster.exec(machine, "cat", "/proc/sys/kernel/random/boot_id", check=False).strip()
    except StateError:
        return ""


def running(site: Site, machine: str) -> str:
    """The process ids of Slurm and munge on the machine."""
    return site.cluster.exec(
        machine, "systemctl", "show", "--property=MainPID", "slurmctld", "slurmd", "munge", check=False
    )


def job(site: Site, *argv: str) -> str:
    return site.cluster.exec(HEAD, *argv, user="vision")


def test_job_of_an_ordinary_user_runs_on_two_nodes(site):
    assert all(count > 5 for count in site.first.values())
    output = job(
        site,
        "srun",
        "-N2",
        "--gres=gpu:h100:8",
        "sh",
        "-c",
        'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $(id -u) $PWD"',
    )
    assert sorted(output.splitlines()) == [f"{node} 0,1,2,3,4,5,6,7 5001 /home/vision" for node in NODES]
    site.cluster.wait("both are idle again", lambda: states(site) == {node: ["IDLE"] for node in NODES})
    # the nodes mount the homes that the head exports
    job(site, "srun", "-N2", "sh", "-c", "touch ~/$SLURMD_NODENAME")
    assert job(site, "ls").split() == list(NODES)


def recorded(site: Site, number: str) -> str:
    """The state of the job in the database of the head."""
    argv = ("sacct", "--allusers", "--allocations", "--noheader", "--parsable2", "--format=state")
    return site.cluster.exec(HEAD, *argv, "--jobs", number, check=False).strip()


def test_database_of_the_head_has_the_job_and_the_timer_of_limits_runs(site):
    number = job(site, "sbatch", "--parsable", "--output=/dev/null", "--wrap=true").strip()
    site.cluster.wait("its record", lambda: recorded(site, number) == "COMPLETED")
    units = ("gpucluster-accounts.timer", "mariadb", "slurmdbd")
    assert site.cluster.exec(HEAD, "systemctl", "is-active", *units).split() == ["active"] * 3


def test_hosts_file_has_the_addresses_of_all_nodes_instead_of_loopback(site):
    for machine in (HEAD, *NODES):
        hosts = site.cluster.exec(machine, "cat", "/etc/hosts")
        assert "127.0.1.1" not in hosts
        assert site.cluster.exec(machine, "getent", "hosts", *NODES).split()[::2] == [
            "192.0.2.11",
            "192.0.2.12",
        ]


def test_dry_run_finds_nothing_to_change(site):
    """Later tests run the playbook again: a second run changes exactly what is new."""
    key = site.cluster.exec(HEAD, "sha256sum", "/etc/munge/munge.key")
    assert changed(site.play("--check", "--diff")) == dict.fromkeys((HEAD, *NODES), 0)
    assert {site.cluster.exec(m, "sha256sum", "/etc/munge/munge.key") for m in (HEAD, *NODES)} == {key}


def test_munge_key_is_in_no_log_and_only_in_its_own_file(site):
    part = site.cluster.exec(HEAD, "base64", "--wrap=0", "/etc/munge/munge.key")[8:40]
    for machine in (HEAD, *NODES):
        script = f"journalctl --no-pager -o cat | grep -c -F '{part}'; grep -r -l -F '{part}' /tmp /var/tmp /root /var/lib/gpucluster /var/lib/admin /etc 2>/dev/null | head"
        assert site.cluster.exec(machine, "sh", "-c", script, check=False).split() == ["0"]
    assert part not in "".join(p.read_text(errors="replace") for p in site.folder.iterdir() if p.is_file())


def test_host_with_an_unknown_key_is_refused(site, tmp_path):
    other = tmp_path / "id"
    subprocess.run(["/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    kind, body = other.with_suffix(".pub").read_text().split()[:2]
    known = (site.folder / "known_hosts").read_text().splitlines()
    (tmp_path / "known").write_text(
        "\n".join(f"192.0.2.12 {kind} {body}" if line.startswith("192.0.2.12 ") else line for line in known)
        + "\n"
    )
    options = f"-o StrictHostKeyChecking=yes -o UserKnownHostsFile={tmp_path / 'known'} -o GlobalKnownHostsFile=none -o ControlPath=none"
    done = site.play(
        "--limit", "gpu02", "-e", json.dumps({"ansible_ssh_common_args": options, "ansible_ssh_args": "-C"})
    )
    assert done.returncode != 0
    assert "unreachable=1" in done.stdout
    assert "Host key verification failed" in done.stdout + done.stderr


def test_swapped_addresses_stop_the_run_before_any_change(site, tmp_path):
    text = (site.folder / "inventory.yml").read_text()
    swapped = (
        text.replace('"192.0.2.11"\n', '"192.0.2.99"\n')
        .replace('"192.0.2.12"\n', '"192.0.2.11"\n')
        .replace('"192.0.2.99"\n', '"192.0.2.12"\n')
    )
    assert swapped != text
    place = site.folder / "swapped.yml"
    place.write_text(swapped)
    done = site.play(inventory=place)
    place.unlink()
    assert done.returncode != 0
    assert "the host at 192.0.2.12 has the name gpu02, expected gpu01" in " ".join(done.stdout.split())
    assert "Packages, folders and our own code" not in done.stdout


REFUSALS = [
    ("another Slurm", {"slurm_version": "26.05"}, "the plan has Slurm 26.05, but apt of this host has 24.11."),
    ("a mount over the administrator's home", {"mount_points": ["/var/lib"]}, "the home of admin is /var/lib/admin, and the mount at /var/lib would hide it"),
    ("the uid of another user", {"names_and_uids": ["vision", "5002"], "people_ids": ["vision:5002"]}, "the host has vision:5001, speech:5002 (name:uid), but the spec has vision:5002"),
    ("an inventory of another program", {"bundle_digest": None}, "this inventory was not written by"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "message"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS])
def test_unsuitable_host_is_refused_before_any_change(site, values, message):
    done = site.play("--limit", "head,gpu01", "--extra-vars", json.dumps(values))
    assert done.returncode != 0
    assert message in " ".join(done.stdout.split())
    assert "changed=0" in done.stdout


def test_run_without_the_head_explains_that_the_key_is_missing(site):
    done = site.play("--limit", "gpu02")
    assert done.returncode != 0
    assert (
        "the munge key comes from the head, and --limit excludes the head; use --limit head,gpu02"
        in " ".join(done.stdout.split())
    )


def test_new_user_has_one_uid_on_all_hosts_and_logs_in_to_nodes_only_with_a_job(site, tmp_path):
    key = tmp_path / "id"
    subprocess.run(
        ["/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "Ada (laptop)", "-f", str(key)],
        check=True,
    )
    people = [
        ("vision", 5001, []),
        ("speech", 5002, []),
        ("ada", 5003, [key.with_suffix(".pub").read_text().strip()]),
    ]
    values = {
        "people": [{"name": name, "uid": uid, "keys": keys} for name, uid, keys in people],
        "people_ids": [f"{name}:{uid}" for name, uid, _ in people],
        "names_and_uids": [word for name, uid, _ in people for word in (name, str(uid))],
    }
    before = {m: running(site, m) for m in (HEAD, *NODES)}
    first = changed(site.play("--extra-vars", json.dumps(values)))
    assert first == dict.fromkeys((HEAD, *NODES), 5)  # group, user, key, sshd's line, sshd
    ssh = ("ssh", "-i", str(key), "-o", f"UserKnownHostsFile={site.folder / 'known_hosts'}", "-o", "StrictHostKeyChecking=yes")  # fmt: skip
    assert (
        reach(*ssh, "ada@192.0.2.10", "id").stdout.strip() == "uid=5003(ada) gid=5003(ada) groups=5003(ada)"
    )
    to_node = (*ssh, "ada@192.0.2.11", "grep -o step_extern /proc/self/cgroup")
    refused = reach(*to_node)
    assert "Access denied by pam_slurm_adopt: you have no active jobs on this node" in refused.stderr
    options = ("--parsable", "-w", "gpu01", "-o", "/dev/null", "-D", "/", "--wrap", "sleep 300")
    number = site.cluster.exec(HEAD, "sbatch", *options, user="ada").strip()
    site.cluster.wait("ada's job runs", lambda: site.cluster.state(int(number)) == "RUNNING")
    joined = reach(*to_node)
    site.cluster.exec(HEAD, "scancel", number)
    assert "step_extern" in joined.stdout, joined.stderr
    assert "AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys2 /etc/" in site.cluster.exec(
        "gpu01", "cat", "/etc/ssh/sshd_config.d/gpucluster.conf"
    )  # the default of sshd comes first
    part = site.play("--limit", "head,gpu02")  # the key of a removed user is deleted
    assert changed(part, (HEAD, "gpu02")) == {HEAD: 1, "gpu02": 1}
    assert {m: running(site, m) for m in (HEAD, *NODES)} == before


def test_next_run_repairs_a_run_that_failed_between_key_and_agent(site):
    """A reinstalled head has a new key. The failed run copied it to the nodes, but munged still uses the old one."""
    site.cluster.exec(HEAD, "sh", "-c", f"{NEW_KEY}; systemctl stop munge")
    site.cluster.exec("gpu01", "sh", "-c", f"cp -p {MUNGE_KEY} /root/old")
    broken = json.dumps({"bundle_archive": "/nonexistent"})
    done = site.play("--limit", "head,gpu01", "--extra-vars", broken)
    assert done.returncode != 0  # the run fails after the key and before the agent
    assert (
        site.cluster.exec("gpu01", "sh", "-c", f"cmp -s {MUNGE_KEY} /root/old || echo new").strip() == "new"
    )
    again = changed(site.play())
    assert all(again.values())
    site.cluster.wait(
        "both are idle", lambda: states(site) == {node: ["IDLE"] for node in NODES}
    )  # slurmctld pings a node that is down each minute
    assert job(site, "srun", "-N2", "hostname").split()
    number = job(site, "sbatch", "--parsable", "--output=/dev/null", "--wrap=true").strip()
    site.cluster.wait("its record", lambda: recorded(site, number) == "COMPLETED")  # slurmdbd has the new key


def test_rebooted_node_mounts_home_and_joins_again(site):
    before = boot_of_running(site, "gpu02")
    site.cluster.exec("gpu02", "systemctl", "reboot", check=False)
    site.cluster.wait("gpu02 has booted", lambda: boot_of_running(site, "gpu02") not in ("", before))
    site.cluster.wait(
        "slurmd runs",
        lambda: (
            site.cluster.exec("gpu02", "systemctl", "is-active", "slurmd", check=False).strip() == "active"
        ),
    )
    assert "/home" in site.cluster.exec("gpu02", "findmnt", "--noheadings", "--output", "TARGET", "/home")


def test_inventory_writes_the_files_of_the_sandbox(site, tmp_path):
    """The bundle of the sandbox differs from the spec's bundle in three files only."""
    gpucluster("inventory", str(site.spec), "--to", str(tmp_path / "out"))
    gpucluster("inventory", str(site.spec), "--to", str(tmp_path / "again"))
    ours, theirs = tmp_path / "out", site.folder
    assert [p.name for p in sorted(ours.iterdir())] == ["bundle.tar.gz", "code.tar", "inventory.yml"]
    for file in sorted(ours.iterdir()):
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()
    files, rehearsed = (
        {a.path: a.content.decode() for a in artifacts.unpack((d / "bundle.tar.gz").read_bytes())}
        for d in (ours, theirs)
    )
    assert files.keys() == rehearsed.keys()
    differing = {path for path in files if files[path] != rehearsed[path]}
    assert differing == {"plan.json", "slurm/slurm.conf", "slurm/cgroup.conf"}


@pytest.mark.parametrize("backend", ["ssh", "paramiko"])
def test_validation_over_ssh_is_green(site, backend):
    """Keys and plan are those of the sandbox. Every query goes over ssh, as the administrator with sudo."""
    *command, ssh = _readme_command("gpucluster")
    assert (command, ssh) == (["gpucluster", "validate", NAME, "--backend"], "ssh")
    # slurmctld has restarted while an earlier test kept munge stopped, and svc.active warns of restarts
    site.cluster.exec(HEAD, "systemctl", "reset-failed")
    done = reach(*command, backend, "--output", "json")
    results = json.loads(done.stdout)["results"]
    assert {r["id"]: r["verdict"] for r in results if r["verdict"] != "pass"} == {}, (
        done.stdout[-4000:] + done.stderr[-2000:]
    )
    assert done.returncode == 0
    assert {"ctl.ping[head]", "job.multi[h100]", "gpu.count[gpu01]", "auth.rt[gpu02]"} <= {
        r["id"] for r in results
    }


def test_validation_without_ssh_is_green(site):
    """Queries run in the machines themselves, without ssh. The checks call ctl0 `head`."""
    site.cluster.exec(HEAD, "systemctl", "reset-failed")
    results = validated(site.cluster, code=0)
    assert of_verdict(results, "pass") == results.keys()
    assert {"ctl.ping[head]", "job.multi[h100]", "gpu.count[gpu01]"} <= results.keys()
