"""Commands that enter a machine, while the machine shuts down. A PID namespace is the machine: no cluster is needed."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucluster.sandbox.machines import inside

NSENTER = shutil.which("nsenter")
pytestmark = pytest.mark.skipif(os.geteuid() != 0 or NSENTER is None, reason="namespaces need root")

BOUND_S = 120.0  # only a command that hangs takes so long
UNSHARE = ("unshare", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child")
SHUTDOWN = """
echo up; read -r _
exec "$0" -c 'echo stopping; kill -STOP -1; read -r _; kill -KILL -1; echo killed; read -r _; exit 0'
"""


class PidNamespace:
    """A machine of one PID namespace. `shutdown` and `kill_all` do what systemd-shutdown does to all processes."""

    def __init__(self, folder: Path) -> None:
        program = folder / "systemd-shutdown"  # the kernel shows this name for its PID 1
        program.symlink_to(shutil.which("dash") or "/bin/sh")
        self._process = subprocess.Popen(
            [*UNSHARE, "sh", "-c", SHUTDOWN, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._line() == "up"
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self.leader = int(children.read_text())

    def shutdown(self) -> None:
        """Stop every process of the machine."""
        self._answer("stopping")

    def kill_all(self) -> None:
        """Kill every process of the machine but PID 1."""
        self._answer("killed")

    def end(self) -> None:
        """Kill PID 1, so the kernel kills the rest."""
        os.kill(self.leader, signal.SIGKILL)
        self._process.wait(BOUND_S)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _answer(self, expected: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._line() == expected

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[PidNamespace]:
    made = PidNamespace(tmp_path)
    yield made
    made.close()


def entered(machine: PidNamespace, *command: str) -> subprocess.Popen[str]:
    argv = inside.enter_argv(machine.leader, command, user=None, term="dumb")
    return subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def waiting(machine: PidNamespace) -> subprocess.Popen[str]:
    """A command that runs in the machine and does not end by itself."""
    command = entered(machine, "sh", "-c", "echo runs; sleep 1000")
    assert command.stdout is not None
    assert command.stdout.readline() == "runs\n"
    return command


def is_stopped(pid: int) -> bool:
    return "\nState:\tT" in Path(f"/proc/{pid}/status").read_text()


def stopped_soon(pid: int) -> bool:
    """Whether the process stops within half a second. A slow machine can miss a stop, but never report a false one."""
    for _ in range(50):
        if is_stopped(pid):
            return True
        time.sleep(0.01)
    return False


def finished(command: subprocess.Popen[str]) -> tuple[int, str]:
    try:
        _, errors = command.communicate(timeout=BOUND_S)
    finally:
        command.kill()
    return command.returncode, errors


STOPPED = (inside.MACHINE_STOPPED, inside.STOPPED_WORDS + "\n")


def test_command_ends_when_the_machine_stops_and_kills_all_its_processes(machine: PidNamespace):
    """`nsenter --pid` stops itself when its child is stopped, and nothing continued it: the command hung."""
    command = waiting(machine)
    machine.shutdown()
    assert not stopped_soon(command.pid)
    machine.kill_all()
    assert finished(command) == STOPPED


def test_command_ends_when_the_machine_is_killed(machine: PidNamespace):
    command = waiting(machine)
    machine.end()
    assert finished(command) == STOPPED


def test_command_that_is_killed_in_a_running_machine_has_the_code_of_the_signal(machine: PidNamespace):
    assert finished(entered(machine, "sh", "-c", "kill -KILL $$")) == (137, "")


@pytest.mark.parametrize(
    ("command", "code"), [("exit 37", 37), ("exit 255", 255), ("true", 0), ("exit 130", 130)]
)
def test_command_keeps_its_own_exit_code(machine: PidNamespace, command: str, code: int):
    assert finished(entered(machine, "sh", "-c", command)) == (code, "")


def test_command_reads_our_input_and_no_word_of_it_is_shell_text(machine: PidNamespace):
    command = entered(machine, "sh", "-c", 'cat; echo "$1"', "$(reboot)", "$(exit 9); 'x")
    assert command.communicate("a b\n", timeout=BOUND_S)[0] == "a b\n$(exit 9); 'x\n"


def test_command_is_a_program_of_the_machine_and_sees_only_its_processes(machine: PidNamespace):
    """`kill` is a word of the shell, too: it must not reach a process outside the machine."""
    command = entered(machine, "kill", "-0", str(os.getpid()))
    assert finished(command)[0] == 1
