"""Which process a holder is: gone only when that is certain."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import BOUND_S

from gpucluster.elastic import lease_holder


def holder_of(pid: int) -> str:
    host, boot, _, nonce = lease_holder.me().split("/")
    return f"{host}/{boot}/{pid}.{lease_holder._started(pid)}/{nonce}"


def sleeper(*words: str) -> "subprocess.Popen[bytes]":
    """A Python process that runs until its input ends. Popen returns before the kernel shows the new command line."""
    program = "import sys; print(flush=True); sys.stdin.read()"
    made = subprocess.Popen(
        [sys.executable, "-c", program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert made.stdout is not None
    assert made.stdout.readline() == b"\n"
    return made


def test_running_process_has_not_ended_and_each_name_is_unique() -> None:
    assert not lease_holder.is_over(lease_holder.me())
    assert lease_holder.me() != lease_holder.me()


def test_ended_process_is_recognised_after_its_pid_is_used_again() -> None:
    with sleeper() as one:
        holder = holder_of(one.pid)
        assert not lease_holder.is_over(holder)
        one.kill()
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
        assert lease_holder.is_over(holder), "a zombie acts no more"
    assert lease_holder.is_over(holder)
    assert lease_holder.is_over(lease_holder.me().replace(".", "9."))


def test_impossible_pid_is_an_unknown_form() -> None:
    """The kernel's door refused it with a traceback, and each standby after the next ended so."""
    host, boot, _, nonce = lease_holder.me().split("/")
    holder = f"{host}/{boot}/{10**20}.1/{nonce}"
    assert not lease_holder.is_over(holder)
    lease_holder.end(holder)


def test_process_hidden_by_proc_has_not_ended(tmp_path: Path) -> None:
    """With hidepid another user's daemon was taken for dead, and both acted."""
    with sleeper() as one:
        assert lease_holder._is_hidden(one.pid, tmp_path)
        assert not lease_holder._is_hidden(one.pid)
    assert not lease_holder._is_hidden(one.pid, tmp_path)


@pytest.mark.parametrize("holder", ["", "x", "a/b/c/d", "head/other-boot/1.1/n", "a/b/1.1/n/e", "//1/"])
def test_name_of_another_machine_or_unknown_form_has_not_ended(holder: str) -> None:
    assert not lease_holder.is_over(holder)
    lease_holder.end(holder)


def test_only_the_named_daemon_is_killed() -> None:
    with sleeper() as other, sleeper("gpucluster.elastic.daemon") as daemon:
        lease_holder.end(holder_of(other.pid))
        lease_holder.end(holder_of(daemon.pid).replace(f"{daemon.pid}.", f"{daemon.pid}.1"))
        assert other.poll() is None
        assert daemon.poll() is None
        lease_holder.end(holder_of(daemon.pid))
        assert daemon.wait(BOUND_S) == -9
        other.stdin.close()  # type: ignore[union-attr]
        assert other.wait(BOUND_S) == 0
