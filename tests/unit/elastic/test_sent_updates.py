"""What was asked of Slurm after a look is not asked again on that look."""

from dataclasses import replace

import pytest

from gpucluster.elastic.model import Action, Block, Comment, JobRun, Requeue, Signal, Terminate
from gpucluster.elastic.sent_updates import UNDER_WAY, Recent

BLOCK = Block(slots=("a", "b"), reason="gpucluster: full")
ONE = Block(slots=("b",), reason="gpucluster: full")
RUN = JobRun(job=7, started_at=5.0, nodes=("a",))


@pytest.mark.parametrize(
    ("noted", "at", "asked", "left"),
    [
        pytest.param(BLOCK, 12.0, BLOCK, None, id="done since"),
        pytest.param(BLOCK, UNDER_WAY, BLOCK, None, id="under way"),
        pytest.param(BLOCK, 9.0, BLOCK, BLOCK, id="done before the look, which does not show it: again"),
        pytest.param(BLOCK, None, BLOCK, BLOCK, id="failed"),
        pytest.param(Block(slots=("a",), reason="gpucluster: full"), 12.0, BLOCK, ONE, id="to one of two"),
        pytest.param(Block(slots=("a", "b"), reason="gpucluster: max"), 12.0, BLOCK, BLOCK, id="in other words"),
        pytest.param(BLOCK, 99.0, BLOCK, BLOCK, id="in a future that a clock once had"),
        pytest.param(
            Signal(jobs=(7,), signal="USR1", instance="i", reason="spot"),
            12.0,
            Signal(jobs=(7, 8), signal="USR1", instance="i", reason="spot"),
            Signal(jobs=(8,), signal="USR1", instance="i", reason="spot"),
            id="jobs likewise",
        ),
        pytest.param(
            Requeue(runs=(RUN,), instance="i", reason="spot"),
            12.0,
            Requeue(runs=(replace(RUN, started_at=11.0), RUN), instance="i", reason="spot"),
            Requeue(runs=(replace(RUN, started_at=11.0),), instance="i", reason="spot"),
            id="another run of a job",
        ),
        pytest.param(
            Requeue(runs=(RUN,), instance="i", reason="spot at 14:02:02"), 12.0,
            Requeue(runs=(RUN,), instance="j", reason="spot at 14:02:00"), None,
            id="a requeue of the same run for the notice in other words, or of another node",
        ),
        pytest.param(
            Signal(jobs=(7,), signal="USR1", instance="i", reason="spot at 14:02:02"), UNDER_WAY,
            Signal(jobs=(7,), signal="USR1", instance="i", reason="spot at 14:02:00"), None,
            id="a signal for the notice in other words",
        ),
        pytest.param(
            Comment(jobs=(7,), reason="x"), 12.0, Comment(jobs=(7,), reason="y"), Comment(jobs=(7,), reason="y"),
            id="a comment that changed",
        ),
        pytest.param(
            Terminate(instances=("i",), reason="x"), 12.0, Terminate(instances=("i",), reason="x"),
            Terminate(instances=("i",), reason="x"), id="the cloud's are guarded by the journal",
        ),
    ],
)  # fmt: skip
def test_update_is_skipped_if_sent_after_the_list(
    noted: Action, at: float | None, asked: Action, left: Action | None
) -> None:
    recent = Recent()
    recent.note(noted, UNDER_WAY)
    recent.note(noted, at)
    assert recent.left(asked, 10.0, 20.0) == left


def test_newer_list_shows_the_update() -> None:
    recent = Recent()
    recent.note(BLOCK, 12.0)
    recent.forget(13.0)
    assert recent.left(BLOCK, 10.0, 20.0) == BLOCK
