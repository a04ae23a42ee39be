"""The recorded fates of jobs whose request leaves: every case of the recorder, in each version that is supported."""

import pytest
from slurm_lab.request_cases import CASES

from gpucluster.catalog.data_files import read_data
from gpucluster.catalog.read import SLURM_SUPPORTED
from gpucluster.elastic.inspect.why import reasons
from gpucluster.slurm.recorded import RECORDED
from gpucluster.slurm.request_table import Outcome, Way, fates_of, ids

each_version = pytest.mark.parametrize("version", RECORDED)


def test_each_supported_version_is_recorded() -> None:
    assert RECORDED == SLURM_SUPPORTED
    assert [read_data(f"slurm-requests-{one}.json")["slurm"] for one in RECORDED] == list(RECORDED)


@each_version
def test_table_has_each_case_of_the_recorder(version: str) -> None:
    assert ids(version) == tuple(case.id for case in CASES)
    rows = read_data(f"slurm-requests-{version}.json")["rows"]
    assert [{key: row[key] for key in ("id", "subject", "change", "asks")} for row in rows] == [
        case.facts() for case in CASES
    ]


@each_version
@pytest.mark.parametrize("way", list(Way))
def test_why_knows_each_reason_with_which_a_job_waits(version: str, way: Way) -> None:
    for row in ids(version):
        found = fates_of(row, version, way).queued
        if found.outcome is Outcome.WAITS:
            assert "Slurm's reason is" not in reasons.reason_of(found.reason).words, (row, found)


@each_version
@pytest.mark.parametrize("way", list(Way))
def test_why_names_what_slurm_holds_a_job_for_and_what_its_release_does(version: str, way: Way) -> None:
    """The reason is also that of an operator's hold, and no answer of Slurm tells them apart."""
    held = {row: fates_of(row, version, way) for row in ids(version)}
    held = {row: found for row, found in held.items() if found.queued.reason == "JobHeldAdmin"}
    assert {row.partition("-")[0] for row in held} == ({"licence"} if version == "26.05" else set())
    reason = reasons.reason_of("JobHeldAdmin")
    assert "an operator holds it, or Slurm 26.05, because a licence" in reason.words
    for found in held.values():
        assert found.released is not None
        assert found.released.outcome in {Outcome.STARTS_WITHOUT, Outcome.WAITS}
        if found.released.outcome is Outcome.STARTS_WITHOUT:
            assert f"then {found.released.outcome}" in reason.remedy


@each_version
@pytest.mark.parametrize("row", ids(RECORDED[0]))
def test_queued_and_new_jobs_fare_alike_after_a_reconfigure_and_a_restart(version: str, row: str) -> None:
    """So a sentence need not say how slurmctld gets the change."""
    once, again = (fates_of(row, version, way) for way in Way)
    assert (once.queued, once.new) == (again.queued, again.new)


@pytest.mark.parametrize(
    ("version", "like"), [("23.11", "24.11"), ("25.05", "24.11"), ("26.05", "26.05"), ("27.05", "26.05")]
)
def test_other_version_has_the_rows_of_the_newest_that_is_not_newer(version: str, like: str) -> None:
    for row in ids(like):
        assert fates_of(row, version, Way.RESTART) == fates_of(row, like, Way.RESTART)
