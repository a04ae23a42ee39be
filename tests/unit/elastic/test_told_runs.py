"""The judgement of fault runs on a timeline: a lost checkpoint, and a second requeue for one notice."""

from typing import Any

import pytest
from support.told_runs import second_requeues, untold_runs

from gpucluster.elastic.decide.facts import TAKEN


def _events(*rows: str) -> list[dict[str, Any]]:
    """Each row: `what`, or `what instance detail`."""
    parts = (row.split(" ", 2) for row in rows)
    return [
        {"what": p[0], "instance": p[1] if len(p) > 1 else "", "detail": p[2] if len(p) > 2 else ""}
        for p in parts
    ]


NOTICE = "interrupted i-1 spot: reclaimed"


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (("running", NOTICE, "signalled i-1 USR1", "requeued i-1", "running", "released"), 0),
        (("running", NOTICE, "requeued i-1", "running", "released"), 1),
        (("running", NOTICE, "gone i-1", "released", "running", "released"), 1),
        (("running", NOTICE, "released"), 0),  # the run ended by itself
        (("placed", NOTICE, "running", "released"), 0),  # a job that starts is requeued without a signal
        (("running", f"interrupted i-1 spot: {TAKEN}", "gone i-1", "released", "running", "released"), 0),
        (("running", "interrupted i-1 rebalance: may be", "released", "running"), 0),
        (("running", NOTICE, "interrupted i-2 spot: reclaimed", "signalled i-1 USR1", "requeued i-1", "running"), 0),
    ],
)  # fmt: skip
def test_a_run_that_came_back_without_a_signal_lost_its_checkpoint(rows: tuple[str, ...], found: int) -> None:
    assert len(list(untold_runs(_events(*rows)))) == found


def test_a_second_requeue_for_one_instance_is_found() -> None:
    twice = _events("running", "requeued i-1", "running", "requeued i-1", "running", "requeued i-2")
    assert list(second_requeues(twice)) == ["requeued 2 times for i-1"]
