"""Termination, breaker, job heartbeat, budget and prices: values of the spec, defaults, and prices of the ledger."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import a_plan, a_spec_text, changed, on_aws
from support.capacity_rows import PRICED

from gpucluster import catalog
from gpucluster.plan.aws import hourly
from gpucluster.plan.explain import explain
from gpucluster.plan.model import Breaker, JobHeartbeat, SlurmOnAws, Termination
from gpucluster.plan.model.values import Market
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text

STEADY = Path(__file__).parents[3] / "stacks/steady.yaml"
P5EN = 63_296_000  # micro-USD an hour


def _priced(*changes: tuple[str, str]) -> SlurmOnAws:
    spec = inspect_text(changed(PRICED, *changes), "s.yaml", catalog.load()).result()
    return on_aws(resolve(spec, catalog.load()))


def test_the_plans_own_defaults_are_the_ones_that_are_explained() -> None:
    """Two places hold them: the dataclass, for plans of older releases, and the table with the reasons."""
    (pool,) = a_plan().pools
    assert (pool.termination, pool.breaker, pool.job_heartbeat, pool.spares) == (
        Termination(),
        Breaker(),
        None,
        0,
    )


def test_requested_value_replaces_only_its_own_default() -> None:
    (pool,) = _priced(
        (
            "idle: 5m",
            "idle: 5m\n    termination: {signal: HUP}\n    breaker: {boots: 2}\n    job_heartbeat: {after: 1h}",
        )
    ).pools
    assert pool.termination == replace(Termination(), signal="HUP")
    assert pool.breaker == replace(Breaker(), boots=2)
    assert pool.job_heartbeat == JobHeartbeat(after_s=3600, requeue=False)


@pytest.mark.parametrize(
    ("market", "machine", "region", "price"),
    [
        (Market.ON_DEMAND, "p5en.48xlarge", "us-east-1", P5EN),
        (Market.SPOT, "p5en.48xlarge", "us-east-1", P5EN),
        (Market.RESERVATION, "p5en.48xlarge", "us-east-1", P5EN),
        (Market.CAPACITY_BLOCK, "p5en.48xlarge", "us-east-1", None),
        (Market.ON_DEMAND, "p5e.48xlarge", "us-east-1", None),
        (Market.ON_DEMAND, "p5en.48xlarge", "us-east-2", None),
    ],
)
def test_an_hour_costs_the_list_price_or_is_unknown(
    market: Market, machine: str, region: str, price: int | None
) -> None:
    assert hourly(catalog.prices(), region, machine, market) == price


@pytest.mark.parametrize(
    ("machine", "most", "price"),
    [
        ("p5en.48xlarge", 40_000_000, 40_000_000),
        ("p5en.48xlarge", 90_000_000, P5EN),
        ("p5e.48xlarge", 40_000_000, 40_000_000),
    ],
    ids=["below the list price", "above it", "no list price"],
)
def test_spot_costs_at_most_what_its_source_allows(machine: str, most: int, price: int) -> None:
    assert hourly(catalog.prices(), "us-east-1", machine, Market.SPOT, most) == price


def test_the_plan_counts_a_spot_machine_at_its_max_price() -> None:
    """It was counted at the list price, so that the budget stopped a third too early."""
    plan = on_aws(resolve(inspect_text(STEADY.read_text(), "s", catalog.load()).result(), catalog.load()))
    assert [t.price for t in plan.pools[1].templates] == [40_000_000, P5EN]


def test_the_budgets_parts_are_amounts() -> None:
    told = _priced(("partitions:\n", "budget: {monthly: 1000.01 USD, warn_at: 33%}\npartitions:\n")).budget
    assert told is not None
    assert (told.monthly, told.warn_at, told.stop_scaling_at) == (1_000_010_000, 330_003_300, 1_000_010_000)
    assert _priced().budget is None


def test_a_source_keeps_what_was_bought_ahead_and_what_spot_may_cost() -> None:
    plan = on_aws(resolve(inspect_text(STEADY.read_text(), "s", catalog.load()).result(), catalog.load()))
    reserved, spot, demand = (source for pool in plan.pools for source in pool.sources)
    assert (reserved.reservation, reserved.max_price) == ("cr-0123456789abcdef0", None)
    assert (spot.reservation, spot.max_price) == (None, 40_000_000)
    assert (demand.reservation, demand.max_price) == (None, None)


def test_explanation_says_until_when_a_warning_is_silent() -> None:
    spec = inspect_text(a_spec_text(), "s", catalog.load()).result()
    notes = {note.path: note for note in explain(spec, catalog.load(), a_plan())}
    assert notes["accept[no-way-in]"].value == "silent"
    ending = notes["accept[slurm-support]"]
    assert (ending.value, ending.reason) == ("silent until 2099-12-31", "it has facts of its own")


def test_a_wish_is_not_explained_as_a_default_and_a_price_has_its_date() -> None:
    read = inspect_text(STEADY.read_text(), "s", catalog.load()).result()
    notes = {note.path: note.value for note in explain(read, catalog.load(), resolve(read, catalog.load()))}
    assert notes["prices[on-demand p5en.48xlarge]"] == "63.296 USD/h"
    assert notes["prices[spot p5en.48xlarge at most 40 USD/h]"] == "40 USD/h"
    assert notes["pools[h100].termination.lead"] == "20s"
    assert not [
        path
        for path in notes
        if path.startswith(
            ("pools[h200].termination", "pools[h200].breaker", "pools[h200].job_heartbeat", "budget.warn")
        )
    ]
