"""XIDs: the table has each once, its sources' hard cases stand as decided, and the head can read it."""

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
    ("old", "new", "severity", "told"),
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
def test_154_is_what_the_driver_says_it_changed_to(
    old: str, new: str, severity: Severity, told: bool
) -> None:
    verdict = xids.verdict_of(154, CHANGED.format(old, new))
    assert (verdict.severity, verdict.told) == (severity, told)


def test_a_remapped_row_is_for_an_idle_hour() -> None:
    assert xids.verdict_of(63).replace_when_idle
    assert not xids.verdict_of(79).replace_when_idle


def test_unknown_and_unused_ones_are_told() -> None:
    assert xids.verdict_of(999).told
    assert xids.verdict_of(65).told
    assert not xids.verdict_of(13).told


def test_the_same_again_takes_the_next_rung_and_the_last_stays() -> None:
    assert [s.next for s in Severity] == [
        Severity.RESET,
        Severity.REBOOT,
        Severity.ISOLATE,
        Severity.ISOLATE,
    ]


def test_each_xid_stands_in_one_row() -> None:
    rows = xids._table()["rows"]
    counted = Counter(xid for row in rows for xid in row["xids"])
    assert [xid for xid, times in counted.items() if times > 1] == []
    assert set(range(1, 161)) <= set(counted)


@given(st.integers(), st.text())
def test_no_line_of_the_kernels_breaks_it(xid: int, text: str) -> None:
    assert xids.severity_of(xid, text) in Severity


def test_the_head_can_read_it_without_the_desks_libraries() -> None:
    code = (
        "import sys; from gpucluster.catalog.xids import severity_of; severity_of(79);"
        "print(sorted({'pydantic', 'ruamel', 'jinja2', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
