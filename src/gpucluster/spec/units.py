"""Times, sizes, money and percent as people write them: one number and its unit."""

import re
from decimal import ROUND_HALF_UP, Decimal

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
FORMS = "30s, 5m, 2h or 7d"

MIB = {"MiB": 1, "GiB": 1024, "TiB": 1024**2}
SIZE_FORMS = "512MiB, 2000GiB or 2TiB"

MICRO = 1_000_000  # money is counted in millionths of a dollar
MONEY_FORMS = "250000 USD or 1999.50 USD"
RATE_FORMS = "40 USD/h or 31.50 USD/h"
PERCENT_FORMS = "80%"
AMOUNT = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"

_CENT = Decimal("0.01")
_MONEY = re.compile(rf"({AMOUNT}) USD")
_RATE = re.compile(rf"({AMOUNT}) USD/h")
_PERCENT = re.compile(r"([0-9]{1,3})%")
_SIZE = re.compile(r"([0-9]{1,9})(MiB|GiB|TiB)")
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")


def parse_duration(text: str) -> int | None:
    """Seconds of `5m`; None for what is not written so."""
    match = _DURATION.fullmatch(text)
    return int(match[1]) * SECONDS[match[2]] if match else None


def parse_size(text: str) -> int | None:
    """MiB of `2000GiB`; None for what is not written so."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) * MIB[match[2]] if match else None


def write_size(mib: int) -> str:
    """The shortest form that says the same: 2048000 -> `2000GiB`."""
    unit = next(u for u in ("TiB", "GiB", "MiB") if mib % MIB[u] == 0)
    return f"{mib // MIB[unit]}{unit}"


def write_duration(seconds: float) -> str:
    """The shortest form that says the same: 300 -> `5m`."""
    whole = int(seconds)
    if whole != seconds:
        return f"{seconds:g}s"
    unit = next(u for u in ("d", "h", "m", "s") if whole % SECONDS[u] == 0)
    return f"{whole // SECONDS[unit]}{unit}" if whole else "0s"


def parse_money(text: str) -> int | None:
    """Micro-USD of `250000 USD` or `31.50 USD`; None for what is not written so."""
    match = _MONEY.fullmatch(text)
    return _micro(match[1]) if match else None


def parse_rate(text: str) -> int | None:
    """Micro-USD an hour of `40 USD/h`; None for what is not written so."""
    match = _RATE.fullmatch(text)
    return _micro(match[1]) if match else None


def parse_percent(text: str) -> int | None:
    """80 of `80%`; None for what is not written so."""
    match = _PERCENT.fullmatch(text)
    return int(match[1]) if match else None


def write_money(micro: int) -> str:
    """For people, to the cent: 250000000000 -> `250,000.00 USD`."""
    return f"{Decimal(micro).scaleb(-6).quantize(_CENT, ROUND_HALF_UP):,} USD"


def write_rate(micro: int) -> str:
    """An hourly price, no digit lost: 63296000 -> `63.296 USD/h`."""
    whole, part = divmod(micro, MICRO)
    digits = f"{part:06d}".rstrip("0")
    return f"{whole}{'.' if digits else ''}{digits} USD/h"


def _micro(amount: str) -> int:
    return int(Decimal(amount).scaleb(6))
