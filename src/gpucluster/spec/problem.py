"""A problem of a spec: position, stable id, message."""

from dataclasses import dataclass
from enum import StrEnum

from gpucluster.text import printable

Path = tuple[str | int, ...]

_WIDTH = 160  # characters of a shown source line; a longer line is cut around the caret


class Level(StrEnum):
    """The effect: an error stops, a warning does not, an advice suggests a better way."""

    ERROR = "error"
    WARNING = "warning"
    ADVICE = "advice"


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A position in the file. Both numbers start at 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Untrue:
    """What nobody can give as a reason for a warning of this spec: a fact contradicts a reason that has one of the words."""

    words: frozenset[str]  # in small letters; some are two words with a blank between
    fact: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem with a path and no position yet. Parsers and rules return it."""

    path: Path
    id: str
    message: str
    level: Level = Level.ERROR
    at_key: bool = False  # the position is the key's, not the value's
    security: bool = False  # it lets somebody in, or leaves a fault in: its acceptance needs an end
    untrue: Untrue | None = None  # the reasons that cannot be given for its acceptance
    ended: bool = False  # its acceptance has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem with its position. `path` is for people: `pools[h200].idle`."""

    file: str
    mark: Mark
    level: Level
    id: str
    path: str
    message: str
    source: str
    ended: bool = False  # its acceptance has ended

    def __str__(self) -> str:
        place = f"{self.file}:{self.mark.line}:{self.mark.column}"
        where = f" {self.path}:" if self.path else ""
        return f"{place}: {self.level}[{self.id}]{where} {self.message}" + self._excerpt()

    def _excerpt(self) -> str:
        if not self.source.strip():
            return ""
        start = max(0, self.mark.column - 1 - _WIDTH // 2) if len(self.source) > _WIDTH else 0
        before = printable(self.source[start : self.mark.column - 1])
        after = printable(self.source[self.mark.column - 1 : start + _WIDTH])
        return f"\n  {before}{after}\n  {' ' * len(before)}^"
