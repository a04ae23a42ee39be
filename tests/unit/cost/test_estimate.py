"""Monthly cost: known prices are exact, unknown ones are named, and a sum states both."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_kube_plan, a_lab_plan, a_plan

from gpucluster import catalog
from gpucluster.cost import Amount, estimate
from gpucluster.cost.estimate import HELD_NOTE, SPOT_NOTE
from gpucluster.plan.model import ClusterPlan, Market
from gpucluster.plan.model.values import HOURS_A_MONTH
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text
from gpucluster.spec import load as load_spec

RESERVATION = "cr-0123456789abcdef0"
EAST = (("region: us-east-2", "region: us-east-1"), ("[us-east-2a, us-east-2b]", "[us-east-1a, us-east-1b]"))
NO_P5E = ("machines: [p5en.48xlarge, p5e.48xlarge]", "machines: [p5en.48xlarge]")
STACKS = Path(__file__).parents[3] / "stacks"
P5EN = Decimal("63.296")
STANDS = Decimal("0.4032") + Decimal("0.045") + Decimal("0.005")  # the head, a NAT gateway, its address


def _month(plan: ClusterPlan) -> tuple[Amount, Amount]:
    found = estimate(plan, catalog.prices())
    return found.least, found.most


def test_least_cost_is_always_on_nodes_and_most_cost_is_all_nodes() -> None:
    least, most = _month(a_plan(*EAST, NO_P5E, ("min: 0", "min: 2")))
    assert least == Amount(HOURS_A_MONTH * (STANDS + 2 * P5EN))
    assert most == Amount(HOURS_A_MONTH * (STANDS + 16 * P5EN))


def test_machine_without_price_is_named_and_sum_becomes_a_minimum() -> None:
    least, most = _month(a_plan(*EAST))
    assert least.exact, "no node is always on: its price does not matter"
    assert most.unknown == ("p5e.48xlarge (no on-demand price)",)
    assert most.words("USD") == ("at least 739,628.12 USD, plus unknown: p5e.48xlarge (no on-demand price)")


def test_other_regions_have_no_prices() -> None:
    least, most = _month(a_plan())
    unknown = ("NAT gateway", "m7i.2xlarge", "public address")
    assert least == Amount(unknown=tuple(f"{what} (no price for us-east-2)" for what in unknown))
    assert least.words("USD").startswith("unknown: NAT gateway (no price for us-east-2), m7i.2xlarge (")
    assert most.known == 0
    assert len(most.unknown) == 5


def test_most_cost_uses_the_most_expensive_source_up_to_its_max() -> None:
    cheap_first = ("machines: [p5en.48xlarge, p5e.48xlarge]", "machines: [p5en.48xlarge]")
    plan = a_plan(*EAST, cheap_first)
    pool = plan.pools[0]
    few = replace(pool.sources[1], max=4, machines=("p5en.48xlarge",))
    many = replace(pool.sources[0], machines=("p4d.24xlarge",))
    mixed = replace(plan, pools=(replace(pool, sources=(many, few)),))
    _, most = _month(mixed)
    assert most.known == HOURS_A_MONTH * (STANDS + 4 * P5EN + 12 * Decimal("21.957642"))


def test_always_on_nodes_above_max_of_a_source_use_the_next_one() -> None:
    """Regression: all five were counted at the first source, which has a max of three."""
    plan = a_plan(*EAST)
    pool = plan.pools[0]
    few = replace(pool.sources[0], machines=("p5e.48xlarge",), max=3)
    rest = replace(pool.sources[1], machines=("p5en.48xlarge",), max=None)
    least, _ = _month(replace(plan, pools=(replace(pool, min=5, sources=(few, rest)),)))
    assert least == Amount(HOURS_A_MONTH * (STANDS + 2 * P5EN), ("p5e.48xlarge (no on-demand price)",))


def test_pool_with_spot_explains_how_it_is_counted() -> None:
    found = estimate(a_plan(*EAST), catalog.prices())
    line = found.line("pool", "h200")
    assert line is not None
    assert line.notes == (SPOT_NOTE,)


@pytest.mark.parametrize(
    ("most", "hour"),
    [(40_000_000, Decimal(40)), (90_000_000, P5EN)],
    ids=["below the list price", "above it"],
)
def test_spot_source_costs_at_most_its_max_price(most: int, hour: Decimal) -> None:
    plan = a_plan(*EAST)
    pool = plan.pools[0]
    spot = replace(pool.sources[0], machines=("p5en.48xlarge",), max_price=most)
    _, found = _month(replace(plan, pools=(replace(pool, sources=(spot,)),)))
    assert found == Amount(HOURS_A_MONTH * (STANDS + 16 * hour))


def test_source_without_price_is_named_even_if_other_sources_fill_the_pool() -> None:
    plan = a_plan(*EAST)
    spot, demand = plan.pools[0].sources
    sources = (
        replace(spot, machines=("p5e.48xlarge",)),
        replace(demand, machines=("p5en.48xlarge",), max=None),
    )
    _, most = _month(replace(plan, pools=(replace(plan.pools[0], sources=sources),)))
    assert most == Amount(HOURS_A_MONTH * (STANDS + 16 * P5EN), ("p5e.48xlarge (no on-demand price)",))


def test_prepaid_capacity_has_an_unknown_price() -> None:
    plan = a_plan(*EAST)
    pool = plan.pools[0]
    block = replace(
        pool.sources[0], market=Market.CAPACITY_BLOCK, reservation=RESERVATION, machines=("p5en.48xlarge",)
    )
    _, most = _month(replace(plan, pools=(replace(pool, sources=(block,)),)))
    assert most == Amount(HOURS_A_MONTH * STANDS, ("p5en.48xlarge (capacity-block: not paid by the hour)",))


def test_reservation_costs_list_price_and_spares_count_as_always_on() -> None:
    plan = a_plan(*EAST, NO_P5E, ("{min: 0, max: 16}", "{min: 2, max: 16}\n    spares: 3"))
    pool = plan.pools[0]
    held = replace(pool.sources[0], market=Market.RESERVATION, reservation=RESERVATION, max=2)
    plan = replace(plan, pools=(replace(pool, sources=(held, pool.sources[1])),))
    assert _month(plan)[0] == Amount(HOURS_A_MONTH * (STANDS + 3 * P5EN))
    line = estimate(plan, catalog.prices()).line("pool", "h200")
    assert line is not None
    assert line.notes == (HELD_NOTE,)


def test_existing_hosts_have_no_price() -> None:
    least, most = _month(a_lab_plan())
    assert least == most
    assert least.words("USD").startswith("unknown: ctl0 (hosts of your own have no price here), h100 (")


@pytest.mark.parametrize(
    ("version", "day"), [("1.35", "on 2027-03-27"), ("1.36", "the catalog does not know the day")]
)
def test_fee_of_eks_says_when_it_rises(version: str, day: str) -> None:
    """Regression: the fee of standard support was counted without a word, also for a version that leaves it next week."""
    plan = a_kube_plan(('version: "1.36"', f'version: "{version}"'))
    line = estimate(plan, catalog.prices()).line("control-plane", "eks")
    assert line is not None
    assert line.notes == (
        f"the fee of EKS is six times as high after standard support ends; for Kubernetes {version} {day}",
    )


def test_pools_of_kubernetes_and_its_control_plane_are_counted() -> None:
    text = (STACKS / "kube.yaml").read_text().replace("us-west-2", "us-east-1")
    plan = resolve(inspect_text(text, "kube.yaml", catalog.load()).result(), catalog.load())
    least, most = _month(plan)
    hour, system, nat = Decimal("27.44705"), 2 * Decimal("0.2016"), Decimal("0.05")
    lustre = 2400 * Decimal("0.145")
    fixed = HOURS_A_MONTH * (system + nat + Decimal("0.10")) + lustre
    assert (least, most) == (
        Amount(HOURS_A_MONTH * 5 * hour + fixed),
        Amount(HOURS_A_MONTH * 10 * hour + fixed),
    )


def test_resources_besides_nodes_have_one_line_each() -> None:
    plan = resolve(load_spec(STACKS / "research.yaml"), catalog.load())
    found = estimate(plan, catalog.prices())
    lines = {(line.kind, line.name): line.least for line in found.lines if line.kind not in ("head", "pool")}
    assert lines == {
        ("login", "login"): Amount(HOURS_A_MONTH * (Decimal("0.2016") + Decimal("0.005"))),
        ("network", "nat"): Amount(HOURS_A_MONTH * Decimal("0.05")),
        ("storage", "/srv/gpucluster-state"): Amount(Decimal(100) * Decimal("0.08")),
        ("storage", "/apps"): Amount(Decimal(200) * Decimal("0.08")),
        ("storage", "/data"): Amount(Decimal(9600) * Decimal("0.600")),
        ("storage", "/home"): Amount(
            unknown=("EFS of /home (0.30 USD a GiB stored, 0.03 read, 0.06 written)",)
        ),
    }
    assert all(
        line.least == line.most for line in found.lines if line.kind in ("login", "network", "storage")
    )


def test_existing_resources_cost_nothing() -> None:
    site = "vpc: vpc-0123456789abcdef0\n    subnets: {us-east-1a: subnet-0123456789abcdef0}"
    plan = a_plan(
        EAST[0],
        ("cidr: 10.42.0.0/16\n    zones: [us-east-2a, us-east-2b]", site),
        ("  machine: m7i.2xlarge", "  machine: m7i.2xlarge\n  address: 10.1.0.9"),
        ("pools:\n", "storage: [{mount: /home, efs: {id: fs-0123456789abcdef0}}]\npools:\n"),
    )
    assert {line.kind for line in estimate(plan, catalog.prices()).lines} == {"head", "pool"}


def test_endpoints_count_for_each_zone_and_public_addresses_cost() -> None:
    plan = a_plan(*EAST, ("    cidr:", "    nat: none\n    cidr:"))
    found = estimate(plan, catalog.prices()).line("network", "endpoints")
    assert found is not None
    assert found.least == Amount(HOURS_A_MONTH * 2 * 3 * Decimal("0.01"))


@pytest.mark.parametrize("machine", sorted(catalog.load().machines))
def test_every_machine_of_the_catalog_has_a_price_or_is_known_to_have_none(machine: str) -> None:
    assert (machine in catalog.prices().rows) is not (machine == "p5e.48xlarge")


def test_prices_have_a_source() -> None:
    prices = catalog.prices()
    assert prices.source
    assert prices.licence == "Apache-2.0"
    assert (prices.currency, prices.region) == ("USD", "us-east-1")
    assert all(hour > 0 for hour in prices.rows.values())


AMOUNTS = st.builds(
    Amount,
    st.decimals(min_value=0, max_value=10**9, places=6),
    st.sets(st.sampled_from(["a (x)", "b (y)", "c (z)"])).map(lambda found: tuple(sorted(found))),
)


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_sum_is_exact_in_any_order(one: Amount, two: Amount, three: Amount) -> None:
    total = one + two + three
    assert total == three + (two + one)
    assert set(total.unknown) == {*one.unknown, *two.unknown, *three.unknown}
    assert total.exact == (one.exact and two.exact and three.exact)


@given(AMOUNTS, st.integers(min_value=0, max_value=10_000))
def test_unknown_cost_is_not_shown_as_money(amount: Amount, count: int) -> None:
    shown = amount.times(count)
    assert ("unknown" in shown.words("USD")) is (not shown.exact)
    assert ("unknown" in shown.short("USD")) is (not shown.exact)
    assert shown.exact or count > 0
