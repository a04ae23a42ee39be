"""The lines in which a rehearsal differs (`plan.slurm.lines`): replaced in place, added at the end, or removed."""

from collections.abc import Iterable

from gpucluster.plan.model import SlurmLine


def apply(text: str, lines: Iterable[SlurmLine]) -> str:
    """`text` with each line's key set or gone. Keys are Slurm's: case does not count."""
    for line in lines:
        text = _one(text, line)
    return text


def _one(text: str, line: SlurmLine) -> str:
    kept: list[str] = []
    written = line.value is None
    for old in text.splitlines():
        if old.partition("=")[0].strip().lower() != line.key.lower():
            kept.append(old)
        elif not written:
            kept.append(f"{line.key}={line.value}")
            written = True
    if not written:
        kept.append(f"{line.key}={line.value}")
    return "\n".join(kept) + "\n"
