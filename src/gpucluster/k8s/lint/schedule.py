"""Schedules of cron as the API server reads them: five fields, or a word after `@`."""

import re

_WORDS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_EVERY = re.compile(r"@every (?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NO_NAMES: dict[str, int] = {}
# the smallest and the largest value of a field, and its names
_FIELDS = (
    (0, 59, _NO_NAMES),
    (0, 23, _NO_NAMES),
    (1, 31, _NO_NAMES),
    (1, 12, {name: number for number, name in enumerate(_MONTHS, start=1)}),
    (0, 6, {name: number for number, name in enumerate(_DAYS)}),
)
_PART = re.compile(r"(?:(?P<any>[*?])|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d{1,4}))?", re.ASCII)


def is_schedule(written: str) -> bool:
    fields = written.split()
    if written.startswith("@"):
        return written in _WORDS or _EVERY.fullmatch(written) is not None
    return len(fields) == len(_FIELDS) and all(map(_is_field, fields, _FIELDS))


def _is_field(written: str, field: tuple[int, int, dict[str, int]]) -> bool:
    return all(_is_part(part, *field) for part in written.split(","))


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
