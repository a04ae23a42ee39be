"""What `status`, `why` and the dry run say of this machine's daemon: it acts, waits for the lease, hangs or does not run."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import a_plan
from support.cluster_states import UP, job, living, node, sight

from gpucluster.cloud.bundle_status import Published
from gpucluster.elastic.inspect import daemon_view
from gpucluster.elastic.inspect.daemon_view import ACTING, LOOK, UnitState, parse, view
from gpucluster.elastic.inspect.overview import overview, text
from gpucluster.elastic.inspect.why import Part, why
from gpucluster.elastic.notifier import WATCHDOG_S

RUNS = UnitState(active="active", sub="running", status="acts, as head/b/1.2/n", silent_s=0.4)
WAITS = replace(RUNS, status="standby: second/b/1.2/n holds the lease")
BLIND = replace(
    RUNS, status="standby: the control object: RequestTimeTooSkewed: The difference is too large."
)
LAPSED = replace(RUNS, status="no lease: the control object: AccessDenied: no")
STOPPED = UnitState(active="inactive", sub="dead", status="", silent_s=None)
NOTHING_OF_IT = "it launches nothing"


MINE = "gpucluster-elastic of this machine"
AGENT = "if gpucluster-agent runs, it starts it in its next round; its log says if it cannot"
AGAIN = "systemd kills it and starts it again"


@pytest.mark.parametrize(
    ("unit", "answers", "state", "then"),
    [
        (None, True, "", ""),
        (None, False, "gpucluster-elastic does not answer on this machine", ""),
        (RUNS, True, "", ""),
        (RUNS, False, "", ""),  # another program has its port, or it has just begun
        (STOPPED, True, "", ""),  # another unit runs it
        (STOPPED, False, f"{MINE} does not run", AGENT),
        (replace(STOPPED, active="failed", sub="failed"), False, f"{MINE} does not run", AGENT),
        (replace(STOPPED, active="activating", sub="auto-restart"), False, f"{MINE} has ended", "systemd starts it again"),
        (replace(STOPPED, active="activating", sub="start"), False, f"{MINE} starts", ""),
        (replace(STOPPED, active="deactivating", sub="stop-sigterm"), False, f"{MINE} ends", ""),
        (replace(STOPPED, active="deactivating", sub="stop-watchdog"), False, f"{MINE} gave no sign of life", AGAIN),
        (replace(RUNS, silent_s=47.2), True, f"{MINE} has given no sign of life for 47 s", f"{AGAIN} after {WATCHDOG_S} s without one"),
        (replace(LAPSED, silent_s=47.2), True, f"{MINE} has given no sign of life for 47 s", f"{AGAIN} after {WATCHDOG_S} s without one"),
        (replace(WAITS, silent_s=87.0), False, f"{MINE} has given no sign of life for 87 s", f"{AGAIN} after {WATCHDOG_S} s without one"),
        (replace(WAITS, silent_s=83.0), False, f"{MINE} is a standby: it waits for the lease, which the daemon of second holds", ""),
        (replace(BLIND, silent_s=83.0), False, f"{MINE} waits for the lease, and does not act: the control object: RequestTimeTooSkewed: The difference is too large.", ""),
        (replace(RUNS, status="", silent_s=83.0), False, "", ""),  # it has just begun, and S3 hangs
        (WAITS, False, f"{MINE} is a standby: it waits for the lease, which the daemon of second holds", ""),
        (BLIND, False, f"{MINE} waits for the lease, and does not act: the control object: RequestTimeTooSkewed: The difference is too large.", ""),
        (LAPSED, True, f"{MINE} holds no lease now: the control object: AccessDenied: no", ""),
        (replace(RUNS, status="", silent_s=None), False, "gpucluster-elastic does not answer on this machine", ""),
    ],
)  # fmt: skip
def test_each_state_of_the_daemon_is_called_what_it_is(
    unit: UnitState | None, answers: bool, state: str, then: str
) -> None:
    """One sentence was for all: "the agent starts it again within a minute", also for a standby and a daemon that hung.

    A standby was called dead while one call of S3 hung, which it survives.
    """
    seen = view(unit, answers=answers)
    assert (seen.acts, seen.state, seen.then) == (not state, state, then)
    assert bool(seen.remedy) == (not seen.acts)


def test_daemon_that_is_cut_off_and_evacuates_acts() -> None:
    """`why` said "it launches, drains and terminates nothing" while it drained, and hid the row of the loss."""
    assert view(LAPSED, answers=True, evacuates=True) == ACTING
    assert not view(replace(LAPSED, silent_s=47.0), answers=True, evacuates=True).acts
    assert not view(BLIND, answers=True, evacuates=True).acts, "a standby was never the holder"


def test_clock_that_is_off_is_named_with_its_remedy() -> None:
    """With a clock off by an hour the daemon waited for the lease for ever, and `why` said that it is started again."""
    assert "chronyc makestep" in view(BLIND, answers=False).remedy
    assert view(LAPSED, answers=True).remedy == LOOK


@pytest.mark.parametrize("unit", [WAITS, BLIND, replace(RUNS, silent_s=60.0), STOPPED])
def test_screens_and_overview_say_it_and_promise_no_step(unit: UnitState) -> None:
    seen = view(unit, answers=False)
    moment = sight(
        a_plan(), *living("h200-2a-1"), nodes=(node("h200-2a-1", UP),), jobs=(job(41, reason="Resources"),)
    )
    moment = replace(moment, daemon=seen.acts)
    for subject in ("41", "h200-2a-1"):
        shown = why(moment, subject, seen)
        assert [line.words for line in shown.lines if line.part is Part.NEXT] == [seen.then] * bool(seen.then)
        assert any(line.words.startswith(seen.state) for line in shown.lines if line.part is Part.STATE)
        assert any(line.words == seen.remedy for line in shown.lines if line.part is Part.REMEDY)
    said = text(overview(moment, "1", Published(bundle="1", ready=True), seen), moment.now)
    assert f"  head      {seen.state}" in said
    assert (NOTHING_OF_IT in said) == (not seen.holder)


def test_daemon_is_told_also_without_the_views_of_slurm_and_the_cloud() -> None:
    """With a clock off by an hour EC2 refuses as well: the screen named EC2 alone."""
    moment = sight(a_plan(), jobs=(job(41),))
    blind = replace(moment, observation=replace(moment.observation, cloud=None), daemon=False)
    said = [line.words for line in why(blind, "41", view(BLIND, answers=False)).lines]
    assert any("waits for the lease" in words for words in said)


SHOWN = """\
SubState=running
ActiveState=active
StatusText=standby: a=b holds the lease
WatchdogTimestampMonotonic=5500000
"""


def test_answer_of_systemctl() -> None:
    assert parse(SHOWN, 7.0) == UnitState(
        active="active", sub="running", status="standby: a=b holds the lease", silent_s=1.5
    )
    assert parse(SHOWN.replace("5500000", "0"), 7.0).silent_s is None
    with pytest.raises(ValueError, match="no ActiveState"):
        parse(SHOWN.replace("Active", "In"), 7.0)


@pytest.mark.parametrize("script", ["exit 1", "echo nothing", "exec sleep 900"])
def test_systemd_that_does_not_answer_is_no_error(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "systemctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(daemon_view, "SHOW_S", 0.2)
    assert daemon_view.read(7.0) is None
