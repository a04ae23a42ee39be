"""Small parts of the agent: guard rules, hosts block, backoff, files, self-termination, units."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_machine import FakeMachine, a_small_plan

from gpucluster import agent, shipment
from gpucluster.agent.__main__ import COMMANDS
from gpucluster.agent.boot import hostnames, runner, slurmctld
from gpucluster.agent.monitors import termination
from gpucluster.plan import guard_rules, names

UNITS = Path(agent.__file__).parent / "units"
SYSTEMD = UNITS / "etc/systemd/system"
hosts_line = st.from_regex(r"\A10\.[0-9]{1,2}\.0\.1 [a-z][a-z0-9-]{0,8}\Z")
other_line = st.text("abc #.\t", max_size=12).filter(
    lambda text: text not in (hostnames.BEGIN, hostnames.END)
)


def test_guard_of_the_image_equals_root_only_rules():
    static = (UNITS / "etc/gpucluster/guard.nft").read_text()
    assert [line for line in static.splitlines() if not line.startswith("#")] == guard_rules.rules(
        ("root",)
    ).splitlines()


@pytest.mark.parametrize("users", [("root",), ("root", "slurm")])
def test_guard_names_who_reaches_metadata_and_file_servers(users):
    """By which sockets an owner passes them is tried in tests/guest/test_guard.py, on Debian's kernel."""
    text = guard_rules.rules(users)
    who = f"{{ {', '.join(users)} }}"
    for address in ("ip daddr 169.254.169.254", "ip6 daddr fd00:ec2::254"):
        assert f"{address} goto metadata" in text
        assert f"{address} drop" in text, "forwarded packets"
    owners = [line.strip() for line in text.splitlines() if "skuid" in line]
    assert owners == [
        f"meta skuid {who} accept",
        f"meta skuid != {who} reject with icmpx admin-prohibited",
        *("meta skuid { root } accept", "meta skuid != { root } reject with icmpx admin-prohibited") * 2,
    ]
    opens = "tcp flags & (syn | ack) == syn"
    assert [line.strip() for line in text.splitlines() if "dport" in line] == [
        f"tcp dport {{ 988, 1018-1023, 2049 }} {opens} goto servers",
        f"tcp dport 6890 {opens} goto daemon",
        f"ip daddr 127.0.0.0/8 tcp dport 20049-21049 {opens} goto servers",
        f"tcp dport {{ 988, 1018-1023, 2049, 6890 }} {opens} drop",
    ]
    assert "169.254.169.252" not in text, "the sandbox's API stays open, as AWS's is"


@given(st.lists(other_line, max_size=6), st.lists(hosts_line, max_size=4), st.lists(hosts_line, max_size=4))
def test_only_our_block_of_hosts_is_replaced(others, first, second):
    text = "".join(f"{line}\n" for line in others)
    once = hostnames.with_block(hostnames.with_block(text, first), second)
    assert once == hostnames.with_block(text, second)
    assert once == hostnames.with_block(once, second)
    assert once.splitlines()[: len(others)] == others


@pytest.mark.parametrize("broken", ["# gpucluster: begin\n1.1.1.1 x\n", "# gpucluster: end\nmine\n"])
def test_incomplete_block_is_repaired(broken):
    text = hostnames.with_block(broken, ["10.0.0.1 a"])
    assert text.count(hostnames.BEGIN) == text.count(hostnames.END) == 1
    assert "1.1.1.1" not in text


@given(st.integers(0, 10_000), st.text())
def test_backoff_is_bounded_and_deterministic(attempt, seed):
    seconds = runner.backoff(attempt, seed)
    assert 0.07 < seconds <= runner.LONGEST_PAUSE_S * 1.25
    assert seconds == runner.backoff(attempt, seed)


def test_backoff_differs_between_machines():
    assert len({runner.backoff(6, f"i-{number}") for number in range(100)}) > 50


@given(st.text())
def test_reason_is_one_printable_line(text):
    reason = runner.one_line(ValueError(text))
    assert reason.isprintable()
    assert 0 < len(reason) <= runner.DETAIL_CHARS


def test_file_is_written_once_and_is_never_readable_by_others(tmp_path):
    machine = FakeMachine(tmp_path).machine()
    assert machine.write("/etc/secret", b"x", mode=0o400)
    before = (tmp_path / "etc/secret").stat()
    assert not machine.write("/etc/secret", b"x", mode=0o400)
    assert (tmp_path / "etc/secret").stat().st_ino == before.st_ino
    assert machine.write("/etc/secret", b"x", mode=0o440), "a mode that differs is put right"


@pytest.mark.parametrize(
    ("case", "due"),
    [
        ({"silent_s": 299}, False),
        ({"silent_s": 300}, True),
        ({"silent_s": 300, "steps_running": True}, False),
        ({"silent_s": 9e9, "node": "h200-1a-1"}, False),
        ({"silent_s": 300, "node": "h200-1a-2"}, True),
        ({"silent_s": 300, "plan": None}, False),
        ({"silent_s": 1800, "plan": None}, True),
        ({"silent_s": 9e9, "plan": None, "steps_running": True}, False),
    ],
)
def test_self_termination_due(case, due):
    plan = a_small_plan(always_on=1)  # h200-1a-1
    assert (
        termination.self_termination_due(**{"plan": plan, "node": "", "steps_running": False, **case}) is due
    )


