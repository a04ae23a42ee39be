"""No class of a spec's change is milder than what the engine's table says of the same change's resources."""

from functools import cache

import pytest
from expert_pairs import PAIRS, Pair
from reviewed import a_diff, a_side

from gpucluster.engine import offline
from gpucluster.engine.offline import Planned
from gpucluster.gitops.classes import worse, worst
from gpucluster.gitops.resources import compare

CHANGES = [pair for pair in PAIRS if pair.expected is not None]


@cache
def _planned(text: str) -> Planned:
    return offline.run("gpucluster.aws.program:declare", a_side(text).plan)


@pytest.mark.parametrize("pair", CHANGES, ids=lambda pair: pair.says.replace(" ", "-"))
def test_the_engine_says_nothing_worse(pair: Pair) -> None:
    resources = compare(_planned(pair.old), _planned(pair.new))
    by_engine = worst(one.update for one in resources)
    assert not worse(by_engine, pair.expected), [f"{one.name}: {one.why}" for one in resources]
    found = a_diff(pair.old, pair.new, resources)
    assert found.engine_says is None
    assert found.worst is pair.expected


def test_the_same_program_touches_nothing() -> None:
    old, new = CHANGES[0].old, CHANGES[0].old
    assert compare(_planned(old), offline.run("gpucluster.aws.program:declare", a_side(new).plan)) == ()
