"""Schedules of CronJobs, as the library of the controller reads them."""

import pytest

from gpucluster.k8s.lint.schedule import complaint

GOOD = ("* * * * *", "*/5 0-6,22 1 jan-MAR mon", "30 2 * * 0", "@hourly", "@every 1h30m", "0 0 ? * sun", "5/15 * * * *", "59 23 31 12 6")  # fmt: skip
BAD = ("", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 7", "@often", "*/0 * * * *", "5-1 * * * *", "* * * * monday", "@every soon")  # fmt: skip


@pytest.mark.parametrize("written", GOOD)
def test_schedule_is_read(written: str) -> None:
    assert not complaint(written)


@pytest.mark.parametrize("written", BAD)
def test_other_text_is_none(written: str) -> None:
    assert complaint(written)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("0 0 * * 7", "'7' is no day of the week: 0 to 6, or sun mon tue wed thu fri sat"),
        ("60 * * * *", "'60' is no minute: 0 to 59"),
        ("CRON_TZ=UTC 0 3 * * *", "'CRON_TZ=UTC': the API server refuses a time zone here: use timeZone"),
    ],
)
def test_part_that_is_wrong_is_named(written: str, words: str) -> None:
    assert complaint(written) == words
