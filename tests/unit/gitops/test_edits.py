"""What `diff` says of each edit is what was seen when the edit was applied to a living cluster."""

import pytest
from support.edits import EDITS, Edit
from support.edits_page import PAGE, diff_of, page, recorded

from gpucluster.gitops.effects import UNAFFECTED
from gpucluster.gitops.model import Effects

SEEN = recorded()
OBSERVED = [edit for edit in EDITS if edit.id in SEEN]
LONG_SILENCE_S = 20.0  # a restart of slurmctld on a busy machine takes less; a restart of the head takes more


def _told(edit: Edit) -> Effects:
    return diff_of(edit).effects or UNAFFECTED


@pytest.mark.parametrize("edit", OBSERVED, ids=lambda edit: edit.id)
def test_sentence_about_jobs_is_what_happened(edit: Edit) -> None:
    told, seen = _told(edit), SEEN[edit.id]
    if "must have ended" not in told.running:
        assert ("lost" in told.running) is (seen["running"] != "went on"), told.running
    assert ("are lost" in told.queued) is (seen["queued"] not in {"PENDING", "RUNNING"}), told.queued


WITHOUT_JOBS = {"pool-removed"}  # no job is on the removed nodes, so the head applies the bundle at once


@pytest.mark.parametrize("edit", OBSERVED, ids=lambda edit: edit.id)
def test_sentence_about_a_held_bundle_is_what_happened(edit: Edit) -> None:
    held = "the head applies the bundle" in _told(edit).running
    assert held is (bool(SEEN[edit.id]["waits"]) or edit.id in WITHOUT_JOBS)


@pytest.mark.parametrize("edit", OBSERVED, ids=lambda edit: edit.id)
def test_sentence_about_sessions_is_what_happened(edit: Edit) -> None:
    told, seen = _told(edit).sessions, SEEN[edit.id]
    assert ("on login machines that stop or leave end" in told) is (seen["login"] == "ended"), told
    if seen["running"].startswith("lost"):
        assert "with srun lose their jobs" in told
    if seen["new_login"] == "refused":
        assert "login" in told
    if seen["silence_s"] > LONG_SILENCE_S:
        assert "Slurm's commands wait" in told


@pytest.mark.parametrize("edit", OBSERVED, ids=lambda edit: edit.id)
def test_sentence_about_data_is_what_happened(edit: Edit) -> None:
    assert ("lost" in _told(edit).data) is (SEEN[edit.id]["data"] == "lost")


def test_each_edit_is_observed_once_and_has_another_name() -> None:
    assert len({edit.id for edit in EDITS}) == len(EDITS) >= 40
    assert set(SEEN) <= {edit.id for edit in EDITS if not edit.unseen}
    assert not any(seen["pulumi"] for seen in SEEN.values()), "what was not applied was not observed"


def test_page_is_made_from_the_record(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page(), "run: make golden"
