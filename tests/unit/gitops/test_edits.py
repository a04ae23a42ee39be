"""What `diff` says of each edit is what was seen when the edit was applied to a living cluster."""

import pytest
from support.edits import EDITS, Edit
from support.edits_page import PAGE, diff_of, page, recorded

from gpucluster.gitops.effects import UNAFFECTED
from gpucluster.gitops.model import Effects

SEEN = recorded()
OBSERVED = [edit for edit in EDITS if edit.id in SEEN]
LONG_SILENCE_S = 20.0  # a restart of slurmctld on a busy machine takes less; a restart of the head takes more
HELD = "the head applies the bundle"
WITHOUT_JOBS = {"pool-removed"}  # no job is on the removed nodes, so the head applies the bundle at once

each_observed = pytest.mark.parametrize("edit", OBSERVED, ids=lambda edit: edit.id)


def _told(edit: Edit) -> Effects:
    return diff_of(edit).effects or UNAFFECTED


@each_observed
def test_running_and_queued_jobs_are_told_what_happened(edit: Edit) -> None:
    told, seen = _told(edit), SEEN[edit.id]
    if seen["running"] == "went on":
        assert told.running.startswith(
            ("go on", "finish on", "of a removed partition finish", "must have ended")
        )
    else:
        assert told.running.startswith("are lost: slurmctld does not know them")
    if seen["queued"] in {"PENDING", "RUNNING"}:
        assert told.queued.startswith(("stay in the queue", "of a removed partition hold the bundle"))
    else:
        assert told.queued == "are lost with slurmctld's state; users submit them again"
    assert (HELD in told.running) is (bool(seen["waits"]) or edit.id in WITHOUT_JOBS)
    assert ("take no new jobs" in told.running) is bool(seen["drained"]) or edit.id in WITHOUT_JOBS


@each_observed
def test_sessions_are_told_what_happened(edit: Edit) -> None:
    told, seen = _told(edit).sessions, SEEN[edit.id]
    assert ("on login machines that stop or leave end" in told) is (seen["login"] == "ended"), told
    assert ("on the head " in told) is ("head" in seen["ended_machines"] or edit.id == "head-machine")
    assert ("with srun lose their jobs" in told) is seen["running"].startswith("lost")
    assert ("commands wait until the head is up" in told) is (seen["silence_s"] > LONG_SILENCE_S)
    if seen["new_login"] == "refused":
        assert "the next login needs" in told


@each_observed
def test_data_is_told_what_happened(edit: Edit) -> None:
    told, seen = _told(edit).data, SEEN[edit.id]
    assert ("lost" in told) is (seen["data"] == "lost")
    ends = {"head", "login"} & set(seen["ended_machines"])
    assert ("on the root volume of a machine" in told) is bool(ends)


def test_each_edit_is_observed_once_and_has_another_name() -> None:
    assert len({edit.id for edit in EDITS}) == len(EDITS) >= 40
    assert set(SEEN) == {edit.id for edit in EDITS}
    assert not any(seen["pulumi"] for seen in SEEN.values()), "what was not applied was not observed"


def test_page_is_made_from_the_record(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page(), "run: make golden"
