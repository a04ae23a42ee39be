"""Hostlists as Slurm writes them, `gpu[01-04],r[1-2]-n[01-18]`: expand and fold, both in the given order.

`expand` counts the names first, so that `x[1-99999999]` costs nothing. The order is kept, because names and addresses
are paired by it. A test compares both functions with ClusterShell's NodeSet. Pure; standard library only.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby, product
from math import prod

LONGEST = 8192  # characters of a hostlist that a person writes
SLURM_LONGEST = 4 << 20  # of one that Slurm writes: 65,536 names of 63 characters, each alone
SLURM_MOST = 65_536  # nodes of one cluster (MAX_SLURM_NODES in slurm.h)

_PART = re.compile(r"(?:[^\[\],\s]+|\[[0-9,-]+\])+")
_PIECE = re.compile(r"([^\[\]]+)|\[([0-9,-]+)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})", re.DOTALL)
_SHAPE = "expected names such as gpu[01-04], separated by commas"


class HostlistError(ValueError):
    """The text is no hostlist, or has too many names; the message says why, for people."""


class HostlistTooLargeError(HostlistError):
    """The hostlist has more names than the caller allows."""


@dataclass(frozen=True, slots=True)
class NameRange:
    """The names from `prefix` + `first` to `prefix` + `last`, padded to `width`. With width 0, the prefix is the only name."""

    prefix: str
    first: int
    last: int
    width: int | None

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __iter__(self) -> Iterator[str]:
        return (self.name(number) for number in range(self.first, self.last + 1))

    def __contains__(self, name: object) -> bool:
        return name in tuple(self)

    def name(self, number: int) -> str:
        return self.prefix if self.width is None else f"{self.prefix}{number:0{self.width}}"


def expand(text: str, *, most: int, longest: int = LONGEST) -> tuple[str, ...]:
    """Every name in the order written; HostlistError if the text is no hostlist or has more than `most` names."""
    if len(text) > longest:
        raise HostlistTooLargeError(f"it is longer than {longest} characters")
    parts = [[_choices(match) for match in _PIECE.finditer(part)] for part in _parts(text)]
    total = sum(prod(sum(map(len, choices)) for choices in part) for part in parts)
    if total > most:
        raise HostlistTooLargeError(f"it has {total} names, more than {most}")
    words = (product(*(tuple(chain.from_iterable(choices)) for choices in part)) for part in parts)
    return tuple("".join(name) for name in chain.from_iterable(words))


def expand_slurm(text: str) -> tuple[str, ...]:
    """The names of a hostlist that Slurm wrote; '' has none. HostlistError for any other text."""
    return expand(text, most=SLURM_MOST, longest=SLURM_LONGEST) if text else ()


def fold(names: Iterable[str]) -> str:
    """The hostlist of the names, in their order. Neighbours with one prefix share a bracket."""
    grouped = groupby(runs(names), key=lambda run: (run.prefix, run.width is None))
    return ",".join(_bracketed(tuple(group)) for _, group in grouped)


def runs(names: Iterable[str]) -> tuple[NameRange, ...]:
    """The names as runs of numbers, in their order."""
    made: list[NameRange] = []
    for name in names:
        last = made[-1] if made else None
        if last is not None and last.width is not None and name == last.name(last.last + 1):
            made[-1] = NameRange(last.prefix, last.first, last.last + 1, last.width)
        else:
            made.append(_alone(name))
    return tuple(made)


def _parts(text: str) -> list[str]:
    """The parts between commas; a comma inside brackets does not divide."""
    parts, at = list[str](), 0
    while (match := _PART.match(text, at)) is not None:
        parts.append(match[0])
        if match.end() == len(text):
            return parts
        at = match.end() + 1
        if text[at - 1] != ",":
            break
    raise HostlistError(_SHAPE)


def _choices(match: "re.Match[str]") -> tuple[Collection[str], ...]:
    """The choices for one piece of a name: one literal, or the numbers in brackets."""
    return ((match[1],),) if match[1] is not None else tuple(_numbers(word) for word in match[2].split(","))


def _numbers(word: str) -> NameRange:
    match = _RANGE.fullmatch(word)
    if match is None:
        raise HostlistError(f"{word[:20]!r} is not a number or a range of numbers")
    low, high = match[1], match[2] or match[1]
    if int(high) < int(low):
        raise HostlistError(f"the range {word!r} runs backwards")
    padded = any(len(end) > 1 and end[0] == "0" for end in (low, high))
    if padded and len(low) != len(high):
        raise HostlistError(f"the two ends of {word!r} are padded differently")
    return NameRange("", int(low), int(high), len(low))


def _alone(name: str) -> NameRange:
    match = _NUMBERED.fullmatch(name)
    if match is None or not match[1]:
        return NameRange(name, 0, 0, None)
    return NameRange(match[1], int(match[2]), int(match[2]), len(match[2]))


def _bracketed(group: tuple[NameRange, ...]) -> str:
    """Runs of one prefix as one hostlist part; names without a number are written out."""
    if group[0].width is None:
        return ",".join(run.prefix for run in group)
    if len(group) == 1 and len(group[0]) == 1:
        return group[0].name(group[0].first)
    spans = (_span(run, run.width or 0) for run in group)
    return f"{group[0].prefix}[{','.join(spans)}]"


def _span(run: NameRange, width: int) -> str:
    first, last = f"{run.first:0{width}}", f"{run.last:0{width}}"
    return first if len(run) == 1 else f"{first}-{last}"
