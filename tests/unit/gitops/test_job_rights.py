"""What `diff` says of running jobs that lose a part of S3."""

from support.audited_edits import STACKS
from support.builders import changed
from support.reviewed import a_diff

RESEARCH = (STACKS / "research.yaml").read_text()
_WRITE = ', write: ["s3://example-data/checkpoints"]'


def _running(old: str, new: str) -> str:
    found = a_diff(old, new).effects
    assert found is not None
    return found.running


def test_place_that_leaves_is_told_of_the_jobs_that_use_it() -> None:
    """Regression: only the sentence about sessions spoke of it, as if rights grew."""
    new = changed(RESEARCH, (_WRITE, ""))
    said = "those that use it lose their access to S3 at `pulumi up`: write s3://example-data/checkpoints"
    assert _running(RESEARCH, new) == f"go on; {said}"
    assert _running(new, RESEARCH) == "go on"


def test_narrower_place_is_told_and_a_wider_one_is_not() -> None:
    wider = changed(RESEARCH, ('read: ["s3://example-data/sets"]', 'read: ["s3://example-data"]'))
    assert "read s3://example-data" in _running(wider, RESEARCH)
    assert _running(RESEARCH, wider) == "go on"
