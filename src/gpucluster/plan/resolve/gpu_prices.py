"""What an hour of a pool's GPUs costs, from the price list of the catalog."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from gpucluster.catalog import Prices
from gpucluster.plan.model.kubernetes import GpuPrice, NodePool
from gpucluster.plan.model.values import accelerators, weight


def gpu_prices(pools: Iterable[NodePool], region: str, prices: Prices) -> Iterator[GpuPrice]:
    """Yield a row for each GPU resource of each pool with known prices. Slices divide the price by their sevenths of a GPU."""
    for pool in pools:
        node = _dearest(pool, prices.rows) if region == prices.region else None
        if node is None:
            continue
        units = accelerators(pool.gpu_count, pool.mig)
        whole = sum(count * weight(resource) for resource, count in units.items())
        for resource in units:
            hour = node * weight(resource) / whole
            yield GpuPrice(pool=pool.name, resource=resource, hour=round(hour.scaleb(6)))


def _dearest(pool: NodePool, rows: Mapping[str, Decimal]) -> Decimal | None:
    """Return the price of the pool's dearest machine; None if one has no price."""
    machines = {machine for source in pool.sources for machine in source.machines}
    known = [rows[machine] for machine in machines if machine in rows]
    return max(known) if len(known) == len(machines) else None
