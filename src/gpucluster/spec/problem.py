"""A problem of a spec: where it stands, its stable id, and the words for people."""

from dataclasses import dataclass
from enum import StrEnum

Path = tuple[str | int, ...]

_WIDTH = 160  # of a shown source line; more is cut around the caret


class Level(StrEnum):
    """An error stops; a warning does not; an advice is a better way."""

    ERROR = "error"
    WARNING = "warning"
    ADVICE = "advice"


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in the file, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem by path, before it has a place: what parsers and rules yield."""

    path: Path
    id: str
    message: str
    level: Level = Level.ERROR
    at_key: bool = False  # the mark is the key's, not the value's


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A located problem; `path` is written for people: `pools[h200].idle`."""

    file: str
    mark: Mark
    level: Level
    id: str
    path: str
    message: str
    source: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.mark.line}:{self.mark.column}"
        where = f" {self.path}:" if self.path else ""
        return f"{place}: {self.level}[{self.id}]{where} {self.message}" + self._excerpt()

    def _excerpt(self) -> str:
        if not self.source.strip():
            return ""
        start = max(0, self.mark.column - 1 - _WIDTH // 2) if len(self.source) > _WIDTH else 0
        line = printable(self.source[start : start + _WIDTH])
        return f"\n  {line}\n  {' ' * (self.mark.column - 1 - start)}^"


def printable(text: str) -> str:
    """Text for a terminal: one column for each character, nothing that could steer it."""
    return "".join(c if c.isprintable() else " " if c == "\t" else "�" for c in text)


def quoted(value: object) -> str:
    """A value of the user in a message: quoted, on one line, not longer than a name needs."""
    text = str(value)
    shown = text if len(text) <= 60 else text[:57] + "..."
    return repr(shown)
