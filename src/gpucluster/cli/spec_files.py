"""Find the spec file of a word on the command line: a path, or the name of a stack. Light: `check` starts with it."""

import os
from pathlib import Path

from gpucluster.errors import GpuclusterError
from gpucluster.text import printable


def is_path(word: str) -> bool:
    """Return whether a word may name a file. Another one with `:` is a revision of git, also if there is such a file."""
    return ":" not in word or word.startswith(("./", "/"))


def find_spec(word: str) -> Path:
    """Return the file of that name, or the stack of that name. The file may not exist. GpuclusterError if both do."""
    if not is_path(word):
        raise _no_path(word)
    stack = _stack(word)
    if stack is None:
        return Path(word)
    is_file, is_stack = os.path.isfile(word), os.path.isfile(stack)  # noqa: PTH113  a Path raises where the name is too long
    if is_file and is_stack:
        raise GpuclusterError(
            f"{word} is a file, and a stack in {stack}", next_step=f"write ./{word} or {stack}"
        )
    return stack if is_stack else Path(word)


def require_spec(word: str) -> Path:
    """Return an existing spec file. GpuclusterError names the places that were searched."""
    file, stack = find_spec(word), _stack(word)
    if stack is None or os.path.exists(file):  # noqa: PTH110  the same
        return file
    known = ", ".join(sorted(path.stem for path in stack.parent.glob("*.yaml")))
    raise GpuclusterError(
        f"{word}: no such file, and no such cluster: there is no {stack} in {Path.cwd()}",
        next_step=f"name a file, or one of {known}"
        if known
        else "name the file of a spec, or write a first one: gpucluster init",
    )


def _no_path(word: str) -> GpuclusterError:
    """Return what is wrong with a word that is written as REVISION:PATH. Git is not asked whether there is such a revision."""
    shown = printable(word, 300)
    written = "is written as a revision of git, expected"
    if os.path.lexists(word):
        return GpuclusterError(f"{shown} is a file, and {written} one meaning", next_step=f"write ./{shown}")
    return GpuclusterError(
        f"{shown} {written} a file", next_step="check that commit out, and name the file without it"
    )


def _stack(word: str) -> Path | None:
    """Return the path of the stack of that name, or None if the word is a path."""
    return None if "/" in word or word.endswith((".yaml", ".yml")) else Path("stacks") / f"{word}.yaml"
