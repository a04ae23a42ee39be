"""The check of a user's login shell: its script runs in a real bash, with stand-ins of Slurm's commands that are programs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpucluster.checks.check import CheckResult, CheckStatus, QueryOutput
from gpucluster.checks.login_shell import PROGRAMS, LoginShell, evaluate_login, parse_login, query_login

WANT = LoginShell(options=("--partition=gpu", "--nodes=1"))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A path with programs, which are copies of true(1), and the folder that stands for the user's empty home.

    Its profile stands for /etc/profile.d: bash reads it in the same way.
    """
    (tmp_path / "home").mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        shutil.copy("/bin/true", programs / name)
    mktemp = programs / "mktemp"
    mktemp.write_text(f"#!/bin/sh\necho {tmp_path / 'home'}\n")
    mktemp.chmod(0o755)
    profile(tmp_path, f"PATH={programs}:$PATH\n")  # /etc/profile sets the path anew
    return tmp_path


def profile(site: Path, text: str) -> None:
    with (site / "home/.bash_profile").open("a") as file:
        file.write(text)


def checked(site: Path, **environment: str) -> CheckResult:
    (query,) = query_login(WANT)
    assert query.as_user
    path = f"{site / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        query.argv, capture_output=True, text=True, check=False, env={"PATH": path, **environment}
    )
    answer = QueryOutput(code=done.returncode, stdout=done.stdout, stderr=done.stderr)
    return evaluate_login(parse_login((answer,)), WANT)


def test_shell_with_slurms_commands_passes(site: Path) -> None:
    profile(site, "echo Welcome\n")
    assert checked(site).verdict is CheckStatus.PASS


def wrapper(site: Path) -> None:
    before = site / "before"
    before.mkdir()
    shutil.copy(site / "bin/mktemp", before / "sbatch")
    profile(site, f"PATH={before}:$PATH\n")


def refused(site: Path) -> None:
    (site / "bin/sbatch").unlink()
    shutil.copy("/bin/false", site / "bin/sbatch")


@pytest.mark.parametrize(
    ("do", "words"),
    [
        (lambda site: profile(site, "exit 0\n"), "the login shell ends before it runs a command"),
        (wrapper, "/before/sbatch, which is no program of Slurm"),
        (
            lambda site: profile(site, "squeue() { true; }; export -f squeue\n"),
            "squeue is a function of the shell",
        ),
        (lambda site: profile(site, "export SLURM_CONF=/tmp/other.conf\n"), "SLURM_CONF is /tmp/other.conf"),
        (lambda site: (site / "bin/srun").unlink(), "srun is not in the path"),
        (refused, "exit 1: no output"),
    ],
    ids=["exit", "wrapper", "function", "conf", "missing", "refused"],
)
def test_what_a_user_meets_and_root_does_not_is_found(site: Path, do, words: str) -> None:
    """V5: each of these passed, because the checks asked as root and in no login shell."""
    do(site)
    found = checked(site)
    assert found.verdict is CheckStatus.FAIL
    assert words in found.found
