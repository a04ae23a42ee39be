"""The README's commands, by section, as words."""

import re
import shlex
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def commands(section: str) -> list[list[str]]:
    """Every command line of the `sh` blocks below the heading that begins with `section`, comments left out."""
    text = README.read_text().partition(f"\n## {section}")[2].partition("\n## ")[0]
    lines = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    found = [words for line in lines if (words := shlex.split(line, comments=True))]
    if not found:
        raise ValueError(f"the README has no commands below {section!r}")
    return found


def instead(words: list[str], **names: str) -> list[str]:
    """The command with other names: `burst` as a whole word of a path or by itself, `stacks/burst.yaml` as a file."""
    return [_renamed(word, names) for word in words]


def _renamed(word: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        word = re.sub(rf"(?<![\w-]){re.escape(old)}(?![\w-])", new, word)
    return word
