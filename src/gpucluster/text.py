"""Text for people: printable lines, money, sizes, durations and times. Standard library only: machines use it too.

Others write much of what we show: a user's file, AWS, Slurm, a node, a job. `printable` makes such text safe for a
terminal, a log and a Slurm reason. All other functions for foreign text are built on it:

    printable        one line, the same layout
    printable_lines  the same for each line of several
    short            one line, blanks folded, of bounded length
    ascii_line       one line, one byte for each character
    quoted           a Python literal of bounded length, for a value in a message

Money is counted in micro-USD (millionths of a dollar) or in Decimal dollars. Moments are seconds since 1970, UTC.
"""

import io
import re
import sys
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Final


class Form:
    """A regular expression. It is compiled when it is first used, because a command uses only some of them."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Match the whole text."""
        return re.fullmatch(self.pattern, text)


# --- foreign text -------------------------------------------------------------------------------------
REPLACEMENT: Final = "\ufffd"
_TERMINAL: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_QUOTED: Final = 60  # characters of a quoted value


def escape_what_streams_lack() -> None:
    """Let a terminal of any encoding show a text: a letter that it lacks is written as `\\u2192`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def printable(text: str, most: int | None = None) -> str:
    """One line that cannot steer a terminal, of at most `most` characters. Never longer than `text`.

    - Terminal sequences (ESC [ ... and ESC ] ...) are removed.
    - A line end, a tab, or another white-space character becomes one blank. Blanks stay: columns keep their place.
    - Each other character that does not print becomes U+FFFD: control characters, format characters (among them
      those that change the reading direction and those of no width), lone surrogates, unassigned characters.
    - Letters of every script stay, right-to-left ones and combining marks too.
    - A longer line is cut and ends in `…`.

    The function is idempotent.
    """
    line = _TERMINAL.sub("", text)
    if not line.isprintable():
        line = "".join(c if c.isprintable() else " " if c.isspace() else REPLACEMENT for c in line)
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def printable_lines(text: str) -> str:
    """The text with each of its lines printable; line ends stay, CR LF becomes LF."""
    return "\n".join(printable(line.removesuffix("\r")) for line in text.split("\n"))


def short(text: str, most: int = 200) -> str:
    """One printable line without leading, trailing and repeated blanks, of at most `most` characters."""
    return printable(" ".join(printable(text).split()), most)


def ascii_line(text: str, most: int | None = None) -> str:
    """As `printable`, in ASCII: one byte for each character, for messages of bounded size. `?` replaces the others."""
    line = printable(text).encode("ascii", "replace").decode("ascii")
    return line if most is None else line[:most]


def quoted(value: object) -> str:
    """A value in a message: a quoted literal on one line; the value is cut after 60 characters."""
    text = str(value)
    return repr(text if len(text) <= _QUOTED else f"{text[: _QUOTED - 3]}...")


def cut_middle(text: str, most: int) -> str:
    """Return at most `most` characters: the middle is cut out, and the length of the whole text stands there."""
    if len(text) <= most:
        return text
    note = f"...({len(text)} characters)..."
    rest = max(most - len(note), 2)
    return f"{text[: rest - rest // 2]}{note}{text[len(text) - rest // 2 :]}"


# --- money --------------------------------------------------------------------------------------------
MICRO: Final = 1_000_000  # micro-USD in a dollar
MONEY_FORMS: Final = "250000 USD or 1999.50 USD"
RATE_FORMS: Final = "40 USD/h or 31.50 USD/h"
PERCENT_FORMS: Final = "80%"
AMOUNT: Final = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"

_CENT: Final = Decimal("0.01")
_MONEY: Final = Form(rf"({AMOUNT}) USD")
_RATE: Final = Form(rf"({AMOUNT}) USD/h")
_PERCENT: Final = Form(r"([0-9]{1,3})%")


def parse_money(text: str) -> int | None:
    """Micro-USD of `250000 USD` or `31.50 USD`; None for another form."""
    match = _MONEY.fullmatch(text)
    return _micro(match[1]) if match else None


def parse_rate(text: str) -> int | None:
    """Micro-USD an hour of `40 USD/h`; None for another form."""
    match = _RATE.fullmatch(text)
    return _micro(match[1]) if match else None


def parse_percent(text: str) -> int | None:
    """80 of `80%`; None for another form."""
    match = _PERCENT.fullmatch(text)
    return int(match[1]) if match else None


def format_money(micro: int) -> str:
    """Micro-USD to the cent: 250000000000 -> `250,000.00 USD`."""
    return format_amount(Decimal(micro).scaleb(-6))


def format_amount(amount: Decimal, currency: str = "USD", *, signed: bool = False) -> str:
    """`1,234.50 USD`; `signed` writes a `+`, too. No `$`: GitHub reads two of them as a formula."""
    return f"{cents(amount):{'+' if signed else ''},} {currency}"


def cents(amount: Decimal) -> Decimal:
    """Rounded to cents, a half upwards."""
    return amount.quantize(_CENT, ROUND_HALF_UP)


def format_rate(micro: int) -> str:
    """Micro-USD an hour, all digits: 63296000 -> `63.296 USD/h`."""
    whole, part = divmod(micro, MICRO)
    digits = f"{part:06d}".rstrip("0")
    return f"{whole}{'.' if digits else ''}{digits} USD/h"


def _micro(amount: str) -> int:
    return int(Decimal(amount).scaleb(6))


# --- sizes --------------------------------------------------------------------------------------------
MIB: Final = {"MiB": 1, "GiB": 1024, "TiB": 1024**2}
SIZE_FORMS: Final = "512MiB, 2000GiB or 2TiB"
_SIZE: Final = Form(r"([0-9]{1,9})(MiB|GiB|TiB)")


def parse_size(text: str) -> int | None:
    """MiB of `2000GiB`; None for another form."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) * MIB[match[2]] if match else None


