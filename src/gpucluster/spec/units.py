"""Times and sizes as people write them: one whole number and its unit."""

import re

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
FORMS = "30s, 5m, 2h or 7d"

MIB = {"MiB": 1, "GiB": 1024, "TiB": 1024**2}
SIZE_FORMS = "512MiB, 2000GiB or 2TiB"

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
