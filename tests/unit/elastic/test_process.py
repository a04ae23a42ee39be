"""Which process a holder is: gone only when that is certain."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpucluster.elastic import process


def holder_of(pid: int) -> str:
    host, boot, _, nonce = process.me().split("/")
    return f"{host}/{boot}/{pid}.{process._started(pid)}/{nonce}"


def sleeper(*words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", *words], stdin=subprocess.PIPE
    )


def test_we_are_not_over_and_nobody_is_the_same_twice() -> None:
    assert not process.is_over(process.me())
    assert process.me() != process.me()


def test_a_process_that_ended_is_over_also_when_its_number_is_used_again() -> None:
    with sleeper() as one:
        holder = holder_of(one.pid)
        assert not process.is_over(holder)
        one.kill()
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
        assert process.is_over(holder), "a zombie acts no more"
    assert process.is_over(holder)
    assert process.is_over(process.me().replace(".", "9."))


def test_a_number_that_no_process_can_have_is_of_an_unknown_form() -> None:
    """The kernel's door refused it with a traceback, and each standby after the next ended so."""
    host, boot, _, nonce = process.me().split("/")
    holder = f"{host}/{boot}/{10**20}.1/{nonce}"
    assert not process.is_over(holder)
    process.end(holder)


def test_a_process_that_proc_does_not_show_us_is_not_gone(tmp_path: Path) -> None:
    """With hidepid another user's daemon was taken for dead, and both acted."""
    with sleeper() as one:
        assert process._is_hidden(one.pid, tmp_path)
        assert not process._is_hidden(one.pid)
    assert not process._is_hidden(one.pid, tmp_path)


@pytest.mark.parametrize("holder", ["", "x", "a/b/c/d", "head/other-boot/1.1/n", "a/b/1.1/n/e", "//1/"])
def test_of_another_machine_or_an_unknown_form_nothing_is_known(holder: str) -> None:
    assert not process.is_over(holder)
    process.end(holder)


def test_only_a_daemon_is_ended_and_only_that_very_process() -> None:
    with sleeper() as other, sleeper("gpucluster.elastic.daemon") as daemon:
        process.end(holder_of(other.pid))
        process.end(holder_of(daemon.pid).replace(f"{daemon.pid}.", f"{daemon.pid}.1"))
        assert other.poll() is None
        assert daemon.poll() is None
        process.end(holder_of(daemon.pid))
        assert daemon.wait(10) == -9
        other.stdin.close()  # type: ignore[union-attr]
        assert other.wait(10) == 0
