"""The ports of control planes."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpucluster.sandbox.kubernetes import loopback
from gpucluster.sandbox.kubernetes.processes import Processes

HOLDER = """
import sys
from gpucluster.sandbox.kubernetes.loopback import reserved
mark = reserved(int(sys.argv[1]))
print("held" if mark else "taken", flush=True)
sys.stdin.read()
"""


def test_two_control_planes_of_a_process_share_no_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may listen on its port after it is ready, as Kueue does on that of its metrics."""
    monkeypatch.setattr(loopback, "is_free", lambda _: True)
    first, second = Processes(tmp_path), Processes(tmp_path)
    mine, others = first.ports(), second.ports()
    taken = [next(mine), next(mine)]
    assert next(others) not in taken
    first.stop()
    again = Processes(tmp_path)
    assert next(again.ports()) == taken[0]
    second.stop()
    again.stop()


@pytest.mark.loopback
def test_port_is_reserved_among_processes_until_the_holder_is_killed() -> None:
    port = 20011
    argv = [sys.executable, "-c", HOLDER, str(port)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        held = holder.stdout.readline() == "held\n"
        assert loopback.reserved(port) is None
        holder.kill()
        holder.wait()
    if held:  # else another test run has it
        mark = loopback.reserved(port)
        assert mark is not None
        mark.close()
