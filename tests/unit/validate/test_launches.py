"""Validation says which machines its jobs launch and what an hour costs, and leaves them out on request."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import a_lab_plan

from gpucluster import catalog
from gpucluster.cost.price_list import PriceList
from gpucluster.plan.model import SlurmOnAws
from gpucluster.plan.resolve import resolve
from gpucluster.spec import load
from gpucluster.validate.expect import expectations, needed_tier, select
from gpucluster.validate.launches import PARTITION, pools_with_jobs, sentences, without

STACKS = Path(__file__).parents[3] / "stacks"
PRICES = PriceList(catalog.prices(), "us-east-1")


def a_stack(name: str) -> SlurmOnAws:
    plan = resolve(load(STACKS / f"{name}.yaml"), catalog.load())
    assert isinstance(plan, SlurmOnAws)
    return plan


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("first", ["validation launches 2 machines of the pool h200 (p5en.48xlarge), which cost at most 126.59 USD an hour on AWS"]),
        ("burst", ["validation launches 2 machines of the pool h200 (p5en.48xlarge or p5e.48xlarge), which cost at least 126.59 USD, plus unknown: p5e.48xlarge (no on-demand price) an hour on AWS"]),
        ("steady", ["validation launches 2 machines of the pool h200 (p5en.48xlarge), which cost at most 126.59 USD an hour on AWS"]),
    ],
)  # fmt: skip
def test_machines_that_are_launched_are_named_with_their_price(name: str, said: list[str]) -> None:
    """It launched them and said nothing."""
    plan = a_stack(name)
    assert list(sentences(expectations(plan), plan, PRICES)) == said


@pytest.mark.parametrize("name", ["first", "steady", "research"])
def test_jobs_for_which_machines_are_launched_are_left_out(name: str) -> None:
    plan = a_stack(name)
    every = expectations(plan)
    kept = without(every, plan)
    elastic = {pool.name for pool in plan.pools if pool.max > pool.min}
    assert not pools_with_jobs(kept) & elastic
    assert not list(sentences(kept, plan, PRICES))
    assert {e.id for e in every if needed_tier(e) == 0} <= {e.id for e in kept}
    always_on = {pool.name for pool in plan.pools} - elastic
    assert pools_with_jobs(kept) >= always_on


def test_partition_with_the_name_of_a_pool_is_no_pool() -> None:
    """Its small check submitted the pool's job, too, which launches two machines."""
    plan = a_stack("first")
    named = replace(plan, partitions=tuple(replace(p, name="h200") for p in plan.partitions))
    chosen = select(expectations(named), tier=1, only=[PARTITION])
    assert chosen
    assert pools_with_jobs(chosen) == frozenset()
    assert list(sentences(chosen, named, PRICES)) == [
        "validation launches a machine in the partition h200 if none is up there"
    ]


def test_hosts_launch_nothing() -> None:
    plan = a_lab_plan()
    every = expectations(plan)
    assert without(every, plan) == every
    assert not list(sentences(every, plan, PriceList(catalog.prices(), None)))
