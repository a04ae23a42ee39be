"""The daemon's ledger: nothing is counted twice or lost where months meet, and an end changes no sum."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.elastic import ledger

PRICES = st.integers(min_value=0, max_value=500_000_000)
TIMES = st.floats(min_value=1_700_000_000, max_value=1_900_000_000)
LASTS = st.floats(min_value=0, max_value=120 * 86400)


def at(*date: int) -> float:
    return datetime(*date, tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]


def test_instance_over_new_year_costs_its_hours_in_each_month() -> None:
    parts = dict(ledger.split(3_600_000, at(2027, 12, 31, 22), at(2028, 1, 1, 1)))
    assert parts == {"2027-12": 7_200_000, "2028-01": 3_600_000}


def test_february_of_a_leap_year_has_its_29th() -> None:
    parts = dict(ledger.split(1_000_000, at(2028, 2, 1), at(2028, 3, 2)))
    assert parts == {"2028-02": 29 * 24_000_000, "2028-03": 24_000_000}


@given(PRICES, TIMES, LASTS)
def test_sum_of_the_months_is_the_total(price: int, began: float, lasts: float) -> None:
    parts = list(ledger.split(price, began, began + lasts))
    assert len({month for month, _ in parts}) == len(parts)
    assert sum(amount for _, amount in parts) == pytest.approx(price * lasts / 3600, abs=1 + len(parts))


@given(PRICES, TIMES, LASTS)
def test_end_of_an_instance_does_not_change_the_spend(price: int, began: float, lasts: float) -> None:
    now = began + lasts
    alive = ledger.spent({}, [(price, began)], now)
    assert ledger.spent(dict(ledger.split(price, began, now)), [], now) == pytest.approx(alive, abs=1)


@given(PRICES, TIMES, LASTS)
def test_clock_set_back_costs_nothing(price: int, began: float, lasts: float) -> None:
    assert sum(amount for _, amount in ledger.split(price, began, began - lasts)) == 0
    assert ledger.spent({}, [(price, began + lasts)], began) == 0


@given(TIMES)
def test_next_month_begins_in_another_month(now: float) -> None:
    first = ledger.next_month(now)
    assert first > now
    assert ledger.month_of(first) != ledger.month_of(now) == ledger.month_of(first - 1)
