"""Sentences of `why` that would be false if they were made too simply: spares, small gangs, states beside the usual."""

from dataclasses import replace

import pytest
from builders import a_plan
from moments import BUSY, NOW, UP, instance, job, living, node, refusal, sight

from gpucluster.elastic.events import Ordered, Verb
from gpucluster.elastic.why import Cause, text, why
from gpucluster.plan.model import Market

PLAN = a_plan((", p5e.48xlarge", ""))
A1, A2, B1 = "h200-2a-1", "h200-2a-2", "h200-2b-1"
NONE = "InsufficientInstanceCapacity"
PAUSED = (50.0, Ordered(verb=Verb.POOL_PAUSE, target="h200", by="ann", words="", until=None, now=False))
SPARE = {"nodes": (node(A1, UP),), "instances": (instance(0),)}
SPOT = (*refusal(3, (A2,), 30, NONE), *refusal(4, (B1,), 30, NONE))
DEMAND = (
    *refusal(5, (A2,), 30, NONE, source=1, market=Market.ON_DEMAND),
    *refusal(6, (B1,), 30, NONE, source=1, market=Market.ON_DEMAND),
)


@pytest.mark.parametrize(
    ("events", "cause"),
    [((PAUSED,), Cause.PAUSED), ((*SPOT, *DEMAND), Cause.REFUSED)],
    ids=["paused", "refused"],
)
def test_a_spare_that_idles_hides_no_cause_from_a_gang_that_is_larger(events, cause):
    moment = sight(PLAN, *living(A1), *events, jobs=(job(42, node_count=4, reason="Resources"),), **SPARE)
    assert why(moment, "42").cause is cause


def test_a_gang_that_the_idle_nodes_hold_waits_for_slurm():
    moment = sight(PLAN, *living(A1), PAUSED, jobs=(job(42, node_count=1, reason=""),), **SPARE)
    assert why(moment, "42").cause is Cause.SCHEDULING


def test_room_for_a_part_of_the_gang_does_not_make_a_refusal_of_the_rest_unsaid():
    """On-demand is open for four, spot is refused, eight are asked for: nothing is busy."""
    shown = why(sight(PLAN, *SPOT, jobs=(job(42, node_count=8, reason="Resources"),)), "42")
    assert shown.cause is Cause.REFUSED
    assert NONE in shown.headline


def test_a_pool_that_others_fill_is_busy_and_not_refused():
    slots = tuple(f"h200-2a-{n}" for n in range(1, 14))
    moment = sight(
        PLAN,
        *living(*slots),
        nodes=[node(s, BUSY) for s in slots],
        instances=[instance(n) for n in range(13)],
        jobs=(job(42, node_count=8, reason="Resources"),),
    )
    assert why(moment, "42").cause is Cause.RESOURCES


def test_slurms_word_for_drained_nodes_blames_no_nodelist_that_the_job_does_not_have():
    reason = "ReqNodeNotAvail, UnavailableNodes:h200-2a-1"
    shown = why(sight(PLAN, jobs=(job(42, reason=reason),)), "42")
    assert "names" not in shown.headline


@pytest.mark.parametrize("state", ["SUSPENDED", "REVOKED", "STATE_OF_A_LATER_SLURM"])
def test_a_job_in_another_state_neither_waits_nor_runs(state):
    shown = why(sight(PLAN, jobs=(replace(job(42, A1), states=frozenset({state})),)), "42")
    assert shown.cause is Cause.SLURM
    assert state in shown.headline
    assert "waits" not in text(shown, NOW)


@pytest.mark.parametrize("at", [1e18, 4e12, float("inf")])
def test_a_time_beyond_the_calendar_is_no_traceback(at):
    shown = why(sight(PLAN, jobs=(job(42, reason="BeginTime", begins_at=at),)), "42")
    assert "may begin" in text(shown, NOW)


@pytest.mark.parametrize("word", ["7_1", "7+1"])
def test_a_task_of_an_array_is_told_how_to_find_its_number(word):
    shown = why(sight(PLAN), word)
    assert not shown.known
    assert f"squeue -h -j {word} -o %A" in shown.headline
