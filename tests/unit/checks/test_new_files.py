"""The query for owners and modes, with the real stat: a machine that has just booted gets its last files a little later."""

import getpass
import subprocess
import threading
from pathlib import Path

import pytest

from gpucluster.checks import modes
from gpucluster.checks.check import CheckResult, CheckStatus, QueryOutput

AFTER_S = 1.5


def verdict_of(*paths: Path) -> CheckResult:
    files = tuple(
        modes.FileWant(path=str(one), owner=getpass.getuser(), modes=("600", "644")) for one in paths
    )
    want = modes.FilesWant(files=files, heals_missing="make it")
    (query,) = modes.query_modes(want)
    done = subprocess.run(query.argv, capture_output=True, text=True, check=False, timeout=query.limit_s)
    output = QueryOutput(code=done.returncode, stdout=done.stdout, stderr=done.stderr)
    return modes.evaluate_modes(modes.parse_modes((output,)), want)


def test_file_that_comes_a_little_later_is_waited_for(tmp_path: Path) -> None:
    there, late = tmp_path / "there", tmp_path / "a late one"
    there.touch()
    timer = threading.Timer(AFTER_S, late.touch)
    timer.start()
    assert verdict_of(there, late).verdict is CheckStatus.PASS
    timer.join()


def test_file_that_never_comes_is_missing(tmp_path: Path) -> None:
    there, never = tmp_path / "there", tmp_path / "never"
    there.touch()
    found = verdict_of(there, never)
    assert (found.verdict, found.culprits) == (CheckStatus.FAIL, (str(never),))
    assert found.found == f"{never} is missing"


@pytest.mark.parametrize(("packaged", "verdict"), [(False, CheckStatus.FAIL), (True, CheckStatus.PASS)])
def test_missing_file_of_the_package_is_a_fault_of_files_ours_alone(
    packaged: bool, verdict: CheckStatus
) -> None:
    """One fault, one check. The agent does not install programs, and that was the remedy here."""
    want = modes.FileWant(path="/opt/x", owner="root", modes=("755",), packaged=packaged)
    found = modes.evaluate_modes({}, modes.FilesWant(files=(want,), heals_missing="systemctl restart x"))
    assert found.verdict is verdict
