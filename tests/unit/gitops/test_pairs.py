"""Tests of update classes against an expert's decisions."""

import pytest
from support.expert_pairs import PAIRS, Pair
from support.reviewed import a_diff, a_side

from gpucluster.gitops.model import ORDER, worse, worst
from gpucluster.plan.removals import removals
from gpucluster.spec import UpdateClass


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.says.replace(" ", "-"))
def test_class_equals_expert_decision(pair: Pair) -> None:
    found = a_diff(pair.old, pair.new)
    told = [f"{one.path}: {one.update}" for one in (*found.spec, *found.consequences)]
    assert found.worst is pair.expected, f"{pair.why}; found {told}"
    assert found.differs is (pair.expected is not None)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.says.replace(" ", "-"))
def test_the_sentence_about_removed_nodes_is_said_where_the_agent_holds_the_bundle(pair: Pair) -> None:
    """`plan.removals` decides what the agent holds. A worse class of the same pool may hide the sentence."""
    found = a_diff(pair.old, pair.new)
    old, new = a_side(pair.old).plan, a_side(pair.new).plan
    if old.slurm is None or new.slurm is None or old.name != new.name:
        return
    texts = [one.why for one in found.spec] + [one.message for one in found.consequences]
    said = any("the head applies the bundle, with all its changes, when" in text for text in texts)
    assert said is bool(removals(old, new)) or worse(pair.expected, UpdateClass.DRAIN)


def test_expert_pairs_cover_every_class() -> None:
    assert len(PAIRS) >= 12
    assert len({pair.says for pair in PAIRS}) == len(PAIRS)
    assert {pair.expected for pair in PAIRS} == {None, *UpdateClass}


def test_worst_class_is_data_loss_or_none() -> None:
    assert worst(UpdateClass) is UpdateClass.DATA_LOSS
    assert worst(()) is None
    assert list(ORDER) == list(UpdateClass)
