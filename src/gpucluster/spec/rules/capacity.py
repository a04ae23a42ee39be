"""Sources of machines: reservations and capacity blocks, spot prices, spares, and the monthly budget."""

from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.plan import defaults
from gpucluster.plan.aws import hourly
from gpucluster.plan.model.values import HOURS_A_MONTH, Market
from gpucluster.plan.node_pools import in_turn, stays
from gpucluster.spec.aws_fields import MOST_SUBSCRIBERS
from gpucluster.spec.kubernetes import Runs
from gpucluster.spec.model import Capacity, ClusterSpec, Pool
from gpucluster.spec.part import require
from gpucluster.spec.pools import of_slurm, run_by
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules.findings import collect, error, or_none, repeated, warning
from gpucluster.text import format_money, format_rate

_WORD = {Market.RESERVATION: "a reservation", Market.CAPACITY_BLOCK: "a capacity block"}


def source_id(spec: ClusterSpec, index: int, position: int, _catalog: Catalog) -> Iterator[Finding]:
    """A reservation or capacity block needs an id. Other sources have none."""
    source, at = _source(spec, index, position)
    if source.source.is_reserved and source.id is None:
        message = f"'id' is missing: the id of {_WORD[source.source]}, cr-…"
        yield error(*at, id="missing-key", message=message)
    if not source.source.is_reserved and source.id is not None:
        message = f"'id' belongs to a reservation or a capacity block; this source is {source.source}"
        yield error(*at, "id", id="not-here", message=message)
    others = [or_none(lambda one=one: one.id) for one in spec.pools[index].capacity[:position]]
    if source.id is not None and source.id in others:
        message = f"'{source.id}' is already the source capacity[{others.index(source.id)}] of this pool"
        yield error(*at, "id", id="repeated", message=message)


def source_price(spec: ClusterSpec, index: int, position: int, catalog: Catalog) -> Iterator[Finding]:
    """A price limit needs a spot source. A limit above the list price has no effect."""
    source, at = _source(spec, index, position)
    limit, market = require(source.max_price), source.source
    if market is not Market.SPOT:
        message = f"'max_price' is for spot machines only; this source is {market}"
        yield error(*at, "max_price", id="not-here", message=message)
        return
    region = require(spec.aws).region
    prices = {name: hourly(catalog.prices, region, name, market) for name in source.machines}
    highest = max((price or 0 for price in prices.values()), default=0)
    if None not in prices.values() and limit >= highest:
        message = f"{format_rate(limit)} has no effect: spot costs at most the on-demand price, {format_rate(highest)}"
        yield warning(*at, "max_price", id="price-no-limit", message=message)


def reservation_place(spec: ClusterSpec, index: int, position: int, _catalog: Catalog) -> Iterator[Finding]:
    """A reservation has one machine type in one zone (T25)."""
    source, at = _source(spec, index, position)
    if not source.source.is_reserved:
        return
    what = _WORD[source.source]
    if len(source.machines) > 1:
        message = f"{what} has one machine type, found {len(source.machines)}"
        yield error(*at, "machines", id="one-machine", message=message)
    if source.zones is not None and len(source.zones) > 1:
        yield error(*at, "zones", id="one-zone", message=f"{what} is in one zone, found {len(source.zones)}")
    ours = require(spec.aws).network.places
    if source.zones is None and len(ours) > 1:
        message = f"'zones' is missing: {what} is in one zone, and the network has {', '.join(ours)}"
        yield error(*at, id="missing-key", message=message)


def shared_reservation(spec: ClusterSpec, index: int, position: int, _catalog: Catalog) -> Iterator[Finding]:
    """Pools that share a reservation must describe it equally: EC2 refuses launches that do not match it."""
    source, at = _source(spec, index, position)
    if source.id is None or not source.source.is_reserved:
        return
    zones = require(spec.aws).network.places
    for pool in spec.pools[:index]:
        yield from collect(_described_otherwise(source, pool, zones, at, f"pools[{pool.name}]"))


