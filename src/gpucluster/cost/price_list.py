"""The prices of one region: of machines by their source, and of services."""

from dataclasses import dataclass, field
from decimal import Decimal

from gpucluster.catalog import Prices
from gpucluster.cost.amount import Amount
from gpucluster.plan.model.capacity import Source
from gpucluster.plan.model.values import HOURS_A_MONTH, Market

_BY_THE_HOUR = frozenset({Market.ON_DEMAND, Market.SPOT, Market.RESERVATION})


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """A line of the estimate: the head, a control plane, or a pool. `stays`: always-on nodes and spares of a pool, and their month."""

    kind: str  # head | control-plane | pool | and the other parts: login | network | storage
    name: str
    least: Amount
    most: Amount
    notes: tuple[str, ...] = ()
    stays: int = 0
    stays_month: Amount = field(default_factory=Amount)


_MISSING = (
    "no price for",
    "no on-demand price",
    "not in the price list",
)  # a site's own price list may have it


def is_missing(reason: str) -> bool:
    """Whether another price list may have the price of this unknown part."""
    return reason.rpartition(" (")[2].startswith(_MISSING)


@dataclass(frozen=True, slots=True)
class PriceList:
    """The prices of one region."""

    prices: Prices
    region: str | None

    def hour(self, machine: str) -> Amount:
        """Return the on-demand price of one machine."""
        if self.region != self.prices.region:
            where = f"for {self.region}" if self.region else "outside of a cloud"
            return Amount(unknown=(f"{machine} (no price {where})",))
        if machine not in self.prices.rows:
            return Amount(unknown=(f"{machine} (no on-demand price)",))
        return Amount(self.prices.rows[machine])

    def month(self, machine: str) -> Amount:
        """Return the cost of one machine for a month."""
        hour = self.hour(machine)
        return Amount(hour.known * HOURS_A_MONTH, hour.unknown)

    def bought(self, machine: str, source: Source) -> Amount:
        """Return the price of one machine of a source for a month; unknown if it is not paid by the hour."""
        if source.market not in _BY_THE_HOUR:
            return Amount(unknown=(f"{machine} ({source.market}: not paid by the hour)",))
        listed = self.month(machine)
        if source.max_price is None:
            return listed
        most = Amount(Decimal(source.max_price).scaleb(-6) * HOURS_A_MONTH)
        return most if listed.unknown or most.known < listed.known else listed

    def service(self, what: str, row: str) -> Amount:
        """Return the cost of one unit of a service for a month, from an hourly or a monthly row."""
        if self.region != self.prices.region:
            return Amount(unknown=(f"{what} (no price for {self.region})",))
        price = self.prices.services.get(row)
        if price is None:
            return Amount(unknown=(f"{what} (not in the price list)",))
        return Amount(price * HOURS_A_MONTH if row.endswith("-hour") else price)
