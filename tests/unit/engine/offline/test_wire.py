"""Tests of URNs and of values from the protocol: secrets are never shown."""

import json
from typing import Any

import pytest
from google.protobuf import json_format, struct_pb2
from hypothesis import given
from hypothesis import strategies as st
from pulumi.runtime.proto import resource_pb2

from gpucluster.engine.offline.registry import RefusedError, Registry, registered
from gpucluster.engine.offline.urns import (
    Former,
    StackIdentity,
    former_urn,
    inherited_alias,
    name_of,
    type_of,
    types_of,
    urn_of,
)
from gpucluster.engine.offline.wire import ARCHIVE, REFERENCE, SECRET_VALUE, SIGNATURE, shown
from gpucluster.engine.values import UNKNOWN_ON_WIRE

PLACE = StackIdentity("project", "stack")
STACK = "urn:pulumi:stack::project::pulumi:pulumi:Stack::project-stack"
BOX = "urn:pulumi:stack::project::my:Box::box"
HIDDEN = "planted-7f3a"


def struct(values: dict[str, Any]) -> struct_pb2.Struct:
    return json_format.ParseDict(values, struct_pb2.Struct())


def secret(value: Any) -> Any:
    return {SIGNATURE: SECRET_VALUE, "value": value}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=3),
    max_leaves=8,
)
PLANTED = st.recursive(
    PLAIN | st.builds(secret, st.just(HIDDEN) | PLAIN.map(lambda value: [HIDDEN, value])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=3),
    max_leaves=8,
)


def masked(value: Any) -> Any:
    """The protocol has the same rule: an object with the signature becomes one word."""
    if isinstance(value, dict):
        return "[secret]" if SIGNATURE in value else {k: masked(v) for k, v in value.items()}
    return [masked(v) for v in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text("ab", max_size=3), PLANTED, max_size=4))
def test_only_secrets_are_masked(values: dict[str, Any]) -> None:
    told = shown(struct(values))
    assert told == masked(values)
    assert HIDDEN not in json.dumps(told)
    assert list(told) == sorted(told)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (UNKNOWN_ON_WIRE, "[unknown]"),
        ([UNKNOWN_ON_WIRE, 1.0], ["[unknown]", 1]),
        (secret(UNKNOWN_ON_WIRE), "[secret]"),
        ({SIGNATURE: REFERENCE, "urn": BOX, "id": "x"}, BOX),
        ({SIGNATURE: ARCHIVE, "assets": {"a": secret("x")}}, {"archive": {"assets": {"a": "[secret]"}}}),
        (0.5, 0.5),
        (2e20, 200000000000000000000),
    ],
)
def test_protocol_signatures_become_words(value: Any, told: Any) -> None:
    assert shown(struct({"x": value})) == {"x": told}


def test_secret_outputs_are_masked_in_inputs() -> None:
    assert shown(struct({"password": "p", "user": "u"}), secret=["password"]) == {
        "password": "[secret]",
        "user": "u",
    }


@pytest.mark.parametrize(
    ("parent", "urn"),
    [
        ("", "urn:pulumi:stack::project::my:Thing::a"),
        (STACK, "urn:pulumi:stack::project::my:Thing::a"),
        (BOX, "urn:pulumi:stack::project::my:Box$my:Thing::a"),
    ],
)
def test_urn_omits_stack_type(parent: str, urn: str) -> None:
    assert urn_of(PLACE, type="my:Thing", name="a", parent=parent) == urn


@given(st.text("ab:$ ", min_size=1, max_size=8))
def test_urn_round_trip_with_any_name(name: str) -> None:
    urn = urn_of(PLACE, type="my:Thing", name=name, parent=BOX)
    assert (type_of(urn), types_of(urn), name_of(urn)) == ("my:Thing", "my:Box$my:Thing", name)


@pytest.mark.parametrize("text", ["", "vpc-1", "urn:pulumi:a::b", "urn:aws:a::b::c::d"])
def test_invalid_urn_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is no urn"):
        type_of(text)


@pytest.mark.parametrize(
    ("former", "urn"),
    [
        (Former(name="b"), "urn:pulumi:stack::project::my:Box$my:Thing::b"),
        (Former(type="my:Old"), "urn:pulumi:stack::project::my:Box$my:Old::a"),
        (Former(stack="s", project="p"), "urn:pulumi:s::p::my:Box$my:Thing::a"),
        (Former(no_parent=True), "urn:pulumi:stack::project::my:Thing::a"),
        (Former(parent=STACK), "urn:pulumi:stack::project::my:Thing::a"),
    ],
)
def test_alias_keeps_unset_fields(former: Former, urn: str) -> None:
    assert former_urn(PLACE, former, type="my:Thing", name="a", parent=BOX) == urn


@pytest.mark.parametrize(
    ("name", "then"), [("box-disk", "old-disk"), ("disk", "disk")], ids=["follows its parent", "does not"]
)
def test_child_alias_follows_parent_alias(name: str, then: str) -> None:
    child = urn_of(PLACE, type="my:Thing", name=name, parent=BOX)
    was = "urn:pulumi:stack::project::my:Old::old"
    assert (
        inherited_alias(PLACE, child, parent=BOX, was=was)
        == f"urn:pulumi:stack::project::my:Old$my:Thing::{then}"
    )


def test_undeclared_parent_is_rejected() -> None:
    """Otherwise the tree would silently omit its children."""
    registry = Registry(PLACE)
    request = resource_pb2.RegisterResourceRequest(type="my:Thing", name="a", parent=BOX, custom=True)
    with pytest.raises(RefusedError, match=r"the parent of .*::a was never declared: .*::box"):
        registry.add(registered(registry.urn(request), request, ()))


def test_outputs_of_undeclared_resource_are_rejected() -> None:
    with pytest.raises(RefusedError, match="never declared"):
        Registry(PLACE).add_outputs(BOX, {})
