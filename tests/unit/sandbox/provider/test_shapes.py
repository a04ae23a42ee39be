"""Tests of normalisers: both directions, and equality."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.engine.values import UNKNOWN, from_struct, to_struct
from gpucluster.sandbox.provider.shapes import (
    DOCUMENT,
    FLAG,
    FLAG_AS_TEXT,
    NUMBER,
    REFUSED,
    TAGS,
    TEXT,
    TEXTS,
    Field,
    Many,
    Record,
    Shape,
    same,
)

OPTIONS = Record({"tokens": Field("HttpTokens", TEXT), "hops": Field("HopLimit", NUMBER, default=1)})

SAME: list[tuple[str, Shape, Any, Any, bool]] = [
    ("policies that parse to the same", DOCUMENT, '{"a": 1, "b": 2}', '{"b":2,"a":1}', True),
    ("policies that differ in a word", DOCUMENT, '{"a": 1}', '{"a": 2}', False),
    ("a set in another order", TEXTS, ["b", "a"], ["a", "b"], True),
    ("a set with one more", TEXTS, ["a"], ["a", "b"], False),
    ("a set with one twice is not two others", TEXTS, ["a", "a"], ["a", "b"], False),
    ("a list in another order", Many(TEXT, ordered=True), ["b", "a"], ["a", "b"], False),
    ("unset and empty", TEXTS, None, [], True),
    ("unset and false: false is a value", FLAG, None, False, False),
    ("zero and unset: zero is a value", NUMBER, None, 0, False),
    ("true and 1 are of two kinds", NUMBER, True, 1, False),
    ("a record that leaves out a default", OPTIONS, {"tokens": "required"}, {"tokens": "required", "hops": 1}, True),
    ("a record with another value", OPTIONS, {"hops": 2}, {"hops": 1}, False),
    ("the unknown equals nothing, not even itself", TEXT, UNKNOWN, UNKNOWN, False),
    ("an unknown deep inside", TEXTS, ["a", UNKNOWN], ["a", UNKNOWN], False),
    ("tags with another value", TAGS, {"a": "1"}, {"a": "2"}, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "one", "other", "expected"), [r[1:] for r in SAME], ids=[r[0] for r in SAME]
)
def test_equality(shape: Shape, one: Any, other: Any, expected: bool) -> None:
    assert same(shape, one, other) is expected
    assert same(shape, other, one) is expected


PROBLEMS: list[tuple[str, Shape, Any, list[str]]] = [
    ("a number where text belongs", TEXT, 3, ["p: expected str, found int"]),
    ("a flag is no number", NUMBER, True, ["p: expected int, found bool"]),
    ("text of a flag", FLAG_AS_TEXT, "yes", ["p: expected \"true\" or \"false\", found 'yes'"]),
    ("an unknown field of a record", OPTIONS, {"tokins": "x"}, ["p.tokins: the stand-in for AWS does not know this property"]),
    ("a wrong item of a list", TEXTS, ["a", 1], ["p[1]: expected str, found int"]),
    ("a policy that is not JSON", DOCUMENT, "{", ["p: not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"]),
    ("what the stand-in does not support", REFUSED, {"a": 1}, ["p: the stand-in for AWS does not support this property"]),
    ("an unknown value is fine anywhere", OPTIONS, UNKNOWN, []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "value", "expected"), [r[1:] for r in PROBLEMS], ids=[r[0] for r in PROBLEMS]
)
def test_problems_are_named_by_their_place(shape: Shape, value: Any, expected: list[str]) -> None:
    assert list(shape.problems(value, "p")) == expected


def test_aws_tags_are_ignored() -> None:
    seen = [{"Key": "aws:cloudformation:x", "Value": "1"}, {"Key": "a", "Value": "2"}]
    assert TAGS.from_api(seen) == {"a": "2"}


def test_iam_quotes_its_documents() -> None:
    assert DOCUMENT.from_api("%7B%22a%22%3A%201%7D") == '{"a": 1}'


TEXTUAL = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
JSON = st.recursive(
    st.booleans() | st.integers(-(2**50), 2**50) | TEXTUAL,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTUAL, inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(TEXTUAL, JSON, max_size=5))
def test_value_round_trips(values: dict[str, Any]) -> None:
    assert from_struct(to_struct(values)) == values


@given(st.dictionaries(TEXTUAL, TEXTUAL, max_size=5))
def test_tags_round_trip(tags: dict[str, str]) -> None:
    ours = {k: v for k, v in tags.items() if not k.startswith("aws:")}
    assert TAGS.from_api(TAGS.to_api(tags)) == ours


def test_unknown_round_trips() -> None:
    assert from_struct(to_struct({"a": [UNKNOWN], "b": None})) == {"a": [UNKNOWN]}
