"""What `diff` says where a user gets the uid that another one had: jobs and files know a uid, and no name."""

from support.audited_edits import STACKS
from support.builders import changed
from support.reviewed import a_diff

from gpucluster.gitops.model import Effects
from gpucluster.gitops.report.opening import opening

LAB, RESEARCH = ((STACKS / f"{name}.yaml").read_text() for name in ("lab", "research"))
_SWAP = (("vision, uid: 5001", "vision, uid: 5009"), ("speech, uid: 5002", "speech, uid: 5001"), ("vision, uid: 5009", "vision, uid: 5002"))  # fmt: skip
_VISION, _SPEECH = "those of vision keep the uid 5001, which speech has then", "those of speech keep the uid 5002, which vision has then"  # fmt: skip
_FILES = "that of vision with the uid 5001 is that of speech until `chown` changes it"


def _effects(old: str, new: str) -> Effects:
    found = a_diff(old, new).effects
    assert found is not None
    return found


def test_jobs_and_files_of_exchanged_uids_are_those_of_the_other_user() -> None:
    """Regression: on hosts, queued jobs kept "the old uid, which no user has then"."""
    for text in (LAB, RESEARCH):
        new = changed(text, *_SWAP)
        found = _effects(text, new)
        assert _VISION in found.queued
        assert _SPEECH in found.queued
        assert "which no user has then" not in found.queued
        assert _FILES in found.data
        assert found.steps[0].startswith("squeue --user=speech,vision    # ")
        assert opening(a_diff(text, new)).startswith("data: that of ")


def test_new_user_with_the_uid_of_a_removed_one_has_the_jobs() -> None:
    new = changed(RESEARCH, ("name: robotics, uid", "name: robots, uid"), ("robotics]", "robots]"))
    found = _effects(RESEARCH, new)
    assert "those of robotics keep the uid 5004, which robots has then" in found.queued
    assert "that of robotics with the uid 5004 is that of robots" in found.data
    assert opening(a_diff(RESEARCH, new)).startswith("data: that of robotics with the uid 5004")


def test_uid_that_nobody_else_gets_is_told_as_before() -> None:
    found = _effects(LAB, changed(LAB, ("speech, uid: 5002", "speech, uid: 6002")))
    assert found.queued == "stay in the queue; those of speech keep the uid 5002, which no user has then"
    assert "is that of" not in found.data
    assert not any(one.startswith("squeue --user") for one in found.steps)
