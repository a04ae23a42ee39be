"""The ports of control planes."""

from pathlib import Path

import pytest

from gpucluster.sandbox.kubernetes import processes
from gpucluster.sandbox.kubernetes.processes import Processes


def test_two_control_planes_of_a_process_share_no_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may listen on its port after it is ready, as Kueue does on that of its metrics."""
    monkeypatch.setattr(processes, "free", lambda _: True)
    first, second = Processes(tmp_path), Processes(tmp_path)
    mine, others = first.ports(), second.ports()
    taken = [next(mine), next(mine)]
    assert next(others) not in taken
    first.stop()
    assert next(Processes(tmp_path).ports()) == taken[0]
    second.stop()
