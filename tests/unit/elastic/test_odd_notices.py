"""Notices at odd moments: later than an earlier one, beside a time limit, for a part of a job, for a node that a person holds."""

from collections.abc import Iterator

import pytest
from support.scenes import (
    A1,
    DRAINED,
    NOW,
    OURS,
    TERMINATION,
    Scene,
    kinds,
    of,
    spot,
)

from gpucluster.elastic.inspect.why import Part
from gpucluster.elastic.model import Signal
from gpucluster.plan.messages import GpuFault, Notice, NoticeKind
from gpucluster.plan.model import Market

HOUR, DAY = 3600.0, 86_400.0
SIGNALLED = "its batch script was signalled"


def maintenance(after: float) -> Notice:
    return Notice(kind=NoticeKind.MAINTENANCE, at=NOW + after, words="instance-reboot")


def broken_gpu() -> GpuFault:
    return GpuFault(xid=79, device="0000:53:00", count=1, last_at=NOW, text="NVRM: Xid 79")


def told(scene: Scene, subject: str, part: Part) -> Iterator[str]:
    """Return the sentences of this part of the screen."""
    return (line.words for line in scene.shown(subject).lines if line.part is part)


# --- a later notice in the same run -------------------------------------------------------------------
def test_run_that_outlived_its_first_signal_is_signalled_for_a_later_notice() -> None:
    """A job without requeue runs on after a GPU failed. It was not told of the spot notice of an hour later."""
    s = Scene(A1)
    s.job(7, A1, requeueable=False)
    s.report(A1, faults=(broken_gpu(),))
    assert kinds(s.step(), Signal)
    s.node(A1, DRAINED, OURS)
    s.now = NOW + HOUR
    assert not kinds(s.step(), Signal)
    s.report(A1, spot(HOUR + 120), faults=(broken_gpu(),))
    assert [a.instance for a in kinds(s.step(), Signal)] == [of(A1)]  # type: ignore[union-attr]
    assert not kinds(s.step(), Signal)


def test_maintenance_that_moves_after_the_signal_is_signalled_again_before_its_new_time() -> None:
    """The job lost a day: it was told once, before the old time, and requeued without a signal at the new one."""
    s = Scene(A1, market=Market.ON_DEMAND)
    s.job(7, A1)
    s.report(A1, maintenance(HOUR))
    s.step()
    s.now = NOW + HOUR - TERMINATION.lead_s - TERMINATION.grace_s
    assert kinds(s.step(), Signal)
    s.now += 10
    s.report(A1, maintenance(DAY))
    assert not kinds(s.step(), Signal)
    due = NOW + DAY - TERMINATION.lead_s - TERMINATION.grace_s
    assert [
        (line.at, line.words)
        for line in s.shown("7").lines
        if line.part is Part.NEXT and "signalled" in line.words
    ] == [(due, f"its batch script is signalled with {TERMINATION.signal}")]
    s.now = due
    assert kinds(s.step(), Signal)
    assert not kinds(s.step(), Signal)


@pytest.mark.parametrize("after", [1.0, TERMINATION.grace_s - 1.0])
def test_second_notice_of_the_same_minute_does_not_signal_again(after: float) -> None:
    """The script still writes its checkpoint."""
    s = Scene(A1)
    s.job(7, A1, requeueable=False)
    s.report(A1, faults=(broken_gpu(),))
    assert kinds(s.step(), Signal)
    s.now = NOW + after
    s.report(A1, spot(after + 120), faults=(broken_gpu(),))
    assert not kinds(s.step(), Signal)
    assert any(words.startswith(SIGNALLED) for words in told(s, "7", Part.DONE))
