"""Money of which a part may be unknown: a sum never hides what it could not count."""

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Amount:
    """What is known, and by name what is not. `Amount()` is nothing, and known to be."""

    known: Decimal = Decimal(0)
    unknown: tuple[str, ...] = ()  # `p5e.48xlarge (no on-demand price)`: sorted, each once

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.known + other.known, tuple(sorted({*self.unknown, *other.unknown})))

    def times(self, count: Decimal | int) -> "Amount":
        """So many of it; none of an unknown is nothing."""
        return Amount(self.known * count, self.unknown) if count else Amount()

    @property
    def exact(self) -> bool:
        """Nothing of it is unknown."""
        return not self.unknown

    def words(self, currency: str) -> str:
        """`294.34 USD`, or `at least 294.34 USD, plus unknown: ...`, or `unknown: ...`."""
        if self.exact:
            return money(self.known, currency)
        reasons = f"unknown: {', '.join(self.unknown)}"
        return f"at least {money(self.known, currency)}, plus {reasons}" if self.known else reasons

    def short(self, currency: str) -> str:
        """The same for a cell of a table, where the reasons stand below."""
        if self.exact:
            return money(self.known, currency)
        return f"≥ {money(self.known, currency)} + unknown" if self.known else "unknown"


def money(value: Decimal, currency: str, *, signed: bool = False) -> str:
    """`1,234.50 USD`, as the spec writes it; `signed` writes a `+` as well. No `$`: two of them are a formula to GitHub."""
    return f"{cents(value):{'+' if signed else ''},} {currency}"


def cents(value: Decimal) -> Decimal:
    """Rounded as bills are."""
    return value.quantize(_CENT, ROUND_HALF_UP)
