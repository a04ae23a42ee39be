"""Catalog prices as plan and daemon count them: micro-USD an hour. Pure."""

from gpucluster.catalog import Prices
from gpucluster.plan.market import Market


def hourly(
    prices: Prices, region: str, machine: str, market: Market, max_price: int | None = None
) -> int | None:
    """The on-demand price, which is spot's ceiling and a reservation's own; None: unknown, or paid ahead.

    Spot is never paid above the source's own `max_price`, which is the ceiling where it is less, or alone known.
    """
    if market is Market.CAPACITY_BLOCK:
        return None
    if region != prices.region or machine not in prices.rows:
        return max_price
    listed = int(prices.rows[machine].scaleb(6))
    return listed if max_price is None else min(listed, max_price)
