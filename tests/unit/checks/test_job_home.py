"""The script of `job.home`, run in real folders: it writes a program and runs it, and leaves nothing."""

import os
import subprocess
from pathlib import Path

import pytest

from gpucluster.checks.check import CheckStatus, QueryOutput
from gpucluster.checks.user_files import JobHomeWant, evaluate_job, parse_job, query_job

WANT = JobHomeWant(nodes=1)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    made = tmp_path / "home"
    made.mkdir()
    getent = tmp_path / "bin/getent"
    getent.write_text(f"#!/bin/sh\necho 'ada:x:1000:1000::{made}:/bin/sh'\n")
    getent.chmod(0o755)
    return made


def ran(home: Path, *before: str) -> str:
    """The answer of a node whose user has this home."""
    (query,) = query_job(WANT)
    shell = query.argv[1:]
    environment = {
        **os.environ,
        "PATH": f"{home.parent / 'bin'}:{os.environ['PATH']}",
        "SLURMD_NODENAME": "n1",
    }
    done = subprocess.run([*before, *shell], capture_output=True, text=True, check=True, env=environment)
    return done.stdout


def result(text: str):
    return evaluate_job(parse_job((QueryOutput(code=0, stdout=text),)), WANT)


def test_home_in_which_a_program_runs_passes_and_stays_empty(home: Path) -> None:
    assert ran(home) == "n1 ok\n"
    assert list(home.iterdir()) == []
    assert result("n1 ok\n").verdict is CheckStatus.PASS


def test_home_that_is_no_folder_fails(home: Path) -> None:
    home.rmdir()
    home.write_text("")
    found = result(ran(home))
    assert found.verdict is CheckStatus.FAIL
    assert "home" in found.found


def test_home_without_exec_fails(home: Path) -> None:
    """V5: /home was mounted noexec, and no program of a user ran; the check only wrote a file."""
    mounted = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o noexec none {home} && exec "$@"', "sh")
    found = result(ran(home, *mounted))
    assert found.verdict is CheckStatus.FAIL
    assert "Permission denied" in found.found
    assert found.culprits == ("n1",)
