"""What the plan decided of farewells, breakers, prices and the budget."""

from collections.abc import Iterator

from gpucluster.catalog import Prices
from gpucluster.plan import defaults
from gpucluster.plan.market import Market
from gpucluster.plan.model import Budget, ClusterPlan, Pool
from gpucluster.plan.note import Note, of_default
from gpucluster.spec.care import Breaker as BreakerSpec
from gpucluster.spec.care import Farewell as FarewellSpec
from gpucluster.spec.model import Pool as PoolSpec
from gpucluster.spec.money import Budget as BudgetSpec
from gpucluster.spec.units import write_money, write_rate


def of_pool(wish: PoolSpec, pool: Pool) -> Iterator[Note]:
    """What nobody wrote of one pool's care."""
    at = f"pools[{pool.name}]"
    yield from _farewell(at, wish.farewell, pool)
    if pool.hung is None:
        yield Note(f"{at}.hung", "never", "none was wished: no job is taken for hung")
    yield from _breaker(at, wish.breaker, pool)


def of_prices(plan: ClusterPlan, prices: Prices) -> Iterator[Note]:
    """What an hour counts in the daemon's ledger; each machine, market and `max_price` once."""
    told = dict[tuple[str, Market, int], int | None]()
    for pool in plan.pools:
        limits = {source.position: source.max_price or 0 for source in pool.sources}
        told |= {(t.machine, t.market, limits[t.source]): t.price for t in pool.templates}
    for (machine, market, most), price in sorted(told.items()):
        value = "unknown" if price is None else write_rate(price)
        capped = bool(most) and price == most
        limit = f" at most {write_rate(most)}" if most else ""
        why = "its source pays no more" if capped else _why(market, price, prices)
        yield Note(f"prices[{market} {machine}{limit}]", value, why)


def of_budget(wish: BudgetSpec | None, budget: Budget | None) -> Iterator[Note]:
    """The amounts, and what is counted against them."""
    if wish is None or budget is None:
        return
    if wish.warn_at is None:
        yield Note("budget.warn_at", write_money(budget.warn_at), _part(defaults.BUDGET_WARN_PERCENT))
    if wish.stop_scaling_at is None:
        amount = write_money(budget.stop_scaling_at)
        yield Note("budget.stop_scaling_at", amount, _part(defaults.BUDGET_STOP_PERCENT))
    why = "Slurm's nodes by the daemon's own ledger, each calendar month (UTC); not the head, storage, traffic, or nodes of Kubernetes"
    yield Note("budget.counted", "the pools' nodes", why)


def _farewell(at: str, wish: FarewellSpec | None, pool: Pool) -> Iterator[Note]:
    told, found = wish or FarewellSpec(), pool.farewell
    if told.signal is None:
        yield Note(f"{at}.farewell.signal", found.signal, defaults.FAREWELL_SIGNAL_REASON)
    if told.lead is None:
        yield of_default(f"{at}.farewell.lead", found.lead_s, defaults.FAREWELL_LEAD_S)
    if told.grace is None:
        yield of_default(f"{at}.farewell.grace", found.grace_s, defaults.FAREWELL_GRACE_S)


def _breaker(at: str, wish: BreakerSpec | None, pool: Pool) -> Iterator[Note]:
    told, found = wish or BreakerSpec(), pool.breaker
    if told.boots is None:
        yield Note(f"{at}.breaker.boots", str(found.boots), defaults.BREAKER_BOOTS.reason)
    if told.cooldown is None:
        yield of_default(f"{at}.breaker.cooldown", found.cooldown_s, defaults.BREAKER_COOLDOWN_S)


def _why(market: Market, price: int | None, prices: Prices) -> str:
    if market is Market.CAPACITY_BLOCK:
        return "paid ahead: its hours count nothing"
    if price is None:
        return f"the catalog has no price of it ({prices.region}, {prices.date}): its hours count nothing"
    if market is Market.SPOT:
        return f"the on-demand price of {prices.date}, spot's ceiling"
    return f"the on-demand price of {prices.date}"


def _part(rule: defaults.Default) -> str:
    return f"{rule.value:g} % of the month's budget: {rule.reason}"
