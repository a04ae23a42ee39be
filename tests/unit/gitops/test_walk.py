"""Tests of the differences between two specs: path, name, and values as written."""

import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from support.builders import SPEC, a_spec_text
from support.reviewed import a_diff, a_side

from gpucluster.gitops.model import Kind, SpecChange
from gpucluster.gitops.walk import matched, order_kept, walk
from gpucluster.spec import ClusterSpec, UpdateClass
from gpucluster.spec.model import Capacity
from gpucluster.spec.part import Part

POOL = """\
  - name: h200
    nodes: {min: 0, max: 16}
    idle: 5m
    capacity:
      - {from: spot, machines: [p5en.48xlarge, p5e.48xlarge]}
      - {from: on-demand, machines: [p5en.48xlarge], max: 4}
"""
SMALL = """\
  - {name: a100, nodes: 2, capacity: [{from: on-demand, machines: [p4d.24xlarge]}]}
"""
BOTH = a_spec_text((POOL, POOL + SMALL), ("pools: [h200]", "pools: [h200, a100]"))
TURNED = a_spec_text((POOL, SMALL + POOL), ("pools: [h200]", "pools: [h200, a100]"))


def _changes(old: str, new: str) -> list[tuple[str, Kind, str | None, str | None]]:
    return [(one.path, one.kind, one.before, one.after) for one in a_diff(old, new).spec]


def test_spec_equals_itself() -> None:
    found = a_diff(SPEC, SPEC)
    assert not found.differs
    assert found.worst is None


@pytest.mark.parametrize(
    ("change", "path", "before", "after"),
    [
        (("max: 16", "max: 32"), "pools[h200].nodes.max", "16", "32"),
        (("idle: 5m", "idle: 10m"), "pools[h200].idle", "5m", "10m"),
        (("machine: m7i.2xlarge", "machine: m7i.xlarge"), "head.machine", "m7i.2xlarge", "m7i.xlarge"),
        (("max: 4", "max: 8"), "pools[h200].capacity[1].max", "4", "8"),
        (
            ("[p5en.48xlarge, p5e.48xlarge]", "[p5en.48xlarge]"),
            "pools[h200].capacity[0].machines",
            "[p5en.48xlarge, p5e.48xlarge]",
            "[p5en.48xlarge]",
        ),
        (("nodes: {min: 0, max: 16}", "nodes: {max: 16, min: 4}"), "pools[h200].nodes.min", "0", "4"),
    ],
)
def test_change_shows_values_as_written(change: tuple[str, str], path: str, before: str, after: str) -> None:
    assert _changes(SPEC, a_spec_text(change)) == [(path, Kind.CHANGED, before, after)]


def test_equivalent_notation_is_no_change() -> None:
    same = (("idle: 5m", "idle: 300s"), ("max: 16}", "max: 0x10}"), ("name: burst", 'name: "burst"'))
    assert _changes(SPEC, a_spec_text(*same)) == []


def test_short_form_of_nodes_is_shown_by_fields() -> None:
    assert _changes(SPEC, a_spec_text(("nodes: {min: 0, max: 16}", "nodes: 16"))) == [
        ("pools[h200].nodes.min", Kind.CHANGED, "0", "16")
    ]


def test_added_or_removed_field_has_one_value() -> None:
    without = a_spec_text(("    idle: 5m\n", ""))
    assert _changes(SPEC, without) == [("pools[h200].idle", Kind.REMOVED, "5m", None)]
    assert _changes(without, SPEC) == [("pools[h200].idle", Kind.ADDED, None, "5m")]


def test_pools_match_by_name_and_order_is_reported() -> None:
    """Regression: the report was `no change of the spec; files differ`, without a class."""
    assert _changes(BOTH, TURNED) == [("pools", Kind.REORDERED, "[h200, a100]", "[a100, h200]")]


def test_new_pool_is_shown_completely() -> None:
    pool = "{name: a100, nodes: 2, capacity: [{from: on-demand, machines: [p4d.24xlarge]}]}"
    assert (("pools[a100]", Kind.ADDED, None, pool)) in _changes(SPEC, BOTH)


def test_renamed_pool_is_removed_and_added() -> None:
    renamed = a_spec_text(("name: h200", "name: big"), ("pools: [h200]", "pools: [big]"))
    assert [(path, kind) for path, kind, _, _ in _changes(SPEC, renamed)] == [
        ("pools[h200]", Kind.REMOVED),
        ("partitions[gpu].pools", Kind.CHANGED),
        ("pools[big]", Kind.ADDED),
    ]


