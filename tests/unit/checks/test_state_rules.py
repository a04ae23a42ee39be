"""What a person changed or left on a machine: reservations, names, drains, device files, mounts, processes and folders."""

import os
import shlex
import subprocess
from dataclasses import replace

import pytest
from support.waiting import BOUND_S

from gpucluster.checks import files, hardware, mounts, peer_names, remedies, reservations, slurmctld, strays
from gpucluster.checks.check import CheckResult, CheckStatus, ParseError, QueryOutput
from gpucluster.plan.model import SiteReservation
from gpucluster.plan.names import BLOCK_RESERVATION_PREFIX
from gpucluster.slurm.values import SlurmNode, SlurmReservation

AGENT = remedies.restart("gpucluster-agent")

PASS, WARN, FAIL = CheckStatus.PASS, CheckStatus.WARN, CheckStatus.FAIL


def said(*texts: str) -> tuple[QueryOutput, ...]:
    return tuple(QueryOutput(code=0, stdout=text) for text in texts)


# --- reservations ----------------------------------------------------------------------------------------
COURSE = SiteReservation(name="course", nodes="e[1-2]", starts_at=10_000, duration_s=3600, maint=True)
MADE = SlurmReservation(
    name="gpucluster-course", starts_at=10_000, ends_at=13_600, nodes=("e1", "e2"), users=("root",), flags=("MAINT", "IGNORE_JOBS"),
)  # fmt: skip
BLOCK = replace(MADE, name=f"{BLOCK_RESERVATION_PREFIX}1")


@pytest.mark.parametrize(
    ("found", "verdict", "words", "remedy"),
    [
        ((MADE, BLOCK), PASS, "2 reservations", ""),
        ((), FAIL, "gpucluster-course is missing", "TZ=UTC scontrol create reservation ReservationName=gpucluster-course "),
        ((replace(MADE, nodes=("e1",)),), FAIL, "gpucluster-course is another than in the plan", "TZ=UTC scontrol update ReservationName=gpucluster-course "),
        ((MADE, replace(MADE, name="gpucluster-old")), FAIL, "gpucluster-old is not in the plan", "TZ=UTC scontrol delete ReservationName=gpucluster-old"),
        ((MADE, replace(MADE, name="patch")), WARN, "patch holds e[1-2]", "scontrol delete reservation=patch"),
    ],
)  # fmt: skip
def test_reservations_are_those_of_the_plan(found, verdict, words, remedy):
    """Regression: a reservation of the plan that was deleted or changed by hand was healthy."""
    result = reservations.evaluate_reservations(
        reservations.Reserved(now_s=5000.0, found=found),
        reservations.Reservations(planned=(COURSE,), partitions={}),
    )
    assert (result.verdict, result.found) == (verdict, words)
    assert remedy in result.remedy
    assert bool(remedy) == bool(result.remedy)


def test_reservations_are_compared_at_the_heads_time():
    empty = '{"reservations": [], "errors": []}'
    assert reservations.parse_reservations(said("1700000000.5\n", empty)).now_s == 1700000000.5
    with pytest.raises(ParseError):
        reservations.parse_reservations(said("noon", empty))


# --- names -----------------------------------------------------------------------------------------------
NAMES = peer_names.Names(
    addresses={"burst-head": "10.42.0.10", "h200-1b-1": "", "h200-1b-2": ""},
    heads=("burst-head", "burst-standby"),
)
HOSTS = """127.0.0.1	localhost
127.0.1.1	h200-1b-1
# gpucluster: begin
10.42.0.10 burst-head
10.42.32.148 h200-1b-1
10.42.51.5 h200-1b-2
# gpucluster: end
"""


def checked(text: str, called: str = "h200-1b-1", asked: str = "h200-1b-1") -> CheckResult:
    return peer_names.evaluate_hosts(peer_names.parse_hosts(said(f"{called}\n{asked}\n", text)), NAMES)


