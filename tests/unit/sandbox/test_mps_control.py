"""The stand-in of nvidia-cuda-mps-control: one daemon for each folder, a server of one user, and a refusal of all else."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import BOUND_S, eventually

from gpucluster.files import shipped

PROGRAM = shipped("playbooks") / "stand-ins/nvidia-cuda-mps-control"
WHO = "(stand-in of gpucluster's sandbox)"
NOBODY = 65534


class Gpu:
    """The pipes and the daemon of one GPU."""

    def __init__(self, folder: Path) -> None:
        self.pipes, self.program = folder / "pipes", folder / "nvidia-cuda-mps-control"
        self.pipes.mkdir(parents=True)
        self.pipes.chmod(0o755)  # whatever the umask
        (folder / "nvidia3").touch()
        self.program.write_text(PROGRAM.read_text().replace('DEV = "/dev"', f'DEV = "{folder}"'))

    def popen(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        found = {"CUDA_VISIBLE_DEVICES": "3", "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes), **env}
        command = [sys.executable, "-IS", str(self.program), *argv]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=found, stdin=pipe, stdout=pipe, text=True)

    def run(self, *argv: str, say: str = "", **env: str) -> tuple[int, str]:
        process = self.popen(*argv, **env)
        out, _ = process.communicate(say, timeout=BOUND_S)
        return process.returncode, out.strip()

    def connect(self, uid: int = -1) -> tuple[socket.socket, str]:
        """A client as CUDA would be; `uid`: of another user, who is the peer that the kernel names."""
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(BOUND_S)
        if uid >= 0:
            os.seteuid(uid)
        try:
            client.connect(str(self.pipes / "control"))
        except OSError:
            client.close()
            raise
        finally:
            if uid >= 0:
                os.seteuid(0)
        client.sendall(b"client")
        return client, client.recv(4096).decode().strip()


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    """pytest's own folders are closed to other users."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Gpu(Path(folder))


@pytest.fixture
def running(gpu: Gpu) -> Iterator[Gpu]:
    daemon = gpu.popen("-f")
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == f"Starting control daemon using socket {gpu.pipes}/control\n"
    eventually("the daemon answers", lambda: gpu.run(say="get_server_list\n")[0] == 0)
    yield gpu
    daemon.kill()
    daemon.communicate(timeout=BOUND_S)


def test_a_folder_has_one_daemon(running: Gpu) -> None:
    assert running.run("-f") == (1, f"An instance of this daemon is already running {WHO}")


def test_it_says_in_its_log_that_it_is_a_stand_in(running: Gpu) -> None:
    assert WHO.strip("()") in (running.pipes / "control.log").read_text()


def test_clients_of_one_user_share_a_server(running: Gpu) -> None:
    assert running.run(say="get_server_list\n") == (0, "")
    first, said = running.connect()
    second, also = running.connect()
    assert said == also == f"connected as user {os.getuid()} {WHO}"
    code, server = running.run(say="get_server_list\n")
    assert (code, server.isdecimal()) == (0, True)
    assert running.run(say=f"get_client_list {server}\n") == (0, f"{os.getpid()}\n{os.getpid()}")
    first.close()
    second.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_client_of_another_user_is_refused_until_the_first_has_ended(running: Gpu) -> None:
    mine, _ = running.connect()
    other, said = running.connect(NOBODY)
    assert said == f"error: the MPS server of this GPU has clients of user 0 {WHO}"
    other.close()
    mine.close()

    def connected() -> bool:
        client, answer = running.connect(NOBODY)
        client.close()
        return answer == f"connected as user {NOBODY} {WHO}"

    eventually("the other user is connected", connected)


def test_quit_ends_the_daemon(running: Gpu) -> None:
    assert running.run(say="quit\n") == (0, "")
    assert running.run("-f", CUDA_VISIBLE_DEVICES="9")[0] == 1
    eventually("the daemon has ended", lambda: not (running.pipes / "control").exists())
    code, said = running.run(say="get_server_list\n")
    assert (code, said) == (1, f"Cannot find MPS control daemon process in {running.pipes} {WHO}")


@pytest.mark.parametrize(
    ("argv", "env", "words"),
    [
        (("-f",), {"CUDA_VISIBLE_DEVICES": "0,1"}, "'0,1' is not the number of one GPU"),
        (("-f",), {"CUDA_VISIBLE_DEVICES": "4"}, "'4' is not the number of one GPU"),
        (("-f",), {"CUDA_MPS_PIPE_DIRECTORY": "/none"}, "the folder /none is missing"),
        (("-d",), {}, "-d: not known"),
    ],
)
def test_what_it_does_not_know_is_refused(
    gpu: Gpu, argv: tuple[str, ...], env: dict[str, str], words: str
) -> None:
    code, said = gpu.run(*argv, **env)
    assert code == 1
    assert words in said
    assert WHO in said


def test_an_unknown_command_is_refused(running: Gpu) -> None:
    code, said = running.run(say="set_default_active_thread_percentage 50\n")
    assert (code, said.startswith("error: set_default_active_thread_percentage 50: not known")) == (1, True)
