"""Which jobs can never start, because their pools never have so many nodes."""

from typing import Any

import pytest
from support.builders import a_plan
from support.cluster_states import job, sight
from support.worlds.scene import TWO

from gpucluster.elastic.decide.sizes import Sizes
from gpucluster.elastic.decide.world import World
from gpucluster.plan.model import SlurmOnAws

ONE = a_plan(("max: 16}", "max: 5}"))  # two zones of 5 slots each


def _het(*components: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return tuple({"het_id": 1, **one} for one in components)


def _never(plan: SlurmOnAws, jobs: tuple[dict[str, Any], ...]) -> list[str]:
    s = sight(plan, jobs=[job(n, **changes) for n, changes in enumerate(jobs, 1)])
    world = World.of(s.plan, s.bindings, s.observation, s.memory, s.now)
    assert world is not None
    sizes = Sizes(world)
    return [sizes.never_starts(one) for one in world.slurm.jobs]


BOTH = ("all",)


@pytest.mark.parametrize(
    ("why", "plan", "jobs"),
    [
        ("as many as the pool has", ONE, ({"node_count": 5},)),
        ("two jobs, each as large as the pool", ONE, ({"node_count": 5}, {"node_count": 5})),
        ("components that fit together", ONE, _het({"node_count": 3}, {"node_count": 2})),
        ("components of a job and of another one", ONE, ({"node_count": 3, "het_id": 1}, {"node_count": 3, "het_id": 2})),
        ("a component of Slurm's last job with this id", ONE, _het({"node_count": 3}, {"node_count": 3, "states": frozenset({"CANCELLED"})})),
        ("each component has a pool", TWO, _het({"node_count": 4}, {"node_count": 3, "partitions": BOTH})),
        ("a partition that the plan does not have", ONE, ({"node_count": 9, "partitions": ("x",)},)),
        ("a component of a partition that the plan does not have", ONE, _het({"node_count": 5}, {"node_count": 9, "partitions": ("x",)})),
    ],
)  # fmt: skip
def test_job_that_can_start_has_no_sentence(
    why: str, plan: SlurmOnAws, jobs: tuple[dict[str, Any], ...]
) -> None:
    assert set(_never(plan, jobs)) == {""}, why


@pytest.mark.parametrize(
    ("why", "plan", "jobs", "words"),
    [
        ("one node too many", ONE, ({"node_count": 6},),
         "it requests 6 nodes, and no zone of h200 has more than 5"),
        ("more than one pool, though both together suffice", TWO, ({"node_count": 5, "partitions": BOTH},),
         "it requests 5 nodes, and no zone of h200, h100 has more than 4"),
        ("components together", ONE, _het({"node_count": 3}, {"node_count": 3}),
         "the components of this het job request 6 nodes of h200 together, which has at most 5"),
        ("a component that runs counts", ONE, _het({"node_count": 3}, {"node_count": 3, "states": frozenset({"RUNNING"})}),
         "the components of this het job request 6 nodes of h200 together, which has at most 5"),
        ("both pools together", TWO, _het({"node_count": 4, "partitions": BOTH}, {"node_count": 4, "partitions": BOTH}),
         "the components of this het job request 8 nodes of h200, h100 together, which has at most 7"),
        ("one pool of the two", TWO, _het({"node_count": 1, "partitions": BOTH}, {"node_count": 3}, {"node_count": 2}),
         "the components of this het job request 5 nodes of h200 together, which has at most 4"),
    ],
)  # fmt: skip
def test_job_that_can_never_start_is_named_with_its_numbers(
    why: str, plan: SlurmOnAws, jobs: tuple[dict[str, Any], ...], words: str
) -> None:
    """Regression: such a het job waited for ever, and its comment named only `max`."""
    assert set(_never(plan, jobs)) == {f"it can never start: {words}"}, why
