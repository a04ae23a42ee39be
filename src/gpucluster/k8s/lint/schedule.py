"""Schedules of cron as the API server reads them: five fields, or a word after `@`. And time zones."""

import re
from difflib import get_close_matches

from gpucluster.catalog.time_zones import time_zones
from gpucluster.text import quoted

_WORDS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_EVERY = re.compile(r"@every (?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NO_NAMES: dict[str, int] = {}
_ZONES = ("TZ=", "CRON_TZ=")
# what a field is, its smallest and largest value, and its names
_FIELDS = (
    ("minute", 0, 59, _NO_NAMES),
    ("hour", 0, 23, _NO_NAMES),
    ("day of the month", 1, 31, _NO_NAMES),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, start=1)}),
    ("day of the week", 0, 6, {name: number for number, name in enumerate(_DAYS)}),
)
_PART = re.compile(r"(?:(?P<any>[*?])|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d{1,4}))?", re.ASCII)


def complaint(written: str) -> str:
    """Return what is wrong with a schedule; "" if nothing is."""
    fields = written.split()
    if written.startswith("@"):
        known = written in _WORDS or _EVERY.fullmatch(written) is not None
        return "" if known else f"{quoted(written)} is none of {', '.join(sorted(_WORDS))}, @every 1h"
    if written.startswith(_ZONES):
        return f"{quoted(fields[0])}: the API server refuses a time zone here: use timeZone"
    if len(fields) != len(_FIELDS):
        return f"{quoted(written)} is no schedule of five fields"
    found = [_of_field(field, form) for field, form in zip(fields, _FIELDS, strict=True)]
    return next((words for words in found if words), "")


def zone_complaint(written: str) -> str:
    """Return what is wrong with a time zone; "" if nothing is. Only explicit names count, and case matters."""
    if written in time_zones():
        return ""
    if not written or written.lower() == "local":
        return f"{quoted(written)} is no time zone: give a name such as Etc/UTC, or leave timeZone out"
    near = get_close_matches(written, sorted(time_zones()), n=1) or [
        name for name in sorted(time_zones()) if name.lower() == written.lower()
    ]
    hint = f"; did you mean {near[0]}?" if near else ": use a name such as Europe/Berlin or Etc/UTC"
    return f"{quoted(written)} is no time zone of the API server{hint}"


def _of_field(written: str, field: tuple[str, int, int, dict[str, int]]) -> str:
    what, least, most, names = field
    if all(_is_part(part, least, most, names) for part in written.split(",")):
        return ""
    words = f", or {' '.join(names)}" if names else ""
    return f"{quoted(written)} is no {what}: {least} to {most}{words}"


def _is_part(written: str, least: int, most: int, names: dict[str, int]) -> bool:
    found = _PART.fullmatch(written)
    if found is None or (found["step"] is not None and int(found["step"]) == 0):
        return False
    if found["any"]:
        return True
    values = [_number(word, names) for word in (found["first"], found["last"]) if word is not None]
    return all(least <= value <= most for value in values) and values == sorted(values)


def _number(word: str, names: dict[str, int]) -> int:
    return names.get(word.lower(), int(word) if word.isdecimal() and len(word) < len("1000") else -1)
