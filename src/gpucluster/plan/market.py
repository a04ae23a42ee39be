"""How machines are bought, and the sources of a pool: the same words for Slurm's pools and Kubernetes'."""

from dataclasses import dataclass
from enum import StrEnum

HOURS_A_MONTH = 730  # as public calculators count it


class Market(StrEnum):
    """How an instance is bought."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    RESERVATION = "reservation"  # capacity held for us, at the on-demand price
    CAPACITY_BLOCK = "capacity-block"  # paid ahead, for a window of time


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One line of a pool's `capacity`, in the order in which it is tried."""

    position: int
    market: Market
    machines: tuple[str, ...]  # in order of preference
    zones: tuple[str, ...]
    max: int | None  # live instances from this source, over all zones; None = only the pool's max
    reservation: str | None = None  # its id, `cr-...`: of a reservation or a capacity block
    max_price: int | None = None  # the most to pay for a spot instance, in micro-USD an hour
