"""Hostlists: the order of names, the limits, and the comparison with ClusterShell."""

import re
from typing import Any

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.slurm.hostlist import LONGEST, HostlistError, HostlistTooLargeError, expand, fold, runs

ROWS = [
    ("a range keeps its zeros", "gpu[01-03]", ("gpu01", "gpu02", "gpu03"), "gpu[01-03]"),
    ("zeros run out", "n[08-11]", ("n08", "n09", "n10", "n11"), "n[08-11]"),
    ("no zeros", "n[8-11]", ("n8", "n9", "n10", "n11"), "n[8-11]"),
    ("from nought", "n[0-2],n[9-10]", ("n0", "n1", "n2", "n9", "n10"), "n[0-2,9-10]"),
    ("names alone", "a,b,c1", ("a", "b", "c1"), "a,b,c1"),
    ("the order is the writer's", "g[3,1-2]", ("g3", "g1", "g2"), "g[3,1-2]"),
    ("two brackets", "r[1-2]-n[1-2]", ("r1-n1", "r1-n2", "r2-n1", "r2-n2"), "r1-n[1-2],r2-n[1-2]"),
    ("a word after the bracket", "g[1-2]-ib", ("g1-ib", "g2-ib"), "g1-ib,g2-ib"),
    ("addresses", "192.0.2.[254-255],192.0.3.0", ("192.0.2.254", "192.0.2.255", "192.0.3.0"), "192.0.2.[254-255],192.0.3.0"),
    ("a name twice stays twice", "a1,a1", ("a1", "a1"), "a[1,1]"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "names", "folded"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_hostlist_expands_and_folds_in_order(text: str, names: tuple[str, ...], folded: str) -> None:
    assert expand(text, most=100) == names
    assert fold(names) == folded
    assert expand(folded, most=100) == names


@pytest.mark.parametrize(
    "text",
    ["", ",", "a,,b", "a,", "a b", "a[", "a[]", "a[1", "a1]", "a[1]]", "a[x]", "a[1-]", "a[-1]", "a[2-1]", "a[01-100]",
     "a[1-010]", "a[00-0]", "a[1-2-3]", "a[1234567890]", "a\n", "a[1 ,2]"],
)  # fmt: skip
def test_invalid_hostlist_is_refused(text: str) -> None:
    with pytest.raises(HostlistError):
        expand(text, most=100)


@pytest.mark.parametrize(
    "text", ["x[1-99999999]", "x[1-999][1-999][1-999]", "x[0-100]", "x" * 9000, ",".join(["x[1-99]"] * 2)]
)
def test_too_many_names_are_refused_before_expansion(text: str) -> None:
    with pytest.raises(HostlistTooLargeError):
        expand(text, most=100)


WORDS = st.from_regex(r"[a-z][a-z-]{0,4}[0-9]{0,4}", fullmatch=True)


@given(st.lists(WORDS, min_size=1, max_size=12))
def test_expanded_fold_gives_the_same_names(names: list[str]) -> None:
    assert expand(fold(names), most=100) == tuple(names)
    assert [name for run in runs(names) for name in run] == names


@given(st.lists(WORDS, min_size=1, max_size=12, unique=True))
def test_clustershell_expands_a_fold_to_the_same_names(names: list[str]) -> None:
    found: Any = NodeSet(fold(names))
    assert set(found) == set(names)


# ClusterShell takes a digit there into the range, and reads `1[0-10]` as 10 to 110 (1.9.3, seen).
DIGIT_BEFORE_BRACKET = re.compile(r"[0-9]\[|\][0-9\[]")


@given(st.text(alphabet="ab1029[],-", max_size=24))
def test_clustershell_accepts_every_accepted_text(text: str) -> None:
    try:
        names = expand(text, most=1000)
    except HostlistError:
        return
    if DIGIT_BEFORE_BRACKET.search(text):
        return
    found: Any = NodeSet(text)
    assert {name.lstrip() for name in found} == set(names)


def test_a_list_of_exactly_the_bound_is_expanded() -> None:
    assert len(expand("n[1-100]", most=100)) == 100
    with pytest.raises(HostlistTooLargeError, match="it has 101 names, more than 100"):
        expand("n[1-101]", most=100)


def test_text_of_exactly_the_longest_length_is_read() -> None:
    longest = "n" * LONGEST
    assert expand(longest, most=1) == (longest,)
    with pytest.raises(HostlistTooLargeError, match="longer than"):
        expand(longest + "n", most=1)
