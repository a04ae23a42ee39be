"""The agent's smaller parts: the guard's rules, the hosts block, back-off, files, self-end, the units."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fake_machine import FakeMachine, a_small_plan
from hypothesis import given
from hypothesis import strategies as st

from gpucluster import node
from gpucluster.node import guard, naming, selfend, walk
from gpucluster.plan import names

UNITS = Path(node.__file__).parent / "units"
SYSTEMD = UNITS / "etc/systemd/system"
hosts_line = st.from_regex(r"\A10\.[0-9]{1,2}\.0\.1 [a-z][a-z0-9-]{0,8}\Z")
other_line = st.text("abc #.\t", max_size=12).filter(lambda text: text not in (naming.BEGIN, naming.END))


def test_the_images_guard_is_the_agents_strict_one():
    static = (UNITS / "etc/gpucluster/guard.nft").read_text()
    assert [line for line in static.splitlines() if not line.startswith("#")] == guard.rules(
        ("root",)
    ).splitlines()


@pytest.mark.parametrize("users", [("root",), ("root", "slurm")])
def test_the_guard_closes_both_addresses_to_everyone_else_and_to_what_is_forwarded(users):
    text = guard.rules(users)
    for address in ("ip daddr 169.254.169.254", "ip6 daddr fd00:ec2::254"):
        assert f"{address} meta skuid != {{ {', '.join(users)} }} reject" in text
        assert f"{address} drop" in text
    assert "169.254.169.252" not in text, "the sandbox's API stays open, as AWS's is"


@given(st.lists(other_line, max_size=6), st.lists(hosts_line, max_size=4), st.lists(hosts_line, max_size=4))
def test_the_hosts_block_is_replaced_and_nothing_else_is(others, first, second):
    text = "".join(f"{line}\n" for line in others)
    once = naming.with_block(naming.with_block(text, first), second)
    assert once == naming.with_block(text, second)
    assert once == naming.with_block(once, second)
    assert once.splitlines()[: len(others)] == others


@pytest.mark.parametrize("broken", ["# gpucluster: begin\n1.1.1.1 x\n", "# gpucluster: end\nmine\n"])
def test_a_block_that_a_crash_left_open_is_closed(broken):
    text = naming.with_block(broken, ["10.0.0.1 a"])
    assert text.count(naming.BEGIN) == text.count(naming.END) == 1
    assert "1.1.1.1" not in text


@given(st.integers(0, 10_000), st.text())
def test_back_off_is_bounded_and_the_same_for_the_same_machine(attempt, seed):
    seconds = walk.backoff(attempt, seed)
    assert 0.07 < seconds <= walk.LONGEST_PAUSE_S * 1.25
    assert seconds == walk.backoff(attempt, seed)


def test_a_fleet_does_not_knock_at_once():
    assert len({walk.backoff(6, f"i-{number}") for number in range(100)}) > 50


@given(st.text())
def test_a_reason_is_one_printable_line(text):
    reason = walk.one_line(ValueError(text))
    assert reason.isprintable()
    assert 0 < len(reason) <= walk.DETAIL_CHARS


def test_a_file_is_written_once_and_never_open_to_others(tmp_path):
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
def test_when_a_machine_ends_itself(case, due):
    plan = a_small_plan(always_on=1)  # h200-1a-1
    assert selfend.due(**{"plan": plan, "node": "", "steps_running": False, **case}) is due


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
def test_every_service_comes_back_and_systemd_never_gives_up_on_it(path):
    parsed = unit(path)
    assert parsed["Service"]["Restart"] in ("on-failure", "always")
    assert parsed["Unit"]["StartLimitIntervalSec"] == "0"


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("gpucluster-agent.service", "gpucluster.node.agent"),
        ("gpucluster-elastic.service", "gpucluster.elastic.daemon"),
    ],
)
def test_our_services_run_from_the_venv_with_the_endpoint_if_there_is_one(path, module):
    service = unit(path)["Service"]
    assert service["ExecStart"] == f"{names.VENV}/bin/python -I -m {module}"
    assert service["EnvironmentFile"] == f"-{names.ENDPOINT_FILE}"


def test_the_units_and_the_code_spell_the_same_paths():
    daemon = unit("gpucluster-elastic.service")["Service"]
    writable = daemon["ReadWritePaths"].split()
    assert writable == [
        str(Path(p)) for p in (Path(names.JOURNAL).parent, names.SPOOL, Path(names.WAKE_SOCKET).parent)
    ]
    folders = [
        line.split()[1] for line in (UNITS / "etc/tmpfiles.d/gpucluster.conf").read_text().splitlines()
    ]
    assert set(writable) <= set(folders)
    assert f"/run/{unit('gpucluster-agent.service')['Service']['RuntimeDirectory']}" == names.AGENT_RUN
    prolog = UNITS / names.PROLOG.lstrip("/")
    assert f'DOORBELL = "{names.DOORBELL}"' in prolog.read_text()


BLOCKED = ("pydantic", "jinja2", "rich", "typer", "ruamel", "pulumi", "pulumi_aws", "moto")
IMPORT_ALL = f"""
import importlib, pkgutil, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import gpucluster
for room in ("node", "elastic", "cloud"):
    found = importlib.import_module(f"gpucluster.{{room}}")
    for module in pkgutil.walk_packages(found.__path__, found.__name__ + "."):
        importlib.import_module(module.name)
for module in ("plan.model", "plan.messages", "plan.codec", "plan.names", "artifacts", "shell"):
    importlib.import_module(f"gpucluster.{{module}}")
print("ok")
"""


def test_what_runs_on_machines_imports_without_the_desks_libraries():
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "ok", done.stderr[-2000:]


def test_the_agent_starts_without_importing_boto3():
    code = "import sys, gpucluster.node.agent; print(sorted({'boto3', 'botocore', 'ClusterShell'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_no_unit_holds_a_secret_or_an_address_of_ours():
    for path in sorted(UNITS.rglob("*")):
        if path.is_file():
            assert not re.search(r"AKIA|SECRET|169\.254\.169\.252", path.read_text())