def unit(path: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((SYSTEMD / path).read_text())
    return parser


@pytest.mark.parametrize(
    "path",
    [
        "gpucluster-agent.service",
        "gpucluster-elastic.service",
        "slurmd.service.d/gpucluster.conf",
        "slurmctld.service.d/gpucluster.conf",
        "munge.service.d/gpucluster.conf",
    ],
)
def test_every_service_restarts_without_limit(path):
    parsed = unit(path)
    assert parsed["Service"]["Restart"] in ("on-failure", "always")
    assert parsed["Unit"]["StartLimitIntervalSec"] == "0"


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("gpucluster-agent.service", "gpucluster.agent"),
        ("gpucluster-elastic.service", "gpucluster.elastic.daemon"),
    ],
)
def test_services_run_from_the_venv_with_the_endpoint_file(path, module):
    service = unit(path)["Service"]
    assert service["ExecStart"] == f"{names.VENV}/bin/python -I -m {module}"
    assert service["EnvironmentFile"] == f"-{names.ENDPOINT_FILE}"


def test_units_and_code_have_the_same_paths():
    daemon = unit("gpucluster-elastic.service")["Service"]
    paths = daemon["ReadWritePaths"].split()
    assert all(path.startswith("-") for path in paths), "ExecStartPre makes a missing folder"
    writable = [path.removeprefix("-") for path in paths]
    assert writable == [
        str(Path(p)) for p in (Path(names.JOURNAL).parent, names.SPOOL, Path(names.WAKE_SOCKET).parent)
    ]
    folders = [
        line.split()[1] for line in (UNITS / "etc/tmpfiles.d/gpucluster.conf").read_text().splitlines()
    ]
    assert set(writable) <= set(folders)
    assert set(slurmctld.DAEMON_FOLDERS) <= set(folders)
    assert daemon["ExecStartPre"] == "-+/usr/bin/systemd-tmpfiles --create gpucluster.conf"
    assert f"/run/{unit('gpucluster-agent.service')['Service']['RuntimeDirectory']}" == names.AGENT_RUN
    prolog = UNITS / names.PROLOG.lstrip("/")
    assert f'SOCKET = "{names.PROLOG_SOCKET}"' in prolog.read_text()


BLOCKED = ("pydantic", "jinja2", "rich", "typer", "ruamel", "pulumi", "pulumi_aws", "moto")
IMPORT_ALL = f"""
import importlib, pkgutil, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import gpucluster
for room in ("agent", "elastic", "cloud"):
    found = importlib.import_module(f"gpucluster.{{room}}")
    for module in pkgutil.walk_packages(found.__path__, found.__name__ + "."):
        importlib.import_module(module.name)
for module in ("plan.model", "plan.messages", "plan.codec", "plan.names", "artifacts", "shell"):
    importlib.import_module(f"gpucluster.{{module}}")
print("ok")
"""


def test_code_of_machines_imports_without_pydantic_and_pulumi():
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "ok", done.stderr[-2000:]


def test_agent_starts_without_importing_boto3():
    code = "import sys, gpucluster.agent.__main__; print(sorted({'boto3', 'botocore', 'ClusterShell'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_units_contain_no_secret_and_no_sandbox_address():
    for path in sorted(UNITS.rglob("*")):
        if path.is_file():
            assert not re.search(r"AKIA|SECRET|169\.254\.169\.252", path.read_text())


def test_timer_of_accounts_elapses_at_the_start_of_each_month_in_utc_and_runs_a_known_command():
    timer, service = (configparser.ConfigParser(strict=False, interpolation=None) for _ in range(2))
    timer.read(SYSTEMD / "gpucluster-accounts.timer")
    service.read(SYSTEMD / "gpucluster-accounts.service")
    command = service["Service"]["ExecStart"].split()
    assert command[:4] == [f"{names.VENV}/bin/python", "-I", "-m", "gpucluster.agent"]
    assert command[4] in COMMANDS
    assert timer["Timer"]["Persistent"] == "true"
    words = ["systemd-analyze", "calendar", "--iterations=2", "--base-time=2026-11-23 12:00 UTC"]
    told = subprocess.run(
        [*words, timer["Timer"]["OnCalendar"]],
        capture_output=True,
        text=True,
        check=True,
        env={"TZ": "UTC", "PATH": "/usr/bin"},
    ).stdout
    assert re.findall(r"(?:Next elapse|Iter. #2): \w+ (\S+ \S+ UTC)", told) == [
        "2026-12-01 00:00:00 UTC",
        "2027-01-01 00:00:00 UTC",
    ]


def test_timer_and_rotation_are_brought_to_existing_hosts_and_the_daemon_is_not():
    paths = {artifact.path for artifact in shipment.of_hosts(shipment.sources())}
    assert {
        "etc/systemd/system/gpucluster-accounts.service",
        "etc/systemd/system/gpucluster-accounts.timer",
        "etc/logrotate.d/gpucluster",
        names.MACHINE_COMMAND.lstrip("/"),
    } <= paths
    assert "etc/systemd/system/gpucluster-elastic.service" not in paths
