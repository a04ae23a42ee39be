"""The README's commands by section, and the output below each command."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
ELIDED = "..."  # stands for any number of lines
SHOWN = 6  # lines of a long output that the README keeps


@dataclass(frozen=True)
class Session:
    """One `console` block: its commands and the lines shown under each."""

    text: str
    steps: tuple[tuple[str, tuple[str, ...]], ...]


def commands(section: str) -> list[list[str]]:
    """Every command of the `sh` and `console` blocks below the heading that begins with `section`, without comments."""
    text = README.read_text().partition(f"\n## {section}")[2].partition("\n## ")[0]
    lines = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    lines += [command for session in sessions(text) for command, _ in session.steps]
    found = [words for line in lines if (words := shlex.split(line, comments=True))]
    if not found:
        raise ValueError(f"the README has no commands below {section!r}")
    return found


def sessions(text: str) -> list[Session]:
    """The `console` blocks of a page."""
    return [Session(block, _steps(block)) for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL)]


def _steps(block: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return tuple((lines[0], tuple(lines[1:])) for lines in (part.splitlines() for part in parts))


def matches(shown: tuple[str, ...], printed: str) -> bool:
    """Whether the printed text equals the shown one; ELIDED in the shown text matches any lines."""
    pattern = "".join("(?:.*\n)*" if line == ELIDED else re.escape(line) + "\n" for line in shown)
    return (
        re.fullmatch(pattern, printed if printed.endswith("\n") or not printed else printed + "\n")
        is not None
    )


def shortened(printed: str, shown: tuple[str, ...] = ()) -> str:
    """The output as the README shows it: whole when it is short, else its first lines, and its last line if it is shown."""
    lines = [line.rstrip() for line in printed.splitlines()]
    kept = lines if len(lines) <= SHOWN + 2 else [*lines[:SHOWN], ELIDED]
    if kept is not lines and ELIDED in shown[:-1]:
        kept.append(lines[-1])
    return "".join(f"{line}\n" for line in kept)


def instead(words: Sequence[str], **names: str) -> list[str]:
    """The command with other names: `burst` as a whole word of a path or by itself, `stacks/burst.yaml` as a file."""
    return [_renamed(word, names) for word in words]


def _renamed(word: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        word = re.sub(rf"(?<![\w-]){re.escape(old)}(?![\w-])", new, word)
    return word
