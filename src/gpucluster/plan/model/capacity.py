"""Capacity: what a pool buys, what Karpenter may launch of it, and a team's share. The rules of a spec make these, too.

They are apart from the other parts of the plan, because making all dataclasses takes as long as reading a spec.
"""

from dataclasses import dataclass

from gpucluster.plan.model.values import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One line of a pool's `capacity`, in the order in which it is tried."""

    position: int
    market: Market
    machines: tuple[str, ...]  # in order of preference
    zones: tuple[str, ...]
    max: int | None  # limit of live instances from this source, over all zones; None = only the pool's max
    reservation: str | None = None  # its id, `cr-...`: of a reservation or a capacity block
    max_price: int | None = None  # the highest price of a spot instance, in micro-USD an hour

    def __post_init__(self) -> None:
        if self.market.is_reserved != (self.reservation is not None):
            raise ValueError(f"a source of {self.market} with the reservation {self.reservation}")
        if self.max_price is not None and self.market is not Market.SPOT:
            raise ValueError(f"a source of {self.market}: only spot has a max_price")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Nodes that Karpenter may launch by one NodePool. Karpenter counts each NodePool alone, so `nodes` is its own limit."""

    positions: tuple[int, ...]  # of its sources, in the order in which Karpenter tries them
    markets: tuple[Market, ...]
    machines: tuple[str, ...]
    zones: tuple[str, ...]
    nodes: int
    reservations: tuple[str, ...] = ()  # ids, `cr-...`


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of one pool: the guaranteed amounts, and how much more may be borrowed."""

    pool: str
    nominal: dict[str, int]
    borrow: dict[str, int]  # all 0: borrows nothing
