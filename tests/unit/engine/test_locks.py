"""Locks of dead runs are removed. Locks of running processes and of other hosts stay."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from gpucluster.engine.locks import break_stale
from gpucluster.engine.target import Target
from gpucluster.errors import StateError

DEAD = 2**22 + 1  # larger than any pid of Linux


def a_target(tmp_path: Path) -> Target:
    return Target(stack="burst", state_dir=tmp_path, pulumi=Path("pulumi"))


def lock(target: Target, content: str) -> Path:
    folder = target.backend / ".pulumi" / "locks" / "organization" / "gpucluster" / target.stack
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "0b2d.json"
    path.write_text(content)
    return path


def by(pid: Any, host: str | None = None) -> str:
    return json.dumps({"pid": pid, "hostname": host or socket.gethostname(), "username": "root"})


STALE = [
    ("its process is gone", by(DEAD)),
    ("its number is another program's now", by(os.getpid())),
    ("it was cut off while it was written", '{"pid": 1'),
    ("it is empty", ""),
    ("it is not what Pulumi writes", "[]"),
]


@pytest.mark.parametrize("content", [r[1] for r in STALE], ids=[r[0] for r in STALE])
def test_stale_lock_is_removed(tmp_path: Path, content: str) -> None:
    target = a_target(tmp_path)
    path = lock(target, content)
    assert break_stale(target) == (path,)
    assert not path.exists()


def test_lock_of_another_host_is_not_removed(tmp_path: Path) -> None:
    path = lock(a_target(tmp_path), by(DEAD, "elsewhere"))
    with pytest.raises(StateError, match=r"locked by process .* on 'elsewhere'"):
        break_stale(a_target(tmp_path))
    assert path.exists()


def test_lock_of_running_process_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lock(a_target(tmp_path), by(7))
    monkeypatch.setattr(Path, "readlink", lambda _: Path("/opt/bin/pulumi"))
    with pytest.raises(StateError, match=r"another run .process 7. uses .burst'"):
        break_stale(a_target(tmp_path))
    assert path.exists()


def test_lock_of_another_stack_is_ignored(tmp_path: Path) -> None:
    other = Target(stack="other", state_dir=tmp_path, pulumi=Path("pulumi"))
    path = lock(other, by(DEAD))
    assert break_stale(a_target(tmp_path)) == ()
    assert path.exists()
