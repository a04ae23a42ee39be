"""A lock of a run that is dead goes; one of a living run, or of another host, stays."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from gpucluster.engine.locks import break_stale
from gpucluster.engine.target import Target
from gpucluster.errors import StateError

DEAD = 2**22 + 1  # above any pid that Linux gives


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
def test_a_stale_lock_goes_when(tmp_path: Path, content: str) -> None:
    target = a_target(tmp_path)
    path = lock(target, content)
    assert break_stale(target) == (path,)
    assert not path.exists()


def test_a_lock_of_another_host_stays(tmp_path: Path) -> None:
    path = lock(a_target(tmp_path), by(DEAD, "elsewhere"))
    with pytest.raises(StateError, match=r"locked by process .* on 'elsewhere'"):
        break_stale(a_target(tmp_path))
    assert path.exists()


def test_a_lock_of_a_living_run_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lock(a_target(tmp_path), by(7))
    monkeypatch.setattr(Path, "readlink", lambda _: Path("/opt/bin/pulumi"))
    with pytest.raises(StateError, match=r"another run .process 7. is working on 'burst'"):
        break_stale(a_target(tmp_path))
    assert path.exists()


def test_another_stack_s_lock_is_not_ours(tmp_path: Path) -> None:
    other = Target(stack="other", state_dir=tmp_path, pulumi=Path("pulumi"))
    path = lock(other, by(DEAD))
    assert break_stale(a_target(tmp_path)) == ()
    assert path.exists()


def test_attributes_that_were_cut_off_go_and_whole_ones_stay(tmp_path: Path) -> None:
    """A kill in the middle of a checkpoint left an empty file: every later run ended with `failed to load checkpoint: EOF`."""
    target = a_target(tmp_path)
    folder = target.backend / ".pulumi" / "stacks" / "gpucluster"
    folder.mkdir(parents=True)
    files = {"burst.json": "{}", "burst.json.attrs": "", "burst.json.bak.attrs": "{}", "other.json.attrs": ""}
    for name, content in files.items():
        (folder / name).write_text(content)
    assert break_stale(target) == (folder / "burst.json.attrs",)
    assert sorted(p.name for p in folder.iterdir()) == [
        "burst.json",
        "burst.json.bak.attrs",
        "other.json.attrs",
    ]
