"""Jobs that show as running and whose Prolog never reported."""

from typing import Any

import pytest
from moments import BUSY, NOW, burst, job, node, sight

from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.restarts import RESTARTS
from gpucluster.elastic.model import Comment, Requeue

SLOT, PLAN = "h200-2a-1", burst()
LONG = NOW - PLAN.times.prolog_s - 1


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"reason": "Prolog", "started_at": LONG}, [Requeue]),
        ({"reason": "Prolog", "started_at": LONG, "requeueable": False}, [Comment]),
        ({"reason": "Prolog", "started_at": LONG, "restarts": RESTARTS - 1}, [Requeue]),
        ({"reason": "Prolog", "started_at": LONG, "restarts": RESTARTS}, [Comment]),
        ({"reason": "Prolog", "started_at": NOW - 10}, []),
        ({"reason": "None", "started_at": LONG}, []),
    ],
    ids=[
        "it never reported",
        "it may not be queued again",
        "it may once more",
        "it came back too often",
        "it may still report",
        "it runs",
    ],
)
def test_a_job_that_only_half_started_is_queued_again(changes: dict[str, Any], kinds: list[type]) -> None:
    s = sight(PLAN, nodes=[node(SLOT, BUSY)], jobs=[job(7, SLOT, **changes)])
    found = decide(s.plan, s.bindings, s.seen, s.memory, s.now)
    assert [type(a) for a in found if isinstance(a, Requeue | Comment)] == kinds
