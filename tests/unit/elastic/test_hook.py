"""The hook: a request is whole and on disk, or the exit says so; nothing of the environment is needed."""

import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import BOUND_S

from gpucluster.elastic import hook, spool, waiter
from gpucluster.plan import names

SOURCE = Path(hook.__file__)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The hook under its three names, as on the head but for its spool and bell."""
    text = SOURCE.read_text().replace(names.SPOOL, str(tmp_path / "spool"))
    text = text.replace(names.WAKE_SOCKET, str(tmp_path / "wake"))
    for name in hook.KINDS:
        (tmp_path / name).write_text(text)
    return tmp_path


def call(path: Path, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-IS", str(path), *arguments]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


def test_constants_equal_the_names_of_the_plan() -> None:
    assert (hook.SPOOL, hook.WAKE_SOCKET) == (names.SPOOL, names.WAKE_SOCKET)
    assert str(Path(waiter.STATE_FILE).parent) == names.SPOOL


@pytest.mark.parametrize("module", [hook, waiter])
def test_first_line_has_one_argument_because_the_kernel_does_not_split(module: object) -> None:
    assert Path(str(module.__file__)).read_text().startswith("#!/usr/bin/python3 -IS\n")  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", hook.KINDS)
def test_each_program_name_is_a_kind_that_the_reader_returns(installed: Path, kind: str) -> None:
    assert call(installed / kind, "h200-1a-[1-4000]").returncode == 0
    (found,) = spool.read(installed / "spool")
    assert (found.kind, found.hostlist, found.jobs) == (kind, "h200-1a-[1-4000]", ())
    assert not list((installed / "spool" / "tmp").iterdir())


def test_job_map_is_copied_completely(installed: Path) -> None:
    body = json.dumps({"all_nodes_resume": "a-[1-2]", "jobs": [{"job_id": 7, "nodes_alloc": "a-[1-2]"}]})
    (installed / "map").write_text(body)
    call(installed / "resume", "a-[1-2]", SLURM_RESUME_FILE=str(installed / "map"))
    assert [c.jobs for c in spool.read(installed / "spool")] == [(7,)]


def test_missing_job_map_is_no_error(installed: Path) -> None:
    assert call(installed / "resume", "a-1", SLURM_RESUME_FILE="/proc/1/nothing").returncode == 0
    assert len(spool.read(installed / "spool")) == 1


def test_hook_wakes_the_daemon(installed: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.bind(str(installed / "wake"))
        bell.settimeout(BOUND_S)
        call(installed / "suspend", "a-1")
        assert bell.recv(64) == b"spool"


def test_closed_descriptors_as_in_22_05_are_harmless(installed: Path) -> None:
    def close() -> None:
        os.closerange(0, 3)

    done = subprocess.Popen([sys.executable, "-IS", str(installed / "resume"), "a-1"], preexec_fn=close)  # noqa: PLW1509
    assert done.wait(BOUND_S) == 0
    assert [c.hostlist for c in spool.read(installed / "spool")] == ["a-1"]


def test_full_disk_gives_exit_1_and_leaves_no_draft(installed: Path) -> None:
    """Each of Slurm's calls left its half, until the daemon was started anew."""
    (installed / "map").write_text("x" * 100_000)

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    argv = [sys.executable, "-IS", str(installed / "resume"), "a-1"]
    environ = {"SLURM_RESUME_FILE": str(installed / "map")}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, preexec_fn=no_room)
    assert (done.returncode, "not in the spool" in done.stderr) == (1, True)
    assert not list((installed / "spool" / "tmp").iterdir())


def test_unwritable_spool_gives_exit_1(installed: Path) -> None:
    (installed / "spool").write_text("a file, not a folder")
    done = call(installed / "resume", "a-1")
    assert done.returncode == 1
    assert "resume a-1 is not in the spool" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_wrong_call_is_refused(installed: Path) -> None:
    assert call(installed / "resume").returncode == 2
    (installed / "other").write_text((installed / "resume").read_text())
    assert call(installed / "other", "a-1").returncode == 2
