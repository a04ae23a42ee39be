"""The shell commands of a page of docs/, and what our own command line makes of their words."""

import re
import shlex
from typing import Any

import typer

from gpucluster.cli import main as program


def commands_of(text: str) -> list[list[str]]:
    """Return the words of each line of the page's `sh` blocks, without comments."""
    return [
        words
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
        if (words := shlex.split(line, comments=True))
    ]


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that the words name, and what follows it."""
    rest = words[1:]
    found: Any = typer.main.get_command(program.app_of(rest))
    while hasattr(found, "commands") and rest and rest[0] in found.commands:
        found, rest = found.commands[rest[0]], rest[1:]
    return found, rest


def require_parsable(words: list[str]) -> None:
    """Raise unless the verb and the options exist and take what is given."""
    command, rest = command_of(words)
    assert not hasattr(command, "commands"), f"{words} names no command"
    command.make_context(" ".join(words[:3]), list(rest), resilient_parsing=False)
