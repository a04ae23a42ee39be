"""Estimate the monthly cost of a plan: the least, with only always-on nodes and spares, and the most, with all nodes.

The most of a pool is a ceiling: each node has the dearest machine of a source, and spot has the on-demand price or its
`max_price`. An item without a price makes the sum "at least".
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from gpucluster.catalog import Prices, eks_standard_until
from gpucluster.cost.amount import Amount
from gpucluster.cost.fixed_costs import fixed_costs
from gpucluster.cost.price_list import CostLine, PriceList
from gpucluster.plan.model import ClusterPlan, HostHead, Market, Pool, Source
from gpucluster.plan.model.eks import EksControlPlane
from gpucluster.plan.model.kubernetes import NodePool
from gpucluster.plan.model.values import HOURS_A_MONTH, Distribution
from gpucluster.plan.names import SYSTEM_NODES
from gpucluster.plan.node_pools import in_turn, stays

AnyPool = Pool | NodePool

SPOT_NOTE = "spot counted at its ceiling: the on-demand price, or `max_price` where that is less"
HELD_NOTE = (
    "a reservation is paid for, used or not; counted are as many of its machines as this pool can have"
)
_NOTES = {Market.SPOT: SPOT_NOTE, Market.RESERVATION: HELD_NOTE}

ASSUMPTIONS = (
    f"a month is {HOURS_A_MONTH} h; the least: only the always-on nodes, spares and reserved machines, each at the first machine of the first source that may give it; "
    "the most: every node all month, each at the dearest machine that a source may give",
    f"on-demand Linux list prices; {SPOT_NOTE}",
    "not counted: root volumes and snapshots, data transfer, what NAT gateways and endpoints take by the byte, logs, secrets, "
    "taxes, and any discount or commitment",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The cost of a month, by line and in total, with the date of the prices."""

    lines: tuple[CostLine, ...]
    currency: str
    prices_date: str
    prices_region: str

    @property
    def least(self) -> Amount:
        return sum((line.least for line in self.lines), Amount())

    @property
    def most(self) -> Amount:
        return sum((line.most for line in self.lines), Amount())

    def line(self, kind: str, name: str) -> CostLine | None:
        """Return the line of a pool or of the head; None if there is none."""
        return next((line for line in self.lines if (line.kind, line.name) == (kind, name)), None)


def estimate(plan: ClusterPlan, prices: Prices) -> Estimate:
    """Return the cost of a plan for a month. Pure, so the caller must check the age of the prices."""
    price = PriceList(prices, plan.aws.region if plan.aws else None)
    return Estimate(
        lines=(
            *_head(plan, price),
            *_control_plane(plan, price),
            *(_pool(pool, price) for pool in pools_of(plan)),
            *fixed_costs(plan, price),
        ),
        currency=prices.currency,
        prices_date=prices.date,
        prices_region=prices.region,
    )


def pools_of(plan: ClusterPlan) -> tuple[AnyPool, ...]:
    """Return the pools of Slurm and of Kubernetes."""
    return (*plan.pools, *(plan.kubernetes.pools if plan.kubernetes else ()))


def _head(plan: ClusterPlan, price: PriceList) -> Iterator[CostLine]:
    if plan.head is None:
        return
    head = plan.head
    month = _of_ones_own(head.name) if isinstance(head, HostHead) else price.month(head.machine)
    if plan.head.standby is not None:
        month += price.month(plan.head.standby.machine)
    yield CostLine(kind="head", name=plan.head.name, least=month, most=month)


def _control_plane(plan: ClusterPlan, price: PriceList) -> Iterator[CostLine]:
    """EKS has an hourly fee, here that of standard support. The nodes of its add-ons are on demand."""
    if plan.kubernetes is not None and plan.kubernetes.distribution is Distribution.EKS:
        fee = price.service("eks control plane", "eks-cluster-hour")
        yield CostLine(
            kind="control-plane", name="eks", least=fee, most=fee, notes=(_support(plan.kubernetes.version),)
        )
    plane = None if plan.kubernetes is None else plan.kubernetes.control_plane
    for group in plane.groups if isinstance(plane, EksControlPlane) else ():
        if group.pool == SYSTEM_NODES:
            month = price.month(group.machines[0]).times(group.nodes)
            yield CostLine(kind="control-plane", name=SYSTEM_NODES, least=month, most=month)


def _support(version: str) -> str:
    """Return when the fee rises: 0.10 and then 0.60 USD an hour (https://aws.amazon.com/eks/pricing). No estimate knows today's date."""
    until = eks_standard_until(version)
    day = "the catalog does not know the day" if until is None else f"on {until}"
    return f"the fee of EKS is six times as high after standard support ends; for Kubernetes {version} {day}"


def _pool(pool: AnyPool, price: PriceList) -> CostLine:
    if not pool.sources:
        own = _of_ones_own(pool.name)
        return CostLine(kind="pool", name=pool.name, least=own, most=own)
    markets = {source.market for source in pool.sources}
    notes = tuple(note for market, note in _NOTES.items() if market in markets)
    stay = stays(pool.min, pool.spares if isinstance(pool, Pool) else 0)
    held = [source for source in pool.sources if source.market is Market.RESERVATION]
    others = [source for source in pool.sources if source not in held]
    paid = tuple(in_turn(pool.max, held))  # used or not
    rest = in_turn(max(0, stay - sum(count for _, count in paid)), others)
    return CostLine(
        kind="pool",
        name=pool.name,
        least=_month((*paid, *rest), price),
        most=_most(pool, price),
        notes=notes,
        stays=stay,
        stays_month=_month(in_turn(stay, pool.sources), price),
    )


def _month(taken: Iterable[tuple[Source, int]], price: PriceList) -> Amount:
    """Return the cost of so many machines of each source, each the first one of its source."""
    months = (price.bought(source.machines[0], source).times(count) for source, count in taken)
    return sum(months, Amount())


def _most(pool: AnyPool, price: PriceList) -> Amount:
    """Return the cost of all nodes, the dearest source first. An unknown price of any source is named."""
    months = {source.position: _dearest(source, price) for source in pool.sources}
    ranked = sorted(pool.sources, key=lambda source: (-months[source.position].known, source.position))
    total = Amount()
    for source, count in in_turn(pool.max, ranked):
        month = months[source.position]
        total += month.times(count) + Amount(
            unknown=month.unknown, quantities=(Decimal(0),) * len(month.unknown)
        )
    return total


def _dearest(source: Source, price: PriceList) -> Amount:
    months = [price.bought(machine, source) for machine in source.machines]
    unknown = tuple(reason for month in months for reason in month.unknown)
    return Amount(max(month.known for month in months), tuple(sorted(set(unknown))))


def _of_ones_own(name: str) -> Amount:
    return Amount(unknown=(f"{name} (hosts of your own have no price here)",))
