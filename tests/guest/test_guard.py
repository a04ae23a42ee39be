"""The guard in a guest with Debian's kernel: who reaches what it guards, and by which sockets."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support import guest

from gpucluster import agent
from gpucluster.checks import guard
from gpucluster.plan import guard_rules, mounts

PROGRAM = Path(guest.__file__).parent / "programs" / "guarded_ports.py"
MODULES = Path(agent.__file__).parent / "units/etc/modprobe.d/gpucluster.conf"
GUARDED = {988, 1021, 2049, 6890, 20049}
OPEN = {443, 29500}  # HTTPS, and NCCL over TCP
ULA = "fd00::1"
GUARDED_6 = [*((ULA, port) for port in (988, 1021, 2049, 6890)), ("::1", 2049), ("fd00:ec2::254", 80)]
MAPPED = [("::ffff:10.0.0.1", 2049), ("::ffff:127.0.0.1", 20049)]  # packets of IPv4 by a socket of IPv6
NFS_FLAGS = ("resvport", "noresvport")
LOWEST = 1024  # below it only root binds

Tries = tuple[Mapping[str, Any], ...]


def kernel_options(options: str) -> str:
    """What of a mount's options decides the port that the kernel's client comes from. The last one counts."""
    return ",".join(("vers=4.1", *(word for word in options.split(",") if word in NFS_FLAGS)))


MOUNTS = {
    "nfs": kernel_options(mounts.NFS),
    "efs": kernel_options(mounts.EFS),
    # mount.efs adds noresvport unless the options have the word
    "helper": kernel_options(mounts.SITE_EFS_HELPER),
}


@pytest.fixture(scope="module")
def tries(tmp_path_factory: pytest.TempPathFactory) -> Tries:
    asked = [*dict.fromkeys(MOUNTS.values())]
    files = {
        "rules.nft": guard_rules.rules(guard_rules.HEAD_USERS),
        "mounts.json": json.dumps(asked),
        "modprobe.conf": MODULES.read_text(),
        "attempt.py": guard.ATTEMPT,
    }
    return tuple(map(json.loads, guest.run(PROGRAM.read_text(), files, tmp_path_factory.mktemp("guest"))))


def found(tries: Tries, owner: str, way: str) -> dict[int, str]:
    return {port: words for (_, port), words in found_at(tries, owner, way).items()}


def found_at(tries: Tries, owner: str, way: str) -> dict[tuple[str, int], str]:
    return {
        (one["host"], one["port"]): one["found"]
        for one in tries
        if (one["owner"], one.get("way")) == (owner, way)
    }


@pytest.mark.parametrize("way", ["tcp", "mptcp"])
def test_sockets_of_a_user_are_refused(tries: Tries, way: str) -> None:
    answers = found(tries, "user", way)
    assert {port: answers[port] for port in (*GUARDED, 80)} == dict.fromkeys(
        (*GUARDED, 80), "No route to host"
    )
    assert {answers[port] for port in OPEN} == {"connected"}


def test_socket_of_the_kernel_that_a_user_opens_is_dropped(tries: Tries) -> None:
    """Regression (X2): the TCP socket inside an AF_SMC socket has no owner, and no rule matched it."""
    answers = found(tries, "user", "smc")
    assert {port: answers[port] for port in (*GUARDED, 80)} == dict.fromkeys((*GUARDED, 80), "dropped")
    assert {answers[port] for port in OPEN} == {"connected"}, "or the guest has no SMC, and nothing is shown"


@pytest.mark.parametrize("way", ["tcp6", "mptcp6"])
def test_sockets_of_a_user_are_refused_over_ipv6(tries: Tries, way: str) -> None:
    answers = found_at(tries, "user", way)
    refused = {to: answers.pop(to) for to in [*GUARDED_6, *MAPPED]}
    assert refused == dict.fromkeys(GUARDED_6, "Permission denied") | dict.fromkeys(
        MAPPED, "No route to host"
    )
    assert answers == dict.fromkeys(((ULA, port) for port in OPEN), "connected")
    assert set(found_at(tries, "root", way).values()) == {"connected"}
    assert found(tries, "slurm", way)[80] == "connected"


def test_socket_of_the_kernel_is_dropped_over_ipv6(tries: Tries) -> None:
    answers = found_at(tries, "user", "smc6")
    assert {to: answers.pop(to) for to in (*GUARDED_6, *MAPPED)} == dict.fromkeys(
        (*GUARDED_6, *MAPPED), "dropped"
    )
    assert answers == dict.fromkeys(((ULA, port) for port in OPEN), "connected")
    assert set(found_at(tries, "user", "smc6 from 1000").values()) == {"Permission denied"}
    privileged = found(tries, "root", "smc6 from 1000")
    assert {privileged.pop(port) for port in (80, 6890)} == {"dropped"}
    assert set(privileged.values()) == {"connected"}


@pytest.mark.parametrize("way", ["tcp", "tcp from 1000", "tcp6", "tcp6 from 1000"])
def test_forwarded_packets_of_a_users_namespace_are_dropped(tries: Tries, way: str) -> None:
    """They have no owner. There the user is root, and binds every port."""
    answers = found(tries, "namespace", way)
    assert {answers.pop(port) for port in OPEN} == {"connected"}
    assert answers == dict.fromkeys((80, *GUARDED - {20049}), "dropped"), "the proxy is at 127.0.0.1"


def test_user_loads_no_module_of_smc_with_the_images_settings(tries: Tries) -> None:
    answers = found(tries, "user", "smc without its module")
    assert answers == {443: "[Errno 97] Address family not supported by protocol"}


def test_check_sees_what_a_user_reaches(tries: Tries) -> None:
    """Port 1 has no server and no guard: its refusal is the server's."""
    reached = {one["way"]: one["reached"] for one in tries if one["owner"] == "check"}
    ways = ("TCP", "MPTCP", "SMC")
    assert sorted(reached["guarded"]) == sorted((*(f"port 1 by {way}" for way in ways), "tried"))
    ports = (2049, 988, 6890, 20049, 1)
    assert sorted(reached["open"]) == sorted(
        (*(f"port {p} by {way}" for p in ports for way in ways), "tried")
    )


def test_daemon_reaches_metadata_and_no_file_server(tries: Tries) -> None:
    answers = found(tries, "slurm", "tcp")
    assert answers.pop(80) == "connected"
    assert {port for port, words in answers.items() if words == "connected"} == OPEN


def test_root_reaches_everything(tries: Tries) -> None:
    assert set(found(tries, "root", "tcp").values()) == {"connected"}


@pytest.mark.parametrize("mount", MOUNTS)
def test_our_mounts_reach_their_servers(tries: Tries, mount: str) -> None:
    """The kernel's own client comes from a port that only root binds."""
    clients = {one["port"]: one["clients"] for one in tries if one.get("options") == MOUNTS[mount]}
    assert clients.keys() == {988, 2049, 20049}
    for port, ports in clients.items():
        assert ports, port
        assert max(ports) < LOWEST


def test_socket_of_the_kernel_from_a_privileged_port_passes(tries: Tries) -> None:
    """As the client of Lustre, and that of NFS on older kernels: on Debian's its socket has a file of root."""
    answers = found(tries, "root", "smc from 1000")
    assert {answers.pop(port) for port in (80, 6890)} == {"dropped"}, "nothing of the kernel asks these"
    assert set(answers.values()) == {"connected"}
    assert set(found(tries, "user", "smc from 1000").values()) == {"Permission denied"}
