"""Our programs and units against the installed package: the comparison is run by a real shell, in a copy of a machine's tree."""

import shutil
import subprocess
from pathlib import Path

import pytest

import gpucluster
from gpucluster import shipment
from gpucluster.checks import programs
from gpucluster.checks.check import CheckResult, ParseError, QueryOutput
from gpucluster.plan import machine_files, names

PACKAGE = Path(gpucluster.__file__).parent


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine's `/` with the package in its venv, and every file in its place."""
    below = tmp_path / f"{names.VENV}/lib/python3.12/site-packages/gpucluster".lstrip("/")
    for part in ("agent/units", "elastic"):
        shutil.copytree(PACKAGE / part, below / part, ignore=shutil.ignore_patterns("__pycache__"))
    for one in shipment.ours(shipment.sources()):
        place = tmp_path / one.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(one.content)
    return tmp_path


def checked(machine: Path, want: programs.ProgramsWant) -> CheckResult:
    """Run the query with `/` replaced by the machine's tree."""
    (query,) = programs.query_programs(want)
    shell, option, script, zero, *hooks = query.argv
    moved = script.replace(names.VENV, f"{machine}{names.VENV}").replace('"/${', f'"{machine}/${{')
    assert moved.count(str(machine)) == 2
    argv = [shell, option, moved, zero, *(f"{machine}{one}" for one in hooks)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    text = done.stdout.replace(str(machine), "")
    return programs.evaluate_programs(
        programs.parse_programs((QueryOutput(code=done.returncode, stdout=text, stderr=done.stderr),)), want
    )


ALL = programs.ProgramsWant()
COPY = f"{names.VENV}/lib/python3.12/site-packages/gpucluster"


def test_machine_with_all_files_passes(machine: Path) -> None:
    count = len(shipment.ours(shipment.sources()))
    assert checked(machine, ALL).found == f"{count} files as in the installed package"


def test_hosts_need_only_the_files_of_hosts(machine: Path) -> None:
    (machine / "etc/gpucluster/guard.nft").unlink()
    for name in machine_files.HOOKS:
        (machine / "opt/gpucluster/bin" / name).unlink()
    count = len(shipment.of_hosts(shipment.sources()))
    want = programs.ProgramsWant(below=machine_files.OF_HOSTS)
    assert checked(machine, want).found == f"{count} files as in the installed package"
    assert not checked(machine, ALL).is_healthy


def test_changed_and_missing_files_are_installed_again_and_units_start_again(machine: Path) -> None:
    (machine / "opt/gpucluster/bin/resume").write_text("#!/bin/sh\nexit 0\n")
    (machine / "etc/systemd/system/slurmd.service.d/gpucluster.conf").unlink()
    (machine / "etc/systemd/system/gpucluster-mps@.service").write_text("")
    result = checked(machine, ALL)
    drop_in = "/etc/systemd/system/slurmd.service.d/gpucluster.conf"
    template = "/etc/systemd/system/gpucluster-mps@.service"
    assert result.culprits == (f"{names.HOOK_DIR}/resume", template, drop_in)
    assert result.found == (
        f"{names.HOOK_DIR}/resume is another, {template} is another, {drop_in} is missing"
    )
    steps = result.remedy.removeprefix("on {machine}: ").split("; ")
    assert steps == [
        f"install -D -m 755 {COPY}/elastic/hook.py {names.HOOK_DIR}/resume",
        f"install -D -m 644 {COPY}/agent/units{template} {template}",
        f"install -D -m 644 {COPY}/agent/units{drop_in} {drop_in}",
        "systemctl daemon-reload",
        "systemctl try-restart slurmd.service",
    ]
    for step in steps[:3]:
        subprocess.run(
            ["/bin/sh", "-ec", step.replace(" /", f" {machine}/")], check=True, capture_output=True
        )
    assert checked(machine, ALL).is_healthy


def test_machine_without_our_package_is_unknown(tmp_path: Path) -> None:
    (tmp_path / names.VENV.lstrip("/")).mkdir(parents=True)
    with pytest.raises(ParseError, match="exit 3"):
        checked(tmp_path, ALL)


@pytest.mark.parametrize("text", ["same /etc/x", "other /etc/x /opt/x", "same /etc/x /opt/x y"])
def test_other_lines_are_refused(text: str) -> None:
    with pytest.raises(ParseError, match="the comparison printed"):
        programs.parse_programs((QueryOutput(code=0, stdout=text),))
