"""Compare a value of slurm.conf with what scontrol shows for it: the same value has other units, case or order there."""

import re
from collections.abc import Mapping

_UNITS = re.compile(r"([0-9]+) (?:sec|min|usec|percent|nodes/min)")
_TIME = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9}):([0-9]{2})(?::([0-9]{2}))?")
_TOKEN = re.compile(
    r'(?<![^\s=])([^\s=]+)=("[^"]*"|\S*)'
)  # from a word's first letter on: else its time is quadratic
_UNSET = frozenset({"(null)", "n/a", "none", "(null type)", ""})
_WORDS = {"infinite": "unlimited", "-1": "unlimited", "true": "yes", "false": "no"}
_LEVELS = ("quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5")


def same(shown: str, wanted: str) -> bool:
    """Whether scontrol's value is the one of the file."""
    return _canonical(shown) == _canonical(wanted)


def has_all(shown: str, wanted: str) -> bool:
    """Whether scontrol's list has every word of the file's: Slurm adds words of its own to some lists."""
    return set(_canonical(wanted)) <= set(_canonical(shown))


def level(value: str) -> str:
    """The word of a debug level, which slurm.conf may give as a number."""
    return _LEVELS[int(value)] if re.fullmatch(r"[0-9]", value) else value.lower()


def words(value: str) -> frozenset[str]:
    """The words of a list in small letters; empty for `(null)`."""
    return frozenset(_canonical(value))


def tokens(line: str) -> Mapping[str, str]:
    """`Key=value` words of a line, with the keys in small letters and without quotes around values."""
    found = _TOKEN.findall(line)
    return {key.lower(): value.strip('"') for key, value in found}


def _canonical(value: str) -> tuple[str, ...]:
    """The words of the value, sorted: the order of Slurm's lists has no meaning, or Slurm sorts them itself."""
    found = (_word(word) for word in value.strip().strip('"').split(","))
    return tuple(sorted(word for word in found if word))


def _word(word: str) -> str:
    plain = word.strip().lower()
    if plain in _UNSET:
        return ""
    if unit := _UNITS.fullmatch(plain):
        return unit[1]
    if time := _TIME.fullmatch(plain):
        return str(_seconds(*time.groups()))
    return _WORDS.get(plain, plain)


def _seconds(days: str | None, first: str, second: str, third: str | None) -> int:
    """`1-02:03:04`, `02:03:04` or `02:03` (minutes and seconds) as seconds."""
    if third is None:
        return int(first) * 60 + int(second)
    return ((int(days or 0) * 24 + int(first)) * 60 + int(second)) * 60 + int(third)
