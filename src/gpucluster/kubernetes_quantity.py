"""Kubernetes' quantities: `500m`, `16Gi`, `1e3`, 8."""

import re
from decimal import Decimal
from typing import Any

_FORM = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i))?", re.ASCII)
_SUFFIX = {
    **{letter: Decimal(10) ** power for letter, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)},
    **{f"{letter}i": Decimal(2) ** (10 * power) for power, letter in enumerate("KMGTPE", start=1)},
}  # fmt: skip
_HUGE = Decimal(10) ** 24
_LONGEST = 64  # characters; no real quantity is longer


def parse(value: Any) -> Decimal | None:
    """Return the amount in base units (cores, bytes, pieces), or None if the text is no quantity."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    written = value if isinstance(value, str) else repr(value)
    match = _FORM.fullmatch(written) if len(written) <= _LONGEST else None
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    return Decimal(f"{number}{exponent or ''}") * _SUFFIX.get(suffix or "", Decimal(1))


def shown(amount: Decimal) -> str:
    """Format for people: whole binary units if the amount is a multiple of one."""
    if abs(amount) >= _HUGE:  # more than Decimal divides exactly; no real amount is as large
        return f"{amount:.3E}"
    for suffix in ("Ti", "Gi", "Mi"):
        if amount and amount == amount.to_integral() and amount % _SUFFIX[suffix] == 0:
            return f"{int(amount / _SUFFIX[suffix])}{suffix}"
    return format(amount.normalize(), "f")