def sources_enough(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """The sources give enough machines for the always-on nodes."""
    pool = spec.pools[index]
    least = require(pool.nodes).min + pool.spares
    bounds = [source.max for source in pool.capacity]
    most = sum(bound or 0 for bound in bounds)
    if bounds and None not in bounds and most < least:
        message = f"the sources give at most {most} nodes, and {least} are always on (with spares)"
        yield error("pools", index, "capacity", id="sources-below-min", message=message)


def block_fixed(spec: ClusterSpec, index: int, position: int, catalog: Catalog) -> Iterator[Finding]:
    """A capacity block is prepaid, so its pool has a fixed size."""
    source, at = _source(spec, index, position)
    if source.source is not Market.CAPACITY_BLOCK:
        return
    for place, name in enumerate(source.machines):
        machine = catalog.machines.get(name)
        if machine is not None and Market.CAPACITY_BLOCK not in machine.markets:
            message = f"'{name}' is not offered in capacity blocks (catalog of {catalog.date})"
            yield error(*at, "machines", place, id="machine-not-sold", message=message)
    nodes = require(spec.pools[index].nodes)
    if nodes.min != nodes.max:
        message = f"a capacity block is prepaid, so its pool has a fixed size: write `nodes: {nodes.max}`; found min {nodes.min}, max {nodes.max}"
        yield error(*at, "from", id="elastic-block", message=message)


def spares(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    pool = spec.pools[index]
    nodes, count = require(pool.nodes), pool.spares
    if count and nodes.min + count > nodes.max:
        message = f"{count} spares and {nodes.min} always-on nodes are more than max {nodes.max}"
        yield error("pools", index, "spares", id="spares-above-max", message=message)


def budget(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Warn about machines without a price. Refuse a budget when no machine has one."""
    part = require(spec.budget)
    if spec.hosts is not None and spec.aws is None:
        yield error("budget", id="hosts-or-cloud", message="existing hosts have no hourly price")
        return
    if not of_slurm(spec):
        message = "the budget is enforced by Slurm's elastic daemon, and no pool runs Slurm"
        yield error("budget", id="not-here", message=message)
        return
    warn, stop = _percent(part.warn_at, defaults.BUDGET_WARN_PERCENT), part.stop_scaling_at
    if warn > _percent(stop, defaults.BUDGET_STOP_PERCENT):
        share = f"{warn}%" if part.warn_at is not None else f"the default, {warn}%,"
        after = _percent(stop, defaults.BUDGET_STOP_PERCENT)
        message = (
            f"{share} is above the stop at {after}%, so no warning would come first; write at most {after}%"
        )
        yield error("budget", "warn_at", id="warn-after-stop", message=message)
    yield from _notified(part.notify)
    if require(spec.aws).region in catalog.regions:  # an unknown region is already reported
        yield from _unpriced(spec, catalog)


def always_on_cost(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Refuse a budget below the cost of the always-on nodes: it would stop the replacement of a broken node."""
    part = require(spec.budget)
    percent = _percent(part.stop_scaling_at, defaults.BUDGET_STOP_PERCENT)
    stop = part.monthly * percent // 100
    least = sum(_hour_of(pool, require(spec.aws).region, catalog) for pool in of_slurm(spec)) * HOURS_A_MONTH
    if least > stop:
        message = (
            f"the always-on nodes cost {format_money(least)} a month ({HOURS_A_MONTH} h at list prices of "
            f"{catalog.prices.date}), and launches stop at {format_money(stop)}"
        )
        yield error("budget", "monthly", id="budget-below-least", message=message)


def _described_otherwise(
    source: Capacity, pool: Pool, zones: tuple[str, ...], at: Path, named: str
) -> Iterator[Finding]:
    """Yield an error if another pool describes the same reservation differently."""
    for other in pool.capacity:
        if other.id != source.id or not other.source.is_reserved:
            continue
        here, there = source.zones or zones, other.zones or zones
        if (source.source, source.machines, here) != (other.source, other.machines, there):
            message = f"'{source.id}' is in {named} {_WORD[other.source]} of {', '.join(other.machines)} in {', '.join(there)}: one id has one machine type in one zone"
            yield error(*at, "id", id="reservation-differs", message=message)


def _notified(mail: tuple[str, ...]) -> Iterator[Finding]:
    if len(mail) > MOST_SUBSCRIBERS:
        message = f"{len(mail)} addresses; AWS Budgets notifies at most {MOST_SUBSCRIBERS} for one threshold"
        yield error("budget", "notify", id="too-many-addresses", message=message)
    yield from repeated(mail, ("budget", "notify"), "the address")


def _unpriced(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    region, prices = require(spec.aws).region, catalog.prices
    if all(source.source is Market.CAPACITY_BLOCK for pool in of_slurm(spec) for source in pool.capacity):
        message = "all machines of Slurm's pools are prepaid, so no hour counts: this budget has no effect"
        yield error("budget", id="budget-without-prices", message=message)
        return
    named = [place for place in _machines(spec) if place[2] in catalog.machines]
    without = [
        place
        for place in named
        if hourly(prices, region, place[2], place[1].source, place[1].max_price) is None
    ]
    if named and len(without) == len(named):
        message = f"no machine of Slurm's pools has a price (the catalog has prices of {prices.region}): this budget has no effect; remove `budget`, or set `max_price` for spot"
        yield error("budget", id="budget-without-prices", message=message)
        return
    for path, _, name in without:
        message = f"'{name}' has no price in the catalog of {prices.date}: its hours do not count, and the budget is partly uncounted"
        yield warning(*path, id="no-price", message=message)


def _machines(spec: ClusterSpec) -> Iterator[tuple[Path, Capacity, str]]:
    """Yield each machine of Slurm's pools with an hourly price, with its path and its source."""
    for index, pool in enumerate(spec.pools):
        if run_by(spec, pool) is not Runs.SLURM:
            continue
        for position, source in enumerate(pool.capacity):
            for at, name in enumerate(source.machines):
                if source.source is not Market.CAPACITY_BLOCK:
                    yield ("pools", index, "capacity", position, "machines", at), source, name


def _hour_of(pool: Pool, region: str, catalog: Catalog) -> int:
    """Return the hourly price of the always-on nodes, each with the first machine of the first possible source."""
    return sum(
        taken * (hourly(catalog.prices, region, one.machines[0], one.source, one.max_price) or 0)
        for one, taken in in_turn(stays(require(pool.nodes).min, pool.spares), pool.capacity)
    )


def _source(spec: ClusterSpec, index: int, position: int) -> tuple[Capacity, Path]:
    return spec.pools[index].capacity[position], ("pools", index, "capacity", position)


def _percent(part: int | None, rule: defaults.Default) -> int:
    return int(rule.value) if part is None else part
