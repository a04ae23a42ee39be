"""The switches that EC2 reports: a leaf of the plan is divided where its nodes have different ones."""

from dataclasses import replace

import pytest
from support.builders import a_plan

from gpucluster.plan.model import Leaf, Market, SlotRange
from gpucluster.slurm import observed_switches
from gpucluster.slurm.observed_switches import divided, dumps, loads, observed_slots

LEAF = Leaf(name="h100-1a", slots=(SlotRange(zone="z", prefix="h100-1a-", first=1, last=6),))
LINE = "SwitchName=h100-1a Nodes=h100-1a-[1-6]\n"
A, B, C, D, E = (f"nn-{letter * 17}" for letter in "abcde")


def _slot(number: int) -> str:
    return f"h100-1a-{number}"


def test_nodes_of_one_switch_leave_the_file_as_it_is() -> None:
    places = {_slot(n): (A, B, C) for n in (1, 2, 3)}
    assert divided(f"# x\n{LINE}", [LEAF], places) == f"# x\n{LINE}"
    assert divided(LINE, [LEAF], {}) == LINE


def test_leaf_becomes_the_switch_above_those_of_ec2() -> None:
    places = {_slot(1): (A, B, C), _slot(3): (A, B, C), _slot(2): (A, B, D), _slot(4): (A, B, D)}
    assert divided(f"# x\n{LINE}", [LEAF], places).splitlines() == [
        "# x",
        f"SwitchName=h100-1a-{'c' * 17} Nodes=h100-1a-[1,3]",
        f"SwitchName=h100-1a-{'d' * 17} Nodes=h100-1a-[2,4]",
        "SwitchName=h100-1a-elsewhere Nodes=h100-1a-[5-6]",
        f"SwitchName=h100-1a Switches=h100-1a-{'c' * 17},h100-1a-{'d' * 17},h100-1a-elsewhere",
    ]


def test_layers_that_divide_become_levels_of_the_tree() -> None:
    places = {_slot(1): (A, B, C), _slot(2): (A, B, D), **{_slot(n): (A, E, C) for n in (3, 4, 5, 6)}}
    text = divided(LINE, [LEAF], places)
    b, c, d, e = (f"h100-1a-{letter * 17}" for letter in "bcde")
    assert text.splitlines() == [
        f"SwitchName={c} Nodes=h100-1a-1",
        f"SwitchName={d} Nodes=h100-1a-2",
        f"SwitchName={b} Switches={c},{d}",
        f"SwitchName={e} Nodes=h100-1a-[3-6]",
        f"SwitchName=h100-1a Switches={b},{e}",
    ]


def test_only_machines_that_stay_are_observed() -> None:
    plan = a_plan()
    assert observed_slots(plan) == tuple(slot for pool in plan.pools for slot in pool.always_on())
    two = a_plan(("nodes: {min: 0, max: 16}", "nodes: {min: 2, max: 16}"))
    assert observed_slots(two) == ("h200-2a-1", "h200-2a-2")
    pool = two.pools[0]
    source = replace(
        pool.sources[0], market=Market.RESERVATION, max_price=None, reservation="cr-0123456789abcdef0"
    )
    reserved = replace(two, pools=(replace(pool, sources=(source, *pool.sources[1:])),))
    assert len(observed_slots(reserved)) == sum(len(span) for span in pool.slots)


def test_file_survives_a_round_trip() -> None:
    places = {_slot(1): (A, B), _slot(2): ()}
    assert loads(dumps(places)) == places


@pytest.mark.parametrize(
    "text",
    ["[]", '{"a": "nn-aaaaaaaa"}', '{"a": ["nn-../x"]}', '{"a": ["x Nodes=y"]}', "{", f'{{"a": {["nn-aaaaaaaa"] * 9}}}'.replace("'", '"')],
)  # fmt: skip
def test_file_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's error is one, too
        observed_switches.loads(text)
