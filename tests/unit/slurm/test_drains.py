"""The recorded reasons of Slurm's daemons: each is Slurm's from its own user, as a whole text, in its version and later ones."""

import re
from typing import Any

import pytest
from slurm_lab.drains import CASES
from slurm_lab.read_drains import read_rows

from gpucluster.catalog.data_files import read_data
from gpucluster.catalog.read import SLURM_SUPPORTED
from gpucluster.slurm.drain_table import SLURM_USER, Sender, table_of
from gpucluster.slurm.drains import DrainOwner, drain_owner, is_forged, is_lack_of_hardware, owner_of
from gpucluster.slurm.recorded import RECORDED

_SAMPLES = {"gres": "gpu", "job": "12", "node": "h200-1", "number": "7", "step": "batch", "type": "h200", "words": "x"}  # fmt: skip
TABLES = {version: read_data(f"slurm-drains-{version}.json") for version in RECORDED}
ROWS = [(version, row) for version, table in TABLES.items() for row in table["rows"]]
OF_DAEMONS = [(version, row) for version, row in ROWS if row["sender"] != Sender.SCONTROL]


def sample(row: dict[str, Any]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: _SAMPLES[found[1]], row["text"])


def owner(text: str, by: str, version: str, *, drained: bool = True) -> DrainOwner:
    return drain_owner(text, by, drained=drained, version=version)


def test_each_supported_version_is_recorded() -> None:
    assert RECORDED == SLURM_SUPPORTED
    assert [table["slurm"] for table in TABLES.values()] == list(RECORDED)


@pytest.mark.parametrize("version", RECORDED)
def test_table_has_the_result_of_each_case_and_the_rows_that_were_read(version: str) -> None:
    table = TABLES[version]
    quiet = sorted(case.cause for case in CASES if version in case.quiet)
    caused = {cause for row in table["rows"] for cause in row["causes"]}
    assert table["quiet"] == quiet
    assert caused == {case.cause for case in CASES} - set(quiet)
    assert table["read"] == list(read_rows(version, [row["text"] for row in table["rows"]]))


@pytest.mark.parametrize(("version", "row"), OF_DAEMONS)
def test_recorded_reason_is_slurms_from_its_user_only(version: str, row: dict[str, Any]) -> None:
    """Reasons of slurmd and slurmstepd, who are root, counted as a person's."""
    text, user = sample(row), row["user"]
    assert owner(text, user, version) is DrainOwner.SLURM
    for other in {"", "root", SLURM_USER, "alice"} - {user}:
        assert owner(text, other, version) is DrainOwner.PERSON, other


@pytest.mark.parametrize(("version", "row"), OF_DAEMONS)
def test_reason_that_a_person_continues_is_a_persons(version: str, row: dict[str, Any]) -> None:
    """`Prolog error: looking` was Slurm's drain, because only its beginning was compared."""
    text, user = sample(row), row["user"]
    for other in (f"{text}: looking", f"{text} again", f"see {text}", text.upper() + "!"):
        assert owner(other, user, version) is DrainOwner.PERSON, other


@pytest.mark.parametrize(
    ("version", "row"), [(v, row) for v, row in ROWS if row["sender"] == Sender.SCONTROL]
)
def test_reason_of_scontrol_is_a_persons(version: str, row: dict[str, Any]) -> None:
    assert owner(sample(row), row["user"], version) is DrainOwner.PERSON


@pytest.mark.parametrize("version", RECORDED)
def test_reason_that_was_only_read_is_a_persons(version: str) -> None:
    for row in TABLES[version]["read"]:
        assert owner(sample(row), row["user"], version) is DrainOwner.PERSON, row
        found = table_of(version).find_read(sample(row))
        assert found is not None
        assert found.function == row["function"]


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ("Kill task failed", "24.11", DrainOwner.SLURM),
        ("Kill task failed (JobId=12 StepId=batch)", "24.11", DrainOwner.PERSON),
        ("Kill task failed (JobId=12 StepId=batch)", "26.05", DrainOwner.SLURM),
        ("Kill task failed (JobId=12 StepId=0+1)", "26.05", DrainOwner.SLURM),
        ("Kill task failed", "26.05", DrainOwner.SLURM),  # a slurmd of 24.11
        ("Kill task failed", "25.05", DrainOwner.SLURM),  # the nearest older version
        ("Kill task failed (JobId=12 StepId=batch)", "25.05", DrainOwner.PERSON),
        ("Kill task failed", "23.02", DrainOwner.PERSON),  # no older version is recorded
        ("Kill task failed (JobId=12 StepId=batch)", "", DrainOwner.SLURM),  # the version is unknown
    ],
)
def test_version_has_its_own_reasons_and_older_ones(text: str, version: str, expected: DrainOwner) -> None:
    assert owner(text, "root", version) is expected


WRITERS = [
    "slurm",
    "root",
    "ada",
    "",
]  # SlurmUser is the daemon; agents and health programs are root; "": unknown


@pytest.mark.parametrize(
    ("text", "owners"),
    [
        ("gpucluster: no h200", [DrainOwner.CAPACITY, None, None, None]),
        ("gpucluster: [evacuation] spot", [DrainOwner.EVACUATION, None, None, None]),
        ("gpucluster: [operator] kept", [DrainOwner.OPERATOR, None, None, None]),
        ("gpucluster: [termination] i-0", [DrainOwner.TERMINATION, None, None, None]),
        ("gpucluster: [bundle] removed", [DrainOwner.BUNDLE, DrainOwner.BUNDLE, None, None]),
        ("gpucluster: [health] gpu.ecc", [DrainOwner.HEALTH, DrainOwner.HEALTH, None, None]),
        ("gpucluster: [foo] x", [None, None, None, None]),
    ],
)
def test_reason_of_ours_is_ours_from_its_user_only(text: str, owners: list[DrainOwner | None]) -> None:
    """A person's `gpucluster: fan 3 is loud, do not touch` was the daemon's: it undrained the node, or replaced the machine."""
    for by, expected in zip(WRITERS, owners, strict=True):
        assert owner_of(text, by) is expected, by
        for drained in (True, False):
            assert owner(text, by, "24.11", drained=drained) is (expected or DrainOwner.PERSON), by
        assert is_forged(text, by) is (expected is None and by != "slurm"), by


def test_only_a_registration_lacks_hardware() -> None:
    low = "Low socket*core*thread count, Low CPUs"
    assert is_lack_of_hardware(low, "slurm", "24.11")
    assert not is_lack_of_hardware(low, "root", "24.11")
    assert not is_lack_of_hardware("Prolog error", "slurm", "24.11")
    assert owner("Prolog error, Epilog error", "slurm", "24.11") is DrainOwner.PERSON