def test_reordered_sources_are_reported() -> None:
    spot = "      - {from: spot, machines: [p5en.48xlarge, p5e.48xlarge]}\n"
    demand = "      - {from: on-demand, machines: [p5en.48xlarge], max: 4}\n"
    found = a_diff(SPEC, a_spec_text((spot + demand, demand + spot))).spec
    assert [(one.path, one.kind, one.update) for one in found] == [
        ("pools[h200].capacity", Kind.REORDERED, UpdateClass.NEW_NODES)
    ]


def test_source_added_in_front_does_not_reorder() -> None:
    spot = "      - {from: spot, machines: [p5en.48xlarge, p5e.48xlarge]}\n"
    first = "      - {from: on-demand, machines: [p5e.48xlarge], max: 2}\n"
    assert _changes(SPEC, a_spec_text((spot, first + spot))) == [
        ("pools[h200].capacity[0]", Kind.ADDED, None, "{from: on-demand, machines: [p5e.48xlarge], max: 2}")
    ]


def test_changed_source_matches_old_source() -> None:
    changes = (("machines: [p5en.48xlarge, p5e.48xlarge]", "machines: [p5en.48xlarge]"), ("max: 4", "max: 5"))
    assert [path for path, *_ in _changes(SPEC, a_spec_text(*changes))] == [
        "pools[h200].capacity[0].machines",
        "pools[h200].capacity[1].max",
    ]


def test_changes_are_sorted_worst_first() -> None:
    changes = (("10.42.0.0/16", "10.43.0.0/16"), ("idle: 5m", "idle: 6m"), ("max: 16", "max: 8"))
    found = a_diff(SPEC, a_spec_text(*changes)).spec
    assert [one.update for one in found] == [UpdateClass.REPLACE, UpdateClass.DRAIN, UpdateClass.LIVE]


SOURCES = st.lists(
    st.builds(
        lambda market, machines, most: Capacity.model_construct(
            source=market, machines=tuple(machines), max=most, zones=None
        ),
        st.sampled_from(["spot", "on-demand"]),
        st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True),
        st.none() | st.integers(1, 3),
    ),
    max_size=6,
)


@given(SOURCES, SOURCES)
def test_every_item_is_matched_once(old: list[Part], new: list[Part]) -> None:
    pairs = matched(old, new)
    assert sorted(i for i, _ in pairs if i is not None) == list(range(len(old)))
    assert sorted(j for _, j in pairs if j is not None) == list(range(len(new)))
    equal = sum(1 for i, j in pairs if i is not None and j is not None and old[i] == new[j])
    rest = list(new)
    for item in old:
        if item in rest:
            rest.remove(item)
    assert equal == len(new) - len(rest), "no equal item is matched with another"


@given(SOURCES)
def test_equal_lists_match_in_order(items: list[Part]) -> None:
    pairs = matched(items, items)
    assert order_kept(pairs)
    assert all(i == j for i, j in pairs)


def test_items_without_common_fields_do_not_match() -> None:
    one, other = (
        Capacity.model_construct(source=market, machines=(machine,), max=None, zones=None)
        for market, machine in (("spot", "a"), ("on-demand", "b"))
    )
    assert matched([one], [other]) == ((None, 0), (0, None))


def _models(model: type[BaseModel]) -> set[type[BaseModel]]:
    found, waiting = set[type[BaseModel]](), [model]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            hints = typing.get_type_hints(one)
            waiting += [part for hint in hints.values() for part in _parts_in(hint)]
    return found


def _parts_in(hint: object) -> list[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, Part):
        return [hint]
    return [part for inner in typing.get_args(hint) for part in _parts_in(inner)]


def test_every_field_of_the_spec_has_a_class() -> None:
    for model in _models(ClusterSpec):
        for name, info in model.model_fields.items():
            extra = info.json_schema_extra
            assert isinstance(extra, dict), f"{model.__name__}.{name}"
            UpdateClass(extra["x-update-class"])


def test_walking_a_spec_against_itself_reads_every_field_and_finds_nothing() -> None:
    side = a_side(BOTH)
    assert list(walk(side.spec, side.spec, side.document, side.document)) == []


def test_change_is_a_value() -> None:
    (one,) = a_diff(SPEC, a_spec_text(("idle: 5m", "idle: 6m"))).spec
    assert one == SpecChange(
        path="pools[h200].idle", kind=Kind.CHANGED, before="5m", after="6m", update=UpdateClass.LIVE
    )
