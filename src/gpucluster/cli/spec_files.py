"""Find the spec file of a word on the command line: a path, or the name of a stack. Light: `check` starts with it."""

import os
from pathlib import Path

from gpucluster.errors import GpuclusterError


def find_spec(word: str) -> Path:
    """Return the file of that name, or the stack of that name. The file may not exist."""
    stack = _stack(word)
    if stack is None or os.path.isfile(word):  # noqa: PTH113  a Path raises where the name is too long
        return Path(word)
    return stack if os.path.isfile(stack) else Path(word)  # noqa: PTH113  the same


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
        else "name a spec, for example stacks/burst.yaml",
    )


def _stack(word: str) -> Path | None:
    """Return the path of the stack of that name, or None if the word is a path."""
    return None if "/" in word or word.endswith((".yaml", ".yml")) else Path("stacks") / f"{word}.yaml"
