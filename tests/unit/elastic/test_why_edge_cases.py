"""Sentences of `why` that would be false if they were made too simply: spares, small gangs, states beside the usual."""

from dataclasses import replace

import pytest
from support.builders import a_plan
from support.cluster_states import BUSY, NOW, OFF, UP, WAKING, instance, job, living, node, refusal, sight

from gpucluster.cloud.limits import UNSEEN_S
from gpucluster.elastic.events import BootFailed, Interrupted, InterruptionKind, OrderGiven, Verb
from gpucluster.elastic.inspect.why import Cause, Part, text, why
from gpucluster.plan.model import Market

PLAN = a_plan((", p5e.48xlarge", ""))
A1, A2, B1 = "h200-2a-1", "h200-2a-2", "h200-2b-1"
NONE = "InsufficientInstanceCapacity"
PAUSED = (50.0, OrderGiven(verb=Verb.POOL_PAUSE, target="h200", by="ann", words="", until=None, now=False))
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


@pytest.mark.parametrize("reason", ["Dependency", "JobHeldUser", "BeginTime", "AssocGrpGRES"])
def test_refusal_of_the_cloud_is_no_reason_of_a_job_for_which_slurm_looks_for_no_nodes(reason):
    """Regression: refusals before its submission were listed as reasons of a held job."""
    waits = job(42, node_count=8, reason=reason, begins_at=NOW + 600 if reason == "BeginTime" else 0.0)
    assert NONE not in text(why(sight(PLAN, *SPOT, jobs=(waits,)), "42"), NOW)


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
    assert "beyond the calendar: its begin time" in text(shown, NOW)


@pytest.mark.parametrize("word", ["7_1", "7+1"])
def test_task_of_an_array_gets_the_command_for_its_number(word):
    shown = why(sight(PLAN), word)
    assert not shown.known
    assert f"squeue -h -j {word} -o %A" in shown.headline


def spot_notice(ends_at):
    return (
        20.0,
        Interrupted(
            slot=A1, instance="i-0", kind=InterruptionKind.SPOT, words="goes", ends_at=ends_at, source="queue"
        ),
    )


def leaving(ends_at, **changes):
    moment = sight(
        PLAN,
        *living(A1),
        spot_notice(ends_at),
        nodes=(node(A1, f"{BUSY} DRAIN"),),
        instances=(instance(0),),
        jobs=(job(41, A1, **changes),),
    )
    return text(why(moment, "41"), NOW)


def test_interactive_job_gets_no_advice_about_a_batch_script():
    said = leaving(NOW + 100, batch=False)
    assert "its batch script" not in said
    assert "it has no batch script" in said


def test_next_step_is_never_in_the_past():
    """The instance's termination was due six minutes ago, and it still runs: the screen says now."""
    said = leaving(NOW - 400)
    (line,) = (line for line in said.splitlines() if f"{A1} is powered down" in line)
    assert "ago" not in line
    assert "UTC, now: " in line


def test_a_machine_whose_boot_has_failed_is_given_no_time_to_come_up():
    failed = (20.0, BootFailed(slot=A1, instance="i-0", pool="h200", words="no device"))
    keep = (30.0, OrderGiven(verb=Verb.NODE_KEEP, target=A1, by="bob", words="", until=NOW + 600, now=False))
    moment = sight(
        PLAN,
        *living(A1)[:4],
        keep,
        failed,
        nodes=(node(A1, WAKING),),
        instances=(instance(0),),
        jobs=(job(41, A1, starts=True),),
    )
    said = text(why(moment, "41"), NOW)
    assert "its boot failed: no device" in said
    assert "if it is not up by then" not in said


def test_reason_of_slurm_itself_names_no_other_owner():
    down = node(A1, "DOWN CLOUD", reason="Not responding", reason_by="slurm")
    said = text(why(sight(PLAN, *living(A1), nodes=(down,), instances=(instance(0),)), A1), NOW)
    assert "Not responding (by Slurm itself)" in said
    assert "alone lifts" not in said


@pytest.mark.parametrize(
    ("states", "absent_s", "kept"),
    [(UP, UNSEEN_S, True), (UP, UNSEEN_S - 1, False), (OFF, UNSEEN_S, False)],
    ids=["its node is up", "the list may be late", "its node is off"],
)
def test_instance_that_only_the_journal_has_is_named_while_its_node_is_up(
    states: str, absent_s: float, kept: bool
) -> None:
    """The daemon keeps such an instance, and `why` said only that the cloud does not list it."""
    moment = sight(PLAN, *living(A1, ago=9000.0), nodes=(node(A1, states),))
    cloud = moment.observation.cloud
    assert cloud
    gone = replace(cloud, absent_since={"i-0": NOW - absent_s})
    shown = text(why(replace(moment, observation=replace(moment.observation, cloud=gone)), A1), NOW)
    assert ("EC2 does not list i-0, and the node is up: the daemon keeps it" in shown) is kept
    assert (f"scontrol update nodename={A1} state=power_down" in shown) is kept


@pytest.mark.parametrize(
    ("lost", "words", "given"),
    [
        (("gpucluster:cluster",), "i-0 has lost its tag gpucluster:cluster=burst: the head may not terminate it", "Key=gpucluster:cluster,Value=burst"),
        (("gpucluster:cluster", "gpucluster:role"), "i-0 has lost its tag gpucluster:cluster=burst and gpucluster:role=node: ", "Key=gpucluster:cluster,Value=burst Key=gpucluster:role,Value=node"),
        ((), "", ""),
        (("gpucluster:cluster", "gpucluster:role", "gpucluster:pool"), "", ""),
    ],
    ids=["cluster", "cluster and role", "none", "EC2 shows no tags yet"],
)  # fmt: skip
def test_instance_that_lost_its_tag_is_named_before_its_end(
    lost: tuple[str, ...], words: str, given: str
) -> None:
    """The lost tag was told only after EC2 had refused the termination."""
    kept = {key: value for key, value in instance(0).tags.items() if key not in lost}
    moment = sight(PLAN, *living(A1), nodes=(node(A1, BUSY),), instances=(instance(0, tags=kept),))
    shown = text(why(moment, A1), NOW)
    assert ("has lost its tag" in shown) == bool(words)
    assert words in shown
    step = f"aws ec2 create-tags --region us-east-2 --resources i-0 --tags {given}"
    assert (step in " ".join(shown.split())) == bool(words)


def test_a_requeued_job_whose_last_run_completes_has_not_ended():
    """`why` said `has ended (COMPLETING, PENDING)` of a job whose launch had failed and that Slurm had queued again."""
    again = job(42, states=frozenset({"PENDING", "COMPLETING"}), reason="BeginTime", begins_at=NOW + 120)
    shown = why(sight(PLAN, jobs=(again,)), "42")
    assert shown.cause is not Cause.FINISHED
    assert "ended" not in shown.headline


def test_stopped_launches_are_started_again_by_the_command_for_it() -> None:
    """V3: it named `pulumi up`, which does not start launches that somebody else stopped."""
    shown = why(sight(PLAN, jobs=(job(41),), halted="launches are stopped, by ada"), "41")
    remedies = [line.words for line in shown.lines if line.part is Part.REMEDY]
    assert remedies == [
        "`gpucluster scaling start burst` permits launches again; it refuses while a `down` runs"
    ]
