"""Printable text, money, sizes, durations and times."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.text import (
    ascii_line,
    cut_middle,
    format_duration,
    format_money,
    format_rate,
    format_size,
    listed,
    parse_duration,
    parse_money,
    parse_percent,
    parse_rate,
    parse_size,
    printable,
    printable_lines,
    quoted,
    relative_time,
    rounded_duration,
    short,
    utc,
    utc_minute,
)

ANY = st.one_of(
    st.text(max_size=400),
    st.text(
        alphabet="a \x1b[]31m;\x07\\\n\r\t\x00\x9b\u202e\u2066\u200b\u2028\ud800\u05d0\u0301…", max_size=60
    ),
    st.binary(max_size=60).map(lambda raw: raw.decode(errors="surrogateescape")),
)
NOON = 1_795_262_400.0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain text", "plain text"),
        ("  two  blanks ", "  two  blanks "),
        ("a\tb\r\nc\u2028d\u00a0e", "a b  c d e"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07shown", "shown"),
        ("\x1b]8;;https://x\x1b\\link", "link"),
        ("\x1bc reset", "\ufffdc reset"),
        ("\x9b31m", "\ufffd31m"),
        ("bell\x07 nul\x00 del\x7f", "bell\ufffd nul\ufffd del\ufffd"),
        ("turn\u202e \u2066isolate\u200f", "turn\ufffd \ufffdisolate\ufffd"),
        ("zero\u200bwidth\ufeff", "zero\ufffdwidth\ufffd"),
        ("half \ud83d", "half \ufffd"),
        ("שלום é 🙂", "שלום é 🙂"),
    ],
)
def test_printable_text(text: str, line: str) -> None:
    assert printable(text) == line


@given(ANY, st.integers(1, 300))
def test_any_text_becomes_one_bounded_printable_line(text: str, most: int) -> None:
    for line in (printable(text), printable(text, most), short(text, most)):
        assert line.isprintable()
        assert len(line) <= len(text)
        line.encode()
    assert len(printable(text, most)) <= most
    assert len(short(text, most)) <= most


@given(ANY, st.integers(1, 300))
def test_printable_and_short_are_idempotent(text: str, most: int) -> None:
    assert printable(printable(text)) == printable(text)
    assert printable(printable(text, most), most) == printable(text, most)
    assert short(short(text, most), most) == short(text, most)
    assert short(printable(text), most) == short(text, most)
    assert printable_lines(printable_lines(text)) == printable_lines(text)


@given(ANY, st.integers(1, 300))
def test_an_ascii_line_has_one_byte_for_each_character(text: str, most: int) -> None:
    line = ascii_line(text, most)
    assert line.isprintable()
    assert len(line.encode()) == len(line) <= min(most, len(text))
    assert ascii_line(line, most) == line


@given(ANY)
def test_printable_lines_keep_their_number(text: str) -> None:
    lines = printable_lines(text).split("\n")
    assert len(lines) == text.count("\n") + 1
    assert all(line.isprintable() for line in lines)


@given(ANY)
def test_quoted_text_is_a_bounded_literal(text: str) -> None:
    literal = quoted(text)
    assert literal.isprintable()
    assert len(literal) <= 60 * len("\\U0010ffff") + 2
    if len(text) <= 60:
        assert ast.literal_eval(literal) == text


def test_short_text_has_no_repeated_blanks() -> None:
    assert short(" a\n\n b\t ") == "a b"
    assert short("x" * 10_000) == "x" * 199 + "…"


@given(ANY, st.integers(40, 120))
def test_cut_in_the_middle_keeps_both_ends(text: str, most: int) -> None:
    cut = cut_middle(text, most)
    assert len(cut) <= max(most, len(f"...({len(text)} characters)...") + 2)
    assert cut[:1] == text[:1]
    assert cut[-1:] == text[-1:]


@given(st.integers(1, 10**8))
def test_duration_and_size_are_read_as_written(number: int) -> None:
    assert parse_duration(format_duration(number)) == number
    assert parse_size(format_size(number)) == number


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (300, "5m"), (86_400, "1d"), (90, "90s"), (0.5, "0.5s"), (7_200, "2h")]
)
def test_exact_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7_500, "2 h 5 min"),
        (86_400, "24 h"),
        (266_400, "3 d 2 h"),
    ],
)
def test_rounded_duration(seconds: float, text: str) -> None:
    assert rounded_duration(seconds) == text


def test_times_are_utc() -> None:
    assert utc(NOON) == "2026-11-21T12:00:00Z"
    assert utc_minute(NOON + 59) == "2026-11-21 12:00 UTC"
    assert relative_time(NOON - 3, NOON) == "11:59:57 UTC, 3 s ago"
    assert relative_time(NOON + 86_400, NOON) == "2026-11-22 12:00:00 UTC, in 24 h"


@given(st.floats())
def test_any_moment_has_words(at: float) -> None:
    for text in (utc(at), utc_minute(at), relative_time(at, NOON), relative_time(NOON, at)):
        assert text.isprintable()


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
    assert parse_rate(format_rate(micro)) == micro


@given(st.text(alphabet="0123456789.,% USD/h-+e", max_size=14))
def test_nothing_breaks_the_parsers(text: str) -> None:
    for parse in (parse_money, parse_rate, parse_percent):
        found = parse(text)
        assert found is None or found >= 0


@pytest.mark.parametrize(("text", "percent"), [("80%", 80), ("80 %", None), ("80.5%", None), ("80", None)])
def test_a_percentage_is_whole(text: str, percent: int | None) -> None:
    assert parse_percent(text) == percent


def test_for_people_it_is_rounded_as_bills_are() -> None:
    assert format_money(250_000_000_000) == "250,000.00 USD"
    assert format_money(1_005_000) == "1.01 USD"


@pytest.mark.parametrize(
    ("found", "text"),
    [((), ""), (("a",), "a"), (("a", "b", "a"), "a and b"), (("a", "b", "c"), "a, b and c")],
)
def test_a_list_is_read_aloud(found: tuple[str, ...], text: str) -> None:
    assert listed(found) == text
