"""What a run starts: machines of elastic pools for its own jobs, and what an hour of them costs. Pure."""

from collections.abc import Iterator, Sequence

from gpucluster.cost.amount import Amount
from gpucluster.cost.price_list import PriceList
from gpucluster.plan.model import Pool, SlurmPlan
from gpucluster.validate.expect import needed_tier
from gpucluster.validate.expectation import Expectation
from gpucluster.validate.pool_jobs import is_elastic, pool_jobs

PARTITION = "job.part"  # its job may get a node of any pool of the partition


def pools_with_jobs(chosen: Sequence[Expectation]) -> frozenset[str]:
    """Return the pools in which a job of the run is needed."""
    needed = (one for one in chosen if needed_tier(one) >= 1 and one.check != PARTITION)
    return frozenset(one.target.partition("/")[0] for one in needed)


def without(every: Sequence[Expectation], plan: SlurmPlan) -> tuple[Expectation, ...]:
    """Return the expectations that start no machine."""
    return tuple(one for one in every if not _starts(one, plan))


def sentences(chosen: Sequence[Expectation], plan: SlurmPlan, prices: PriceList) -> Iterator[str]:
    """Yield one sentence for each elastic pool in which a job of these expectations launches machines."""
    wanted = pools_with_jobs(chosen)
    pools = {pool.name: pool for pool in plan.pools}
    for job in pool_jobs(plan):
        if job.elastic and job.pool in wanted:
            pool = pools[job.pool]
            price = _hour(pool, prices).times(job.nodes)
            costs = f"{'at most ' if price.exact else ''}{price.words(prices.prices.currency)}"
            machines = f"{job.nodes} machines of the pool {pool.name} ({' or '.join(_machines(pool))})"
            yield f"validation launches {machines}, which cost {costs} an hour on AWS"
    parts = {one.target for one in chosen if one.check == PARTITION and _starts(one, plan)}
    alone = [p.name for p in plan.partitions if p.name in parts and wanted.isdisjoint(p.pools)]
    for name in alone:
        yield f"validation launches a machine in the partition {name} if none is up there"


def _starts(one: Expectation, plan: SlurmPlan) -> bool:
    if needed_tier(one) < 1:
        return False
    if one.check == PARTITION:
        return any(
            _is_elastic(plan, pool) for p in plan.partitions if p.name == one.target for pool in p.pools
        )
    return _is_elastic(plan, one.target.partition("/")[0])


def _is_elastic(plan: SlurmPlan, name: str) -> bool:
    return any(pool.name == name and is_elastic(plan, pool) for pool in plan.pools)


def _machines(pool: Pool) -> tuple[str, ...]:
    return tuple(dict.fromkeys(machine for source in pool.sources for machine in source.machines))


def _hour(pool: Pool, prices: PriceList) -> Amount:
    """Return the price of the dearest machine; unknown parts of all."""
    hours = [prices.hour(machine) for machine in _machines(pool)]
    unknown = tuple(sorted({words for hour in hours for words in hour.unknown}))
    return Amount(max((hour.known for hour in hours), default=Amount().known), unknown)
