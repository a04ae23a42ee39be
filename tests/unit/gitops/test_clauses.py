"""Each clause of `diff` about jobs has the id of a recorded row, or a test on real daemons; and its words are what the row has."""

import re
from pathlib import Path

import pytest
from support.builders import LAB, SPEC, changed
from support.edits import EDITS
from support.edits_page import diff_of
from support.reviewed import a_diff

from gpucluster.gitops import field_effects, host_sentences, hosts, sentences
from gpucluster.gitops.model import Clause
from gpucluster.gitops.rows import Row
from gpucluster.slurm.recorded import RECORDED
from gpucluster.slurm.request_table import Outcome, Way, fates_of, ids

_SLURM = Path(__file__).parents[2] / "slurm"
TABLES = {
    "running": (*sentences.RUNNING, *host_sentences.RUNNING),
    "queued": (*sentences.QUEUED, *host_sentences.QUEUED),
}
EVERY = [(subject, row) for subject, rows in TABLES.items() for row in rows]
WITH_ROWS = [(subject, row) for subject, row in EVERY if row.requests]
# Notes about what Slurm does to jobs that no request decides, and the test on real daemons
OF_SLURM = {
    r"slurm\.containers": "test_containers.py",
    r"slurm\.reservations\[\].*": "test_reservations.py",
}
# What our daemon, the cloud and the accounts of machines do
NOT_OF_SLURM = {
    r"pools\[\]\.job_heartbeat(\..*)?",
    r"aws\.network\.nat",
    r"aws\.jobs",
    r"aws\.boundary",
    r"budget(\.(monthly|stop_scaling_at))?",
    r"budget",
    r"head\.standby",
    r"users\[\]",
    r"users\[\]\.uid",
}
# What becomes of all jobs with slurmctld's state, and the test on real daemons. `None`: slurmctld leaves, or they have ended
OF_STATE = {
    "are lost: slurmctld is removed": None,
    sentences.MUST_END: None,
    "are lost: slurmctld does not know them": "test_other_state_folder.py",
    "are lost with slurmctld's state": "test_other_state_folder.py",
    "are lost if slurmctld's state is not copied": "test_other_state_folder.py",
    "are lost: the older slurmctld ends when it reads the newer state": "test_upgrade.py",
}
OUTCOMES = {
    "go on": Outcome.GOES_ON,
    "finish": Outcome.GOES_ON,
    "are requeued": Outcome.REQUEUED,
    "are lost": Outcome.ENDED,
    "are ended by Slurm": Outcome.ENDED,
    "is ended by Slurm": Outcome.ENDED,
    "start": Outcome.STARTS,
    "stay in the queue": Outcome.STARTS,
    "have run": Outcome.STARTS,
    "wait with": Outcome.WAITS,
    "waits with": Outcome.WAITS,
}


def test_each_sentence_about_jobs_has_a_row() -> None:
    """Or a test of a slurmctld without its state; but one of a slurmctld that leaves, and one that asks to end them."""
    without = {row.words for _, row in EVERY if not row.requests}
    assert {next(words for words in OF_STATE if one.startswith(words)) for one in without} == set(OF_STATE)
    assert [name for name in OF_STATE.values() if name and not (_SLURM / name).exists()] == []


@pytest.mark.parametrize("version", RECORDED)
@pytest.mark.parametrize(("subject", "row"), WITH_ROWS, ids=lambda one: getattr(one, "words", one)[:40])
def test_sentence_has_the_outcomes_of_its_rows(subject: str, row: Row[object], version: str) -> None:
    assert set(row.requests) <= set(ids(version))
    for way in Way:
        fates = [fates_of(one, version, way) for one in row.requests]
        outcomes = {
            one.queued.outcome if subject == "queued" else one.running and one.running.outcome
            for one in fates
        }
        said = {outcome for words, outcome in OUTCOMES.items() if re.search(rf"\b{words}\b", row.words)}
        assert said == outcomes or (not said and "wait until" in row.words)


@pytest.mark.parametrize("version", RECORDED)
def test_jobs_that_depend_on_one_that_slurm_ends_are_told(version: str) -> None:
    found = fates_of("afterok-cancelled", version, Way.RESTART).queued
    ended = [row for row in TABLES["queued"] if "ended by Slurm" in row.words]
    assert len(ended) == 2
    for row in ended:
        assert "afterok-cancelled" in row.requests
        assert f"with {found.reason}" in row.words


def test_each_note_about_jobs_has_a_row_or_a_test() -> None:
    rows = (*field_effects.ROWS, *hosts.ROWS)
    without = [one.pattern for one in rows if (one.note.running or one.note.queued) and not one.note.rows]
    assert set(without) == {*OF_SLURM, *NOT_OF_SLURM}
    assert [name for name in OF_SLURM.values() if not (_SLURM / name).exists()] == []


def _first(clauses: tuple[Clause, ...], subject: str) -> str:
    return next(one.text for one in clauses if one.subject == subject)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.id)
def test_first_clauses_of_an_edit_have_their_rows(edit: object) -> None:
    found = diff_of(edit).effects  # type: ignore[arg-type]
    if found is None or "lost" in found.queued or found.running.startswith("must have ended"):
        return
    assert found.running.startswith(_first(found.clauses, "running"))
    assert found.queued.startswith(_first(found.clauses, "queued"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LAB, changed(LAB, ("default: true", "default: true, max_time: 1d"))),
        (SPEC, changed(SPEC, ("    idle: 5m\n", "    idle: 6m\n"))),
    ],
    ids=["hosts", "AWS"],
)
def test_jobs_whose_request_stays_are_told_the_row_of_nothing(old: str, new: str) -> None:
    found = a_diff(old, new).effects
    assert found is not None
    assert [one for one in found.clauses if one.rows == ("nothing-leaves",)] == [
        Clause(subject="running", text="go on", rows=("nothing-leaves",)),
        Clause(subject="queued", text="stay in the queue", rows=("nothing-leaves",)),
    ]


def test_partition_without_a_node_waits_as_the_row_of_drained_nodes() -> None:
    found = a_diff(LAB, changed(LAB, ("count: 8}", "count: 4}"))).effects
    assert found is not None
    (clause,) = (one for one in found.clauses if one.rows == ("nodes-drained",))
    assert clause.text in found.queued
    for version in RECORDED:
        assert fates_of("nodes-drained", version, Way.RECONFIGURE).queued.outcome is Outcome.WAITS
