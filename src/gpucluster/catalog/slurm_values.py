"""The values that Slurm takes for a key of slurm.conf, by its parser's type and by the checks of its sources."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from gpucluster.catalog.data_files import read_data

_NO_LIMIT = ("infinite", "unlimited")
_YES_NO = ("yes", "no", "true", "false", "up", "down", "1", "0")
_WHOLE = re.compile(r"(0|[1-9][0-9]{0,19})([kK]?)")  # Slurm reads 010 as octal and 08 as an error
_TIME = re.compile(
    r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9})(?::([0-9]{1,9}))?)?|:([0-9]{1,9})(?::([0-9]{1,9}))?)?"
)
_MOST_SECONDS = 2**31 - 1  # time_str2mins computes with an int
_SIGNS = "+-"
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_PLAIN = re.compile(r"[0-9]{1,9}")
_SCALED = re.compile(
    r"([0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9})[KMGTP]?", re.IGNORECASE
)  # strtod(3) and a unit
_GRES = re.compile(r"gres/[a-z0-9_]+(:[a-z0-9._-]+)?")


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number, or INFINITE where the largest number of the type is allowed. 4k is 4096 to types of 32 bits and more."""

    least: int
    most: int
    infinite: bool
    kilo: bool = False

    def takes(self, value: str) -> bool:
        if value.lower() in _NO_LIMIT:
            return self.infinite
        match = _WHOLE.fullmatch(value)
        if match is None or (match[2] and not self.kilo):
            return False
        return self.least <= int(match[1]) * (1024 if match[2] else 1) <= self.most

    @property
    def what(self) -> str:
        return f"a whole number of {self.least} to {self.most}{', or INFINITE' if self.infinite else ''}"


@dataclass(frozen=True, slots=True)
class YesNo:
    """A boolean of Slurm's parser."""

    what: str = "YES or NO"

    def takes(self, value: str) -> bool:
        return value.lower() in _YES_NO


@dataclass(frozen=True, slots=True)
class Time:
    """A time of slurm.conf; a number alone is minutes."""

    least_minutes: int

    def takes(self, value: str) -> bool:
        if value.lower() in (*_NO_LIMIT, "-1"):
            return self.least_minutes == 0
        match = _TIME.fullmatch(value)
        if match is None:
            return False
        parts = [int(part or 0) for part in match.groups()]
        first, hours, minutes, seconds, second, third = parts
        if match[2] is not None:
            total = ((first * 24 + hours) * 60 + minutes) * 60 + seconds
        elif match[6] is not None:
            total = (first * 60 + second) * 60 + third
        else:
            total = first * 60 + second
        return self.least_minutes * 60 <= total <= _MOST_SECONDS

    @property
    def what(self) -> str:
        least = f" of at least {self.least_minutes} min" if self.least_minutes else ""
        return f"a time{least}, as in 30 (minutes), 12:00:00 or 14-0"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One word; Slurm ignores its case."""

    words: tuple[str, ...]

    def takes(self, value: str) -> bool:
        return value.lower() in {word.lower() for word in self.words}

    @property
    def what(self) -> str:
        return f"one of {', '.join(self.words)}"


@dataclass(frozen=True, slots=True)
class Words:
    """A comma list of words."""

    words: tuple[str, ...]

    def takes(self, value: str) -> bool:
        known = {word.lower() for word in self.words}
        return all(word.lower() in known for word in value.split(","))

    @property
    def what(self) -> str:
        return f"a list of {', '.join(self.words)}"


@dataclass(frozen=True, slots=True)
class Pattern:
    """Text of one form."""

    pattern: str
    what: str

    def takes(self, value: str) -> bool:
        return re.fullmatch(self.pattern, value, re.ASCII) is not None


@dataclass(frozen=True, slots=True)
class Plugins:
    """A comma list of plugins, `kind/name`; `bare`: the kind may be left out. The version decides which there are."""

    kind: str
    bare: bool = False

    def takes(self, value: str) -> bool:
        words = value.split(",")
        return all(word.startswith(f"{self.kind}/") or (self.bare and "/" not in word) for word in words)

    @property
    def what(self) -> str:
        return f"a plugin, {self.kind}/NAME"


@dataclass(frozen=True, slots=True)
class Ranges:
    """A comma list of numbers and of ranges that rise."""

    most: int
    what: str

    def takes(self, value: str) -> bool:
        found = [_RANGE.fullmatch(part) for part in value.split(",")]
        return all(one and int(one[1]) <= int(one[2] or one[1]) <= self.most for one in found)


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of TRES. `scaled`: a fraction and a unit are allowed. The TRES of GPUs are those of the spec's machines."""

    tres: tuple[str, ...]
    scaled: bool

    def takes(self, value: str) -> bool:
        number = _SCALED if self.scaled else _PLAIN
        pairs = [part.partition("=") for part in value.split(",")]
        return all(self._known(name.lower()) and number.fullmatch(weight) for name, _, weight in pairs)

    def _known(self, name: str) -> bool:
        return name in self.tres or _GRES.fullmatch(name) is not None

    @property
    def what(self) -> str:
        example = "CPU=1.0,Mem=0.25G,GRES/gpu=2.0" if self.scaled else "cpu=1000,gres/gpu=5000"
        return f"a list of TRES with weights, as in {example}"


