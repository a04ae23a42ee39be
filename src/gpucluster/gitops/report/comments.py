"""The first line of a comment, by which a bot finds it, and what replaces one that is no longer true. `comment` reads no diff."""

from gpucluster.markdown import code


def marker(name: str) -> str:
    """Return the hidden line that identifies the comment of one cluster."""
    return f"<!-- gpucluster:diff:{name} -->"


def withdrawn(name: str) -> str:
    """Return what replaces the comment of a stack that a change no longer touches."""
    said = (
        f"This change no longer touches the stack {code(name)}. What stood here is about an earlier commit."
    )
    return "\n\n".join((marker(name), f"## {name}: no change", said))
