"""Markdown for a pull request's comment, from texts that others wrote: nothing in them acts as markup or calls anybody."""

import html
import re
from collections.abc import Iterable, Sequence
from typing import Final

from gpucluster.text import printable

LIMIT: Final = 60_000  # GitHub takes 65,535 characters in a comment; a tool around us adds its own
_MARKUP: Final = re.compile(r"([\\`*_\[\]~|$]|^[-+=>])")  # what a backslash makes plain
_ITEM: Final = re.compile(r"^(\d+)([.)])")  # `12. ` begins a list
_CALLS: Final = re.compile(r"([@#])")  # GitHub reads these after markdown: a person, an issue


def text(value: str) -> str:
    """A piece of a sentence or a table's cell, on one line."""
    plain = _MARKUP.sub(r"\\\1", printable(value).strip().replace("&", "&amp;"))
    return _CALLS.sub("\\1\u200b", _ITEM.sub(r"\1\\\2", plain).replace("<", "&lt;"))


def code(value: str) -> str:
    """An inline code span, good in a table's cell too."""
    plain = printable(value) or " "
    ticks = "`" * (_longest("`", plain) + 1)
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{ticks}{pad}{plain}{pad}{ticks}".replace("|", "\\|")


def fence(value: str, language: str = "") -> str:
    """A block of code that its content cannot leave."""
    plain = "\n".join(printable(line) for line in value.splitlines())
    tildes = "~" * max(3, _longest("~", plain) + 1)
    return f"{tildes}{language}\n{plain}\n{tildes}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def details(summary: str, body: str) -> str:
    """A part that opens at a click; the summary is plain text, the body markdown."""
    shown = _CALLS.sub("\\1\u200b", html.escape(printable(summary), quote=False))
    return f"<details>\n<summary>{shown}</summary>\n\n{body}\n\n</details>"


def fitted(summary: str, parts: Sequence[str], rest: str, *, limit: int = LIMIT) -> str:
    """The summary whole, then the parts in order as far as they fit, and `rest` with how many were left out."""
    kept, size = [summary], len(summary) + len(rest) + 32
    for part in parts:
        if size + len(part) + 2 > limit:
            kept.append(f"{len(parts) - len(kept) + 1} of {len(parts)} parts left out: {rest}")
            break
        kept.append(part)
        size += len(part) + 2
    return "\n\n".join(kept) + "\n"


def _longest(char: str, value: str) -> int:
    return max((len(run) for run in re.findall(f"{re.escape(char)}+", value)), default=0)