Form = Ranges | Weights | Number | YesNo | Time | OneOf | Words | Pattern | Plugins


@dataclass(frozen=True)
class SlurmValues:
    """Every recorded form. The keys are in lower case."""

    table: Mapping[str, Any]

    def form(self, kind: str, low: str, type_: str) -> Form | None:
        """Return the form of a key's values; None: any text."""
        return self._recorded.get((kind, low)) or self._of_type(type_)

    def _of_type(self, type_: str) -> Form | None:
        if type_ == "yes-no":
            return YesNo()
        row = self.table["types"].get(type_)
        return None if row is None else Number(0, row["most"], True, row["kilo"])

    @cached_property
    def _recorded(self) -> Mapping[tuple[str, str], Form]:
        read: dict[str, Any] = {
            "numbers": self._number,
            "minutes": Time,
            "one_of": _one_of,
            "words": _words,
            "ranges": _ranges,
            "weights": self._weights,
            "plugins": _plugins,
            "patterns": _pattern,
        }
        return {
            (kind, key.lower()): make(row)
            for part, make in read.items()
            for kind, rows in self.table[part].items()
            for key, row in rows.items()
        }

    def _number(self, row: list[int]) -> Number:
        least, most = row
        return Number(least, most, infinite=most in (65534, 65535, 4294967295))

    def _weights(self, scaled: bool) -> Weights:
        return Weights(tuple(self.table["tres"]), scaled)

    def word_range(self, key: str, word: str) -> tuple[int, int] | None:
        """Return the least and the largest number of a word of a list; None: it takes none, or any value."""
        found = _of_word(self.table["word_numbers"], key, word)
        return None if found is None else (found[0], found[1])

    def word_problem(self, key: str, word: str) -> str:
        """Return what the value of a word of a list must be: `bf_interval=abc`; empty: the value is right, or free."""
        name, equals, value = word.partition("=")
        numbers = _of_word(self.table["word_numbers"], key, name)
        if numbers is not None:
            least, most = numbers
            right = bool(equals) and re.fullmatch(r"-?[0-9]{1,10}", value) and least <= int(value) <= most
            return "" if right else f"a number of {least} to {most}"
        choices = _of_word(self.table["word_choices"], key, name)
        if choices is not None:
            return "" if value.lower() in choices else f"one of {', '.join(choices)}"
        return "a word without a value" if equals and key in self.table["bare"] else ""

    def clash(self, kind: str, key: str, value: str) -> tuple[str, ...]:
        """Return the words of a list of which Slurm takes only one at a time."""
        single = {k.lower(): v for k, v in self.table["one_at_a_time"].get(kind, {}).items()}.get(
            key.lower(), ()
        )
        known = {word.lower() for word in single}
        found = tuple(word for word in value.split(",") if word.lstrip(_SIGNS).lower() in known)
        return found if len(found) > 1 else ()


def _one_of(words: list[str]) -> OneOf:
    return OneOf(tuple(words))


def _words(words: list[str]) -> Words:
    return Words(tuple(words))


def _ranges(row: dict[str, Any]) -> Ranges:
    return Ranges(row["most"], row["what"])


def _plugins(row: dict[str, Any]) -> Plugins:
    return Plugins(row["kind"], row.get("bare", False))


def _pattern(row: dict[str, Any]) -> Pattern:
    return Pattern(row["pattern"], row["what"])


def _of_word(table: Mapping[str, Mapping[str, Any]], key: str, name: str) -> Any:
    low = key.lower(), name.lower()
    for of, rows in table.items():
        for word, row in rows.items():
            if (of.lower(), word.lower()) == low:
                return row
    return None


@cache
def slurm_values() -> SlurmValues:
    """Return the forms of this release."""
    return SlurmValues(read_data("slurm-values.json"))
