"""Tests of XIDs: each is in the table once, difficult cases are decided, and the head can import the module."""

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.catalog import xids
from gpucluster.catalog.xids import Severity

CHANGED = "NVRM: Xid (PCI:0000:66:00): 154, GPU recovery action changed from {} to {}"


@pytest.mark.parametrize(
    ("says", "xid", "severity"),
    [
        ("a user's code is no reason to leave the machine", 13, Severity.MONITOR),
        ("a page fault of a program neither", 31, Severity.MONITOR),
        ("contained memory error: the job fails, the node is good", 94, Severity.MONITOR),
        ("uncontained", 95, Severity.RESET),
        ("double bit", 48, Severity.RESET),
        ("a remap that failed", 64, Severity.RESET),
        ("NVLink", 74, Severity.RESET),
        ("GSP", 119, Severity.RESET),
        ("off the bus: a guest's reboot does not cycle the power", 79, Severity.ISOLATE),
        ("power", 54, Severity.ISOLATE),
        ("the virtual machine is to be restarted", 151, Severity.REBOOT),
        ("an empty bucket, and a newer table that has it", 168, Severity.REBOOT),
        ("conflict between tables, the newer wins", 162, Severity.MONITOR),
        ("nobody has it", 999, Severity.MONITOR),
        ("not even a number of theirs", -1, Severity.MONITOR),
    ],
)
def test_an_xid_has_the_severity_of_the_table(says: str, xid: int, severity: Severity) -> None:
    assert xids.severity_of(xid) is severity, says


@pytest.mark.parametrize(
    ("old", "new", "severity", "notify"),
    [
        ("0x0 (None)", "0x1 (GPU Reset Required)", Severity.RESET, False),
        ("0x0 (None)", "0x2 (Node Reboot Required)", Severity.REBOOT, False),
        ("0x0 (None)", "0x2 (OS Reboot)", Severity.REBOOT, False),
        ("0x0 (None)", "0x1 (PF FLR)", Severity.RESET, False),
        ("0x0 (None)", "0x3 (Drain P2P)", Severity.RESET, False),
        ("0x0 (None)", "0x4 (Drain and Reset)", Severity.RESET, False),
        ("0x2 (Node Reboot Required)", "0x0 (None)", Severity.MONITOR, False),
        ("0x0 (None)", "0x9 (Sing a song)", Severity.MONITOR, True),
        ("0x2 (Node Reboot Required)", "0x", Severity.MONITOR, True),
    ],
)
def test_xid_154_uses_new_recovery_action(old: str, new: str, severity: Severity, notify: bool) -> None:
    verdict = xids.verdict_of(154, CHANGED.format(old, new))
    assert (verdict.severity, verdict.notify) == (severity, notify)


def test_remapped_row_is_reset_when_idle() -> None:
    assert xids.verdict_of(63).replace_when_idle
    assert not xids.verdict_of(79).replace_when_idle


def test_unknown_and_unused_xids_are_reported() -> None:
    assert xids.verdict_of(999).notify
    assert xids.verdict_of(65).notify
    assert not xids.verdict_of(13).notify


def test_repeated_xid_escalates_to_last_remedy() -> None:
    assert [s.next for s in Severity] == [
        Severity.RESET,
        Severity.REBOOT,
        Severity.ISOLATE,
        Severity.ISOLATE,
    ]


def test_each_xid_has_one_row() -> None:
    rows = xids._table()["rows"]
    counted = Counter(xid for row in rows for xid in row["xids"])
    assert [xid for xid, times in counted.items() if times > 1] == []
    assert set(range(1, 161)) <= set(counted)


@given(st.integers(), st.text())
def test_any_kernel_line_is_accepted(xid: int, text: str) -> None:
    assert xids.severity_of(xid, text) in Severity


def test_module_imports_without_third_party_libraries() -> None:
    code = (
        "import sys; from gpucluster.catalog.xids import severity_of; severity_of(79);"
        "print(sorted({'pydantic', 'ruamel', 'jinja2', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