def test_names_of_a_healthy_machine():
    assert checked(HOSTS).verdict is PASS
    assert checked("").verdict is PASS
    assert checked(f"{HOSTS}10.42.0.10 burst-head # again\n").verdict is PASS


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("10.9.9.9 h200-1b-2", "h200-1b-2 is 10.9.9.9 outside the block of gpucluster"),
        ("10.9.9.9 store h200-1b-2 scratch", "h200-1b-2 is 10.9.9.9 outside"),
        ("10.9.9.9\tburst-head", "burst-head is 10.9.9.9, not 10.42.0.10"),
        ("127.0.1.1 h200-1b-2", "h200-1b-2 is 127.0.1.1 outside"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_peers_name_elsewhere_is_found_and_its_remedy_heals_it(tmp_path, line, words, first):
    text = f"{line}\n{HOSTS}" if first else f"{HOSTS}{line}\n"
    result = checked(text)
    assert result.verdict is FAIL
    assert words in result.found
    hosts = tmp_path / "hosts"
    hosts.write_text(text)
    commands = result.remedy.removeprefix("on {machine}: ").replace("/etc/hosts", shlex.quote(str(hosts)))
    subprocess.run(["/bin/sh", "-ec", commands], check=True, timeout=BOUND_S)
    assert checked(hosts.read_text()).verdict is PASS
    assert set(HOSTS.splitlines()) <= set(hosts.read_text().splitlines())
    assert ("store" in line) == ("10.9.9.9 store scratch" in hosts.read_text())


def test_changed_block_is_written_by_the_agent():
    result = checked(HOSTS.replace("10.42.0.10", "10.9.9.9"))
    assert (result.culprits, result.remedy) == (
        ("burst-head",),
        f"on {{machine}}: {AGENT}",
    )


# --- drains ----------------------------------------------------------------------------------------------
def node(*states: str, reason: str, by: str) -> SlurmNode:
    return SlurmNode(name="e1", states=frozenset(states), reason=reason, reason_by=by)


OFF, UP = ("IDLE", "DRAIN", "POWERED_DOWN"), ("IDLE", "DRAIN")


@pytest.mark.parametrize(
    ("found", "verdict", "words", "remedy"),
    [
        (node(*OFF, reason="gpucluster: no h200", by="slurm"), WARN, "e1 is blocked (gpucluster: no h200)", "none"),
        (node(*OFF, reason="gpucluster: no h200", by="root"), FAIL, "(gpucluster: no h200, written by root, not by gpucluster)", "undrain"),
        (node(*UP, reason="gpucluster: [operator] x", by="root"), FAIL, "written by root", "undrain"),
        (node(*UP, reason="gpucluster: [unknown] x", by="root"), FAIL, "written by root", "undrain"),
        (node(*UP, reason="gpucluster: x", by=""), FAIL, "written by an unknown user", "undrain"),
        (node(*UP, reason="gpucluster: [health] x", by="vision"), FAIL, "written by vision", "undrain"),
        (node("DOWN", reason="gpucluster: x", by="root"), FAIL, "written by root", "resume"),
        (node(*UP, reason="gpucluster: [health] x", by="root"), FAIL, "(gpucluster: [health] x)", ""),
        (node(*UP, reason="gpucluster: [operator] x", by="slurm"), FAIL, "(gpucluster: [operator] x)", ""),
        (node(*UP, reason="fan", by="root"), FAIL, "(fan)", ""),
    ],
)  # fmt: skip
def test_forged_reason_is_told_and_lifted(found, verdict, words, remedy):
    """Regression: a drain of a powered-down node with a forged reason was a warning about the cloud's capacity."""
    result = slurmctld.evaluate_nodes((found,), slurmctld.Nodes(elastic=("e1",), always_on=()))
    assert result.verdict is verdict
    assert words in result.found
    if remedy == "none":
        assert result.remedy.startswith(
            "none on a machine: the daemon asks EC2 again and lifts its own drain"
        )
        return
    forged = f"on {{machine}}: scontrol update nodename=e1 state={remedy}"
    own = "on {machine}: sinfo -R; repair the cause of the reason, then scontrol update nodename=e1 state=undrain"
    assert result.remedy == (forged if remedy else own)


# --- device files, files, mounts --------------------------------------------------------------------------
def test_device_file_more_is_removed():
    result = hardware.evaluate_gpus(frozenset({"nvidia0", "nvidia1", "nvidia8"}), hardware.Gpus(count=2))
    assert result.found == "3 GPUs, nvidia8 not in gres.conf"
    assert result.remedy == "on {machine}: rm /dev/nvidia8"
    other = hardware.evaluate_gpus(frozenset({"nvidia0", "nvidia8"}), hardware.Gpus(count=2))
    assert other.found == "2 GPUs, nvidia1 missing, nvidia8 not in gres.conf"
    assert other.remedy == "", "a GPU that is missing is not healed by a command"


def test_file_of_the_head_is_written_by_the_agent_before_slurmctld_reads_it():
    """Regression: the agent writes the file, and slurmctld went on with the other one."""
    want = files.Files(sha256={"/etc/slurm/slurm.conf": "1" * 64})
    remedy = files.evaluate_files({"/etc/slurm/slurm.conf": "2" * 64}, want).remedy
    steps = remedy.removeprefix("on {machine}: ").split("; ", 1)
    assert steps[0] == AGENT
    assert remedy.endswith("; scontrol reconfigure")
    assert f"{'1' * 64}  /etc/slurm/slurm.conf" in remedy
    subprocess.run(["/bin/sh", "-n", "-c", "; ".join(steps)], check=True, timeout=BOUND_S)


HOME = mounts.MountWant(path="/home", types=("nfs4",), source="fs:/")
SHARED = mounts.MountWant(path="/dev/shm", types=("tmpfs",), source="")
RIGHT = {
    "/home": mounts.Mounted(type="nfs4", source="fs:/", options=frozenset()),
    "/dev/shm": mounts.Mounted(type="tmpfs", source="tmpfs", options=frozenset()),
}


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"/home": None}, AGENT),
        ({"/home": replace(RIGHT["/home"], options=frozenset({"ro"}))}, "mount -o remount,rw /home"),
        (
            {"/home": replace(RIGHT["/home"], type="tmpfs")},
            remedies.restart_after(["umount /home"], "gpucluster-agent"),
        ),
        ({"/dev/shm": None}, "mount -t tmpfs -o nosuid,nodev tmpfs /dev/shm"),
    ],
)
def test_remedy_of_a_mount(change, remedy):
    """Regression: `mount /home` fails, because fstab has no line for it."""
    found = {path: one for path, one in {**RIGHT, **change}.items() if one is not None}
    result = mounts.evaluate_mounts(
        mounts.MountTable(mounts=found, exports=frozenset()), mounts.Mounts(mounts=(HOME, SHARED))
    )
    assert (result.verdict, result.remedy) == (FAIL, f"on {{machine}}: {remedy}")


