"""The class of a change is the one that an expert gives it."""

import pytest
from expert_pairs import PAIRS, Pair
from reviewed import a_diff

from gpucluster.gitops.classes import JOBS, ORDER, worst
from gpucluster.spec import UpdateClass


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.says.replace(" ", "-"))
def test_a_change_costs_what_an_expert_says(pair: Pair) -> None:
    found = a_diff(pair.old, pair.new)
    told = [f"{one.path}: {one.update}" for one in (*found.spec, *found.consequences)]
    assert found.worst is pair.expected, f"{pair.why}; found {told}"
    assert found.differs is (pair.expected is not None)


def test_the_pairs_are_many_and_of_every_class() -> None:
    assert len(PAIRS) >= 12
    assert len({pair.says for pair in PAIRS}) == len(PAIRS)
    assert {pair.expected for pair in PAIRS} == {None, *UpdateClass}


def test_each_class_says_what_becomes_of_running_jobs_in_one_sentence() -> None:
    assert set(JOBS) == set(UpdateClass)
    for sentence in JOBS.values():
        assert sentence.endswith(".")
        assert sentence.count(". ") == 0


def test_the_worst_of_all_is_data_loss_and_of_none_is_none() -> None:
    assert worst(UpdateClass) is UpdateClass.DATA_LOSS
    assert worst(()) is None
    assert list(ORDER) == list(UpdateClass)
