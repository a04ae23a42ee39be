"""A remedy that starts a service again first proves that the service can start."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import BOUND_S

import gpucluster
from gpucluster.checks import remedies
from gpucluster.plan import names

ROOMS = ("checks", "validate")
PROVEN = (
    *("munge", "slurmctld", "slurmd", "sackd", "ssh"),
    *("gpucluster-agent", "gpucluster-guard", "gpucluster-elastic"),
)
UNPROVEN = {
    "name_resolution.py": "systemctl restart systemd-resolved",  # a step after it asks whether names resolve
    "munge.py": "systemctl restart gpucluster-agent munge",  # it is to change the key; auth.secret proves the new one
}


def test_no_check_restarts_a_service_without_its_proof() -> None:
    """V4: a remedy restarted slurmdbd over a database that takes no record, and slurmdbd ended."""
    source = Path(gpucluster.__file__).parent
    bare = {
        file.name: found[0]
        for room in ROOMS
        for file in (source / room).rglob("*.py")
        if file.name != "remedies.py"
        if (found := re.findall(r"systemctl (?:try-)?restart [a-z-]+(?: [a-z]+)?", file.read_text()))
    }
    assert {
        name: words for name, words in bare.items() if not words.startswith(UNPROVEN.get(name, "?"))
    } == {}


def typed(command: str, folder: Path, *, proofs: int) -> str:
    """What systemctl is asked for, on a machine where each program of a proof ends with this code."""
    programs = {
        "systemctl": 'echo "$@"',
        **dict.fromkeys(("scontrol", "sshd", "nft", "mariadb", "python"), f"exit {proofs}"),
    }
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    command = command.replace(f"{names.VENV}/bin/python", "python").replace(
        "/run/sshd", str(folder / "sshd.run")
    )
    command = command.replace(names.MUNGE_KEY, "/dev/null" if proofs else str(folder / "systemctl"))
    command = command.replace(names.AGENT_RUN, str(folder))
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        capture_output=True,
        text=True,
        env=environment,
        timeout=BOUND_S,
        check=False,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("unit", [one for one in PROVEN if one not in ("slurmd", "sackd")])
def test_unit_whose_proof_fails_goes_on_as_it_is(unit: str, tmp_path: Path) -> None:
    assert typed(remedies.restart(unit), tmp_path, proofs=0) == f"restart {unit}"
    assert typed(remedies.restart(unit), tmp_path, proofs=1) == ""


LISTENS = """\
import socket, sys
controller, closed = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
print(*(one.getsockname()[1] for one in (controller, closed)), flush=True)
closed.close()
sys.stdin.read()
"""


@pytest.mark.parametrize("unit", ["slurmd", "sackd"])
def test_daemon_that_fetches_its_files_starts_again_only_if_a_controller_answers(
    unit: str, tmp_path: Path
) -> None:
    argv = [sys.executable, "-c", LISTENS]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        port, closed = child.stdout.readline().split()
        for servers, answer in (
            (f"127.0.0.1:{port}", f"restart {unit}"),
            (f"127.0.0.1:{closed},127.0.0.1:{port}", f"restart {unit}"),
            (f"127.0.0.1:{closed}", ""),
        ):
            (tmp_path / f"{unit}.env").write_text(f'X_OPTIONS="-N a --conf-server {servers}"\n')
            assert typed(remedies.restart(unit), tmp_path, proofs=0) == answer, servers
        child.stdin.close()


@pytest.mark.parametrize(("read_only", "answer"), [("0", "restart slurmdbd"), ("1", ""), ("", "")])
def test_slurmdbd_starts_again_only_over_a_database_that_takes_records(
    read_only: str, answer: str, tmp_path: Path
) -> None:
    command = remedies.restart("slurmdbd", with_database=True).replace(
        "mariadb --batch", f"echo {read_only} #"
    )
    assert (
        typed(
            command.replace("#", "").replace("--skip-column-names --execute 'SELECT @@GLOBAL.read_only'", ""),
            tmp_path,
            proofs=0,
        )
        == answer
    )
    assert remedies.restart("slurmdbd") == "systemctl restart slurmdbd", (
        "of a database elsewhere nothing is known"
    )


def test_one_unit_that_cannot_start_leaves_the_others() -> None:
    command = remedies.restart("munge", "nfs-server")
    assert command == f"test -s {names.MUNGE_KEY} && systemctl restart munge; systemctl restart nfs-server"
