"""A het job of which only the leader waits: its other components hold nodes on which nothing runs (S20)."""

from pathlib import Path
from typing import Any

import pytest
from support.builders import a_plan
from support.cluster_states import BUSY, NOW, burst, job, node, sight
from support.fleet import Fleet

from gpucluster.elastic.decide import decide
from gpucluster.elastic.model import Requeue
from gpucluster.slurm.values import SlurmJob

A1, A2, PLAN = "h200-2a-1", "h200-2a-2", burst()
LONG = NOW - PLAN.times.orphan_grace_s


def leader(**changes: Any) -> SlurmJob:
    return job(5, het_id=5, **{"begins_at": LONG, **changes})


@pytest.mark.parametrize(
    ("first", "requeued"),
    [
        (leader(), [5]),
        (leader(begins_at=LONG + 1), []),
        (leader(begins_at=0.0, submitted_at=LONG), [5]),
        (leader(requeueable=False), []),
        (job(5, A1, het_id=5, starts=True, begins_at=LONG), []),
    ],
    ids=["it waits", "not long enough", "by its submission", "it may not be requeued", "it starts again"],
)
def test_het_job_is_requeued_if_its_leader_waits_long(first: SlurmJob, requeued: list[int]) -> None:
    s = sight(PLAN, nodes=[node(A2, BUSY)], jobs=[first, job(6, A2, het_id=5)])
    found = [a for a in decide(s.plan, s.bindings, s.observation, s.memory, s.now) if isinstance(a, Requeue)]
    assert [n for action in found for n in action.jobs] == requeued
    words = "gpucluster: its first component has waited for 5m while the others held h200-2a-2: all of it is queued again"
    assert [action.reason for action in found] == [words] * len(found)


def test_het_job_of_which_all_components_wait_is_left_alone() -> None:
    s = sight(PLAN, nodes=[], jobs=[leader(), job(6, het_id=5)])
    assert not [
        a for a in decide(s.plan, s.bindings, s.observation, s.memory, s.now) if isinstance(a, Requeue)
    ]


def test_nodes_of_a_split_het_job_end_and_it_runs_whole_when_there_is_capacity(tmp_path: Path) -> None:
    f = Fleet(a_plan(), tmp_path)
    first = f.slurm.submit(1, het=1)
    other = f.slurm.submit(2, het=first.id)
    f.until(lambda: (first.state, other.state) == ("RUNNING", "RUNNING"), 600)
    f.model.set_capacity(free=0)
    f.interrupt(next(i for i, agent in f.agents.items() if agent.slot == first.nodes[0]))
    f.until(lambda: first.state == "PENDING" and other.state == "RUNNING", 900)
    f.until(lambda: other.state == "PENDING", 900)
    f.until(lambda: not f.living(), 3600)
    f.model.set_capacity(free=None)
    runs = len(other.runs)
    f.until(lambda: (first.state, other.state) == ("RUNNING", "RUNNING"), 3600)
    assert len(other.runs) == runs + 1
