"""The units that run as root: each word of hardening has the reason why it breaks nothing, and none makes a mount namespace."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpucluster import agent
from gpucluster.plan import names

SYSTEMD = Path(agent.__file__).parent / "units/etc/systemd/system"
FAMILIES = "mount, nft, NSS and the agent's look-up of socket owners use these; nothing of ours uses another"
EVERYWHERE = {
    "LimitCORE": "a core file would have credentials; the journal has the traceback",
    "LockPersonality": "no step runs a program of another personality",
    "RestrictNamespaces": "no step makes or joins a namespace; jobs are slurmd's, and systemd-nspawn is outside",
    "RestrictRealtime": "no step asks for realtime scheduling",
    "SystemCallArchitectures": "every program of ours, of Slurm and of NVIDIA is of the machine's own architecture",
}
SHORT = EVERYWHERE | {  # programs that only ask Slurm and systemd
    "MemoryDenyWriteExecute": "Python, scontrol, sacctmgr, systemctl and nft make no code at run time, as the daemon's unit shows",
    "NoNewPrivileges": "root runs nothing with a set-user-ID bit there",
    "RestrictAddressFamilies": FAMILIES,
    "RestrictSUIDSGID": "they make no such file",
    "SystemCallFilter": "@system-service is what a plain service calls, as the daemon's unit shows",
}
WHY = {
    "gpucluster-agent.service": EVERYWHERE
    | {
        "CapabilityBoundingSet": "no step sets the clock, boots, writes accounting of processes, or rules auditd and terminals",
        "RestrictAddressFamilies": FAMILIES,
        "SystemCallErrorNumber": "a program that tries such a call gets an error, and is not killed",
        "SystemCallFilter": "no step sets the clock, traces a process, does port I/O, boots another kernel or adds swap",
    },
    "gpucluster-watch.service": SHORT,
    "gpucluster-accounts.service": SHORT,
    "gpucluster-guard.service": SHORT
    | {
        "CapabilityBoundingSet": "the rules need CAP_NET_ADMIN; the kernel loads modules of nft itself",
        "UMask": "nft makes no file",
    },
}
# systemd.exec(5): each of these gives the processes file systems of their own, or devices that are listed.
PRIVATE_VIEWS = {
    "BindPaths", "BindReadOnlyPaths", "ExecPaths", "ExtensionImages", "InaccessiblePaths", "LogNamespace", "MountAPIVFS", "MountImages",
    "NoExecPaths", "PrivateDevices", "PrivateIPC", "PrivateMounts", "PrivateTmp", "PrivateUsers", "ProcSubset", "ProtectControlGroups", "ProtectHome",
    "ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "ProtectProc", "ProtectSystem", "ReadOnlyPaths", "ReadWritePaths",
    "RootDirectory", "RootImage", "TemporaryFileSystem",
}  # fmt: skip
OTHERS = {"ProtectHostname", "PrivateNetwork", "DeviceAllow", "DevicePolicy", "ProtectClock", "DynamicUser"}
HARDENING = re.compile(
    r"(?:Capability|Limit|Lock|MemoryDeny|NoNew|Restrict|SystemCall|UMask|Keyring|Protect|Private)"
)


def words_of(unit: str) -> dict[str, str]:
    lines = (SYSTEMD / unit).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@pytest.mark.parametrize("unit", WHY)
def test_each_word_of_hardening_has_a_reason(unit: str) -> None:
    set_there = {word for word in words_of(unit) if HARDENING.match(word)}
    assert set_there == WHY[unit].keys()


@pytest.mark.parametrize("unit", WHY)
def test_what_the_agent_mounts_is_seen_by_all(unit: str) -> None:
    """In a mount namespace of the agent /home would be there for the agent alone, and jobs would not have it."""
    assert not words_of(unit).keys() & (PRIVATE_VIEWS | OTHERS)


def test_what_stays_open_is_listed_with_its_reason() -> None:
    """In the unit, where somebody would add it."""
    comment = " ".join(
        line.lstrip("# ")
        for line in (SYSTEMD / "gpucluster-agent.service").read_text().splitlines()
        if line.startswith("#")
    )
    left = {
        *("MemoryDenyWriteExecute", "NoNewPrivileges", "RestrictSUIDSGID", "UMask"),
        *("ProtectHostname", "ProtectClock", "DevicePolicy"),
    }
    assert {word for word in left if not re.search(rf"{word}= \([^)]+\)", comment)} == set()
    assert not words_of("gpucluster-agent.service").keys() & left


def test_every_unit_that_runs_as_root_is_in_the_table() -> None:
    """The daemon has a user of its own. MPS is NVIDIA's program, whose needs are not known."""
    ours = {path.name for path in SYSTEMD.glob("gpucluster-*.service")}
    assert ours - WHY.keys() == {"gpucluster-elastic.service", "gpucluster-mps@.service"}


@pytest.mark.parametrize("unit", WHY)
def test_systemd_knows_each_word(tmp_path: Path, unit: str) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd")
    text = (SYSTEMD / unit).read_text().replace(f"{names.VENV}/bin/python", "/bin/true")
    (tmp_path / unit).write_text(text.replace("/usr/sbin/nft", "/bin/true"))
    done = subprocess.run(
        [program, "verify", "--man=no", "--recursive-errors=no", str(tmp_path / unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if str(tmp_path) in line or unit in line] == []
