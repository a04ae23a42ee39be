"""Where machines come from: what was bought ahead, what spot may cost, spares, and the month's budget."""

from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.plan import defaults
from gpucluster.plan.market import HOURS_A_MONTH, Market
from gpucluster.plan.prices import hourly
from gpucluster.spec.aws_fields import MOST_SUBSCRIBERS
from gpucluster.spec.kubernetes import Runs
from gpucluster.spec.model import Capacity, ClusterSpec, Pool
from gpucluster.spec.part import written
from gpucluster.spec.pools import of_slurm, run_by
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules.findings import error, or_none, repeated, run, warning
from gpucluster.spec.units import write_money, write_rate

HELD = (Market.RESERVATION, Market.CAPACITY_BLOCK)  # one machine type in one zone, known by an id
_WORD = {Market.RESERVATION: "a reservation", Market.CAPACITY_BLOCK: "a capacity block"}


def source_id(spec: ClusterSpec, index: int, position: int, _catalog: Catalog) -> Iterator[Finding]:
    """What was bought ahead is launched by its id, and only that."""
    source, at = _source(spec, index, position)
    if source.source in HELD and source.id is None:
        says = f"'id' is missing: which {_WORD[source.source].removeprefix('a ')}, cr-…"
        yield error(*at, id="missing-key", says=says)
    if source.source not in HELD and source.id is not None:
        says = f"'id' is of a reservation or a capacity block; this source is {source.source}"
        yield error(*at, "id", id="not-here", says=says)
    others = [or_none(lambda one=one: one.id) for one in spec.pools[index].capacity[:position]]
    if source.id is not None and source.id in others:
        says = f"'{source.id}' is already the source capacity[{others.index(source.id)}] of this pool"
        yield error(*at, "id", id="repeated", says=says)


def source_price(spec: ClusterSpec, index: int, position: int, catalog: Catalog) -> Iterator[Finding]:
    """A limit on what has a market's price; above the list price it limits nothing."""
    source, at = _source(spec, index, position)
    limit, market = written(source.max_price), source.source
    if market is not Market.SPOT:
        says = f"'max_price' is for spot machines, whose price moves; this source is {market}"
        yield error(*at, "max_price", id="not-here", says=says)
        return
    region = written(spec.aws).region
    prices = {name: hourly(catalog.prices, region, name, market) for name in source.machines}
    highest = max((price or 0 for price in prices.values()), default=0)
    if None not in prices.values() and limit >= highest:
        says = f"{write_rate(limit)} limits nothing: spot costs at most the on-demand price, {write_rate(highest)}"
        yield warning(*at, "max_price", id="price-no-limit", says=says)


def held_place(spec: ClusterSpec, index: int, position: int, _catalog: Catalog) -> Iterator[Finding]:
    """A reservation is of one machine type in one zone (T25)."""
    source, at = _source(spec, index, position)
    if source.source not in HELD:
        return
    what = _WORD[source.source]
    if len(source.machines) > 1:
        says = f"{what} is of one machine type; this names {len(source.machines)}"
        yield error(*at, "machines", id="one-machine", says=says)
    if source.zones is not None and len(source.zones) > 1:
        yield error(
            *at, "zones", id="one-zone", says=f"{what} is in one zone; this names {len(source.zones)}"
        )
    ours = written(spec.aws).network.places
    if source.zones is None and len(ours) > 1:
        says = f"'zones' is missing: {what} is in one zone, and the network has {', '.join(ours)}"
        yield error(*at, id="missing-key", says=says)


def held_alike(spec: ClusterSpec, index: int, position: int, _catalog: Catalog) -> Iterator[Finding]:
    """Pools may share a reservation, which is one thing for all of them: each launch of the other kind was refused."""
    source, at = _source(spec, index, position)
    if source.id is None or source.source not in HELD:
        return
    zones = written(spec.aws).network.places
    for pool in spec.pools[:index]:
        yield from run(_told_otherwise(source, pool, zones, at, f"pools[{pool.name}]"))


