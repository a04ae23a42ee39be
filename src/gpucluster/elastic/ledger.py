"""The daemon's ledger: the cost of instances by calendar month (UTC), at catalog prices, in micro-USD. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

_HOUR_S = 3600.0


def month_of(at: float) -> str:
    """Return the month as `2026-11`."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m")


def next_month(at: float) -> float:
    """Return the time at which the next month begins. The spend is zero again then."""
    date = datetime.fromtimestamp(at, UTC)
    return datetime(date.year + date.month // 12, date.month % 12 + 1, 1, tzinfo=UTC).timestamp()


def split(price: int, began: float, ended: float) -> Iterator[tuple[str, int]]:
    """Return the cost of an instance at `price` an hour between two times, by month."""
    while began < ended:
        stop = min(ended, next_month(began))
        yield month_of(began), round(price * (stop - began) / _HOUR_S)
        began = stop


def spent(ended: Mapping[str, int], living: Iterable[tuple[int, float]], now: float) -> int:
    """Return this month's spend so far: of ended instances, and of living ones, each (price, launched at)."""
    month, first = month_of(now), _this_month(now)
    running = sum(price * (now - max(began, first)) for price, began in living if began < now)
    return ended.get(month, 0) + round(running / _HOUR_S)


def _this_month(at: float) -> float:
    return (
        datetime.fromtimestamp(at, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp()
    )
