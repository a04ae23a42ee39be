"""Catalog prices as plan and daemon count them: micro-USD an hour. Pure."""

from gpucluster.catalog import Prices
from gpucluster.plan.market import Market


def hourly(prices: Prices, region: str, machine: str, market: Market) -> int | None:
    """The on-demand price, which is spot's ceiling and a reservation's own; None: unknown, or paid ahead."""
    if market is Market.CAPACITY_BLOCK or region != prices.region or machine not in prices.rows:
        return None
    return int(prices.rows[machine].scaleb(6))
