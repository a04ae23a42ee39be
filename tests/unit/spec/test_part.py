"""A rule that reads a field with a parse error, or a field that no model has."""

import pytest
from support.builders import a_spec, a_spec_text

from gpucluster import catalog
from gpucluster.spec.model import Capacity, ClusterSpec
from gpucluster.spec.part import AbsentError
from gpucluster.spec.reading import inspect_text
from gpucluster.spec.rules.findings import collect, or_none


def test_field_with_a_parse_error_ends_the_rule() -> None:
    half = Capacity.model_construct()
    vars(half).pop("max", None)
    with pytest.raises(AbsentError):
        _ = half.max
    assert or_none(lambda: half.source) is None


def test_unknown_field_name_in_a_rule_raises() -> None:
    spec = a_spec()

    def rule(spec: ClusterSpec):
        yield from spec.pols  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="ClusterSpec has no field 'pols'") as caught:
        collect(rule(spec))
    assert not isinstance(caught.value, AbsentError)


def test_old_key_farewell_is_read_as_termination() -> None:
    old = inspect_text(
        a_spec_text(("idle: 5m", "idle: 5m\n    farewell: {signal: HUP}")), "old", catalog.load()
    )
    new = inspect_text(
        a_spec_text(("idle: 5m", "idle: 5m\n    termination: {signal: HUP}")), "new", catalog.load()
    )
    assert old.result() == new.result()


def test_both_names_of_a_key_are_refused() -> None:
    text = a_spec_text(("idle: 5m", "idle: 5m\n    farewell: {signal: HUP}\n    termination: {signal: HUP}"))
    (problem,) = inspect_text(text, "both", catalog.load()).problems
    assert problem.id == "unknown-key"
