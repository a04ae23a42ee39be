"""Our programs and units against the installed package: the comparison is run by a real shell, in a copy of a machine's tree."""

import base64
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpucluster
from gpucluster import shipment
from gpucluster.checks import limits, programs, remedies
from gpucluster.checks.check import CheckResult, CheckStatus, ParseError, QueryOutput
from gpucluster.plan import machine_files, names

PACKAGE = Path(gpucluster.__file__).parent


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine's `/` with the package in its venv, and every file in its place."""
    below = tmp_path / f"{names.VENV}/lib/python3.12/site-packages/gpucluster".lstrip("/")
    for part in ("agent/units", "elastic"):
        shutil.copytree(PACKAGE / part, below / part, ignore=shutil.ignore_patterns("__pycache__"))
    record(below.parent)
    for one in shipment.ours(shipment.sources()):
        place = tmp_path / one.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(one.content)
    return tmp_path


def record(folder: Path) -> None:
    """Write what pip writes for a wheel: a hash of each file; it compiles some and records them without one."""
    info = folder / "gpucluster-0.1.0.dist-info"
    info.mkdir()
    rows = ["gpucluster/elastic/__pycache__/hook.cpython-312.pyc,,"]
    for path in sorted(one for one in (folder / "gpucluster").rglob("*") if one.is_file()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
        rows.append(f"{path.relative_to(folder)},sha256={digest},{path.stat().st_size}")
    (info / "RECORD").write_text("".join(f"{row}\n" for row in rows))


def checked(machine: Path, want: programs.ProgramsWant) -> CheckResult:
    """Run the queries with `/` replaced by the machine's tree."""
    recorded, compared = programs.query_programs(want)
    _, *python, folder = recorded.argv
    shell, option, script, zero, *hooks = compared.argv
    assert script.startswith("at=\n")
    outputs = [
        subprocess.run(argv, capture_output=True, text=True, check=False)
        for argv in (
            [sys.executable, *python, f"{machine}{folder}"],
            [shell, option, f"at={machine}{script.removeprefix('at=')}", zero, *hooks],
        )
    ]
    got = (
        QueryOutput(code=one.returncode, stdout=one.stdout.replace(str(machine), ""), stderr=one.stderr)
        for one in outputs
    )
    return programs.evaluate_programs(programs.parse_programs(tuple(got)), want)


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
    steps = result.remedy.removeprefix("on {machine}: ").split("; ", 4)
    assert steps == [
        f"install -D -m 755 {COPY}/elastic/hook.py {names.HOOK_DIR}/resume",
        f"install -D -m 644 {COPY}/agent/units{template} {template}",
        f"install -D -m 644 {COPY}/agent/units{drop_in} {drop_in}",
        "systemctl daemon-reload",
        remedies.restart("slurmd", verb="try-restart"),
    ]
    for step in steps[:3]:
        subprocess.run(
            ["/bin/sh", "-ec", step.replace(" /", f" {machine}/")], check=True, capture_output=True
        )
    assert checked(machine, ALL).is_healthy


def test_changed_package_is_not_installed_over_the_good_copy(machine: Path) -> None:
    """Regression: the check blamed the installed program, and its remedy installed the changed one."""
    copy = machine / f"{COPY}/agent/units/opt/gpucluster/bin/prolog".lstrip("/")
    copy.write_text(copy.read_text() + "exit 1\n")
    result = checked(machine, ALL)
    assert result.found == "the package's gpucluster/agent/units/opt/gpucluster/bin/prolog is another"
    assert "install " not in result.remedy
    assert result.remedy.startswith("replace the machine")
    hosts = checked(machine, programs.ProgramsWant(below=machine_files.OF_HOSTS))
    assert hosts.remedy == "on {machine}: rm /opt/gpucluster/code; then playbooks/site.yml again"


def test_other_files_of_the_package_are_compared_too(machine: Path) -> None:
    package = machine / COPY.lstrip("/")
    (package / "elastic/waiter.py").unlink()
    (package / "agent/units/etc/cron.d").mkdir()
    (package / "agent/units/etc/cron.d/job").write_text("* * * * * root id\n")
    result = checked(machine, ALL)
    assert result.found == (
        "the package's gpucluster/agent/units/etc/cron.d/job is by hand, "
        "the package's gpucluster/elastic/waiter.py is missing"
    )


def test_package_without_a_record_is_unknown(machine: Path) -> None:
    (info,) = (machine / COPY.lstrip("/")).parent.glob("*.dist-info")
    shutil.rmtree(info)
    assert checked(machine, ALL).verdict is CheckStatus.UNKNOWN
    (machine / "opt/gpucluster/bin/resume").unlink()
    assert checked(machine, ALL).verdict is CheckStatus.FAIL


def test_settings_of_our_units_by_hand_are_removed(machine: Path) -> None:
    """Regression: a drop-in with LimitNPROC=64 passed, whether systemd had read it or not."""
    places = (
        "/etc/systemd/system/slurmd.service.d/zz.conf",
        "/run/systemd/system/slurmctld.service.d/fault.conf",
        "/etc/systemd/system.control/munge.service.d/50-TasksMax.conf",
    )
    for place in (*places, limits.DROP_IN):
        (machine / place.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (machine / place.lstrip("/")).write_text("[Service]\nLimitNPROC=64\n")
    result = checked(machine, ALL)
    assert set(result.culprits) == set(places)
    assert f"{places[0]} is not ours" in result.found
    assert result.remedy.endswith(
        f"; systemctl daemon-reload; {remedies.restart('slurmd', 'munge', 'slurmctld', verb='try-restart')}"
    )
    assert checked(machine, programs.ProgramsWant(below=machine_files.OF_HOSTS)).is_healthy


def test_setting_of_all_services_by_hand_is_removed(machine: Path) -> None:
    place = "/etc/systemd/system/service.d/all.conf"
    (machine / place.lstrip("/")).parent.mkdir()
    (machine / place.lstrip("/")).write_text("[Service]\nLimitNPROC=64\n")
    result = checked(machine, ALL)
    assert result.culprits == (place,)
    assert remedies.restart("munge", "slurmd", "slurmctld", verb="try-restart") in result.remedy


def test_environment_that_every_user_may_write_is_closed(machine: Path) -> None:
    """Regression: after `chmod -R o+w` a user could change what root runs, and the check passed."""
    (machine / COPY.lstrip("/") / "elastic/script (dev).tmpl").touch()
    for path in (f"{COPY}/elastic", f"{COPY}/elastic/hook.py", f"{COPY}/elastic/script (dev).tmpl"):
        place = machine / path.lstrip("/")
        place.chmod(place.stat().st_mode | 0o002)
    result = checked(machine, ALL)
    assert result.found == (
        f"{COPY}/elastic may be written by every user, {COPY}/elastic/hook.py may be written by every user"
    )
    assert result.remedy == f"on {{machine}}: chmod -R o-w {names.VENV}"


def test_machine_without_our_package_is_unknown(tmp_path: Path) -> None:
    (tmp_path / names.VENV.lstrip("/")).mkdir(parents=True)
    with pytest.raises(ParseError, match="exit 3"):
        checked(tmp_path, ALL)


RECORDED = QueryOutput(code=0, stdout='{"recorded": 1, "wrong": []}')


@pytest.mark.parametrize(
    "text", ["same /etc/x", "other /etc/x /opt/x", "same /etc/x /opt/x y", "foreign /etc/x y"]
)
def test_other_lines_are_refused(text: str) -> None:
    with pytest.raises(ParseError, match="the comparison printed"):
        programs.parse_programs((RECORDED, QueryOutput(code=0, stdout=text)))
