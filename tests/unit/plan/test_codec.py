"""plan.json and the messages: what is written comes back, and what does not fit is named."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpucluster.plan import codec
from gpucluster.plan.codec import dumps, loads, message
from gpucluster.plan.messages import NodePhase, NodeReport, Step
from gpucluster.plan.model import Bindings, TemplateBinding

REPORT = NodeReport(
    instance_id="i-0123456789abcdef0",
    nonce="n",
    boot_id="b",
    phase=NodePhase.FAILED,
    incarnation=0,
    steps=(
        Step(name="guard", ok=True, seconds=0.1),
        Step(name="key", ok=False, seconds=2, detail="no secret"),
    ),
)


@pytest.mark.parametrize("text", [dumps(REPORT), message(REPORT)], ids=["file", "message"])
def test_a_report_comes_back_equal(text):
    assert loads(NodeReport, text) == REPORT


def test_a_message_is_one_line():
    assert "\n" not in message(REPORT)


def test_maps_of_values_come_back_equal():
    bindings = Bindings(
        schema=1,
        region="r",
        bucket="b",
        secret="s",
        subnets={"z": "n"},
        templates={"k": TemplateBinding(id="lt", version=2)},
    )
    assert loads(Bindings, dumps(bindings)) == bindings


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('"incarnation": 0', '"incarnation": "0"'), r"NodeReport\.incarnation: expected int, found str"),
        (('"incarnation": 0', '"incarnation": true'), r"NodeReport\.incarnation: expected int, found bool"),
        (('"incarnation": 0', '"lives": 0'), r"NodeReport: unknown keys lives"),
        (('"incarnation": 0,', ""), r"NodeReport: .*incarnation"),
        (('"failed"', '"fine"'), r"'fine' is not a valid NodePhase"),
        (
            ('"seconds": 0.1', '"seconds": NaN'),
            r"NodeReport\.steps\[0\]\.seconds: expected a number, found nan",
        ),
        (
            ('"seconds": 0.1', '"seconds": 1e999'),
            r"NodeReport\.steps\[0\]\.seconds: expected a number, found inf",
        ),
        (('"seconds": 0.1', '"seconds": 1' + "0" * 400), r"expected a number, found 10000"),
        (('"detail": "no secret"', '"detail": null'), r"NodeReport\.steps\[1\]\.detail: expected str"),
    ],
)
def test_what_does_not_fit_is_named(change, words):
    with pytest.raises(ValueError, match=words):
        loads(NodeReport, dumps(REPORT).replace(*change))


@dataclass(frozen=True)
class _Inner:
    a: int = 0


@dataclass(frozen=True)
class _Outer:
    one: _Inner | None = None
    many: tuple[_Inner, ...] = ()
    named: Mapping[str, _Inner] = field(default_factory=dict[str, _Inner])
    anything: Any = None


@pytest.mark.parametrize(("key", "text"), [("clock", '"clock":0.0,'), ("detail", '"detail":"no secret",')])
def test_whole_value_has_each_key_at_each_depth(key: str, text: str) -> None:
    lacking = message(REPORT).replace(text, "")
    assert codec.loads_whole(NodeReport, message(REPORT)) == REPORT
    assert loads(NodeReport, lacking), "it has a default"
    with pytest.raises(ValueError, match=f"NodeReport without {key}"):
        codec.loads_whole(NodeReport, lacking)


def test_known_part_drops_keys_at_each_depth() -> None:
    newer = {"a": 1, "newer": 2}
    value = {"one": newer, "many": [newer], "named": {"newer": newer}, "anything": newer, "newer": 3}
    known = {"a": 1}
    assert codec.known_part(_Outer, value) == {
        "one": known,
        "many": [known],
        "named": {"newer": known},
        "anything": newer,
    }
    assert codec.known_part(_Outer, {"one": None, "many": "half"}) == {"one": None, "many": "half"}