BOUND = mounts.MountWant(path="/var/spool/slurmctld", types=(), source="", bound="/srv/state/slurmctld")
VOLUME = mounts.MountWant(path="/srv/state", types=("ext4",), source="")
MOUNTED = mounts.Mounted(type="ext4", source="/dev/nvme1n1", options=frozenset())


@pytest.mark.parametrize("volume", [True, False])
def test_state_that_is_not_bound_is_copied_before_it_is_bound_again(volume: bool):
    """Regression: slurmctld wrote to the root disk, and everything was healthy."""
    found = {"/srv/state": MOUNTED} if volume else {}
    result = mounts.evaluate_mounts(
        mounts.MountTable(mounts=found, exports=frozenset()), mounts.Mounts(mounts=(VOLUME, BOUND))
    )
    wait = f"{AGENT}; timeout 120 sh -c 'until mountpoint -q /srv/state; do sleep 1; done'; "
    steps = [
        remedies.proof_of("slurmctld"),
        "systemctl stop gpucluster-elastic slurmctld",
        "cp -au /var/spool/slurmctld/. /srv/state/slurmctld/",
        "mount --bind /srv/state/slurmctld /var/spool/slurmctld",
        "systemctl start slurmctld gpucluster-elastic",
    ]
    assert result.remedy == f"on {{machine}}: {'' if volume else wait}{' && '.join(steps)}"
    assert result.culprits[-1] == "/var/spool/slurmctld"


def test_host_name_of_another_machine_is_found():
    """Regression: nothing compared it, and `node.strays` asked for the jobs of the other node: its remedy killed jobs."""
    result = checked(HOSTS, "h200-1b-2")
    assert result.found == "the host name is h200-1b-2, not h200-1b-1"
    assert (result.verdict, result.culprits) == (FAIL, ("h200-1b-1",))
    assert result.remedy == "on {machine}: echo h200-1b-1 >/etc/hostname; hostname h200-1b-1"
    both = checked(f"10.9.9.9 burst-head\n{HOSTS}", "h200-1b-2")
    assert both.found == f"{result.found}; /etc/hosts: burst-head is 10.9.9.9, not 10.42.0.10"
    assert both.remedy.startswith(f"{result.remedy}; sed -Ei ")


def test_head_has_its_name_or_that_of_a_standby_that_took_over():
    healthy = HOSTS.replace("127.0.1.1\th200-1b-1\n", "")
    assert checked(healthy, "burst-head", "head").verdict is PASS
    assert checked(healthy, "burst-standby", "head").verdict is PASS
    result = checked(healthy, "h200-1b-1", "head")
    assert result.found == "the host name is h200-1b-1, not burst-head or burst-standby"
    assert result.remedy == f"on {{machine}}: {AGENT}"


