"""Money and percent as people write them: exact to the millionth, and nothing else passes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.spec.units import parse_money, parse_percent, parse_rate, write_money, write_rate


@pytest.mark.parametrize(
    ("text", "micro"),
    [
        ("250000 USD", 250_000_000_000),
        ("0.000001 USD", 1),
        ("1999.50 USD", 1_999_500_000),
        ("250000", None),
        ("250000USD", None),
        ("250,000 USD", None),
        ("-1 USD", None),
        ("1e6 USD", None),
        ("1 EUR", None),
        ("1 USD/h", None),
        (".5 USD", None),
        ("1. USD", None),
        ("1.0000001 USD", None),
        ("\u0661 USD", None),
        ("1 USD\n", None),
    ],
)
def test_an_amount_is_exact_or_nothing(text: str, micro: int | None) -> None:
    assert parse_money(text) == micro


@given(st.integers(0, 10**17))
def test_an_hourly_price_comes_back_as_it_was_written(micro: int) -> None:
    assert parse_rate(write_rate(micro)) == micro


@given(st.text(alphabet="0123456789.,% USD/h-+e", max_size=14))
def test_nothing_breaks_the_parsers(text: str) -> None:
    for parse in (parse_money, parse_rate, parse_percent):
        found = parse(text)
        assert found is None or found >= 0


@pytest.mark.parametrize(("text", "percent"), [("80%", 80), ("80 %", None), ("80.5%", None), ("80", None)])
def test_a_percentage_is_whole(text: str, percent: int | None) -> None:
    assert parse_percent(text) == percent


def test_for_people_it_is_rounded_as_bills_are() -> None:
    assert write_money(250_000_000_000) == "250,000.00 USD"
    assert write_money(1_005_000) == "1.01 USD"
