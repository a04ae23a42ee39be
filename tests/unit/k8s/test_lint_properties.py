"""For any manifest the linter reports and never raises; quantities are those of Kubernetes."""

from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.manifests import FACTS, good

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint import CHECKERS, Facts, check, documents, unchecked
from gpucluster.k8s.lint.facts import PoolFacts
from gpucluster.k8s.lint.manifest_set import build

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
    | st.sampled_from(["research", "tune", "8", "16Gi", "", "nvidia.com/gpu", "\ud800", "v1", 2**80, -(2**63)])
)  # fmt: skip
KEYS = st.text(max_size=6) | st.sampled_from(
    [
        "apiVersion",
        "kind",
        "metadata",
        "name",
        "namespace",
        "spec",
        "labels",
        "items",
        "template",
        "containers",
    ]
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Yield each container with each of its keys."""
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []  # fmt: skip
    found = [(value, key) for key, _ in pairs]
    for _, inner in pairs:
        found += places(inner)
    return found


@given(st.lists(JSON, max_size=3))
def test_any_json_is_reported_on(manifests: list[Any]) -> None:
    assert all(str(finding) for finding in check(manifests, FACTS))
    unchecked(manifests, FACTS)


@settings(max_examples=80)
@given(st.data())
def test_good_manifests_with_anything_in_any_place_are_reported_on(data: st.DataObject) -> None:
    manifests = good()
    for _ in range(data.draw(st.integers(1, 3))):
        spots = places(manifests)
        container, key = spots[data.draw(st.integers(0, len(spots) - 1))]
        container[key] = data.draw(JSON)
    assert all(str(finding) for finding in check(manifests, FACTS))


@settings(max_examples=10)
@given(st.randoms(use_true_random=False))
def test_order_of_manifests_does_not_change_findings(shuffle: Any) -> None:
    manifests = good()
    shuffle.shuffle(manifests)
    assert check(manifests, FACTS) == ()


def test_checking_changes_no_manifest() -> None:
    manifests = good()
    before = deepcopy(manifests)
    check(manifests, FACTS)
    assert manifests == before


@pytest.mark.parametrize("depth", [70, 5000])
def test_too_deep_document_is_reported(depth: int) -> None:
    inner: Any = {}
    for _ in range(depth):
        inner = {"a": [inner]}
    (found,) = check([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": inner}], FACTS)
    assert (found.rule, found.message) == ("shape", "nested deeper than 64 levels")


def test_unknown_version_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1\.99 is none of 1\.34"):
        check([], Facts(kubernetes="1.99"))


@given(st.text(max_size=20) | st.integers() | st.floats() | st.booleans() | st.none())
def test_any_value_is_a_quantity_or_none(value: Any) -> None:
    amount = quantity.parse(value)
    assert amount is None or isinstance(amount, Decimal)


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        ("500m", "0.5"), ("8", "8"), (8, "8"), (0.5, "0.5"), ("16Gi", str(16 * 2**30)), ("1e3", "1000"), ("1E3", "1000"),
        ("2E", "2e18"), ("1.5k", "1500"), ("-1", "-1"), ("100n", "1e-7"), (".5", "0.5"), ("5.", "5"), ("1Ki", "1024"),
        ("+3u", "0.000003"),
    ],
)  # fmt: skip
def test_quantities(written: Any, amount: str) -> None:
    assert quantity.parse(written) == Decimal(amount)


@pytest.mark.parametrize("written", ["16GB", "1 Gi", "", "Gi", "1.2.3", "0x10", "1ki", "٣", "1e", "NaN", True, None, [], "1" * 65])  # fmt: skip
def test_no_quantities(written: Any) -> None:
    assert quantity.parse(written) is None


@given(st.integers(0, 2**50) | st.sampled_from([10**24 - 1]))
def test_shown_quantity_can_be_read(amount: int) -> None:
    assert quantity.parse(quantity.shown(Decimal(amount))) == amount


def test_pool_without_machine_facts_has_no_capacity() -> None:
    bare = Facts(kubernetes="1.36", pools=(PoolFacts(name="x", max_nodes=0, allocatable={}),))
    assert "quota-above-pools" in {finding.rule for finding in check(good(), bare)}


def test_huge_quantity_is_shown() -> None:
    """Regression: a quota of 1e34 ended in decimal's InvalidOperation."""
    assert quantity.shown(Decimal("1.0485760000000002e+34")) == "1.049E+34"


WRONG: tuple[Any, ...] = (None, [], {}, "x", 1, [[]], {"a": 1}, [{}], True, 1e34)
CHEAP = sorted(CHECKERS.keys() - {"builtin", "schemas"})  # those two are jsonschema's walk, and slow for this


def test_each_place_of_good_manifests_may_hold_something_else() -> None:
    """Regression: a list as the key of a taint ended in a TypeError."""
    manifests = good()
    for number, (container, key) in enumerate(places(manifests)):
        right, container[key] = container[key], deepcopy(WRONG[number % len(WRONG)])
        manifest_set, _ = build(documents(manifests), FACTS)
        for name in CHEAP:
            assert all(finding.rule for finding in CHECKERS[name](manifest_set))
        container[key] = right