@pytest.mark.parametrize("answer", ["", "h200-1b-1\n", "h200 1b\nhead\n"])
def test_host_name_that_cannot_be_read_is_no_pass(answer):
    with pytest.raises(ParseError):
        peer_names.parse_hosts(said(answer, HOSTS))


# --- strays ----------------------------------------------------------------------------------------------
# ps and find of a node of the sandbox (24.11, Debian 13) with a job of researcher
SYSTEM = """           0 root                                                                        1 Ss       systemd
         997 messagebus                                                                 94 Ss       dbus-daemon
           0 root                                                                      266 Ssl      slurmd
       64030 slurm                                                                     267 S        sh
"""
RUNAWAY = "        2000 researcher                                                                349 S        sleep\n"
FOLDER = "/var/lib/gpucluster-tmp/h200-1b-1/1\n"
MARK = "--\n"
GROUP = "sudo:x:27:ubuntu,admin\nasking:::operator\n"


def look(jobs: str, processes: str, folders: str, *second: str) -> strays.Strays:
    parts = (jobs, processes, folders, *(second or (jobs, processes, folders)), GROUP)
    return strays.parse_strays(said("--\n".join(parts)))


@pytest.mark.parametrize(
    ("jobs", "processes"),
    [
        ("1 2000\n", RUNAWAY),
        ("", RUNAWAY.replace("researcher", "ubuntu    ")),
        ("", RUNAWAY.replace("researcher", "ssm-user  ")),
        ("", RUNAWAY.replace("researcher", "operator  ")),
        ("", RUNAWAY.replace(" S   ", " Z   ")),
        ("", RUNAWAY.replace("sleep", "systemd")),
        ("", RUNAWAY.replace("researcher", "2000      ")),
    ],
    ids=["of a job", "an administrator", "Session Manager", "whoever asks", "a zombie", "a login that ended", "of a container"],
)  # fmt: skip
def test_node_without_strays(jobs, processes):
    found = look(jobs, SYSTEM + processes, FOLDER if jobs else "")
    assert strays.evaluate_strays(found, strays.StraysWant(base="/b")).verdict is PASS


def test_session_of_the_spec_s_administrator_is_none():
    """Regression: right after the playbook its connection was a process without a job. A sudoers file names its user."""
    found = look("", SYSTEM + RUNAWAY.replace("researcher", "deployer  "), "")
    assert strays.evaluate_strays(found, strays.StraysWant(base="/b")).verdict is FAIL
    assert strays.evaluate_strays(found, strays.StraysWant(base="/b", admins=("deployer",))).verdict is PASS


def test_look_names_the_user_who_asks_by_sudo():
    """The ssh session of `validate` on an existing host: sudoers may name its user, and no group does."""
    env = {"PATH": os.environ["PATH"], "SUDO_USER": "operator"}
    done = subprocess.run(
        ["/bin/sh", "-ec", strays._ADMINS], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "asking:::operator"


def test_job_that_begins_or_ends_meanwhile_leaves_nothing():
    begins = look("", SYSTEM + RUNAWAY, FOLDER, "1 2000\n", SYSTEM + RUNAWAY, FOLDER)
    ends = look("1 2000\n", SYSTEM + RUNAWAY, FOLDER, "", SYSTEM, "")
    short = look("", SYSTEM + RUNAWAY, FOLDER, "", SYSTEM, "")
    assert begins == ends == short == strays.Strays(processes=(), folders=())


def test_process_and_folder_without_a_job_are_found():
    found = look("7 2001\n", SYSTEM + RUNAWAY, FOLDER)
    result = strays.evaluate_strays(found, strays.StraysWant(base="/b"))
    assert result.culprits == ("researcher", FOLDER.strip())
    assert (
        result.found
        == f"process 349 (sleep) of researcher, who has no job here, {FOLDER.strip()} of an ended job"
    )
    assert "kill -KILL 349; " in result.remedy
    assert f"rm -rf --one-file-system {FOLDER.strip()}" in result.remedy


@pytest.mark.parametrize("text", ["", MARK * 5, "x\n" + MARK * 6, f"{MARK}x\n" + MARK * 5])
def test_look_that_cannot_be_read_is_no_pass(text):
    with pytest.raises(ParseError):
        strays.parse_strays(said(text))
