"""The lines of Slurm's files: `key=value` pairs with comments, continuations, quotes and includes.

The grammar is that of Slurm's parse_config.c: `#` begins a comment unless a backslash precedes it, an odd number of
backslashes at the end joins the next line, keys have no case, a value is quoted or has no blank. slurmctld stops at the
first wrong word; this reader reports it by file and line and goes on. Pure: `Files` gives the texts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gpucluster.importer import keys
from gpucluster.text import short

MAX_DEPTH = 8  # of files that include files
MAX_FILES = 200  # that one file includes, with their own includes
MAX_LINE = 1 << 20  # characters of one statement with its continuations
MAX_COMPLAINTS = 200  # of one file; a file of another format has one on each line

_PAIR = re.compile(  # keyvalue_pattern; a value that begins with a quote and is not quoted has the quote
    r'\s*([A-Za-z0-9_.]+)\s*[-*+/]?=\s*(?:"([^"]*)"(?=\s|$)|(\S+))', re.ASCII
)
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*$", re.IGNORECASE)
_WORD = re.compile(r"\s*(\S+)", re.ASCII)
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class FileLine:
    """A line of a file, as its user names the file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Effect(StrEnum):
    """What the import does to the people and jobs of the site: a heading of the report, in its order."""

    WIDER = "access is wider"
    ENDED = "jobs can be ended"
    REFUSED = "jobs that ran will be refused"


@dataclass(frozen=True, slots=True)
class Complaint:
    """A line, or a part of it, that is not imported."""

    place: FileLine
    message: str
    effect: Effect | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


@dataclass(frozen=True, slots=True)
class Pair:
    """One `key=value`, as written."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Statement:
    """The pairs of one line, and its words that are none."""

    place: FileLine
    pairs: tuple[Pair, ...]
    wrong: tuple[str, ...] = ()
    begun: bool = True  # its first word is a pair


class NotReadableError(Exception):
    """A file that the import may not read, or cannot read; the message says why, for people."""


class Files(Protocol):
    """The files that an import may read."""

    def read(self, name: str) -> tuple[str, str]:
        """The shown name and the text of an included file. NotReadableError."""
        ...


@dataclass(slots=True)
class Reader:
    """Statements of one file and of the files that it includes."""

    files: Files
    cluster: str = ""  # for %c in the name of an included file
    complaints: list[Complaint] = field(default_factory=list[Complaint])
    _left: int = MAX_FILES

    def statements(self, shown: str, text: str, depth: int = 0) -> Iterator[Statement]:
        """Every statement, in Slurm's order: an included file stands where it is included."""
        for place, line in self._joined(shown, text):
            include = _INCLUDE.match(line)
            if include is not None:
                yield from self._included(place, include[1], depth)
            elif line.strip():
                yield from self._statement(place, line)

    def complain(self, place: FileLine, message: str) -> None:
        """Report a line. A file with too many wrong lines is reported as a whole."""
        of_file = sum(1 for one in self.complaints if one.place.file == place.file)
        if of_file < MAX_COMPLAINTS:
            self.complaints.append(Complaint(place, message))
        elif of_file == MAX_COMPLAINTS:
            self.complaints.append(
                Complaint(place, f"and more; only the first {MAX_COMPLAINTS} are listed for this file")
            )

    def _joined(self, shown: str, text: str) -> Iterator[tuple[FileLine, str]]:
        parts, start = list[str](), 1
        for number, raw in enumerate(text.split("\n"), start=1):
            line = _without_comment(raw.rstrip("\r"))
            if not parts:
                start = number
            joined = _continued(line)
            parts.append(line if joined is None else joined)
            if joined is None:
                yield from self._whole(FileLine(shown, start), parts)
                parts = []
        if parts:
            yield from self._whole(FileLine(shown, start), parts)

    def _whole(self, place: FileLine, parts: list[str]) -> Iterator[tuple[FileLine, str]]:
        if sum(map(len, parts)) > MAX_LINE:
            self.complain(place, f"the line is longer than {MAX_LINE} characters; it is not imported")
            return
        yield place, _ESCAPE.sub(r"\1", "".join(parts))

    def _statement(self, place: FileLine, line: str) -> Iterator[Statement]:
        pairs, wrong, at, hidden = list[Pair](), list[str](), 0, keys.has_secret(line)
        begun = _PAIR.match(line) is not None
        while (word := _WORD.match(line, at)) is not None:
            match = _PAIR.match(line, at)
            if match is not None:
                pairs.append(self._pair(place, match))
                at = match.end()
                continue
            strange = keys.HIDDEN if hidden else short(word[1], 60)
            self.complain(place, f"{strange!r} is not key=value; it is not imported")
            wrong.append(word[1])
            at = word.end()
        if pairs:
            yield Statement(place, tuple(pairs), tuple(wrong), begun)

    def _pair(self, place: FileLine, match: re.Match[str]) -> Pair:
        key, quoted, plain = match.groups()
        value = plain if quoted is None else quoted
        if quoted is None and plain.startswith('"'):
            self.complain(
                place, f"{key} has a quote that ends no value; Slurm takes it as a part of the value"
            )
        if key.lower() == "clustername":
            self.cluster = value.lower()
        return Pair(key, value)

    def _included(self, place: FileLine, name: str, depth: int) -> Iterator[Statement]:
        wanted = name.replace("%c", self.cluster)
        if depth >= MAX_DEPTH:
            self.complain(
                place, f"includes are nested deeper than {MAX_DEPTH}; {short(name, 120)!r} is not read"
            )
        elif self._left <= 0:
            self.complain(
                place, f"more than {MAX_FILES} files are included; {short(name, 120)!r} is not read"
            )
        else:
            self._left -= 1
            try:
                shown, text = self.files.read(wanted)
            except NotReadableError as error:
                self.complain(place, f"{short(wanted, 120)!r} is not read: {error}")
                return
            yield from self.statements(shown, text, depth + 1)


def _without_comment(line: str) -> str:
    backslashes = 0
    for at, char in enumerate(line):
        if char == "#" and backslashes % 2 == 0:
            return line[:at]
        backslashes = backslashes + 1 if char == "\\" else 0
    return line


def _continued(line: str) -> str | None:
    """The line without its last backslash if it continues; blanks may follow the backslash. None: it ends here."""
    bare = line.rstrip()
    count = len(bare) - len(bare.rstrip("\\"))
    return bare[:-1] if count % 2 else None
