"""sacct's rows as records of a job's runs."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.slurm.job_records import JobRecord, parse

PREEMPTED = "7|1794999990|1795000000|1795000060|PREEMPTED|QOSMaxJobsPerUserLimit|0:0\n"
AGAIN = "7|1795000060|1795000120|Unknown|RUNNING|None|0:0\n"


def test_each_run_is_a_record() -> None:
    first, second = parse(7, PREEMPTED + AGAIN)
    assert first == JobRecord(
        submitted_at=1794999990, started_at=1795000000, ended_at=1795000060, state="PREEMPTED", reason="QOSMaxJobsPerUserLimit", exit_code="0:0"
    )  # fmt: skip
    assert (second.started_at, second.ended_at, second.reason) == (1795000120, 0, "")


def test_other_tasks_of_the_array_are_left_out() -> None:
    assert parse(7, PREEMPTED.replace("7|", "8|", 1) + AGAIN)[0].state == "RUNNING"


def test_job_that_never_started_has_no_times() -> None:
    (found,) = parse(7, "7|1794999990|None|1795000000|CANCELLED by 5001|AssocGrpGRES|0:0\n")
    assert (found.started_at, found.ended_at, found.state) == (0, 1795000000, "CANCELLED by 5001")


@pytest.mark.parametrize("text", ["7|1|1|2|COMPLETED|None\n", "sacct: error: no\n", PREEMPTED + "x"])
def test_line_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="sacct printed"):
        parse(7, text)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert all(one.started_at >= 0 for one in parse(7, text))
