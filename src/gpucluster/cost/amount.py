"""Amounts of money with unknown parts: a sum always shows what it could not count."""

from dataclasses import dataclass, field
from decimal import Decimal

from gpucluster.text import format_amount


@dataclass(frozen=True, slots=True)
class Amount:
    """A known amount, and the names of the unknown parts. `Amount()` is zero and fully known."""

    known: Decimal = Decimal(0)
    unknown: tuple[str, ...] = ()  # `p5e.48xlarge (no on-demand price)`: sorted, without duplicates
    quantities: tuple[Decimal, ...] = field(
        default=(), compare=False
    )  # of each unknown part; empty: 1 of each

    def __add__(self, other: "Amount") -> "Amount":
        mine, theirs = self.quantity_of(), other.quantity_of()
        names = sorted(mine.keys() | theirs.keys())
        sums = (mine.get(name, Decimal(0)) + theirs.get(name, Decimal(0)) for name in names)
        return Amount(self.known + other.known, tuple(names), tuple(sums))

    def times(self, count: Decimal | int) -> "Amount":
        """Return the amount times a number. Zero times an unknown is zero."""
        if not count:
            return Amount()
        quantities = tuple(quantity * count for quantity in self.quantity_of().values())
        return Amount(self.known * count, self.unknown, quantities)

    def quantity_of(self) -> dict[str, Decimal]:
        """Return how many units of each unknown part are counted, such as machines or GiB."""
        return dict(zip(self.unknown, self.quantities or [Decimal(1)] * len(self.unknown), strict=True))

    @property
    def exact(self) -> bool:
        """Return whether no part is unknown."""
        return not self.unknown

    def words(self, currency: str) -> str:
        """`294.34 USD`, or `at least 294.34 USD, plus unknown: ...`, or `unknown: ...`."""
        if self.exact:
            return format_amount(self.known, currency)
        reasons = f"unknown: {', '.join(self.unknown)}"
        return f"at least {format_amount(self.known, currency)}, plus {reasons}" if self.known else reasons

    def short(self, currency: str) -> str:
        """The same for a table cell, if the reasons stand below the table."""
        if self.exact:
            return format_amount(self.known, currency)
        return f"≥ {format_amount(self.known, currency)} + unknown" if self.known else "unknown"
