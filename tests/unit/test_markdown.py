"""What others wrote stays text: in a cell, in a code span, in a fence, in a summary."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster import markdown
from gpucluster.text import printable

HOSTILE = st.text(alphabet="ab|`~<>@#*_[]()\\&\n\r\t\x1b\x07\u202e-", max_size=30)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a|b", r"a\|b"),
        ("a <b>", "a &lt;b>"),
        ("@team see #12", "@\u200bteam see #\u200b12"),
        ("*x* [y](z)", r"\*x\* \[y\](z)"),
        ("- no list", r"\- no list"),
        ("us-east-2", "us-east-2"),
        ("1. no list", r"1\. no list"),
        ("12) no list", r"12\) no list"),  # only one figure was thought of
        ("two\nlines", "two lines"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("turn\u202eed", "turn\ufffded"),
        ("a & b", "a &amp; b"),
        ("$x$ and $$y$$", r"\$x\$ and \$\$y\$\$"),  # a formula to GitHub
    ],
)
def test_text_is_no_markup(value: str, shown: str) -> None:
    assert markdown.text(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [("a", "`a`"), ("a`b", "``a`b``"), ("`", "`` ` ``"), ("a|b", r"`a\|b`"), ("", "` `")],
)
def test_a_code_span_holds_any_text(value: str, shown: str) -> None:
    assert markdown.code(value) == shown


@given(HOSTILE)
def test_nothing_leaves_a_fence(value: str) -> None:
    opening, *body, closing = markdown.fence(value).split("\n")
    assert opening == closing
    assert all(opening not in line for line in body)


@given(st.lists(HOSTILE, min_size=3, max_size=3))
def test_a_row_keeps_its_cells(cells: list[str]) -> None:
    for shape in (markdown.text, markdown.code):
        row = markdown.table(["a", "b", "c"], [[shape(cell) for cell in cells]]).split("\n")[2:]
        assert len(row) == 1, "no cell breaks the line"
        bare = re.sub(r"\\.", "", row[0]) if shape is markdown.text else row[0].replace("\\|", "")
        assert bare.count("|") == 4


@given(HOSTILE)
def test_a_summary_is_no_markup(value: str) -> None:
    summary = markdown.details(value, "body").split("\n")[1]
    inner = summary.removeprefix("<summary>").removesuffix("</summary>")
    assert not re.search(r"[<>]|@[a-b]", inner)
    assert html.unescape(inner).replace("\u200b", "") == printable(value)


def test_what_does_not_fit_is_left_out_and_said() -> None:
    parts = [f"part {n} " + "x" * 90 for n in range(10)]
    whole = markdown.fitted("the summary", parts, "see the log", limit=10_000)
    cut = markdown.fitted("the summary", parts, "see the log", limit=400)
    assert whole.count("part ") == 10
    assert cut.startswith("the summary\n\npart 0 ")
    assert cut.endswith("7 of 10 parts left out: see the log\n")
    assert len(cut) <= 400