def format_size(mib: int) -> str:
    """The shortest form that is exact: 2048000 -> `2000GiB`."""
    unit = next(u for u in ("TiB", "GiB", "MiB") if mib % MIB[u] == 0)
    return f"{mib // MIB[unit]}{unit}"


# --- durations ----------------------------------------------------------------------------------------
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION_FORMS: Final = "30s, 5m, 2h or 7d"
_DURATION: Final = Form(r"([0-9]{1,9})([smhd])")


def parse_duration(text: str) -> int | None:
    """Seconds of `5m`; None for another form."""
    match = _DURATION.fullmatch(text)
    return int(match[1]) * SECONDS[match[2]] if match else None


def format_duration(seconds: float) -> str:
    """The shortest form that is exact, as a spec writes it: 300 -> `5m`."""
    whole = int(seconds)
    if whole != seconds:
        return f"{seconds:g}s"
    unit = next(u for u in ("d", "h", "m", "s") if whole % SECONDS[u] == 0)
    return f"{whole // SECONDS[unit]}{unit}" if whole else "0s"


def rounded_duration(seconds: float) -> str:
    """Rounded for people: `40 s`, `3 min`, `2 h 5 min`, `3 d 2 h`."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 120:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h" + (f" {minutes % 60} min" if minutes % 60 else "")
    return f"{days} d" + (f" {hours % 24} h" if hours % 24 else "")


# --- times --------------------------------------------------------------------------------------------
_NO_DATE: Final = "beyond the calendar"
DATE: Final = Form("[0-9]{4}-[0-9]{2}-[0-9]{2}")


def parse_date(text: str) -> date | None:
    """The day of `2027-05-31`; None for another form, and for a day that no month has."""
    try:
        return date.fromisoformat(text) if DATE.fullmatch(text) else None
    except ValueError:
        return None


def utc(at: float) -> str:
    """`2026-11-21T19:20:00Z`, to the second."""
    moment = _moment(at)
    return _NO_DATE if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def utc_minute(at: float) -> str:
    """`2026-11-21 19:20 UTC`, for a sentence."""
    moment = _moment(at)
    return _NO_DATE if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC"


def relative_time(at: float, now: float) -> str:
    """`14:02:11 UTC, 3 min ago` or `... in 40 s`; with the date if it is another day than `now`."""
    moment, today = _moment(at), _moment(now)
    if moment is None or today is None:
        return _NO_DATE
    clock = f"{moment:%H:%M:%S}" if moment.date() == today.date() else f"{moment:%Y-%m-%d %H:%M:%S}"
    return f"{clock} UTC, {_from_now(at - now)}"


def _from_now(seconds: float) -> str:
    if seconds > 0.5:
        return f"in {rounded_duration(seconds)}"
    return f"{rounded_duration(-seconds)} ago" if seconds < -0.5 else "now"


def _moment(at: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def listed(found: Iterable[str]) -> str:
    """Return the different texts as `a, b and c`."""
    every = list(dict.fromkeys(found))
    return " and ".join((", ".join(every[:-1]), every[-1])) if len(every) > 1 else "".join(every)