def sources_enough(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """The nodes that always stand can be had."""
    pool = spec.pools[index]
    least = written(pool.nodes).min + pool.spares
    bounds = [source.max for source in pool.capacity]
    most = sum(bound or 0 for bound in bounds)
    if bounds and None not in bounds and most < least:
        says = f"its sources give at most {most}, and {least} nodes always stand (spares with them)"
        yield error("pools", index, "capacity", id="sources-below-min", says=says)


def block_fixed(spec: ClusterSpec, index: int, position: int, catalog: Catalog) -> Iterator[Finding]:
    """Paid ahead, used or not: so its nodes are there for as long as it is."""
    source, at = _source(spec, index, position)
    if source.source is not Market.CAPACITY_BLOCK:
        return
    for place, name in enumerate(source.machines):
        machine = catalog.machines.get(name)
        if machine is not None and Market.CAPACITY_BLOCK not in machine.markets:
            says = f"'{name}' is not sold in capacity blocks (by the catalog of {catalog.date})"
            yield error(*at, "machines", place, id="machine-not-sold", says=says)
    nodes = written(spec.pools[index].nodes)
    if nodes.min != nodes.max:
        says = f"a capacity block is paid ahead, so its pool is fixed: write `nodes: {nodes.max}`; found min {nodes.min}, max {nodes.max}"
        yield error(*at, "from", id="elastic-block", says=says)


def spares(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    pool = spec.pools[index]
    nodes, count = written(pool.nodes), pool.spares
    if count and nodes.min + count > nodes.max:
        says = f"{count} spare beside the always-on {nodes.min} are more than max {nodes.max}"
        yield error("pools", index, "spares", id="spares-above-max", says=says)


def budget(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Only what has a price is counted: what has none is named, and a budget that counts nothing is refused."""
    wish = written(spec.budget)
    if spec.hosts is not None and spec.aws is None:
        yield error("budget", id="hosts-or-cloud", says="hosts of your own have no price by the hour")
        return
    if not of_slurm(spec):
        says = "a budget is kept by Slurm's elastic daemon, and no pool runs Slurm"
        yield error("budget", id="not-here", says=says)
        return
    warn, stop = _percent(wish.warn_at, defaults.BUDGET_WARN_PERCENT), wish.stop_scaling_at
    if warn > _percent(stop, defaults.BUDGET_STOP_PERCENT):
        whose = f"{warn}%" if wish.warn_at is not None else f"the default, {warn}%,"
        after = _percent(stop, defaults.BUDGET_STOP_PERCENT)
        says = f"{whose} is after the stop at {after}%: nobody would be warned; write at most {after}%"
        yield error("budget", "warn_at", id="warn-after-stop", says=says)
    yield from _told(wish.notify)
    yield from _unpriced(spec, catalog)


def always_on_cost(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """A budget that the nodes which always stand use up would stop the replacement of a broken one."""
    wish = written(spec.budget)
    percent = _percent(wish.stop_scaling_at, defaults.BUDGET_STOP_PERCENT)
    stop = wish.monthly * percent // 100
    least = sum(_hour_of(pool, written(spec.aws).region, catalog) for pool in of_slurm(spec)) * HOURS_A_MONTH
    if least > stop:
        says = (
            f"the nodes that always stand cost {write_money(least)} a month ({HOURS_A_MONTH} h at list prices of "
            f"{catalog.prices.date}), and launching stops at {write_money(stop)}"
        )
        yield error("budget", "monthly", id="budget-below-least", says=says)


def _told_otherwise(
    source: Capacity, pool: Pool, zones: tuple[str, ...], at: Path, named: str
) -> Iterator[Finding]:
    """What another pool says of the same reservation, if it is not the same."""
    for other in pool.capacity:
        if other.id != source.id or other.source not in HELD:
            continue
        here, there = source.zones or zones, other.zones or zones
        if (source.source, source.machines, here) != (other.source, other.machines, there):
            says = f"'{source.id}' is in {named} {_WORD[other.source]} of {', '.join(other.machines)} in {', '.join(there)}: it is one thing, of one machine in one zone"
            yield error(*at, "id", id="held-otherwise", says=says)


def _told(mail: tuple[str, ...]) -> Iterator[Finding]:
    if len(mail) > MOST_SUBSCRIBERS:
        says = f"{len(mail)} addresses; AWS Budgets tells at most {MOST_SUBSCRIBERS} of one threshold"
        yield error("budget", "notify", id="too-many-addresses", says=says)
    yield from repeated(mail, ("budget", "notify"), "the address")


def _unpriced(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    region, prices = written(spec.aws).region, catalog.prices
    if all(source.source is Market.CAPACITY_BLOCK for pool in of_slurm(spec) for source in pool.capacity):
        says = "all machines of Slurm's pools are paid ahead, so no hour of theirs is counted: this budget would stop nothing"
        yield error("budget", id="budget-without-prices", says=says)
        return
    named = [place for place in _machines(spec) if place[2] in catalog.machines]
    without = [
        place
        for place in named
        if hourly(prices, region, place[2], place[1].source, place[1].max_price) is None
    ]
    if named and len(without) == len(named):
        says = f"no machine of Slurm's pools has a price (the catalog has those of {prices.region}): this budget would stop nothing; leave `budget` out, or say `max_price` of spot"
        yield error("budget", id="budget-without-prices", says=says)
        return
    for path, _, name in without:
        says = f"'{name}' has no price in the catalog of {prices.date}: its hours count nothing in the budget"
        yield warning(*path, id="no-price", says=says)


def _machines(spec: ClusterSpec) -> Iterator[tuple[Path, Capacity, str]]:
    """Each machine of Slurm's pools that is paid by the hour, with its place and its source."""
    for index, pool in enumerate(spec.pools):
        if run_by(spec, pool) is not Runs.SLURM:
            continue
        for position, source in enumerate(pool.capacity):
            for at, name in enumerate(source.machines):
                if source.source is not Market.CAPACITY_BLOCK:
                    yield ("pools", index, "capacity", position, "machines", at), source, name


def _hour_of(pool: Pool, region: str, catalog: Catalog) -> int:
    """An hour of the nodes that always stand, each at the first machine of the first source that may give it."""
    left, total = written(pool.nodes).min + pool.spares, 0
    for source in pool.capacity:
        taken = left if source.max is None else min(left, source.max)
        first, most = source.machines[0], source.max_price
        total += taken * (hourly(catalog.prices, region, first, source.source, most) or 0)
        left -= taken
    return total


def _source(spec: ClusterSpec, index: int, position: int) -> tuple[Capacity, Path]:
    return spec.pools[index].capacity[position], ("pools", index, "capacity", position)


def _percent(wish: int | None, rule: defaults.Default) -> int:
    return int(rule.value) if wish is None else wish
