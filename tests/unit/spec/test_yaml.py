"""YAML to a tree: YAML 1.2, marks, merges, and hostile files."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_spec_text
from support.call_counts import calls_of

from gpucluster import catalog
from gpucluster.spec import Report, inspect_text
from gpucluster.spec.problem import Mark
from gpucluster.spec.tree import mark_of, plain
from gpucluster.spec.yaml import TreeError, parse

SCALARS = [
    ("no", "no"),
    ("on", "on"),
    ("1:30", "1:30"),
    ("'24.10'", "24.10"),
    ("true", True),
    ("~", None),
    ("0o17", 15),
    ("0x1F", 31),
    ("1_000", 1000),
    ("-3", -3),
    ("2026-11-21", "2026-11-21"),
    ("!!str 24", "24"),
]


@pytest.mark.parametrize(("written", "value"), SCALARS, ids=[row[0] for row in SCALARS])
def test_scalar_reads_as_yaml_1_2(written: str, value: object) -> None:
    assert plain(parse(f"a: {written}").root) == {"a": value}


def test_merge_fills_missing_keys_and_first_source_wins() -> None:
    text = "x-a: &a {p: 1, q: 1}\nx-b: &b {q: 2, r: 2}\nc: {<<: [*a, *b], p: 3}\n"
    values = plain(parse(text).root)
    assert isinstance(values, dict)
    assert values["c"] == {"p": 3, "q": 1, "r": 2}


def test_anchors_and_extension_keys_make_a_spec_shorter() -> None:
    report = inspect_text(
        a_spec_text(
            ("schema: 1", "x-spot: &spot {from: spot, machines: [p5en.48xlarge]}\nschema: 1"),
            ("{from: spot, machines: [p5en.48xlarge, p5e.48xlarge]}", "{<<: *spot, max: 8}"),
        ),
        "spec.yaml",
        catalog.load(),
    )
    assert report.problems == ()
    assert report.result().pools[0].capacity[0].max == 8


def test_error_in_a_merged_part_points_at_the_anchor() -> None:
    text = a_spec_text(
        ("schema: 1", "x-spot: &spot {from: spot, machines: [p5en.49xlarge]}\nschema: 1"),
        ("{from: spot, machines: [p5en.48xlarge, p5e.48xlarge]}", "{<<: *spot}"),
    )
    assert inspect_text(text, "spec.yaml", catalog.load()).problems[0].mark == Mark(1, 39)


def test_keys_and_values_have_their_own_marks() -> None:
    root = parse("a:\n  b: [x, y]\n").root
    assert mark_of(root, ("a", "b", 1)) == Mark(2, 10)
    assert mark_of(root, ("a", "b"), at_key=True) == Mark(2, 3)
    assert mark_of(root, ("a", "nothing", 3)) == Mark(2, 3)


def _bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    return "\n".join(lines)


MOST_CALLS = 8_000_000
HOSTILE = [
    ("a billion laughs", _bomb(), "too-large"),
    ("an alias to itself", "&a [*a]", "too-large"),
    ("a merge of itself", "a: &a {<<: *a}", "too-large"),
    ("a hundred thousand open lists", "[" * 100_000, "too-large"),
    ("mappings without end", "{a: " * 50_000, "too-large"),
    ("a list too long", "[" + "1," * 20_000 + "1]", "too-large"),
    ("a file too large", "a: " + "x" * 300_000, "too-large"),
    ("a number of a hundred thousand digits", "a: " + "9" * 100_000, "yaml"),
    ("nothing", "", "yaml"),
    ("only a comment", "# nothing\n", "yaml"),
    ("bytes that are no text", "a: \udcff", "yaml"),
    ("a null character", "a: \x00", "yaml"),
]


@pytest.mark.parametrize(("text", "problem"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_hostile_file_is_refused_with_bounded_work(text: str, problem: str) -> None:
    """The limits bound the work: 20,000 events of the parser take about five million calls."""
    reports: list[Report] = []
    calls = calls_of(lambda: reports.append(inspect_text(text, "spec.yaml", catalog.load())))
    assert calls < MOST_CALLS
    (report,) = reports
    assert report.spec is None
    assert problem in {p.id for p in report.problems}
    assert all(len(line) < 500 for p in report.problems for line in str(p).splitlines())


@given(st.text())
def test_any_text_gives_a_tree_or_a_tree_error(text: str) -> None:
    with contextlib.suppress(TreeError):
        parse(text)


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.just("spot")
    | st.just("10.0.0.0/16")
)
KEYS = st.sampled_from(
    [
        "schema",
        "name",
        "aws",
        "region",
        "network",
        "cidr",
        "zones",
        "slurm",
        "version",
        "head",
        "machine",
        "pools",
        "nodes",
        "min",
        "max",
        "idle",
        "boot_timeout",
        "capacity",
        "from",
        "machines",
        "partitions",
        "default",
        "x-y",
        "a",
    ]
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=40,
)


@given(TREES)
def test_any_tree_gives_a_report_with_a_place_for_each_problem(tree: object) -> None:
    report = inspect_text(json.dumps(tree), "spec.yaml", catalog.load())
    assert report.spec is None
    assert report.errors
    assert all(p.mark.line >= 1 and p.mark.column >= 1 and str(p) for p in report.problems)
